//! Whole runs of `colocate advise-threads`, on programs that sleep: what they take depends on the number of threads, and
//! hardly on who else uses the PUs.

use crate::run_support::{Scratch, await_that};
use colocate_testing::printed::{conforms, printed, refusal};
use colocate_testing::skip::{Missing, Requirement, installed, part, record, two_pus};
use colocate_testing::{EndsInTime, need};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCHEMA: &str = include_str!("../../../../docs/schemas/threads.json");

fn advise(scratch: &Scratch, options: &[&str], command: &[&str]) -> Command {
    let mut advise = scratch.colocate();
    advise.arg("advise-threads").args(options).arg("--").args(command);
    advise.env_remove("OMP_THREAD_LIMIT").env_remove("LD_PRELOAD");
    // Who waits sleeps: where PUs are few, spinning threads would decide.
    advise.env("OMP_WAIT_POLICY", "passive");
    advise
}

fn pus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// The report on standard output, checked.
fn report(scratch: &Scratch, options: &[&str], command: &[&str]) -> Value {
    let options = [&["--json"], options].concat();
    let found =
        serde_json::from_str(&printed(&advise(scratch, &options, command).output().unwrap()))
            .unwrap();
    conforms(&found, SCHEMA);
    found
}

/// The program of regions for both runtimes, where their compilers are.
fn programs(scratch: &Scratch) -> Vec<PathBuf> {
    openmp_of_both(scratch, "regions")
}

/// The program in tests/programs/NAME.c for the runtime of a compiler.
fn openmp(
    scratch: &Scratch,
    compiler: &str,
    name: &str,
    flags: &[&str],
) -> Result<PathBuf, Missing> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    built(scratch, compiler, &folder.join(name).with_extension("c"), flags)
}

fn built(
    scratch: &Scratch,
    compiler: &str,
    source: &Path,
    flags: &[&str],
) -> Result<PathBuf, Missing> {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = scratch.path(&format!("{name}-{compiler}"));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-fopenmp"]).arg(source);
    let done = command.arg("-o").arg(&program).args(flags).output();
    let is_built = done.as_ref().is_ok_and(|done| done.status.success());
    let what = if compiler == "clang" { Requirement::Clang } else { Requirement::Compiler };
    what.if_there(is_built, format_args!("{compiler} -fopenmp: {done:?}"))?;
    Ok(program)
}

/// A program that is not OpenMP's and takes the number as a parameter: twice as fast with two, and the other way round.
#[test]
fn whole_runs_decide_the_number() {
    need!(two_pus());
    let scratch = Scratch::new();
    let of =
        |script: &str| report(&scratch, &["--max", "2"], &["sh", "-c", script, "sh", "{threads}"]);
    let gains = of("if [ $1 = 1 ]; then sleep 0.4; else sleep 0.2; fi");
    assert_eq!(
        (&gains["advice"]["threads"], &gains["advice"]["limit"]),
        (&2.into(), &"allowed".into())
    );
    let loses = of("if [ $1 = 1 ]; then sleep 0.2; else sleep 0.4; fi");
    assert_eq!(
        (&loses["advice"]["threads"], &loses["advice"]["limit"]),
        (&1.into(), &"grows".into())
    );
    assert_eq!(loses["allowed"]["most"]["threads"], 2);
}

