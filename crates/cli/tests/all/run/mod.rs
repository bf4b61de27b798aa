//! Whole runs of `colocate run`.

mod exits;
mod machine;
mod placing;
mod reports;
mod servers;
mod undo;

use crate::run_support::{Scratch, await_that};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

fn run(scratch: &Scratch, options: &[&str], words: &[&str]) -> Output {
    scratch.run(options).args(words).output().unwrap()
}

fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// A program that prints when it is ready and at every SIGUSR1, and ends well with SIGTERM.
const ANSWERS: [&str; 3] = [
    "sh",
    "-c",
    "trap 'echo again' USR1; trap 'exit 0' TERM; echo first; while :; do sleep 0.01; done",
];

/// Starts colocate with [`ANSWERS`] as one of its programs, and waits until that is ready.
fn answering(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    await_answer(&mut child);
    child
}

fn await_answer(child: &mut Child) {
    let output = child.stdout.as_mut().unwrap();
    colocate_testing::within("an answer of the program", || output.read_exact(&mut [0; 6]))
        .unwrap();
}

/// Returns when colocate has handled all that happened before: it handles thread
/// creations first and passes signals on after that. Twice, as the first signal can find it
/// between the two.
fn catch_up(child: &mut Child) {
    for _ in 0..2 {
        send("-USR1", child.id());
        await_answer(child);
    }
}

/// Waits until a process has ended, reaped or not.
fn await_end_of(pid: i32) {
    await_that("a process ends", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}
