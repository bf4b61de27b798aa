//! Runs hwloc in a child process. hwloc asserts on the data of the system or the user, and a failed
//! assertion must end the child only.

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// CPU time limit of the child, in seconds. Chosen: the largest synthetic machines accepted take
/// some seconds, and ten times as long on an emulated processor.
const MOST_CPU_S: u64 = 60;

/// Name of a signal as in kill(1), for the signals of failing programs.
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

/// Runs `work` in a child process and returns its result.
///
/// # Errors
/// A text, if the child cannot be created or ends before its answer.
pub(super) fn answer<T: Serialize + DeserializeOwned>(
    work: impl FnOnce() -> T,
) -> Result<T, String> {
    let not_made =
        |why: io::Error| format!("it runs in a process of its own, which cannot be made: {why}");
    let (mut reader, writer) = io::pipe().map_err(not_made)?;
    let Some(child) = fork().map_err(not_made)? else {
        in_child(work, &reader, writer);
    };
    // The read ends when the child has closed the last copy of the writer.
    drop(writer);
    let mut text = Vec::new();
    let is_read = reader.read_to_end(&mut text).is_ok();
    // Only after the read: a child whose answer exceeds the pipe waits for a reader.
    let signal = ending_signal(child);
    let answer = serde_json::from_slice(&text).ok().filter(|_| is_read);
    answer.ok_or_else(|| match signal {
        // A signal such as `SIGABRT` after a failed assertion.
        Some(signal) => format!("it was ended by {}", signal_name(signal)),
        None => "it ended without an answer".to_owned(),
    })
}

/// Forks this process: the number of the child, or `None` in the child.
#[allow(unsafe_code)] // the system call
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the child calls hwloc and serde_json and ends. glibc makes the allocator's locks free
    // in the child, and no other thread holds a lock of hwloc, which runs in such children only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Runs `work` in the child and writes the answer.
fn in_child<T: Serialize>(
    work: impl FnOnce() -> T,
    unwritable: &PipeReader,
    mut answers: PipeWriter,
) -> ! {
    // An unconfined child still answers.
    let _ = confine(unwritable);
    // A panic must not unwind into the child's copy of the caller.
    if let Ok(answer) = catch_unwind(AssertUnwindSafe(work))
        && let Ok(text) = serde_json::to_vec(&answer)
    {
        // A parent that has ended reads no answer.
        let _ = answers.write_all(&text);
    }
    end()
}

/// Confines the child: it ends with its parent, leaves no core file, writes nothing to standard
/// error, and is limited to [`MOST_CPU_S`] of CPU time.
fn confine(unwritable: &PipeReader) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A lower inherited limit stays, as no limit can be raised.
    let most = getrlimit(Resource::Cpu).maximum.map_or(MOST_CPU_S, |most| most.min(MOST_CPU_S));
    setrlimit(Resource::Cpu, Rlimit { current: Some(most), maximum: Some(most) })?;
    // The reading end of a pipe: writes to it fail.
    rustix::stdio::dup2_stderr(unwritable)?;
    Ok(())
}

#[allow(unsafe_code)] // the system call
fn end() -> ! {
    // SAFETY: takes a number, and does not run the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Waits for a child and returns the signal that ended it, if any.
fn ending_signal(child: Pid) -> Option<i32> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            // With SIGCHLD ignored, the kernel has already reaped the child.
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