/// The number stands in `OMP_NUM_THREADS`. A run that hangs with one thread is ended, and not waited for again.
#[test]
fn slow_runs_are_ended() {
    need!(two_pus());
    let scratch = Scratch::new();
    let script = "if [ $OMP_NUM_THREADS = 1 ]; then sleep 600; else sleep 0.1; fi";
    let found = report(&scratch, &["--max", "2"], &["sh", "-c", script]);
    let rows = found["advice"]["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["standing"], &rows[0]["runs"]), (&"cut".into(), &0.into()), "{rows:?}");
    assert_eq!((&found["advice"]["threads"], &found["complete"]), (&2.into(), &true.into()));
}

#[test]
fn limits_are_named() {
    let scratch = Scratch::new();
    let mut command = advise(&scratch, &["--limit-s", "20"], &["true"]);
    let text = printed(&command.env("OMP_THREAD_LIMIT", "1").output().unwrap());
    assert!(text.starts_with("true\nat most 1 thread: OMP_THREAD_LIMIT\n"), "{text}");
    assert!(text.contains("1 thread: more are not allowed"), "{text}");
}

#[test]
fn what_cannot_be_decided_is_reported() {
    let scratch = Scratch::new();
    let said = |options: &[&str], command: &[&str], code| {
        refusal(&advise(&scratch, options, command).output().unwrap(), code)
    };
    assert!(said(&[], &["no-such-program-at-all"], 127).contains("not found"));
    assert!(said(&["--limit-s", "1"], &["sleep", "600"], 125).contains("raise --limit-s"));
    assert!(said(&[], &["sh", "-c", "exit 3"], 125).contains("ended with status 3"));
    // The program has run, and its status precedes.
    said(&["--apply", "-o", "/dev/full"], &["sh", "-c", "exit 3"], 3);
    let script = scratch.path("script");
    std::fs::write(&script, "#!/no-such-interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for options in [&[][..], &["--apply"]] {
        assert!(said(options, &[script.to_str().unwrap()], 127).contains("script: No such file"));
    }
}

/// Critical sections are all there is: one thread does as much, on either runtime, and results are what they were.
#[test]
fn one_thread_where_critical_sections_are_all() {
    let scratch = Scratch::new();
    for program in programs(&scratch) {
        // What is learnt from given times the library's own tests say. Here times are real, and on a noisy machine they
        // tell nothing: then it says so and leaves the threads alone, which is looked at in any case.
        if !(0..ATTEMPTS).any(|_| learns_one_thread(&scratch, &program)) {
            let why = format!("not resolved in {ATTEMPTS} runs of {}", program.display());
            record(&Requirement::Idle.missing(why));
        }
    }
}

/// Runs of a program until times tell what there is to learn. Chosen: with other tests beside it two runs of five did not.
const ATTEMPTS: usize = 4;

/// Whether times told that one thread is enough; the rest is as it has to be in any case.
fn learns_one_thread(scratch: &Scratch, program: &Path) -> bool {
    let (file, name) = (scratch.path("learnt"), program.to_str().unwrap());
    let options = ["--apply", "--json", "--max", "2", "-o", file.to_str().unwrap()];
    let text =
        printed(&advise(scratch, &options, &[name, "600", "0", "1000", "no"]).output().unwrap());
    assert!(text.starts_with("2400 "), "{text}");
    let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    conforms(&found, SCHEMA);
    assert_eq!(found["status"], 0);
    let regions = found["regions"].as_array().unwrap();
    assert_eq!(regions.len(), 1, "{name}: {found:#}");
    let region = &regions[0];
    assert!(region["place"].as_str().unwrap().contains("regions"), "{region}");
    if pus() >= 2 && region["learnt"] == "learning" {
        // The times of so few executions scatter too much.
        return false;
    }
    if pus() >= 2 && region["learnt"] == "not-resolved" {
        assert_eq!(region["threads"], 2, "{name}: {region:#}");
        return false;
    }
    assert_eq!(region["threads"], 1, "{name}: {region:#}");
    if pus() >= 2 {
        let learnt = (&region["learnt"], &region["most"]);
        assert_eq!(learnt, (&"fewer".into(), &2.into()), "{name}: {region:#}");
        assert!(region["inside_share"].as_f64().unwrap() > 0.8, "{name}: {region:#}");
    }
    true
}

/// What a loop of workloads/threads/loop.c printed that is executed once, and its region.
struct Loop {
    printed: String,
    region: Value,
    text: String,
}

impl Loop {
    fn new(scratch: &Scratch, program: &Path, words: &[&str]) -> Self {
        let name = program.to_str().unwrap();
        let file = format!("{name}.learnt");
        let options = ["--apply", "--json", "--max", "2", "-o", &file];
        let mut command = advise(scratch, &options, &[&[name], words].concat());
        let printed = printed(&command.env("OMP_SCHEDULE", "dynamic,2").output().unwrap());
        let text = std::fs::read_to_string(file).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        conforms(&found, SCHEMA);
        Self { printed, region: found["regions"][0].clone(), text }
    }

    /// What depends on the program's arguments alone.
    fn results(&self) -> &str {
        self.printed.split(" at once").next().unwrap()
    }

    /// Threads that did something at a time in the last quarter at most.
    fn at_once(&self) -> u32 {
        let words: Vec<&str> = self.printed.split_whitespace().collect();
        words[4].parse().unwrap()
    }
}

/// `loop` for both runtimes, where their compilers are.
fn loops(scratch: &Scratch) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/threads/loop.c");
    let built = ["gcc", "clang"].map(|compiler| built(scratch, compiler, &source, &["-pthread"]));
    built.into_iter().filter_map(|program| part(program)).collect()
}

