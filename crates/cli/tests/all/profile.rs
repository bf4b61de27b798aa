//! `colocate profile`, run as users run it.

use colocate_model::{Backend, Class, Profile, ThreadProfile};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{END_LIMIT, EndsInTime, TimeLimit, need, skip, within};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn colocate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.arg("profile").args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    colocate(args).output().expect("colocate starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Profiles a command with the backend `sample`.
fn sampled(args: &[&str]) -> Result<Profile, Missing> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let mut all = vec!["--backend", "sample", "--output", file.to_str().unwrap()];
    all.extend(args);
    let output = output(&all);
    has_watched(&output)?;
    assert!(output.status.success(), "{}", stderr(&output));
    let profile = Profile::from_json(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(profile.backend, Backend::Sample);
    Ok(profile)
}

/// What the status says: perf events are denied, or not.
fn has_watched(output: &Output) -> Result<(), Missing> {
    Requirement::Perf.if_there(output.status.code() != Some(3), stderr(output))
}

/// Compiles `code` as C without optimisation that could remove it.
fn compile(folder: &TempDir, name: &str, code: &str, flags: &[&str]) -> String {
    let source = folder.path().join(format!("{name}.c"));
    std::fs::write(&source, code).unwrap();
    let program = folder.path().join(name);
    let done =
        Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).args(flags).status();
    assert!(done.expect("cc is installed").success());
    program.to_str().unwrap().to_owned()
}

fn share(thread: &ThreadProfile, class: Class) -> f64 {
    100.0 * thread.mix.get(class).unwrap_or_else(|| panic!("{thread:?}")).get()
}

/// Two threads with names, one of which only multiplies doubles, the other only adds integers, until
/// each has used half a second of CPU time.
const TWO_KINDS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
#define EIGHT(x) x x x x x x x x
#ifdef __aarch64__
#define KIND "w"
#define LOOP(work) "1:" EIGHT(work) "subs %1, %1, #1\nb.ne 1b\n"
#define FLOAT "fmul %d0, %d0, %d0\n"
#define INT "add %0, %0, #1\n"
#else
#define KIND "x"
#define LOOP(work) "1:" EIGHT(work) "sub $1, %1\njnz 1b\n"
#define FLOAT "mulsd %0, %0\n"
#define INT "add $1, %0\n"
#endif
static int early(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec == 0 && t.tv_nsec < 500000000;
}
static void *floats(void *unused) {
    pthread_setname_np(pthread_self(), "floats");
    double x = 1;
    while (early()) {
        long i = 1000000;
        __asm__ volatile(LOOP(FLOAT) : "+" KIND (x), "+r"(i));
    }
    return 0;
}
static void *ints(void *unused) {
    pthread_setname_np(pthread_self(), "ints");
    long x = 1;
    while (early()) {
        long i = 1000000;
        __asm__ volatile(LOOP(INT) : "+r"(x), "+r"(i));
    }
    return 0;
}
int main(void) {
    pthread_t a, b;
    pthread_create(&a, 0, floats, 0);
    pthread_create(&b, 0, ints, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return 0;
}
"#;

fn two_kinds(folder: &TempDir, flags: &[&str]) -> String {
    compile(folder, "two-kinds", TWO_KINDS, &[&["-pthread"], flags].concat())
}

/// What the two threads' loops hold: eight of one kind, a subtraction and a branch.
fn check_two_kinds(profile: &Profile) {
    let names: Vec<&str> = profile.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["two-kinds", "floats", "ints"]);
    let [_, floats, ints] = &profile.threads[..] else { panic!("{profile:?}") };
    assert_eq!((floats.order, ints.order), (1, 2));
    for thread in [floats, ints] {
        // Half a second is 125 samples at 250 Hz; even a tenth of that gives the mix of one loop. On
        // an overloaded virtual machine a thread was once seen with 91 samples and 366 ms; we do not
        // know why the event missed the rest.
        let cpu_ms = thread.cpu_time_ns.unwrap().0 / 1_000_000;
        assert!((100..=1_000).contains(&cpu_ms), "{thread:?}");
        assert!(thread.end_ns.unwrap() > thread.start_ns);
        assert!((9.0..=11.0).contains(&share(thread, Class::Branch)), "{thread:?}");
        assert!(share(thread, Class::Load) < 3.0, "{thread:?}");
        assert!(share(thread, Class::Store) < 3.0, "{thread:?}");
    }
    assert!((78.0..=82.0).contains(&share(floats, Class::Float)), "{floats:?}");
    assert!((88.0..=92.0).contains(&share(ints, Class::Int)), "{ints:?}");
    assert!(share(ints, Class::Float) < 1.0, "{ints:?}");
    assert!(profile.complete);
}

