//! A program whose memory is in a file of a FUSE server that never answers: colocate places it, and ends.

use crate::run_support::{Scratch, allowed, children, exclusive, name, original};
use crate::schedule_support::{signal, stat, wait_until};
use colocate_testing::skip::{Missing, Requirement, root, two_pus};
use colocate_testing::{EndsInTime, need};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A signal ends colocate within this time. Chosen: all deadlines of readings together, on a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// The program, until it is dropped: then its server ends, and all readings with it.
struct Unanswered(Child);

impl Unanswered {
    fn start(scratch: &Scratch, kind: &str) -> Result<Self, Missing> {
        root()?;
        two_pus()?;
        Requirement::X86_64.if_there(cfg!(target_arch = "x86_64"), "not on x86-64")?;
        let program = scratch.program("unanswered", &[])?;
        let folder = scratch.path("served");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(program);
        command.arg(folder).arg(kind).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut program = Self(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let is_mounted = line == "unanswered\n";
        Requirement::Fuse.if_there(is_mounted, "no FUSE file system can be mounted")?;
        Ok(program)
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// The masks of its threads.
    fn masks(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        let tids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        tids.filter_map(|tid: i32| allowed(self.pid(), tid)).collect()
    }

    fn is_placed(&self) -> bool {
        self.masks().iter().filter(|mask| mask.parse::<u32>().is_ok()).count() >= 3
    }

    fn is_free(&self) -> bool {
        self.masks().iter().all(|mask| *mask == original())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        for pid in children(self.0.id()).into_iter().filter(|pid| name(*pid) == "unanswered-fs") {
            signal("-KILL", pid);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(scratch: &Scratch, options: &[&str], program: &Unanswered) -> Child {
    let mut command = scratch.colocate();
    command.args(["attach", "--no-guard", "--policy", "scatter", "-p", &program.pid().to_string()]);
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// Waits for the end after a signal; how long that took.
fn ends_after(colocate: &mut Child, name: &str) -> Duration {
    signal(name, colocate.id().cast_signed());
    let begun = Instant::now();
    colocate.ended();
    begun.elapsed()
}

/// Waits until a helper that reads for colocate sleeps where only its death ends that, or was killed for it.
fn await_stuck_reader(colocate: &Child) {
    wait_until("a reading is not answered", || {
        let is_stuck = |pid: &i32| {
            name(*pid) == "colocate-reader" && stat(*pid).is_some_and(|it| "DZ".contains(it.0))
        };
        children(colocate.id()).iter().any(is_stuck)
    });
}

/// The lock of the program's mappings is held for ever: its arguments, its environment and its mappings cannot be read.
#[test]
fn a_program_whose_mappings_are_locked() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    for name in ["-TERM", "-KILL"] {
        let program = need!(Unanswered::start(&scratch, "lock"));
        let mut colocate = attach(&scratch, &[], &program);
        wait_until("it is placed", || program.is_placed());
        let took = ends_after(&mut colocate, name);
        assert!(took < ENDS_WITHIN, "{name}: {took:?}");
        wait_until("it is restored", || program.is_free() && scratch.journals().is_empty());
    }
}

/// Code that it was sampled at is not there any more when it is read.
#[test]
fn memory_that_never_comes() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    for name in ["-TERM", "-KILL"] {
        let program = need!(Unanswered::start(&scratch, "code"));
        let mut colocate = attach(&scratch, &["--sharing"], &program);
        wait_until("it is placed", || program.is_placed());
        await_stuck_reader(&colocate);
        let took = ends_after(&mut colocate, name);
        assert!(took < ENDS_WITHIN, "{name}: {took:?}");
        wait_until("it is restored", || program.is_free() && scratch.journals().is_empty());
    }
}

/// `top` judges the code that threads are sampled at, and ends as well.
#[test]
fn top_of_memory_that_never_comes() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let program = need!(Unanswered::start(&scratch, "code"));
    let mut command = scratch.colocate();
    command.args(["top", "-p", &program.pid().to_string()]).stdin(Stdio::null());
    let mut top = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_stuck_reader(&top);
    let took = ends_after(&mut top, "-INT");
    assert!(took < ENDS_WITHIN, "{took:?}");
}