/// One execution of one loop. Its last quarter has the number of threads that its first iterations taught, whatever gives
/// its threads their iterations, and its results are what they were.
#[test]
fn threads_are_set_inside_of_one_loop() {
    need!(two_pus());
    let scratch = Scratch::new();
    let cases: [(&[&str], u32, &str); 6] = [
        // Nearly all of an iteration is in its critical section.
        (&["sleep", "dynamic", "2000", "0", "500"], 1, "critical-sections"),
        (&["sleep", "static", "2000", "0", "500"], 1, "critical-sections"),
        (&["sleep", "runtime", "2000", "0", "500"], 1, "critical-sections"),
        // One thread uses the device up.
        (&["device", "dynamic", "4000", "500", "0"], 1, "shared-resource"),
        // Two are twice as fast.
        (&["sleep", "dynamic", "2000", "1000", "0"], 2, ""),
        (&["sleep", "static", "2000", "1000", "0"], 2, ""),
    ];
    // They sleep, and so may run beside each other.
    std::thread::scope(|scope| {
        for program in loops(&scratch) {
            let (scratch, cases) = (&scratch, &cases);
            scope.spawn(move || {
                for (words, threads, cause) in cases {
                    learns_the_threads(scratch, &program, words, *threads, cause);
                }
            });
        }
    });
}

fn learns_the_threads(
    scratch: &Scratch,
    program: &Path,
    words: &[&str],
    threads: u32,
    cause: &str,
) {
    let alone = Command::new(program).args(words).env("OMP_NUM_THREADS", "1").output();
    let alone = printed(&alone.unwrap());
    // On a noisy machine times may not tell: then all threads stay.
    let mut runs = (0..ATTEMPTS).map(|_| Loop::new(scratch, program, words));
    let Some(found) = runs.find(|found| found.region["threads"] == threads) else {
        let why = format!("not resolved in {ATTEMPTS} runs of {words:?}");
        return record(&Requirement::Idle.missing(why));
    };
    let Loop { printed, region, .. } = &found;
    assert_eq!(found.results(), alone.split(" at once").next().unwrap(), "{words:?}");
    assert_eq!(found.at_once(), threads, "{words:?}: {printed}{region:#}");
    assert!(printed.contains("of 2,"), "the team stays: {words:?}: {printed}");
    if threads == 1 {
        assert_eq!(region["windows"], true, "{words:?}: {region:#}");
        assert_eq!(region["cause"], cause, "{words:?}: {region:#}");
        assert!(region["settled_ns"].as_u64() < region["total_ns"].as_u64());
    }
}

/// Where a thread that runs waits for one that is held, all go on after a while.
#[test]
fn threads_that_wait_for_each_other_go_on() {
    need!(two_pus());
    let scratch = Scratch::new();
    for program in loops(&scratch) {
        let found = Loop::new(&scratch, &program, &["waits", "dynamic", "2000", "0", "500"]);
        let Loop { printed, region, text, .. } = &found;
        assert_eq!(found.results(), "3998000 1999", "{printed}");
        let seconds = printed.split_whitespace().rev().nth(1).unwrap();
        // A loop that hangs would not end.
        assert!(seconds.parse::<f64>().unwrap() < 60.0, "{printed}");
        // Noise may have left it all threads.
        if region["learnt"] == "stuck" {
            assert_eq!(region["threads"], 2, "{text}");
        }
    }
}

/// Threads that wait for their turn are not held, and hold no others.
#[test]
fn ordered_loops_are_left_alone() {
    let scratch = Scratch::new();
    for program in loops(&scratch) {
        let found = Loop::new(&scratch, &program, &["sleep", "ordered", "2000", "0", "500"]);
        assert_eq!(found.results(), "5997000 1999", "{}", found.printed);
        assert_eq!(found.region["windows"], false, "{}", found.text);
    }
}

/// What one loop of a region teaches does not hold for another one.
#[test]
fn a_second_loop_of_a_region_has_all_threads() {
    let scratch = Scratch::new();
    for program in loops(&scratch) {
        let found = Loop::new(&scratch, &program, &["sleep", "region", "3000", "300", "200"]);
        assert_eq!(found.at_once(), u32::try_from(2.min(pus())).unwrap(), "{}", found.printed);
    }
}

