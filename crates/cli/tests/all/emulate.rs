//! Exact counts under the real QEMU, of programs whose counts are known.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use colocate_model::mix::Class;
use colocate_model::phase::PhaseFile;
use colocate_model::profile::{Profile, ThreadProfile};
use colocate_observe::emulate::{
    EmulateError, EmulatedCommand, EmulatedRun, Emulator, Loss, ProfileRefusal, Trace, parse,
    profile,
};
use colocate_testing::emulator::emulator;
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{END_LIMIT, EndsInTime, TimeLimit, need};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process;
use tempfile::TempDir;

/// A folder with programs made from tests/emulate.
struct Bench {
    emulator: Emulator,
    folder: TempDir,
    /// Whether misses are counted, too.
    misses: bool,
}

impl Bench {
    fn new() -> Result<Self, Missing> {
        let emulator = emulator(env!("CARGO_BIN_EXE_colocate"))?;
        Ok(Self { emulator, folder: TempDir::new().unwrap(), misses: false })
    }

    /// Compiles `source` with `options`; the program's path.
    fn build(&self, source: &str, options: &[&str]) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulate").join(source);
        let to = self.folder.path().join(from.file_stem().unwrap());
        let built = process::Command::new("cc").args(options).arg("-o").arg(&to).arg(from).status();
        assert!(built.unwrap().success(), "cc cannot build {source}");
        to
    }

    fn run(&self, path: &Path, args: &[&str]) -> Result<EmulatedRun, EmulateError> {
        let words = std::iter::once(path.as_os_str()).chain(args.iter().map(AsRef::as_ref));
        let argv: Vec<OsString> = words.map(OsString::from).collect();
        let scratch = self.folder.path();
        let (argv, misses) = (&argv[..], self.misses);
        let plain = EmulatedCommand {
            path,
            argv,
            scratch,
            ignores_pipe: false,
            stretches: false,
            misses,
            phases: None,
            trace: None,
        };
        profile(&self.emulator, plain)
    }

    /// The profile of a program that ends with `status`.
    fn profile(&self, path: &Path, args: &[&str], status: i32) -> Profile {
        let ran = self.run(path, args).unwrap();
        assert_eq!(ran.status.code(), Some(status), "{:?}", ran.profile);
        ran.profile.unwrap()
    }

    /// Builds the program that does what tasks can do, and runs it.
    fn tasks(&self, args: &[&str], status: i32) -> Profile {
        self.profile(&self.build_tasks(), args, status)
    }

    fn build_tasks(&self) -> PathBuf {
        self.build("tasks.c", &["-O1", "-pthread"])
    }
}

/// How many instructions of `class` the thread ran. The profile's shares are exact enough to tell.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn count(thread: &ThreadProfile, class: Class) -> u64 {
    let all = thread.instructions.unwrap() as f64;
    (thread.mix.get(class).unwrap().get() * all).round() as u64
}

fn floats(thread: &ThreadProfile) -> u64 {
    count(thread, Class::Float)
}

