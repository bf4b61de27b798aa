//! hwloc in a child process. It asserts on what the system or a user gives it, and a failed assertion is to end
//! nothing but that child.

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// CPU time after which the child is killed. Chosen: the largest synthetic machines that are let through take some
/// seconds, and ten times that on an emulated processor.
const MOST_CPU_S: u64 = 60;

/// Why a child gave no answer.
#[derive(Debug, Error)]
pub enum Unanswered {
    /// No child could be made.
    #[error("it runs in a process of its own, which cannot be made: {0}")]
    NotStarted(io::Error),
    /// A signal ended it, as `SIGABRT` does after a failed assertion.
    #[error("it was ended by {}", signal_name(*.0))]
    Killed(i32),
    /// It ended by itself.
    #[error("it ended without an answer")]
    Silent,
}

/// A signal's name as kill(1) lists it, where it is one that a failing program gets.
fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGABRT => "SIGABRT".into(),
        libc::SIGSEGV => "SIGSEGV".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGXCPU => format!("SIGXCPU after {MOST_CPU_S} s of CPU time"),
        libc::SIGKILL => "SIGKILL".into(),
        other => format!("signal {other}"),
    }
}

/// The answer of `work`, which runs in a child process.
///
/// # Errors
/// [`Unanswered`] if the child ends before it has answered.
pub(super) fn answer<T: Serialize + DeserializeOwned>(
    work: impl FnOnce() -> T,
) -> Result<T, Unanswered> {
    let (mut reader, writer) = io::pipe().map_err(Unanswered::NotStarted)?;
    let Some(child) = fork().map_err(Unanswered::NotStarted)? else {
        in_child(work, &reader, writer);
    };
    drop(writer);
    let mut text = Vec::new();
    let is_read = reader.read_to_end(&mut text).is_ok();
    let signal = ending_signal(child);
    let answer = serde_json::from_slice(&text).ok().filter(|_| is_read);
    answer.ok_or_else(|| signal.map_or(Unanswered::Silent, Unanswered::Killed))
}

/// Makes a copy of this process: its number, or `None` in the copy.
#[allow(unsafe_code)] // the system call
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the child calls hwloc and serde_json and ends. The allocator's locks are free in it, as glibc sees to,
    // and no other thread holds a lock of hwloc's, which is called in such children alone.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

fn in_child<T: Serialize>(
    work: impl FnOnce() -> T,
    unwritable: &PipeReader,
    mut answers: PipeWriter,
) -> ! {
    let _ = confine(unwritable);
    if let Ok(answer) = catch_unwind(AssertUnwindSafe(work))
        && let Ok(text) = serde_json::to_vec(&answer)
    {
        // A parent that has ended reads no answer.
        let _ = answers.write_all(&text);
    }
    end()
}

/// Bounds the child: it outlives no parent, leaves no core file, writes nothing to standard error, and takes no more
/// CPU time than [`MOST_CPU_S`].
fn confine(unwritable: &PipeReader) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let most = getrlimit(Resource::Cpu).maximum.map_or(MOST_CPU_S, |most| most.min(MOST_CPU_S));
    setrlimit(Resource::Cpu, Rlimit { current: Some(most), maximum: Some(most) })?;
    rustix::stdio::dup2_stderr(unwritable)?;
    Ok(())
}

#[allow(unsafe_code)] // the system call
fn end() -> ! {
    // SAFETY: takes a number, and runs nothing that was registered for the end of the parent.
    unsafe { libc::_exit(0) }
}

/// Waits for a child: the signal that ended it, if one did.
fn ending_signal(child: Pid) -> Option<i32> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            // Where SIGCHLD is ignored the kernel has reaped it.
            Err(_) | Ok(None) => return None,
            Ok(Some((_, status))) => return status.terminating_signal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_returned() {
        let long = answer(|| vec![7_u32; 100_000]).unwrap();
        assert_eq!(long, vec![7; 100_000]);
    }

    #[test]
    fn a_child_that_fails_ends_alone() {
        let aborted = answer(|| -> u32 { std::process::abort() }).unwrap_err();
        assert_eq!(aborted.to_string(), "it was ended by SIGABRT");
        let panicked = answer(|| -> u32 { panic!("in the child") }).unwrap_err();
        assert_eq!(panicked.to_string(), "it ended without an answer");
    }
}