/// The programs of tests/programs/NAME.c for both runtimes, where their compilers are.
fn openmp_of_both(scratch: &Scratch, name: &str) -> Vec<PathBuf> {
    let built = ["gcc", "clang"].map(|compiler| openmp(scratch, compiler, name, &["-pthread"]));
    built.into_iter().filter_map(|program| part(program)).collect()
}

/// LLVM 14 looks up the data of that thread at the end of each section that it reports.
#[test]
fn the_thread_of_the_first_region_may_end() {
    let scratch = Scratch::new();
    for program in openmp_of_both(&scratch, "starter_ends") {
        let name = program.to_str().unwrap();
        for _ in 0..3 {
            let done = advise(&scratch, &["--apply", "-o", "/dev/null"], &[name]).output().unwrap();
            assert_eq!(done.status.code(), Some(9), "{name}: {done:?}");
            assert_eq!(String::from_utf8_lossy(&done.stdout), "4\n", "{name}");
        }
    }
}

#[test]
fn a_section_holds_on_while_it_waits() {
    need!(two_pus());
    let scratch = Scratch::new();
    for program in openmp_of_both(&scratch, "awaits_inside") {
        let (file, name) = (scratch.path("learnt"), program.to_str().unwrap());
        let options = ["--apply", "--json", "--max", "2", "-o", file.to_str().unwrap()];
        printed(&advise(&scratch, &options, &[name]).output().unwrap());
        let found: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let region = &found["regions"][0];
        assert!(region["inside_share"].as_f64().unwrap() > 0.9, "{name}: {region:#}");
        assert_eq!(region["model_threads"], 1, "{name}: {region:#}");
    }
}

/// The threads that would let it go on are the parent's. It would be held for half a second.
#[test]
fn a_child_is_not_held() {
    need!(two_pus());
    let scratch = Scratch::new();
    for program in openmp_of_both(&scratch, "forks_inside") {
        let name = program.to_str().unwrap();
        let options = ["--apply", "--max", "2", "-o", "/dev/null"];
        let text = printed(&advise(&scratch, &options, &[name]).output().unwrap());
        assert!(text.trim().parse::<u32>().unwrap() < 400, "{name}: {text} ms");
    }
}

/// Nothing is in critical sections and two threads are twice as fast, so all stay.
#[test]
fn all_threads_where_they_help() {
    need!(two_pus());
    let scratch = Scratch::new();
    for program in programs(&scratch) {
        let file = scratch.path("learnt");
        let options = ["--apply", "--json", "--max", "2", "-o", file.to_str().unwrap()];
        let name = program.to_str().unwrap();
        let text = printed(
            &advise(&scratch, &options, &[name, "120", "5000", "0", "no"]).output().unwrap(),
        );
        assert_eq!(text, "480 2\n", "{name}");
        let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let region = &found["regions"][0];
        assert_eq!(
            (&region["threads"], &region["most"]),
            (&2.into(), &2.into()),
            "{name}: {region:#}"
        );
        assert_ne!(region["learnt"], "fewer", "{name}: {region:#}");
    }
}

/// What the program says itself holds, by a clause and by a call.
#[test]
fn a_program_that_sets_its_number_gets_it() {
    let scratch = Scratch::new();
    for program in programs(&scratch) {
        for who in ["clause", "call"] {
            let (file, name) = (scratch.path("learnt"), program.to_str().unwrap());
            let options = ["--apply", "--json", "--max", "2", "-o", file.to_str().unwrap()];
            let text = printed(
                &advise(&scratch, &options, &[name, "300", "0", "500", who]).output().unwrap(),
            );
            assert_eq!(text, "1200 2\n", "{name} {who}");
            let found: Value =
                serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            let region = &found["regions"][0];
            assert_eq!(
                (&region["explicit"], &region["learnt"]),
                (&true.into(), &"learning".into()),
                "{name} {who}: {region:#}"
            );
        }
    }
}

/// What tests/programs/relies.c prints under `--apply`, and its regions.
fn relies(scratch: &Scratch, program: &Path, kind: &str) -> (String, Value) {
    let (file, name) = (scratch.path("learnt"), program.to_str().unwrap());
    let options = ["--apply", "--json", "-o", file.to_str().unwrap()];
    let mut command = advise(scratch, &options, &[name, kind]);
    let text = printed(&command.env("OMP_NUM_THREADS", "2").output().unwrap());
    let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    (text, found["regions"].clone())
}

