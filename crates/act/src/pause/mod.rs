//! The actuator that stops whole jobs and continues them.
//!
//! # Problem
//! With more programs than hardware threads, some must not run for a while, whatever processes they have
//! made, and must run again whatever becomes of us.
//! # Approach
//! Best is a cgroup of its own for each job, which the kernel freezes as a whole: processes that are created
//! meanwhile are frozen, too, and programs do not notice. Without one, each process in the task table gets SIGSTOP, and
//! SIGCONT later; its parent can notice that, and a process that stopped itself continues with the others.
//!
//! The journal's head says how it is done, so the guardian and `colocate restore` can undo it.

pub(crate) mod freeze;
pub(crate) mod freezer;
pub(crate) mod how;
pub(crate) mod stop;

pub use how::{How, JobProcesses};

use crate::actuator::{Actuator, ThreadRef};
use crate::owner::Owner;
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_machine::Nanos;
use freeze::Freeze;
use freezer::Freezer;
use std::path::Path;
use std::sync::Arc;
use stop::Stop;

/// Time within which a job must stop before it counts as running. Chosen: the kernel stops a
/// running thread at the next interrupt, a few milliseconds away; a thread in a driver may take
/// longer.
const STOPS_WITHIN: Nanos = Nanos::from_millis(100);
/// Number of successive polls that must find a job running before a report. Chosen.
const MOST_FAILURES: u8 = 3;

/// Stops and continues jobs.
#[derive(Debug)]
pub struct Pauser {
    freezer: Option<Freezer>,
    jobs: Vec<PauseState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PauseState {
    /// Time at which the job was stopped, on the kernel's clock; `None` if it may run.
    stopped: Option<Nanos>,
    /// Successive polls that found the job running although it was stopped.
    failures: u8,
}

/// Result of polling a stopped job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopState {
    /// Stopped, or possibly about to stop.
    Stopped,
    /// Running; stopped once more.
    Continues,
    /// Running in several successive polls; returned once.
    FailedToStop,
}

impl Pauser {
    /// Pauser by signals, usable everywhere, for `jobs` running jobs.
    pub fn by_signals(jobs: usize) -> Self {
        Self { freezer: None, jobs: vec![PauseState::default(); jobs] }
    }

    /// Pauser by cgroups for `jobs` running jobs, below the cgroup of this process, in a folder
    /// named after `owner`. `proc` is `/proc`. Creates nothing yet, so that [`Pauser::how`] can be
    /// written down before.
    ///
    /// # Errors
    /// If this process has no cgroup of version 2.
    pub fn by_cgroups(jobs: usize, proc: &Path, owner: Owner) -> std::io::Result<Self> {
        let freezer = Freezer::below(&freezer::own_cgroup(proc)?, owner, jobs);
        Ok(Self { freezer: Some(freezer), jobs: vec![PauseState::default(); jobs] })
    }

    /// Creates the cgroups; no effect for a pauser by signals.
    ///
    /// # Errors
    /// If they cannot be created or the kernel cannot freeze them; in this case none remains.
    pub fn make_cgroups(&self) -> std::io::Result<()> {
        self.freezer.as_ref().map_or(Ok(()), Freezer::make)
    }

    /// Mechanism for stopping jobs.
    pub fn how(&self) -> How {
        let mut how = How::Signals;
        if let Some(freezer) = &self.freezer {
            Freeze::journal(&mut how, freezer.folder().to_owned());
        }
        how
    }

    /// Whether colocate has stopped the job.
    pub fn is_stopped(&self, job: JobProcesses) -> bool {
        self.jobs.get(job.0 as usize).is_some_and(|state| state.stopped.is_some())
    }

    /// Takes in the first process of a job, before it begins its program.
    ///
    /// # Errors
    /// If the kernel does not let the process into the job's cgroup.
    pub fn enter(&mut self, job: JobProcesses, pid: Pid) -> std::io::Result<()> {
        match &self.freezer {
            Some(freezer) => freezer.enter(job, pid),
            None => Ok(()),
        }
    }