#[test]
fn threads_with_names_and_their_own_mix() {
    let folder = tempfile::tempdir().unwrap();
    let profile = need!(sampled(&["--", &two_kinds(&folder, &[])]));
    check_two_kinds(&profile);
}

#[test]
fn a_static_and_stripped_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = two_kinds(&folder, &["-static", "-s"]);
    let profile = need!(sampled(&["--", &program]));
    check_two_kinds(&profile);
}

#[test]
fn forks_and_execs_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let program = two_kinds(&folder, &[]);
    let script = format!("{program} & (exec {program}) & wait; exec true");
    let profile = need!(sampled(&["--", "sh", "-c", &script]));
    let floats = profile.threads.iter().filter(|thread| thread.name == "floats");
    let mut processes: Vec<u32> = floats.map(|thread| thread.process).collect();
    processes.sort_unstable();
    assert_eq!(processes, [1, 2], "{profile:?}");
    assert_eq!(profile.threads[0].name, "true");
    assert!(profile.complete);
}

#[test]
fn ten_thousand_short_threads() {
    let code = r"
        #include <pthread.h>
        static void *nothing(void *p) { return p; }
        int main(void) {
            for (int i = 0; i < 10000; i++) {
                pthread_t t;
                if (pthread_create(&t, 0, nothing, 0)) return 1;
                pthread_join(t, 0);
            }
            return 0;
        }";
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&folder, "many", code, &["-pthread"]);
    let profile = need!(sampled(&["--", &program]));
    let lost = profile.notes.iter().any(|note| note.contains("lost"));
    assert!(lost || profile.threads.len() == 10_001, "{}", profile.threads.len());
}

#[test]
fn a_running_process_with_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        compile(&folder, "spin", "int main(void) { for (;;) __asm__ volatile(\"\"); }", &[]);
    let mut spin = Command::new(program).spawn().unwrap();
    let pid = spin.id().to_string();
    let profile = sampled(&["--for", "0.5", "--pid", &pid]);
    spin.kill().unwrap();
    spin.ended();
    let profile = need!(profile);
    assert_eq!(profile.threads.len(), 1);
    assert!(!profile.complete);
    assert!(profile.program.path.ends_with("/spin"));
}

/// As redis-server is a link to redis-check-rdb: by the name of the link, started here or running already.
#[test]
fn a_program_has_the_name_that_it_was_called_by() {
    let folder = tempfile::tempdir().unwrap();
    let code = "int main(void) { for (volatile int i = 0; i < 1000000000; i++); }";
    compile(&folder, "check-rdb", code, &[]);
    let link = folder.path().join("the-server");
    std::os::unix::fs::symlink("check-rdb", &link).unwrap();
    let mut runs = Command::new(&link).spawn().unwrap();
    let profiles = [
        sampled(&["--for", "0.1", "--pid", &runs.id().to_string()]),
        sampled(&["--for", "0.1", "--", link.to_str().unwrap()]),
    ];
    runs.kill().unwrap();
    runs.ended();
    for profile in profiles {
        let profile = need!(profile);
        assert!(profile.program.path.ends_with("/the-server"), "{}", profile.program.path);
    }
}

/// Of a thread that was there before only what it does while it is watched counts.
#[test]
fn what_was_before_does_not_count() {
    let (works, worked) = std::sync::mpsc::channel();
    let (done, end) = std::sync::mpsc::channel::<()>();
    let work = move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(400) {}
        works.send(()).unwrap();
        let _ = end.recv();
    };
    let thread = std::thread::Builder::new().name("worked-before".into()).spawn(work).unwrap();
    within("a thread works for 0.4 s", || worked.recv()).unwrap();
    let profile = sampled(&["--for", "0.5", "--pid", &std::process::id().to_string()]);
    drop(done);
    thread.join().unwrap();
    let profile = need!(profile);
    let seen = profile.threads.iter().find(|thread| thread.name == "worked-before").unwrap();
    assert!(seen.cpu_time_ns.is_some_and(|time| time.0 < 100_000_000), "{seen:?}");
}

#[test]
fn watching_can_end_before_the_program_does() {
    let script = "echo begun; sleep 1.2; echo done; exit 7";
    let output = output(&["--quiet", "--for", "0.2", "--", "sh", "-c", script]);
    need!(has_watched(&output));
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"begun\ndone\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_programs_streams_and_status_are_its_own() {
    let mut child = colocate(&["--quiet", "--", "sh", "-c", "cat; echo error >&2; exit 42"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.ended_with_output();
    need!(has_watched(&output));
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"in\n"[..], Some(42)));
    assert_eq!(stderr(&output), "error\n");
}

