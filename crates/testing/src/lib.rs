//! For tests. Waits with a limit, each of which names what did not happen; [`mod@skip`] for what a machine may lack.
//!
//! A condition that can be polled fails its own test. A call that blocks cannot be interrupted, so there the whole test
//! program ends.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[cfg(feature = "emulator")]
pub mod emulator;
pub mod help;
pub mod hostile;
pub mod printed;
pub mod skip;

use std::io::Write as _;
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long tests wait for what must happen. Only a failing test waits that long. Chosen: with 20 busy processes on two
/// CPUs the slowest of them took 40 s.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How long tests wait for the end of a program, which may have work to do. Only a failing test waits that long.
pub const END_LIMIT: Duration = Duration::from_secs(600);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Polls until `find` returns a value.
///
/// # Panics
/// With `what` if there is none within [`LIMIT`].
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until `holds`.
///
/// # Panics
/// With `what` if it does not hold within [`LIMIT`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Returns what `blocking` returns; ends the test program with `what` and status 101 if that takes longer than [`LIMIT`].
pub fn within<T>(what: &str, blocking: impl FnOnce() -> T) -> T {
    let _limit = TimeLimit::start(LIMIT, what);
    blocking()
}

/// The end of a child process, within [`END_LIMIT`].
pub trait EndsInTime {
    /// Closes its input and waits for its end.
    ///
    /// # Panics
    /// With its command line if it does not end. It is killed then.
    fn ended(&mut self) -> ExitStatus;

    /// The same, with all that it writes. If that does not end, the test program does.
    fn ended_with_output(self) -> Output;
}

impl EndsInTime for Child {
    fn ended(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        let begin = Instant::now();
        loop {
            if let Some(status) = self.try_wait().expect("a child of ours") {
                return status;
            }
            if begin.elapsed() > END_LIMIT {
                let line = command_line(self);
                let _ = self.kill();
                let _ = self.wait();
                panic!("not within {END_LIMIT:?}: the end of {line}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn ended_with_output(self) -> Output {
        let _limit = TimeLimit::start(END_LIMIT, &format!("the end of {}", command_line(&self)));
        self.wait_with_output().expect("a child of ours")
    }
}

fn command_line(child: &Child) -> String {
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}

/// Ends the test program at its time unless it is dropped before.
pub struct TimeLimit {
    _alive: Sender<()>,
}

impl TimeLimit {
    /// Starts a limit; `what` is printed if it is reached.
    #[must_use]
    pub fn start(limit: Duration, what: &str) -> Self {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("{test}: not within {limit:?}: {what}\n");
        let (alive, dropped) = channel();
        std::thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Not eprint!, whose output the test harness captures.
                let _ = std::io::stderr().write_all(line.as_bytes());
                std::process::exit(101);
            }
        });
        Self { _alive: alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn values_are_passed_through() {
        let mut polls = 0;
        wait_until("three polls", || {
            polls += 1;
            polls == 3
        });
        assert_eq!((wait_for("a value", || Some(7)), within("a value", || 8)), (7, 8));
    }

    #[test]
    fn the_end_of_a_child() {
        let child = |script: &str| {
            let mut command = Command::new("sh");
            let pipe = std::process::Stdio::piped;
            command.args(["-c", script]).stdin(pipe()).stdout(pipe()).spawn().expect("runs")
        };
        assert_eq!(child("read line; exit 3").ended().code(), Some(3));
        assert_eq!(child("read line; echo end").ended_with_output().stdout, b"end\n");
    }

    /// The program that `a_reached_limit_ends_the_program` starts.
    #[test]
    #[ignore = "run by a_reached_limit_ends_the_program"]
    fn blocks() {
        let _limit = TimeLimit::start(Duration::from_millis(50), "the end of a sleep");
        std::thread::sleep(LIMIT);
    }

    #[test]
    fn a_reached_limit_ends_the_program() {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let output =
            command.args(["--exact", "tests::blocks", "--ignored"]).output().expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(101));
        assert!(errors.contains("tests::blocks: not within 50ms: the end of a sleep"), "{errors}");
    }
}