    /// Stops a job; `processes` are its known processes.
    ///
    /// # Errors
    /// If the kernel refuses; ended processes are no error.
    pub fn stop(
        &mut self,
        job: JobProcesses,
        processes: &[Arc<ProcessHandle>],
    ) -> std::io::Result<()> {
        self.set(job, Some(now()));
        self.stop_again(job, processes)
    }

    /// Stops a waiting job once more: another process may have continued it.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_again(
        &self,
        job: JobProcesses,
        processes: &[Arc<ProcessHandle>],
    ) -> std::io::Result<()> {
        self.apply(job, processes, true)
    }

    /// Stops a job or continues it.
    fn apply(
        &self,
        job: JobProcesses,
        processes: &[Arc<ProcessHandle>],
        stopped: bool,
    ) -> std::io::Result<()> {
        match &self.freezer {
            Some(freezer) => Freeze::apply(&freezer.of(job)?, &stopped).map(drop),
            None => for_all(processes, |process| {
                Stop::apply(ThreadRef::first(process), &stopped).map(drop)
            }),
        }
    }

    /// Stops a new process of a stopped job; with cgroups it is stopped already.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_new(&self, process: &Arc<ProcessHandle>) -> std::io::Result<()> {
        if self.freezer.is_some() {
            return Ok(());
        }
        Stop::apply(ThreadRef::first(process), &true).map(drop)
    }

    /// Continues a job. After a failure it is still to be continued.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn resume(
        &mut self,
        job: JobProcesses,
        processes: &[Arc<ProcessHandle>],
    ) -> std::io::Result<()> {
        self.apply(job, processes, false)?;
        self.set(job, None);
        Ok(())
    }

    /// Reads whether a stopped job has really stopped, and otherwise stops it once more: another
    /// process may have continued it. `processes` as for [`Self::has_stopped`].
    pub fn poll(&mut self, job: JobProcesses, processes: &[Arc<ProcessHandle>]) -> StopState {
        let since = self.jobs.get(job.0 as usize).and_then(|state| state.stopped);
        let due = since.is_some_and(|since| now() >= since + STOPS_WITHIN);
        if !due {
            return StopState::Stopped;
        }
        let continues = !self.has_stopped(job, processes);
        let Some(state) = self.jobs.get_mut(job.0 as usize) else { return StopState::Stopped };
        // Saturates above the limit, so the failure is returned once.
        state.failures = if continues { state.failures.saturating_add(1) } else { 0 };
        match (continues, state.failures == MOST_FAILURES) {
            (false, _) => StopState::Stopped,
            (true, failed) => {
                // A failure shows at the next poll.
                let _ = self.stop_again(job, processes);
                if failed { StopState::FailedToStop } else { StopState::Continues }
            }
        }
    }

    /// Whether stopping needs the list of processes.
    pub fn needs_processes(&self) -> bool {
        self.freezer.is_none()
    }

    /// Whether a stopped job has really stopped; `processes` are its known processes.
    pub fn has_stopped(&self, job: JobProcesses, processes: &[Arc<ProcessHandle>]) -> bool {
        match &self.freezer {
            Some(freezer) => {
                let frozen = freezer.of(job).and_then(|cgroup| Freeze::read_back(&cgroup));
                frozen.is_ok_and(|frozen| frozen == Some(true))
            }
            None => processes.iter().all(|process| {
                // An ended process no longer runs either.
                process.stat().is_none_or(|stat| stat.is_stopped() || stat.is_dead())
            }),
        }
    }

    /// Kills a job with all its descendants; `processes` are its known processes.
    ///
    /// # Errors
    /// If the kernel refuses; ended processes are no error.
    pub fn kill(&self, job: JobProcesses, processes: &[Arc<ProcessHandle>]) -> std::io::Result<()> {
        if let Some(freezer) = &self.freezer {
            // Kernels before 5.14 cannot; and a job that has not begun is not in the cgroup yet.
            let _ = freezer.kill(job);
        }
        signal(processes, libc::SIGKILL)
    }

    /// Gives up the cgroups: everything in them continues, in the cgroup of this process.
    ///
    /// # Errors
    /// If a process cannot be moved or a cgroup not be removed.
    pub fn dissolve(&mut self) -> std::io::Result<()> {
        self.freezer.take().map_or(Ok(()), |freezer| freezer::dissolve(freezer.folder()).map(drop))
    }

    fn set(&mut self, job: JobProcesses, stopped: Option<Nanos>) {
        if let Some(known) = self.jobs.get_mut(job.0 as usize) {
            known.stopped = stopped;
        }
    }
}

