//! Whole runs of `colocate schedule --preload`: which threads wait for others in a loop, by their own word.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that cannot go on has failed

mod run_support;

use colocate_act::told::Told;
use colocate_machine::Nanos;
use colocate_observe::Tid;
use colocate_observe::sys::now;
use run_support::{Scratch, await_that, have, text, two_pus};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The compiler beside the cargo that runs this.
fn rustc() -> PathBuf {
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).unwrap_or_default();
    let beside = cargo.with_file_name("rustc");
    if beside.is_file() { beside } else { "rustc".into() }
}

/// The library, built from its sources to where `colocate` looks for it first.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_colocate")).parent().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-preload");
        let built = Command::new(script).arg(beside).env("RUSTC", rustc()).status();
        assert!(built.unwrap().success());
        beside.join("libcolocate_waits.so")
    })
}

/// `colocate schedule` of one program without a guard, where nobody samples.
fn schedule(scratch: &Scratch, options: &[&str], program: &[&str]) -> Command {
    library();
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--spin-rate", "0"]).args(options);
    if !options.contains(&"--quantum") {
        command.args(["--quantum", "20ms"]);
    }
    if !options.contains(&"--policy") {
        command.args(["--policy", "os"]);
    }
    command.arg("-o").arg(scratch.path("report.json")).arg("--").args(program);
    command.stdin(Stdio::null());
    command
}