#[test]
fn signals_reach_the_program() {
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = colocate(&["--quiet", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let _limit = TimeLimit::start(END_LIMIT, "the lines ready and caught");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let Some(first) = lines.next() else {
        assert_eq!(child.ended().code(), Some(3));
        skip!(Perf, "nothing can watch here");
    };
    assert_eq!(first.unwrap(), "ready");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.ended().code(), Some(5));
}

/// Fails with `code` and one line that holds `text`.
fn check_refusal(args: &[&str], code: i32, text: &str) {
    let output = output(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(text), "{said}");
    assert_eq!(output.stdout, b"");
}

#[test]
fn refusals_take_one_line() {
    check_refusal(&["--", "no-such-program"], 127, "no-such-program: command not found");
    check_refusal(&["--", "/etc/passwd"], 126, "/etc/passwd: Permission denied");
    check_refusal(&["-p", "999999999"], 125, "found none with the number 999999999");
    check_refusal(
        &["--backend", "emulate", "-p", "1"],
        3,
        "cannot watch a process that runs already",
    );
    check_refusal(&["--backend", "emulate", "--for", "1", "--", "true"], 3, "to its end");
}

#[test]
fn an_output_file_is_tried_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ran");
    let absent = folder.path().join("absent/profile.json");
    let [absent, trace] = [&absent, &trace].map(|path| path.to_str().unwrap());
    check_refusal(&["-o", absent, "--", "touch", trace], 125, "cannot write");
    assert!(!Path::new(trace).exists());
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = colocate(&["-q", "-o", "/dev/full", "--", "true"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    need!(has_watched(&output));
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("instead: cannot write /dev/full"), "{}", stderr(&output));
    let kept = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    Profile::from_json(&std::fs::read_to_string(kept).unwrap()).unwrap();
}

#[test]
fn a_saved_profile_is_shown_and_another_version_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.json");
    let text = r#"{"version":1,"backend":"sample","program":{"path":"/bin/x","args":["-a","\u001b[1m"],
        "identity":"sha256:0"},"processor":null,"started_unix_s":0,"watched_ns":1500000000,
        "complete":true,"threads":[{"order":0,"process":0,"name":"x\u001b[2J","start_ns":0,"end_ns":null,
        "cpu_time_ns":1200000000,"instructions":null,"cycles":null,"samples":300,"mix":{"branch":0.1,
        "float":null,"int":0.5,"load":0.25,"store":0.0}}],"notes":["a note\u0007"]}"#;
    std::fs::write(&file, text).unwrap();
    let shown = output(&["--show", file.to_str().unwrap()]);
    expect_test::expect![[r#"
        /bin/x -a \x1b[1m
        backend sample, watched for 1.50 s, to its end

        thread process name             cpu time       ipc  samples  branch   float     int    load   store
             0       0 x\x1b[2J            1.20 s         -      300  10.0 %       -  50.0 %  25.0 %   0.0 %
        note: a note\x07
    "#]]
    .assert_eq(&String::from_utf8_lossy(&shown.stdout));
    std::fs::write(&file, text.replace("\"int\":0.5", "\"int\":0.75")).unwrap();
    let shown = output(&["--show", file.to_str().unwrap()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("an instruction counts in each of its classes"), "110 %: {shown}");
    std::fs::write(&file, text.replace("\"version\":1", "\"version\":2")).unwrap();
    check_refusal(&["--show", file.to_str().unwrap()], 125, "found version 2; profile again");
}

/// Runs colocate under a filter that denies perf events, as container runtimes do.
#[test]
fn without_perf_the_program_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let denier = format!("{}/tests/programs/noperf.c", env!("CARGO_MANIFEST_DIR"));
    let code = std::fs::read_to_string(denier).unwrap();
    let filter = compile(&folder, "noperf", &code, &[]);
    let trace = folder.path().join("ran");
    let output = Command::new(filter)
        .args([env!("CARGO_BIN_EXE_colocate"), "profile", "--", "touch"])
        .arg(&trace)
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the backend sample does not work"), "{said}");
    assert!(!trace.exists());
}

/// As root this process is another user's to `nobody`; as anybody else, process 1 is root's.
#[test]
fn another_users_process_is_refused() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    let target = if root { std::process::id().to_string() } else { "1".into() };
    let mut command = colocate(&["-p", &target, "--for", "0.1"]);
    if root {
        command.uid(65534).gid(65534);
    }
    let Ok(output) = command.output() else {
        skip!(OtherUser, "nobody may not execute this build's folder");
    };
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("does not work on process {target}: ")), "{said}");
    assert!(said.contains("`colocate doctor` names the remedy"), "{said}");
}
