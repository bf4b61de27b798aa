//! A small process that undoes everything when colocate dies, by whatever means.
//!
//! It is forked at the start, keeps nothing open but the journal and one end of a pipe whose other
//! end colocate holds, and waits. When colocate is dead, the guardian undoes the journal. It has a
//! session of its own, so keys like Ctrl-C do not reach it, and it holds neither the terminal nor the
//! programs' output open. Where jobs are stopped by signals it has a process group of its own instead, as
//! a process of the session must see to it that none gets SIGHUP (`anchor`).

mod anchor;

use crate::boost;
use crate::journal::{Journal, JournalFile, Writer};
use crate::pause::{How, freezer};
use crate::restore;
use anchor::Anchor;
use colocate_files::kernel;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::poll::{is_readable, wait_readable};
use colocate_linux::sys::{self, Fork};
use colocate_linux::{Pid, SysError, foreign};
use colocate_machine::Nanos;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Number of successive polls that must find colocate about to end before it counts as dead.
/// Chosen: a killed process ends in a moment, unless one of its threads is in uninterruptible
/// sleep, possibly for ever.
const KILLED_POLLS: u32 = 3;

/// Time between two polls for a stopped colocate. Chosen: too short to be noticed, and 15 µs of a
/// PU per poll.
const POLL: Nanos = Nanos::from_secs(1);

/// Upper bound of the size of the kernel's status text of a process, including the maximum number
/// of groups. Chosen.
const LONGEST_STATUS_B: u64 = 1 << 20;

/// Handle of the guardian in colocate. Dropping it makes the guardian act as after colocate's
/// death.
#[derive(Debug)]
pub struct Guardian {
    pid: Pid,
    anchor: Option<OwnedFd>,
    writer: io::PipeWriter,
}

