//! Programs that a command starts and measures from outside: their start, their ends, and the
//! effect of signals that end the command.

use anyhow::Context;
use colocate_linux::sys::{self, Waited};
use colocate_linux::{Pid, SysError};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two polls for a signal. No measurement depends on it.
pub const POLL: Duration = Duration::from_millis(100);

/// Time between SIGTERM and SIGKILL. Chosen: as `docker stop`, since a database may have to write.
pub const GRACE: Duration = Duration::from_secs(10);

/// The end of a child.
pub struct ChildEnd {
    /// Index in the list of children.
    pub child: usize,
    /// Time of the end.
    pub at: Instant,
    /// Exit status and CPU time.
    pub waited: Waited,
}

/// Starts a child with a process group of its own; the child is killed if colocate dies. Terminal
/// signals such as Ctrl-C reach colocate only, and colocate passes them on.
pub fn start(command: &mut Command) -> std::io::Result<Pid> {
    sys::ends_with_us(command);
    command.process_group(0);
    command.spawn().map(|child| Pid(child.id().cast_signed()))
}

/// Starts a child as [`start`], without input, with standard output and error in `output`.
pub fn start_into(command: &mut Command, output: &File) -> std::io::Result<Pid> {
    // Programs that read standard input would wait for the terminal.
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    start(command)
}

/// Receiver of the ends of `children`. A thread for each child waits and takes the time of the end.
pub fn ends(children: &[Pid]) -> Receiver<anyhow::Result<ChildEnd>> {
    let (send, arrivals) = mpsc::channel();
    for (child, &pid) in children.iter().enumerate() {
        let send = send.clone();
        std::thread::spawn(move || {
            let waited = sys::wait(Some(pid), true).context("cannot wait for a program");
            let at = Instant::now();
            let waited = waited.and_then(|waited| waited.context("a program has no end"));
            // The receiver is gone only if colocate is ending.
            let _ = send.send(waited.map(|waited| ChildEnd { child, at, waited }));
        });
    }
    arrivals
}

/// Waits until all `children` have ended; returns their ends in their order, or `None` if a signal
/// stops the wait. The first signal calls `ask` for each running child, the second kills its
/// process group. `check` is called at the start and at every [`POLL`]. Once all children in
/// `until` (if any) have ended, the remaining children are terminated: their status is 0 and their
/// end is this time.
pub fn wait_all(
    children: &[Pid],
    until: &[usize],
    stop: &AtomicBool,
    ask: fn(Pid),
    mut check: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Vec<ChildEnd>>> {
    let arrivals = ends(children);
    let mut ends: Vec<Option<ChildEnd>> = children.iter().map(|_| None).collect();
    let mut asked = false;
    let mut over = None;
    check()?;
    while ends.iter().any(Option::is_none) {
        match arrivals.recv_timeout(POLL) {
            Ok(end) => {
                let mut end = end?;
                let child = end.child;
                if let Some(over) = over {
                    end.at = over;
                    // The status of a terminated child says nothing of its program.
                    end.waited.status = 0;
                }
                ends[child] = Some(end);
            }
            Err(RecvTimeoutError::Timeout) => check()?,
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("cannot wait for a program"),
        }
        let living = || children.iter().zip(&ends).filter(|(_, end)| end.is_none());
        let is_decided = !until.is_empty() && until.iter().all(|child| ends[*child].is_some());
        match over {
            None if is_decided => {
                over = Some(Instant::now());
                living().for_each(|(&pid, _)| terminate_group(pid));
            }
            Some(since) if since.elapsed() >= GRACE => {
                living().for_each(|(&pid, _)| kill_group(pid));
            }
            _ => {}
        }
        // Cleared, so a second signal is noticed.
        if stop.swap(false, Ordering::Relaxed) {
            living().for_each(|(&pid, _)| if asked { kill_group(pid) } else { ask(pid) });
            asked = true;
        }
    }
    // A signal may have come after the last poll.
    let stopped = asked || stop.load(Ordering::Relaxed);
    Ok((!stopped).then(|| ends.into_iter().flatten().collect()))
}

/// Signals that end a command, but for those inherited as ignored, as nohup does with SIGHUP.
pub fn asking_signals() -> Vec<i32> {
    let asking = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    asking.into_iter().filter(|&signal| !sys::is_ignored(signal)).collect()
}

/// Blocks the signals of [`asking_signals`] and returns a descriptor for them.
pub fn take_signals() -> Result<OwnedFd, SysError> {
    let arriving = sys::signalfd(&asking_signals())?;
    sys::block(&asking_signals())?;
    Ok(arriving)
}

/// Kills the process group of `leader`, if it still exists.
pub fn kill_group(leader: Pid) {
    // A negative PID is a process group (kill(2)). A group that is gone is no error.
    let _ = sys::kill(Pid(-leader.0), libc::SIGKILL);
}

/// Sends SIGTERM to the process group of `leader`, if it still exists.
pub fn terminate_group(leader: Pid) {
    let _ = sys::kill(Pid(-leader.0), libc::SIGTERM);
    // A stopped process would not handle SIGTERM.
    let _ = sys::kill(Pid(-leader.0), libc::SIGCONT);
}
