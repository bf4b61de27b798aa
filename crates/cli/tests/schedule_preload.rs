//! Whole runs of `colocate schedule --preload`: which threads wait for others in a loop, by their own word.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that cannot go on has failed

mod run_support;

use run_support::{Scratch, have, text};
use serde_json::Value;
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

/// A schedule of one program without a guard; its phases.
fn phases(scratch: &Scratch, options: &[&str], program: &[&str]) -> Phases {
    library();
    let report = scratch.path("report.json");
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--quantum", "20ms", "--policy", "os"]).args(options);
    command.arg("-o").arg(&report).arg("--").args(program).stdin(Stdio::null());
    command.envs([("OMP_NUM_THREADS", "2"), ("OMP_WAIT_POLICY", "active")]);
    command.envs([("GOMP_SPINCOUNT", "infinite"), ("KMP_BLOCKTIME", "infinite")]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{program:?}: {}", text(&out.stderr));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
    let of = |phase: &str| report["jobs"][0]["phases"][phase].as_u64().unwrap();
    Phases { serial_ns: of("serial_ns"), parallel_ns: of("parallel_ns"), report }
}

/// For how long a program was in which phase.
struct Phases {
    serial_ns: u64,
    parallel_ns: u64,
    report: Value,
}

impl Phases {
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
    for kind in ["docks", "barrier", "lock"] {
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
        Some(out) if out.status.success() => teams(&program),
        Some(out) => eprintln!("skipped: clang -fopenmp: {}", text(&out.stderr)),
        None => {}
    }
}