/// The phases of one program.
fn phases(scratch: &Scratch, options: &[&str], program: &[&str]) -> Phases {
    let mut command = schedule(scratch, options, program);
    command.envs([("OMP_NUM_THREADS", "2"), ("OMP_WAIT_POLICY", "active")]);
    command.envs([("GOMP_SPINCOUNT", "infinite"), ("KMP_BLOCKTIME", "infinite")]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{program:?}: {}", text(&out.stderr));
    Phases::of(report(scratch))
}

fn report(scratch: &Scratch) -> Value {
    serde_json::from_str(&std::fs::read_to_string(scratch.path("report.json")).unwrap()).unwrap()
}

/// For how long a program was in which phase.
struct Phases {
    serial_ns: u64,
    parallel_ns: u64,
    report: Value,
}

impl Phases {
    /// Of the only job.
    fn of(report: Value) -> Self {
        let of = |phase: &str| report["jobs"][0]["phases"][phase].as_u64().unwrap();
        Self { serial_ns: of("serial_ns"), parallel_ns: of("parallel_ns"), report }
    }

    /// Of its time the percentage that was serial.
    fn serial(&self) -> u64 {
        100 * self.serial_ns / (self.serial_ns + self.parallel_ns).max(1)
    }

    fn among(&self, wanted: std::ops::RangeInclusive<u64>, what: &str) {
        let found = self.serial();
        assert!(wanted.contains(&found), "{what}: {found} % serial: {}", self.report);
    }
}

/// Of a program of one serial phase, and of one that only has parallel ones. What is missing is the begin and the end.
const ALL: std::ops::RangeInclusive<u64> = 75..=100;
const NONE: std::ops::RangeInclusive<u64> = 0..=25;
/// Of one whose serial and parallel phases do the same work. Either may be slowed down by whatever else runs.
const HALF: std::ops::RangeInclusive<u64> = 20..=80;
/// Milliseconds of work: many quanta, and far more than a tick.
const MS: &str = "600";

fn waits(scratch: &Scratch) -> Option<String> {
    Some(scratch.program("waits", &[])?.to_str().unwrap().to_owned())
}

#[test]
fn who_waits_for_a_spin_lock_is_not_runnable() {
    let scratch = Scratch::new();
    let Some(program) = waits(&scratch) else { return };
    phases(&scratch, &[], &[&program, "spin", MS]).among(NONE, "nobody tells");
    for kind in ["spin", "fork", "execute", "adaptive", "mutex"] {
        phases(&scratch, &["--preload"], &[&program, kind, MS]).among(ALL, kind);
    }
}

/// Locks that are free or nearly always free are no waits.
#[test]
fn who_works_and_takes_locks_is_runnable() {
    let scratch = Scratch::new();
    let Some(program) = waits(&scratch) else { return };
    for kind in ["compute", "free"] {
        phases(&scratch, &["--preload"], &[&program, kind, MS]).among(NONE, kind);
    }
}

/// Serial and parallel phases of OpenMP programs whose threads never sleep.
fn teams(program: &Path) {
    let (scratch, program) = (Scratch::new(), program.to_str().unwrap());
    phases(&scratch, &[], &[program, "docks", "100"]).among(NONE, "nobody tells");
    for kind in ["docks", "barrier", "lock", "lock_"] {
        phases(&scratch, &["--preload"], &[program, kind, "100"]).among(HALF, kind);
    }
    // Who does tasks while it waits works.
    phases(&scratch, &["--preload"], &[program, "tasks", "50"]).among(NONE, "tasks");
}

#[test]
fn threads_of_gnu_openmp_tell() {
    let scratch = Scratch::new();
    if let Some(program) = scratch.program("teams", &["-fopenmp"]) {
        teams(&program);
    }
}

#[test]
fn threads_of_llvm_openmp_tell() {
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/teams.c");
    let program = scratch.path("teams");
    let mut clang = Command::new("clang");
    clang.args(["-O1", "-fopenmp"]).arg(source).arg("-o").arg(&program);
    match have("clang").then(|| clang.output().unwrap()) {
        Some(out) if out.status.success() => {
            teams(&program);
            // An empty list names no other tool.
            let words = ["env", "OMP_TOOL_LIBRARIES=", program.to_str().unwrap(), "docks", "100"];
            phases(&scratch, &["--preload"], &words).among(HALF, "an empty list");
        }
        Some(out) => eprintln!("skipped: clang -fopenmp: {}", text(&out.stderr)),
        None => {}
    }
}

/// The speeds of this machine's cores, pretended: the first is fast, the others are slow.
fn one_fast_core(scratch: &Scratch) -> String {
    let mut bench = scratch.colocate();
    bench.args(["bench", "cores", "--json", "--seconds", "0.001", "--repeat", "3"]);
    let out = bench.output().unwrap();
    let mut speeds: Value = serde_json::from_slice(&out.stdout).expect("speeds");
    let speed = |value: f64| json!({ "value": value, "low": value - 0.01, "high": value + 0.01 });
    let mut pus = Vec::new();
    for (place, pu) in speeds["pus"].as_array_mut().unwrap().iter_mut().enumerate() {
        let value = if place == 0 { 1.0 } else { 0.4 };
        (pu["speed"], pu["speed_while_running"]) = (speed(value), json!(value));
        pus.push(pu["pu"].to_string());
    }
    let slow = json!({ "speed": speed(0.4), "pus": pus[1..].join(",") });
    speeds["kinds"] = json!([slow, { "speed": speed(1.0), "pus": &pus[0] }]);
    let path = scratch.path("cores.json");
    std::fs::write(&path, speeds.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Three serial phases, in which the second thread waits for a spin lock: they are seen, and get the fast core. Untold, the
/// program looks parallel.
#[test]
fn serial_phases_get_the_fast_core() {
    let (scratch, two) = (Scratch::new(), two_pus());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/serial/serial.c");
    let program = scratch.path("serial");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread"]).arg(source).arg("-o").arg(&program);
    if !two || !have("cc") || !cc.status().unwrap().success() {
        return;
    }
    let (program, cores) = (program.to_str().unwrap(), one_fast_core(&scratch));
    let words = [program, "--spin-lock", "--phase", "400", "--length", "2400"];
    // Longer than most threads have to wait for a CPU.
    let policy = ["--policy", "parallelism-aware", "--quantum", "100ms", "--core-speeds", &cores];
    phases(&scratch, &policy, &words).among(NONE, "untold");
    let told = phases(&scratch, &[&policy[..], &["--preload"]].concat(), &words);
    told.among(HALF, "told");
    let state = told.report["state"].as_str().unwrap();
    let times =
        state.split("fast cores were given ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(times.is_some_and(|times| times.parse::<u32>().unwrap() >= 3), "{state}");
}

/// tests/programs/plugins.c: the program, a library with GNU's OpenMP, one with an OpenMP of its own and one with none.
fn plugins(scratch: &Scratch) -> [PathBuf; 4] {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/plugins.c");
    let [program, runtime, gnu, other, none] =
        ["plugins", "libruntime.so", "gnu.so", "other.so", "none.so"]
            .map(|name| scratch.path(name));
    let cc = |to: &Path, options: &[&str], files: &[&Path]| {
        let mut cc = Command::new("cc");
        cc.arg("-O1").args(options).args(files).arg("-o").arg(to);
        assert!(cc.status().unwrap().success(), "{cc:?}");
    };
    let object = scratch.path("plugin.o");
    cc(&program, &[], &[&source]);
    cc(&runtime, &["-fPIC", "-shared", "-DRUNTIME"], &[&source]);
    cc(&gnu, &["-fPIC", "-shared", "-DPLUGIN", "-fopenmp"], &[&source]);
    cc(&object, &["-fPIC", "-c", "-DPLUGIN", "-fopenmp"], &[&source]);
    cc(&other, &["-shared"], &[&object, &runtime]);
    cc(&none, &["-shared"], &[&object]);
    [program, gnu, other, none]
}

/// Each call of a library goes to the OpenMP that the library brought, also where two of them have different ones, and beside
/// the library of `advise-threads`.
#[test]
fn libraries_keep_their_own_openmp() {
    let scratch = Scratch::new();
    let [program, gnu, other, _] = plugins(&scratch);
    for [first, second] in [[&gnu, &other], [&other, &gnu]] {
        let words = [&program, first, second].map(|path| path.to_str().unwrap());
        let alone = schedule(&scratch, &["--preload"], &words);
        for mut command in [alone].into_iter().chain(both(&scratch, &words)) {
            let out = command.output().unwrap();
            assert!(out.status.success(), "{command:?}: {}", text(&out.stderr));
            let mut lines: Vec<String> = text(&out.stdout).lines().map(str::to_owned).collect();
            let threads = std::thread::available_parallelism().unwrap().to_string();
            let place = usize::from(first == &gnu);
            assert_eq!([&lines[place], &lines[place + 2]], ["1000", "1000"], "{lines:?}");
            lines.retain(|line| line != "1000");
            assert_eq!(lines, [threads.clone(), threads]);
        }
    }
}

/// A library that brings no OpenMP calls the one that has come into sight of the whole program, also where it came
/// after another library had called its own. That one keeps its own.
#[test]
fn an_openmp_that_comes_into_sight_later_is_found() {
    let scratch = Scratch::new();
    let [program, _, other, none] = plugins(&scratch).map(|path| path.to_str().unwrap().to_owned());
    let words = [&program, &other, "+libgomp.so.1", &none];
    let alone = schedule(&scratch, &["--preload"], &words);
    for mut command in [alone].into_iter().chain(both(&scratch, &words)) {
        let out = command.output().unwrap();
        assert!(out.status.success(), "{command:?}: {}", text(&out.stderr));
        let threads = std::thread::available_parallelism().unwrap();
        let lines = format!("1000\n1000\n{threads}\n1000\n{threads}\n");
        assert_eq!(text(&out.stdout), lines, "{command:?}");
    }
}

/// A program beside the library of `advise-threads`, whichever of the two commands runs the other: reports of both in
/// report.json and learnt.json.
fn both(scratch: &Scratch, program: &[&str]) -> [Command; 2] {
    let (colocate, learnt) = (env!("CARGO_BIN_EXE_colocate"), scratch.path("learnt.json"));
    let advise = ["advise-threads", "--apply", "--json", "-o", learnt.to_str().unwrap(), "--"];
    let inner = [&[colocate][..], &advise, program].concat();
    let outer = schedule(scratch, &["--preload", "-q"], &inner);
    let inside = schedule(scratch, &["--preload", "-q"], program);
    let mut around = scratch.colocate();
    around.args(advise).arg(inside.get_program()).args(inside.get_args()).stdin(Stdio::null());
    [outer, around]
}

/// Beside the library of `advise-threads`, which is OpenMP's tool as well, threads tell when they wait, regions are still
/// known by their places, and the program prints what it did.
#[test]
fn beside_the_library_of_advise_threads() {
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/teams.c");
    for compiler in ["gcc", "clang"] {
        let program = scratch.path(&format!("teams-{compiler}"));
        let mut cc = Command::new(compiler);
        cc.args(["-O1", "-fopenmp"]).arg(&source).arg("-o").arg(&program);
        if !have(compiler) || !cc.output().unwrap().status.success() {
            eprintln!("skipped: no {compiler} -fopenmp");
            continue;
        }
        let words = [program.to_str().unwrap(), "docks", "100"];
        for mut command in both(&scratch, &words) {
            command.envs([("OMP_NUM_THREADS", "2"), ("OMP_WAIT_POLICY", "active")]);
            command.envs([("GOMP_SPINCOUNT", "infinite"), ("KMP_BLOCKTIME", "infinite")]);
            let out = command.output().unwrap();
            assert!(out.status.success(), "{command:?}: {}", text(&out.stderr));
            assert_eq!((text(&out.stdout).as_str(), text(&out.stderr).as_str()), ("2\n", ""));
            Phases::of(report(&scratch)).among(HALF, compiler);
            let learnt = std::fs::read_to_string(scratch.path("learnt.json")).unwrap();
            let learnt: Value = serde_json::from_str(&learnt).unwrap();
            let regions = learnt["regions"].as_array().unwrap();
            let of_program = |region: &&Value| region["place"].as_str().unwrap().contains("teams");
            assert!(!regions.is_empty() && regions.iter().all(|it| of_program(&it)), "{learnt:#}");
        }
    }
}

/// With another C library spin locks are told as well; a static program is left alone, and a note says so.
#[test]
fn another_c_library() {
    if !have("musl-gcc") {
        return;
    }
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/waits.c");
    for (name, options) in [("dynamic", &[][..]), ("static", &["-static"])] {
        let program = scratch.path(name);
        let mut cc = Command::new("musl-gcc");
        cc.arg("-DPTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP=PTHREAD_MUTEX_INITIALIZER");
        cc.arg("-O1").args(options).arg(&source).arg("-o").arg(&program);
        assert!(cc.status().unwrap().success());
        let found = phases(&scratch, &["--preload"], &[program.to_str().unwrap(), "spin", MS]);
        let silent = found.report["notes"].to_string().contains("no program has loaded");
        assert_eq!(silent, name == "static", "{name}: {}", found.report);
        found.among(if silent { NONE } else { ALL }, name);
    }
}

/// A thread that ends gives its slot back, so does one that was killed, once that is heard of; meanwhile it is told that it waits.
#[test]
fn threads_that_have_ended_make_room() {
    let scratch = Scratch::new();
    let Some(program) = waits(&scratch) else { return };
    let told = Told::new().unwrap();
    let begun = now();
    let start = |ms: &str| {
        let mut command = Command::new(&program);
        command.args(["spin", ms]).envs(told.environment(library(), |_| None));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        (child, Tid(line.trim().parse().unwrap()))
    };
    let waited = |tid| told.waited(tid, begun, Told::now());
    let (mut child, tid) = start("1000000");
    await_that("it waits", || waited(tid).filter(|waited| *waited > Nanos::from_millis(20)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waited(tid).is_some(), "killed, it could not give back anything");
    told.ended(tid, now());
    assert_eq!(waited(tid), None);
    let (mut child, tid) = start("300");
    await_that("it waits", || waited(tid));
    assert!(child.wait().unwrap().success());
    assert_eq!(waited(tid), None);
    assert_eq!((told.programs(), told.without_slot()), (2, 0));
}

/// Wherever the memory should be and is not: the same output, status and descriptors, and no word of ours.
#[test]
fn programs_run_as_if_nobody_asked() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &[u8]| {
        let path = scratch.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (short, long) = (file("short", b"colowait"), file("long", &vec![0xff; 1 << 20]));
    let script = "ls /proc/self/fd | wc -l; echo done; exit 3";
    let run = |memory: Option<&str>, preload: bool| {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).env_remove("LD_PRELOAD").stdin(Stdio::null());
        memory.map(|memory| sh.env("COLOCATE_WAITS", memory));
        if preload {
            sh.env("LD_PRELOAD", library());
        }
        let out = sh.output().unwrap();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let plain = run(None, false);
    assert_eq!((plain.0, plain.2.as_str()), (Some(3), ""));
    let files = ["/nowhere", "", "/dev/null", "/dev/zero", "/proc/self/mem", "/", &short, &long];
    for memory in [None].into_iter().chain(files.map(Some)) {
        assert_eq!(run(memory, true), plain, "{memory:?}");
    }
}

/// A program finds `errno` as it would, where the memory is gone and where a child looks for `/proc` in vain.
#[test]
fn errno_is_as_it_was() {
    let scratch = Scratch::new();
    let Some(program) = scratch.program("manners", &["-ldl"]) else { return };
    let said = |kind: &str, memory: &[(OsString, OsString)]| {
        let mut command = Command::new(&program);
        command.arg(kind).env_remove("LD_PRELOAD").envs(memory.iter().cloned());
        text(&command.output().unwrap().stdout)
    };
    let gone = [("LD_PRELOAD", library().as_os_str()), ("COLOCATE_WAITS", "/gone".as_ref())];
    let gone = gone.map(|(name, value)| (name.into(), value.to_owned()));
    assert_eq!(said("errno", &gone), said("errno", &[]));
    let told = Told::new().unwrap();
    let found = said("child", &told.environment(library(), |_| None));
    if found == "no root\n" {
        eprintln!("skipped: not root");
        return;
    }
    assert_eq!((found.as_str(), told.programs()), ("0\n", 1));
}

/// A constructor of a library that is being loaded may wait for a thread that is the first to call what is taken.
#[test]
fn constructors_may_wait_for_threads() {
    let scratch = Scratch::new();
    let Some(program) = scratch.program("manners", &["-ldl"]) else { return };
    let plugin = scratch.path("manners.so");
    std::fs::rename(&program, scratch.path("loads")).unwrap();
    let built = scratch.program("manners", &["-DPLUGIN", "-shared", "-fPIC"]).unwrap();
    std::fs::rename(built, &plugin).unwrap();
    let mut command = Command::new(scratch.path("loads"));
    let out = command.arg("load").arg(&plugin).env("LD_PRELOAD", library()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
}

/// Where a program calls for a region and has no OpenMP, the region is not left out in silence.
#[test]
fn regions_are_not_left_out() {
    let scratch = Scratch::new();
    let Some(program) = scratch.program("manners", &["-ldl"]) else { return };
    let out = Command::new(program).arg("region").env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(out.status.signal(), Some(libc::SIGABRT), "{out:?}");
    assert!(text(&out.stderr).starts_with("colocate: no OpenMP has"), "{out:?}");
}

/// The loader finds it in every program that has a C library: it needs nothing else, and nothing in it panics.
#[test]
fn it_needs_only_the_c_library() {
    if !have("readelf") {
        return;
    }
    let readelf = |option: &str| {
        let out = Command::new("readelf").args(["-W", option]).arg(library()).output().unwrap();
        assert!(out.status.success());
        text(&out.stdout)
    };
    let dynamic = readelf("-d");
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    let of_c =
        |line: &&str| ["libc.", "libdl.", "libpthread."].iter().any(|name| line.contains(name));
    assert!(!needed.is_empty() && needed.iter().all(of_c), "{dynamic}");
    let symbols = readelf("-s");
    assert!(!symbols.contains("panic"), "{symbols}");
    for name in ["pthread_spin_lock", "pthread_mutex_lock", "GOMP_parallel", "ompt_start_tool"] {
        let exported =
            |line: &&str| line.ends_with(&format!(" {name}")) && line.contains(" GLOBAL ");
        assert!(symbols.lines().any(|line| exported(&line)), "{name}: {symbols}");
    }
}

/// What was to be loaded before is still loaded, behind it.
#[test]
fn other_libraries_are_still_loaded() {
    let scratch = Scratch::new();
    let words = ["sh", "-c", "echo $LD_PRELOAD"];
    let mut command = schedule(&scratch, &["--preload"], &words);
    let out = command.env("LD_PRELOAD", "libm.so.6").output().unwrap();
    assert_eq!(text(&out.stdout).trim(), format!("{}:libm.so.6", library().display()));
}