/// Sends a signal to all processes.
///
/// # Errors
/// First error other than "has ended".
pub fn signal(processes: &[Arc<ProcessHandle>], signal: libc::c_int) -> std::io::Result<()> {
    for_all(processes, |process| send(process, signal))
}

/// Acts on all processes. Returns the first error.
fn for_all(
    processes: &[Arc<ProcessHandle>],
    act: impl Fn(&ProcessHandle) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut result = Ok(());
    for process in processes {
        // `and` acts on the process in any case, and keeps the first error.
        result = result.and(act(process));
    }
    result
}

/// Sends a signal to a process, unless it has ended.
fn send(process: &ProcessHandle, signal: libc::c_int) -> std::io::Result<()> {
    match process.signal(signal) {
        Err(why) if why.errno() != Some(libc::ESRCH) => Err(why.source),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::wait_until;
    use std::process::{Child, Command};

    struct Sleepers(Vec<Child>);

    impl Drop for Sleepers {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    #[test]
    fn how_is_read_as_it_is_written() {
        let there = How::Freezer("/sys/fs/cgroup/a b/colocate-7-99".into());
        for how in [there, How::Signals] {
            assert_eq!(How::parse(&how.to_string()), Some(how));
        }
        assert_eq!(How::parse("cgroup relative"), None);
        assert_eq!(How::parse("by magic"), None);
    }

    #[test]
    fn signals_stop_and_let_go() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let gone = Command::new("true").spawn().unwrap();
        let open = |child: &Child| {
            let pid = Pid(child.id().cast_signed());
            Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap())
        };
        let (process, ended) = (open(&child), open(&gone));
        let mut sleepers = Sleepers(vec![child, gone]);
        sleepers.0[1].wait().unwrap();
        let state = || process.stat().unwrap().state;
        let both = [process.clone(), ended];
        let mut pauser = Pauser::by_signals(1);
        let has_stopped = |pauser: &Pauser| pauser.has_stopped(JobProcesses(0), &both);
        assert!(!has_stopped(&pauser));
        pauser.stop(JobProcesses(0), &both).unwrap();
        assert!(pauser.is_stopped(JobProcesses(0)));
        wait_until("a stop", || state() == 'T' && has_stopped(&pauser));
        pauser.resume(JobProcesses(0), &both).unwrap();
        wait_until("a continuation", || state() != 'T');
        // It is continued again and again.
        pauser.stop(JobProcesses(0), &both).unwrap();
        std::thread::sleep(STOPS_WITHIN.into());
        let mut poll = || {
            process.signal(libc::SIGCONT).unwrap();
            wait_until("a continuation", || state() != 'T');
            pauser.poll(JobProcesses(0), &both)
        };
        let found = [poll(), poll(), poll(), poll()];
        assert_eq!(
            found,
            [
                StopState::Continues,
                StopState::Continues,
                StopState::FailedToStop,
                StopState::Continues
            ]
        );
        wait_until("a stop", || state() == 'T');
        assert_eq!(pauser.poll(JobProcesses(0), &both), StopState::Stopped);
        pauser.resume(JobProcesses(0), &both).unwrap();
        assert!(!pauser.is_stopped(JobProcesses(0)));
        pauser.kill(JobProcesses(0), &both).unwrap();
        wait_until("its end", || state() == 'Z');
        drop(sleepers);
    }
}
