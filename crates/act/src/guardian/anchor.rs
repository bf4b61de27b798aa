//! A process that keeps colocate's process group from being orphaned.
//!
//! # Problem
//! A shell with job control gives colocate a process group of its own, in which the programs are, too. Such a group
//! is orphaned when no process in it has a parent in another group of the session any more: because colocate was killed,
//! or because the shell has ended. If a process in it is stopped at that moment, the kernel sends SIGHUP and SIGCONT to
//! all of it (setpgid(2), and _exit(3p) of POSIX), which ends programs. Where jobs are stopped by signals one
//! nearly always is.
//! # Approach
//! The guardian stays in the session, in a group of its own, and has a child in colocate's group that does nothing:
//! the anchor. As long as both live the group is not orphaned. When all continue, the anchor leaves the
//! group and is ended; for that the kernel does not look for stopped processes, only when one ends.
//!
//! A group that is orphaned already, or is not in the session of its creators, stays so: SIGTSTP and reading from a
//! terminal in the background stop no process there, and none would continue it.

use colocate_linux::Pid;
use colocate_linux::poll::wait_readable;
use colocate_linux::proc::stat::Stat;
use colocate_linux::sys::{self, Fork};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Whether an ancestor keeps the process group of process `pid` from being orphaned: the nearest
/// ancestor in another group, if it is in the same session. `proc` is `/proc`.
pub(super) fn is_held(pid: Pid, proc: &Path) -> bool {
    let group = sys::group_of(pid).ok();
    // A parent in another PID namespace has the number 0.
    let mut creators = std::iter::successors(parent(proc, pid), |pid| parent(proc, *pid))
        .take_while(|pid| pid.0 > 0);
    let holder = creators.find(|pid| sys::group_of(*pid).ok() != group);
    let session = sys::session_of(pid).ok();
    // Two failed readings do not show the same session.
    holder.is_some_and(|pid| session.is_some() && sys::session_of(pid).ok() == session)
}

fn parent(proc: &Path, pid: Pid) -> Option<Pid> {
    Some(Stat::read(proc, pid, pid.first_thread())?.parent)
}

/// Handle of the anchor in the guardian.
pub(super) struct Anchor(Pid);

impl Anchor {
    /// Forks the anchor into the group of this process, which moves to a group of its own in the
    /// same session. The peer of `announce` is for [`read_anchor`]. `None`, without a change, if no
    /// process can be created.
    pub fn make(mut announce: io::PipeWriter) -> Option<Self> {
        // So it need not be reaped, and colocate can end it also while the guardian is stopped.
        sys::ignore(libc::SIGCHLD, true);
        let guardian = Pid(std::process::id().cast_signed());
        match sys::fork().ok()? {
            Fork::Child => hold(guardian, announce),
            Fork::Parent(pid) => {
                let _ = sys::set_group(guardian, guardian);
                let _ = announce.write_all(&pid.0.to_ne_bytes());
                Some(Self(pid))
            }
        }
    }

    /// Ends the anchor without a SIGHUP to any process, even to a stopped process.
    pub fn end(self) {
        let guardian = Pid(std::process::id().cast_signed());
        // If it is gone, its number may be another process's, which the kernel does not let us move.
        if sys::set_group(self.0, guardian).is_ok() {
            let _ = sys::kill(self.0, libc::SIGKILL);
            let _ = sys::wait(Some(self.0), true);
        }
    }
}

/// Main function of the anchor. It holds neither files nor a folder, and ends with the guardian.
fn hold(guardian: Pid, announce: io::PipeWriter) -> ! {
    // Signals to the group, as from Ctrl-C, would end the anchor.
    sys::block_all();
    sys::set_name(c"colocate-anchor");
    if sys::is_killed_with(guardian) {
        sys::close_all_but(&[announce.as_raw_fd()]);
        // The reader waits for the end of the pipe: the group is held from here on.
        drop(announce);
        sys::sleep_for_ever();
    }
    sys::exit_now(0)
}

/// Waits until the anchor holds the group, and returns its pidfd for [`end`]. `None` without an
/// anchor, or before Linux 5.3; in this case it ends with the guardian.
pub(super) fn read_anchor(mut announced: io::PipeReader) -> Option<OwnedFd> {
    let mut number = Vec::new();
    // It ends when neither the guardian nor the anchor holds the other end.
    announced.read_to_end(&mut number).ok()?;
    sys::pidfd(Pid(i32::from_ne_bytes(number.try_into().ok()?))).ok()
}

/// Ends the anchor from colocate, and waits for its end. Works without the guardian, even if
/// stopped.
pub(super) fn end(anchor: &OwnedFd) {
    if sys::kill_by(anchor.as_fd(), libc::SIGKILL).is_ok() {
        // A pidfd becomes readable when its process ends (pidfd_open(2)).
        let _ = wait_readable(&[anchor.as_fd()], None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::within;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// What [`is_held`] says of a process that `command` becomes or creates, and which prints its number.
    fn held(command: &mut Command) -> bool {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut number = String::new();
        let mut out = io::BufReader::new(child.stdout.take().unwrap());
        within("the number of a process", || io::BufRead::read_line(&mut out, &mut number))
            .unwrap();
        let held = is_held(Pid(number.trim().parse().unwrap()), Path::new("/proc"));
        drop(child.stdin.take());
        within("the end of a process without input", || child.wait()).unwrap();
        held
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn which_groups_are_held() {
        let itself = "echo $$; read end";
        let below = format!("sh -c '{itself}'; exit");
        assert!(held(shell(itself).process_group(0)), "a job of ours");
        assert!(held(shell(&below).process_group(0)), "what a job of ours has created");
        let session = |script: &str| {
            let mut command = Command::new("setsid");
            command.args(["-w", "sh", "-c", script]);
            command
        };
        // setsid makes another process only if it leads its group.
        assert!(!held(&mut session(itself)), "a session of its own");
        assert!(!held(&mut session(&below)), "what that has created");
    }
}