/// Who shares work out among as many threads as it was told it gets, or as it asked for, in C or in Fortran, does all
/// of it.
#[test]
fn a_program_that_relies_on_a_number_gets_it() {
    let scratch = Scratch::new();
    for (compiler, kinds) in [
        ("gcc", &["max", "max_", "set", "set_", "set_8_"][..]),
        ("clang", &["max", "max_", "set", "set_"]),
    ] {
        let program = openmp(&scratch, compiler, "relies", &["-ldl"]);
        let Some(program) = part(program) else { continue };
        for kind in kinds {
            let (text, regions) = relies(&scratch, &program, kind);
            assert_eq!(text, "800 2\n", "{compiler} {kind}: {regions:#}");
            assert_eq!(regions[0]["explicit"], true, "{compiler} {kind}: {regions:#}");
        }
    }
}

/// A region that was first executed where there was one thread only gets more when there are.
#[test]
fn a_program_that_begins_with_one_thread_gets_more() {
    let scratch = Scratch::new();
    for compiler in ["gcc", "clang"] {
        let program = openmp(&scratch, compiler, "relies", &["-ldl"]);
        let Some(program) = part(program) else { continue };
        let (text, regions) = relies(&scratch, &program, "grows");
        assert_eq!(text, "1600 2\n", "{compiler}: {regions:#}");
        assert_eq!(regions[0]["most"], 2, "{compiler}: {regions:#}");
    }
}

/// A reduction over tasks is what it would be: GNU's runtime reads the address of its numbers from what the body is
/// given.
#[test]
fn reductions_over_tasks_come_out() {
    let scratch = Scratch::new();
    for compiler in ["gcc", "clang"] {
        let program = openmp(&scratch, compiler, "relies", &["-ldl"]);
        let Some(program) = part(program) else { continue };
        assert_eq!(relies(&scratch, &program, "reduction").0, "800 0\n", "{compiler}");
    }
}

/// A program that uses OpenMP where there is one finds our functions and no runtime behind them.
#[test]
fn a_program_without_openmp_runs_as_it_is() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("relies", &[]));
    assert_eq!(relies(&scratch, &program, "none").0, "1\n");
}

/// A constructor of a library that is being loaded may wait for a thread that is the first to call OpenMP: GNU's, since
/// LLVM's takes the loader's lock itself when it begins.
#[test]
fn constructors_may_wait_for_threads() {
    let scratch = Scratch::new();
    let shared = ["-DPLUGIN", "-shared", "-fPIC", "-pthread"];
    let plugin = need!(openmp(&scratch, "gcc", "constructor", &shared));
    let file = scratch.path("constructor.so");
    std::fs::rename(plugin, &file).unwrap();
    let linked = ["-pthread", "-ldl", "-Wl,--no-as-needed"];
    let program = openmp(&scratch, "gcc", "constructor", &linked).unwrap();
    let words = [program.to_str().unwrap(), file.to_str().unwrap()];
    let out = advise(&scratch, &["--apply"], &words).output().unwrap();
    assert!(out.status.success(), "{out:?}");
}

/// Without `--apply` regions are watched in two runs more, and what they do is said.
#[test]
fn regions_say_why() {
    let scratch = Scratch::new();
    for program in programs(&scratch) {
        let name = program.to_str().unwrap();
        let found = report(&scratch, &["--max", "2"], &[name, "60", "0", "1000", "no"]);
        let region = &found["regions"][0];
        assert!(found["advice"]["threads"].as_u64() >= Some(1));
        if pus() >= 2 {
            assert!(region["inside_share"].as_f64().unwrap() > 0.8, "{name}: {found:#}");
        }
    }
}

/// A program without regions runs as it would, and its status is ours.
#[test]
fn other_programs_are_as_they_were() {
    let scratch = Scratch::new();
    let done = advise(&scratch, &["--apply"], &["sh", "-c", "echo out; exit 7"]).output().unwrap();
    assert_eq!((done.status.code(), &*done.stdout), (Some(7), &b"out\n"[..]), "{done:?}");
    assert!(String::from_utf8(done.stderr).unwrap().contains("no parallel region was seen"));
}