/// Instructions, then branch, float, int, load and store.
fn all_counts(thread: &ThreadProfile) -> [u64; 6] {
    let [branch, float, int, load, store] = Class::ALL.map(|class| count(thread, class));
    [thread.instructions.unwrap(), branch, float, int, load, store]
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_loop_is_counted_to_the_instruction() {
    let bench = need!(Bench::new());
    let program = bench.build("loops.s", &["-nostdlib", "-static"]);
    let profile = bench.profile(&program, &[], 0);
    let [thread] = &profile.threads[..] else { panic!("{profile:?}") };
    // 4 + 8 * 1,000: branch jnz; float addsd; int imul, add, lea, dec and the last xor; load mov
    // and add; store mov and add.
    assert_eq!(all_counts(thread), [8004, 1000, 1000, 4001, 2000, 2000]);
    assert_eq!((thread.order, thread.process, &thread.name[..]), (0, 0, "loops"));
    assert!(thread.end_ns.unwrap() >= thread.start_ns);
    assert_eq!((thread.cpu_time_ns, thread.cycles, thread.samples), (None, None, None));
    assert!(profile.complete);
    assert_eq!(profile.program.identity.split(':').next(), Some("build-id"), "{profile:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_repeated_string_instruction_counts_once() {
    let bench = need!(Bench::new());
    let program = bench.build("repeat.s", &["-nostdlib", "-static"]);
    let profile = bench.profile(&program, &[], 0);
    // Ten times: rep stosb, dec, jnz; three times: imul, jmp, rep lodsb, dec, jnz; sub and xor.
    assert_eq!(all_counts(&profile.threads[0]), [6 + 10 * 7 + 3 * 6, 10 + 6, 0, 2 + 10 + 6, 3, 10]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_made_at_run_time_is_counted() {
    let bench = need!(Bench::new());
    let program = bench.build("jit.c", &["-O1"]);
    let startup = floats_of_startup(&bench);
    let profile = bench.profile(&program, &[], 0);
    assert_eq!(floats(&profile.threads[0]) - startup, 200 * 50);
}

/// Float instructions that the C library runs in the first thread before and after `main`.
fn floats_of_startup(bench: &Bench) -> u64 {
    floats(&bench.tasks(&["one-by-one", "0"], 0).threads[0])
}

#[test]
fn each_thread_has_its_own_counts() {
    let bench = need!(Bench::new());
    let startup = floats_of_startup(&bench);
    let profile = bench.tasks(&["threads", "8"], 0);
    let found: Vec<(u32, &str, u64)> =
        profile.threads.iter().map(|t| (t.order, &t.name[..], floats(t))).collect();
    let main = (0, "tasks", startup + 7);
    let names: Vec<String> = (1..=8).map(|n| format!("adds-{}", n * 100)).collect();
    let workers = (1..).zip(&names).map(|(n, name)| (n, &name[..], 100 * u64::from(n)));
    assert_eq!(found, std::iter::once(main).chain(workers).collect::<Vec<_>>());
}

#[test]
fn ten_thousand_short_threads_are_all_there() {
    let bench = need!(Bench::new());
    let profile = bench.tasks(&["one-by-one", "10000"], 0);
    assert_eq!(profile.threads.len(), 10_001);
    assert!(profile.threads[1..].iter().all(|t| floats(t) == 3 && t.name == "adds-3"));
    let births: Vec<_> = profile.threads.iter().map(|t| t.start_ns).collect();
    assert!(births.is_sorted());
}

#[test]
fn threads_that_live_at_the_end_are_counted() {
    let bench = need!(Bench::new());
    let profile = bench.tasks(&["exit-group", "5"], 4);
    assert_eq!(profile.threads.len(), 6);
    assert!(profile.threads[1..].iter().all(|t| floats(t) == 11), "{:?}", profile.threads);
}

#[test]
fn the_first_thread_may_end_first() {
    let bench = need!(Bench::new());
    let profile = bench.tasks(&["main-goes-first"], 0);
    assert_eq!(profile.threads.len(), 2);
    assert_eq!(floats(&profile.threads[1]), 500);
}

#[test]
fn a_forked_child_counts_for_itself() {
    let bench = need!(Bench::new());
    let startup = floats_of_startup(&bench);
    let profile = bench.tasks(&["fork", "4"], 6);
    let of = |process| profile.threads.iter().filter(move |t| t.process == process).map(floats);
    assert_eq!(of(0).collect::<Vec<_>>(), [startup + 5, 11, 11, 11, 11]);
    assert_eq!(of(1).collect::<Vec<_>>(), [20, 30, 30, 30, 30, 30, 30]);
    assert_eq!(profile.threads.len(), 12);
}

/// Each of many processes ends as soon as it has joined its thread.
#[test]
fn a_thread_that_ends_beside_its_process_is_counted() {
    let bench = need!(Bench::new());
    let profile = bench.tasks(&["join-and-exit", "200"], 0);
    let of = |process| profile.threads.iter().filter(move |t| t.process == process).map(floats);
    for process in 1..=200 {
        assert_eq!(of(process).collect::<Vec<_>>(), [0, 3], "process {process}");
    }
}

#[test]
fn a_program_that_executes_another_is_refused() {
    let bench = need!(Bench::new());
    let ran = bench.run(&bench.build_tasks(), &["execute"]).unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(ran.profile.unwrap_err(), ProfileRefusal::Executes("/bin/true".into()));

    let ran = bench.run(Path::new("/bin/sh"), &["-c", "/bin/true; exit 5"]).unwrap();
    assert_eq!(ran.status.code(), Some(5));
    let line = ran.profile.unwrap_err().to_string();
    assert!(line.starts_with("the program executed /bin/true, which runs outside QEMU"), "{line}");
}

#[test]
fn a_failed_execution_is_no_execution() {
    let bench = need!(Bench::new());
    let startup = floats_of_startup(&bench);
    let profile = bench.tasks(&["execute-nothing"], 0);
    assert_eq!(floats(&profile.threads[0]) - startup, 9);
}

#[test]
fn a_program_that_a_signal_ends_is_counted() {
    let bench = need!(Bench::new());
    let startup = floats_of_startup(&bench);
    for signal in [libc::SIGTERM, libc::SIGPIPE, libc::SIGABRT, libc::SIGSEGV] {
        let ran = bench.run(&bench.build_tasks(), &["raise", &signal.to_string()]).unwrap();
        assert_eq!(ran.status.signal(), Some(signal));
        assert_eq!(floats(&ran.profile.unwrap().threads[0]) - startup, 13);
    }
}

#[test]
fn a_killed_program_is_refused() {
    let bench = need!(Bench::new());
    let ran = bench.run(&bench.build_tasks(), &["raise", "9"]).unwrap();
    assert_eq!(ran.status.signal(), Some(libc::SIGKILL));
    assert!(matches!(ran.profile, Err(ProfileRefusal::Lost(_, Loss::Killed))));
}

#[test]
fn a_program_that_leaves_a_process_behind_is_refused() {
    let bench = need!(Bench::new());
    let ran = bench.run(&bench.build_tasks(), &["left-behind", "30"]).unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert!(matches!(ran.profile, Err(ProfileRefusal::Lost(_, Loss::StillRunning))));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_instruction_that_qemu_lacks_is_named() {
    let bench = need!(Bench::new());
    let ran = bench.run(&bench.build_tasks(), &["avx512"]).unwrap();
    assert_eq!(ran.status.signal(), Some(libc::SIGILL));
    let line = ran.profile.unwrap_err().to_string();
    assert!(line.starts_with("the program ran vaddpd (62f1f54858d0) at 0x"), "{line}");
}

#[test]
fn descriptors_belong_to_the_program() {
    let bench = need!(Bench::new());
    let startup = floats_of_startup(&bench);
    let profile = bench.tasks(&["close-all"], 0);
    assert_eq!(floats(&profile.threads[0]) - startup, 17);
}

#[test]
fn an_ignored_pipe_signal_stays_ignored() {
    let _bench = need!(Bench::new());
    for (before, ignored) in [("", false), ("trap '' PIPE; ", true)] {
        let program = "grep SigIgn /proc/self/status";
        let script =
            format!("{before}exec $0 profile --backend emulate -q -o /dev/null -- {program}");
        let mut command = process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_colocate")]);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let set = said.strip_prefix("SigIgn:").map(str::trim).expect("one line");
        let set = u64::from_str_radix(set, 16).unwrap();
        assert_eq!(set >> (libc::SIGPIPE - 1) & 1 == 1, ignored, "{said}");
    }
}

#[test]
fn a_program_may_leave_its_working_folder() {
    let bench = need!(Bench::new());
    let mut command = command_line(&bench);
    command.current_dir(bench.folder.path()).env("TMPDIR", ".");
    assert!(command.args(["/bin/sh", "-c", "cd /"]).status().unwrap().success());
    assert!(bench.folder.path().join("profile.json").exists());
}

#[test]
fn a_script_runs_under_its_interpreter() {
    let bench = need!(Bench::new());
    let script = bench.folder.path().join("a script");
    crate::run_support::script(&script, "#!/bin/sh -e\nfalse\nexit 3\n");
    // With -e, `false` ends it.
    let profile = bench.profile(&script, &[], 1);
    assert_eq!(profile.threads[0].name, "a script");
    assert_eq!(profile.program.path, script.to_str().unwrap());
}

/// Runs `command` under QEMU with the plugin and the options `more`; the files that it leaves, which
/// go with their folder.
fn left_by(bench: &Bench, more: &[&str], command: &[&str]) -> (TempDir, Vec<PathBuf>) {
    let out = TempDir::new_in(bench.folder.path()).unwrap();
    let hex: String =
        out.path().to_str().unwrap().bytes().map(|byte| format!("{byte:02x}")).collect();
    let plugin = format!("file={},out={hex}", bench.emulator.plugin.display());
    let ran = process::Command::new(&bench.emulator.qemu)
        .args(["-plugin", &plugin])
        .args(more)
        .args(command)
        .env_clear()
        .stdout(process::Stdio::null())
        .status();
    assert!(ran.unwrap().success(), "{command:?}");
    let files = out.path().read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    (out, files)
}

/// What the one process of `command` did; see [`left_by`].
fn trace(bench: &Bench, more: &[&str], command: &[&str]) -> Trace {
    let (_out, files) = left_by(bench, more, command);
    let [file] = &files[..] else { panic!("expected the counts of one process, found {files:?}") };
    parse(&std::fs::read(file).unwrap()).unwrap()
}

/// The parent's word is what tells of a child that was killed before it left anything itself.
#[test]
fn a_child_is_noted_after_a_thread_that_could_not_be_made() {
    let bench = need!(Bench::new());
    let program = bench.build_tasks();
    let command = [program.to_str().unwrap(), "fork-after-failure"];
    let (_out, files) = left_by(&bench, &[], &command);
    let is_note =
        |file: &&PathBuf| file.file_name().unwrap().as_encoded_bytes().starts_with(b"forked.");
    assert_eq!(files.iter().filter(is_note).count(), 1, "{files:?}");
    assert_eq!(files.len(), 3, "{files:?}");
}

/// The same program with every instruction a block of its own, which needs none of the reasoning
/// about blocks, comes to the same counts.
#[test]
fn blocks_add_up_to_their_instructions() {
    let bench = need!(Bench::new());
    let input = bench.folder.path().join("input");
    let lines: String = (0..20_000_u32).map(|n| format!("{}\n", n.wrapping_mul(n))).collect();
    std::fs::write(&input, lines).unwrap();
    let input = input.to_str().unwrap();
    for command in [&["/usr/bin/gzip", "-c", input][..], &["/usr/bin/sort", "-n", input]] {
        let whole = trace(&bench, &[], command);
        let single = trace(&bench, &["-one-insn-per-tb"], command);
        let counts = |trace: &Trace| trace.threads.iter().map(|t| t.counts).collect::<Vec<_>>();
        assert_eq!(counts(&whole), counts(&single), "{command:?}");
        assert!(whole.threads.iter().all(|thread| thread.undecoded == 0));
    }
}

/// Programs that are there, and nothing in them that cannot be decoded.
#[test]
fn real_programs_are_counted_whole() {
    let bench = need!(Bench::new());
    let input = bench.folder.path().join("input");
    std::fs::write(&input, "to be compressed, again and again\n".repeat(20_000)).unwrap();
    let input = input.to_str().unwrap();
    let archive = bench.folder.path().join("archive.7z");
    let archive = archive.to_str().unwrap();
    let seven = ["/usr/bin/7zz", "/usr/lib/7zip/7z", "/usr/lib/p7zip/7za"];
    let commands = seven.map(|seven| vec![seven, "a", "-mmt2", archive, input]);
    let speed = vec!["/usr/bin/openssl", "speed", "-seconds", "1", "-bytes", "64", "sha256"];
    let mut counted = 0;
    for command in commands.into_iter().chain([speed]) {
        if !Path::new(command[0]).exists() {
            continue;
        }
        counted += 1;
        let _ = std::fs::remove_file(archive);
        let trace = trace(&bench, &[], &command);
        for thread in &trace.threads {
            let most = thread.counts.of.iter().max().unwrap();
            assert!(thread.undecoded == 0 && *most > 0, "{command:?}: {thread:?}");
        }
        assert!(trace.threads[0].counts.instructions > 100_000, "{command:?}");
    }
    let why = "7-Zip or OpenSSL is not installed";
    need!(Requirement::Tools.if_there(counted >= 2, why));
}

/// Caches of 96 lines and fewer miss every access, those of 104 and more only the first 100.
#[test]
#[cfg(target_arch = "x86_64")]
fn misses_of_a_loop_over_known_lines() {
    let bench = Bench { misses: true, ..need!(Bench::new()) };
    let program = bench.build("lines.s", &["-nostdlib", "-static"]);
    let ran = bench.run(&program, &[]).unwrap();
    let [Some(counts)] = &ran.misses[..] else { panic!("{:?}", ran.misses) };
    assert_eq!(counts.accesses(), 100_000);
    let at = [1, 96, 104, 1_000_000].map(|lines| counts.at(lines));
    assert!(at.iter().zip([1e5, 1e5, 1e2, 1e2]).all(|(a, b)| (a - b).abs() < 1e-9), "{at:?}");
    assert_eq!(counts.written_back(), None);
    let counted = ran.profile.unwrap();
    assert_eq!(all_counts(&counted.threads[0])[4..], [99_000, 1000]);
}

/// Misses are counted for every thread by itself, and a child begins anew.
#[test]
fn misses_of_threads_and_children() {
    let bench = Bench { misses: true, ..need!(Bench::new()) };
    for args in [["one-by-one", "20"], ["fork", "0"], ["threads", "3"]] {
        let ran = bench.run(&bench.build_tasks(), &args).unwrap();
        let threads = ran.profile.unwrap().threads.len();
        assert_eq!(ran.misses.len(), threads, "{args:?}");
        assert!(ran.misses.iter().all(|counts| counts.as_ref().unwrap().accesses() > 0));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_demand_of_a_program_is_a_file() {
    let bench = need!(Bench::new());
    let program = bench.build("lines.s", &["-nostdlib", "-static"]);
    let file = bench.folder.path().join("demand.json");
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["profile", "-q", "--backend", "emulate", "--phase"]).arg(&file).arg("--");
    assert!(command.arg(&program).status().unwrap().success());
    let read = PhaseFile::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let [phase] = &read.phases[..] else { panic!("{read:?}") };
    // 1 + 1,000 × (2 + 4 × 99 + 3) + 3 instructions, 100,000 accesses.
    let every = 1e5 / 401_004.0;
    let misses = phase.misses.get().unwrap();
    assert_eq!((&phase.name[..], phase.slots.get()), ("lines", None));
    assert!((misses.at(4096.0) - every).abs() < 1e-6, "{misses:?}");
    assert!((misses.at(8192.0) - 100.0 / 401_004.0).abs() < 1e-6, "{misses:?}");
    let refused = process::Command::new(env!("CARGO_BIN_EXE_colocate"))
        .args(["profile", "--backend", "sample", "--phase", "x", "--", "/bin/true"])
        .current_dir(&bench.folder)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(3));
}

/// `colocate profile --backend emulate` with the places that the tests use.
fn command_line(bench: &Bench) -> process::Command {
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["profile", "--backend", "emulate", "-o"]);
    command.arg(bench.folder.path().join("profile.json")).arg("--");
    command
}

#[test]
fn the_programs_own_streams_and_status_pass_through() {
    use std::io::Write;
    let bench = need!(Bench::new());
    let script = "read line; echo \"got $line\"; echo oh >&2; exit 9";
    let mut child = command_line(&bench)
        .args(["/bin/sh", "-c", script])
        .stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped())
        .stderr(process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"this\n").unwrap();
    let ended = child.ended_with_output();
    assert_eq!(ended.status.code(), Some(9));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "got this\n");
    assert!(String::from_utf8_lossy(&ended.stderr).starts_with("oh\n"), "{ended:?}");
    let written = std::fs::read_to_string(bench.folder.path().join("profile.json")).unwrap();
    assert_eq!(Profile::from_json(&written).unwrap().threads.len(), 1);
}

#[test]
fn a_signal_to_colocate_reaches_the_program() {
    use std::io::{BufRead, BufReader};
    let bench = need!(Bench::new());
    let script = "trap 'echo caught; exit 4' TERM; echo ready; while :; do :; done";
    let mut child = command_line(&bench)
        .args(["/bin/sh", "-c", script])
        .stdout(process::Stdio::piped())
        .spawn()
        .unwrap();
    let _limit = TimeLimit::start(END_LIMIT, "the lines ready and caught");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = child.id().to_string();
    assert!(process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.ended().code(), Some(4));
}

#[test]
fn a_refused_count_is_one_line_and_no_file() {
    let bench = need!(Bench::new());
    let ended = command_line(&bench).args(["/bin/sh", "-c", "/bin/true; :"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("the program executed /bin/true, which runs outside QEMU"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!bench.folder.path().join("profile.json").exists());
}