impl Guardian {
    /// Starts the guardian of a journal. Must be called before threads are created, and after
    /// [`crate::signals::Signals::take`]: the blocked signals do not end the guardian either.
    ///
    /// # Errors
    /// If no process, pipe or memory file can be created.
    pub fn start(journal: &Writer) -> Result<Self, SysError> {
        let failed = |call| move |source| SysError { call, source };
        let (reader, writer) = io::pipe().map_err(failed("pipe"))?;
        let memory = journal.memory().ok_or_else(|| SysError {
            call: "memfd_create",
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        let memory = File::from(memory.try_clone_to_owned().map_err(failed("dup"))?);
        let colocate = Pid(std::process::id().cast_signed());
        let pipe = needs_anchor(&memory, colocate).then(io::pipe).transpose();
        let (anchored, announce) = pipe.map_err(failed("pipe"))?.unzip();
        match sys::fork()? {
            Fork::Parent(pid) => {
                // The reader sees the end of the pipe only when no write end of ours is left.
                drop(announce);
                Ok(Self { pid, anchor: anchored.and_then(anchor::read_anchor), writer })
            }
            Fork::Child => {
                // An own copy of the write end would hide colocate's death.
                drop((writer, anchored));
                // Nothing may unwind into the code of the process that this is a copy of.
                let guard = std::panic::AssertUnwindSafe(|| {
                    guard(reader, announce, colocate, &memory, journal.place())
                });
                let _ = std::panic::catch_unwind(guard);
                sys::exit_now(0)
            }
        }
    }

    /// Ends the guardian after a regular end, and waits for its end. It is killed, because a
    /// stopped guardian cannot be recognised; if kill(2) is denied, a byte in the pipe ends it.
    pub fn dismiss(mut self) {
        self.anchor.iter().for_each(anchor::end);
        let is_dismissed = self.writer.write_all(&[0]).is_ok();
        // Otherwise the guardian still runs, and a wait for its end would not return.
        if sys::kill(self.pid, libc::SIGKILL).is_ok() || is_dismissed {
            let _ = sys::wait(Some(self.pid), true);
        }
    }

    /// Makes the guardian undo the journal now, as after colocate's death, and waits for its end.
    pub fn undo(self) {
        let Self { pid, anchor, writer } = self;
        // The closed pipe makes the guardian act.
        drop(writer);
        let _ = sys::wait(Some(pid), true);
        drop(anchor);
    }

    /// Process number.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

/// Whether programs would get SIGHUP at colocate's death while some are stopped.
fn needs_anchor(memory: &File, colocate: Pid) -> bool {
    let by_signals = read(memory).is_some_and(|journal| journal.pauses == Some(How::Signals));
    by_signals && anchor::is_held(colocate, Path::new("/proc"))
}

fn guard(
    reader: io::PipeReader,
    announce: Option<io::PipeWriter>,
    colocate: Pid,
    memory: &File,
    place: Option<&JournalFile>,
) {
    // A folder in use must not be kept from being unmounted.
    let _ = std::env::set_current_dir("/");
    let anchor = announce.and_then(Anchor::make);
    if anchor.is_none() {
        // Keys like Ctrl-C must not reach the guardian; beside an anchor, its own group sees to
        // that.
        sys::leave_session();
    }
    sys::set_name(c"colocate-guard");
    let mut keep = vec![reader.as_raw_fd(), memory.as_raw_fd()];
    keep.extend(place.map(|place| place.dir.as_fd().as_raw_fd()));
    keep.sort_unstable();
    sys::close_all_but(&keep);
    foreign::forget();
    if wait_for_the_end_of(colocate, reader, memory) == GuardianOutcome::Dismissed {
        return;
    }
    boost::run_first();
    if let Some(journal) = read(memory) {
        let undone = restore::undo(&journal, Path::new("/proc"), false);
        // What could not be undone is left for `colocate restore` to speak of.
        if let Some(place) = place.filter(|_| undone.is_complete()) {
            place.remove();
        }
    }
    if let Some(anchor) = anchor {
        anchor.end();
    }
}

/// Outcome of the guardian's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardianOutcome {
    /// Colocate is dead, has been killed, or has closed the pipe.
    Undo,
    /// Nothing is left to undo.
    Dismissed,
}

/// Returns when colocate is dead, has closed the pipe, or has written a byte into it; also when
/// colocate was killed and cannot end.
///
/// The pipe alone is not enough: a program stopped before its exec has a copy of the write end.
/// While colocate itself is stopped, jobs in its frozen cgroups continue; on its continuation it
/// freezes them again.
fn wait_for_the_end_of(
    colocate: Pid,
    mut reader: io::PipeReader,
    memory: &File,
) -> GuardianOutcome {
    let process = ProcessHandle::open(Path::new("/proc"), colocate).ok();
    if let Ok(life) = sys::pidfd(colocate) {
        let ends = || {
            let begun = now();
            let _ = wait_readable(&[reader.as_fd(), life.as_fd()], Some(POLL.into()));
            now() < begun + POLL
        };
        let mut killed_polls = 0;
        while !ends() {
            let status = process.as_ref().and_then(|it| it.read("status", LONGEST_STATUS_B).ok());
            killed_polls =
                if status.is_some_and(|it| is_killed(&it)) { killed_polls + 1 } else { 0 };
            if killed_polls >= KILLED_POLLS {
                return GuardianOutcome::Undo;
            }
            let stat = process.as_ref().and_then(ProcessHandle::stat);
            if stat.is_some_and(|stat| stat.is_stopped())
                && let Some(How::Freezer(folder)) = read(memory).and_then(|it| it.pauses)
            {
                // A failure is tried again at the next poll.
                let _ = freezer::thaw(&folder);
            }
        }
    }
    // A byte in the pipe is a dismissal, even if colocate has died since.
    if sys::parent() != colocate && !is_readable(reader.as_fd()) {
        return GuardianOutcome::Undo;
    }
    // A byte, or the end of the file when colocate has closed the pipe.
    if reader.read(&mut [0]).is_ok_and(|read| read > 0) {
        GuardianOutcome::Dismissed
    } else {
        GuardianOutcome::Undo
    }
}

/// Whether the first thread of a process has been killed, by its `/proc/PID/status`: it has ended,
/// or is to end. The process itself has not ended while another thread cannot end.
fn is_killed(status: &str) -> bool {
    let has_ended = kernel::field(status, "State").is_some_and(|state| state.starts_with('Z'));
    has_ended || is_kill_pending(status, "SigPnd") || is_kill_pending(status, "ShdPnd")
}

/// Whether SIGKILL is in the signal set `name` of a `/proc/PID/status`.
fn is_kill_pending(status: &str, name: &str) -> bool {
    // Signal sets are hexadecimal masks whose bit 0 is signal 1 (proc(5)).
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let set = kernel::field(status, name).and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & KILL != 0)
}

fn read(memory: &File) -> Option<Journal> {
    let length = usize::try_from(memory.metadata().ok()?.len()).ok()?;
    let mut bytes = vec![0; length];
    memory.read_exact_at(&mut bytes, 0).ok()?;
    // A torn line need not be UTF-8; only that line is lost.
    Journal::parse(&String::from_utf8_lossy(&bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs; has SIGKILL pending for its first thread or for all; SIGTERM; its first thread has ended.
    #[test]
    fn what_is_killed_and_has_not_ended() {
        let status = |state: &str, own: u64, all: u64| {
            is_killed(&format!(
                "Name:\tx\nState:\t{state}\nSigPnd:\t{own:016x}\nShdPnd:\t{all:016x}\n"
            ))
        };
        assert!(!status("D (disk sleep)", 0, 0) && !status("D (disk sleep)", 0x4000, 0x4000));
        assert!(status("D (disk sleep)", 0x100, 0) && status("D (disk sleep)", 0, 0x4100));
        assert!(status("Z (zombie)", 0, 0) && !is_killed(""));
    }
}