/// A program that notes each signal, and ends with 40 and how often SIGINT came once SIGTERM has. It is ready a while
/// after its start: what comes in its first moment, before signals are told apart, is passed on as SIGTERM.
const NOTES: &str = "n=0; trap 'n=$((n+1)); : > int' INT; trap 'exit $((40+n))' TERM; sleep 1; : > ready; \
                     while :; do sleep 0.01; done";

/// Ctrl-C is the program's: it gets the key from the terminal, once, and nothing from us that would end it.
#[test]
fn ctrl_c_is_the_programs_own() {
    need!(installed("script"));
    let scratch = Scratch::new();
    std::fs::write(scratch.path("notes"), NOTES).unwrap();
    let ours = env!("CARGO_BIN_EXE_colocate");
    // `exec`: a shell that waits for us would die of the Ctrl-C itself, and its status be seen.
    let line = format!("echo $$ > us; exec {ours} advise-threads --apply -- sh notes");
    let mut terminal = Command::new("script");
    scratch.homes(&mut terminal);
    terminal.args(["-qec", &line, "/dev/null"]).current_dir(scratch.dir.path());
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let is_there = |name| scratch.path(name).exists().then_some(());
    await_that("the program is ready", || is_there("ready"));
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    keys.flush().unwrap();
    await_that("the key has come", || is_there("int"));
    // We look for signals ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "it was ended by us");
    let us = std::fs::read_to_string(scratch.path("us")).unwrap();
    assert!(Command::new("kill").args(["-TERM", us.trim()]).status().unwrap().success());
    assert_eq!(child.ended().code(), Some(41));
}

/// What is sent to us alone is passed on as it came.
#[test]
fn signals_are_passed_on_as_they_came() {
    let scratch = Scratch::new();
    let mut command = advise(&scratch, &["--apply"], &["sh", "-c", NOTES]);
    command.current_dir(scratch.dir.path()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let is_there = |name| scratch.path(name).exists().then_some(());
    let send = |signal: &str| {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    await_that("the program is ready", || is_there("ready"));
    send("-INT");
    await_that("it has come", || is_there("int"));
    send("-TERM");
    assert_eq!(child.ended().code(), Some(41));
}

/// A region of a report, in an object that is there.
const REGION: &str = "/bin/sh\\t16\\t\\t0\\t2\\t2\\tall\\t0\\t\\t1\\t2\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\t1\\n";

/// What a program puts into the folder of reports is limited in all, and what is left out is said.
#[test]
fn links_to_one_report_count_as_often() {
    let scratch = Scratch::new();
    let script = format!(
        "cd $COLOCATE_OMP_REPORT; {{ printf 'colocate-omp 2\\n'; head -c 9000000 /dev/zero | tr '\\0' a; printf '{REGION}'; }} > 1
        for link in $(seq 2 32); do ln 1 $link; done"
    );
    let (file, options) = (scratch.path("report"), ["--apply", "--json", "-o"]);
    let options = [&options[..], &[file.to_str().unwrap()]].concat();
    printed(&advise(&scratch, &options, &["sh", "-c", &script]).output().unwrap());
    let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    conforms(&found, SCHEMA);
    assert_eq!(found["regions"].as_array().unwrap().len(), 1);
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.starts_with("reports left out: 31; expected"), "{note}");
}

/// `addr2line` may take long for a large program: a signal ends it, and the report has addresses.
#[test]
fn a_signal_ends_the_search_for_lines() {
    let scratch = Scratch::new();
    let (folder, asked) = (scratch.path("bin"), scratch.path("asked"));
    std::fs::create_dir(&folder).unwrap();
    let tool = folder.join("addr2line");
    let script = format!("#!/bin/sh\necho $# >> {}\nexec sleep 600\n", asked.display());
    std::fs::write(&tool, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&tool, mode).unwrap();
    let two = format!("{REGION}{}", REGION.replacen("16", "17", 1));
    let report = format!("printf 'colocate-omp 2\\n{two}' > $COLOCATE_OMP_REPORT/1; exit 3");
    let mut command = advise(&scratch, &["--apply"], &["sh", "-c", &report]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    await_that("addr2line is started", || asked.exists().then_some(()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.ended().code(), Some(3), "the program's status");
    // -e, the object, and both of its regions.
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "4\n");
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(
        said.contains("/bin/sh+0x10") && said.contains("not every region has its line"),
        "{said}"
    );
}
