//! Stopping whole jobs and letting them go on.
//!
//! # Problem
//! With more programs than hardware threads, some must not run for a while, whatever processes they have
//! made, and must run again whatever becomes of us.
//! # Approach
//! Best is a cgroup of its own for each job, which the kernel freezes as a whole: processes that are born
//! meanwhile are frozen, too, and nobody notices. Without one, each process that we know of gets SIGSTOP, and
//! SIGCONT later; its parent can notice that, and a process that stopped itself goes on with the others.
//!
//! How it is done stands in the journal's head, so the guardian and `colocate restore` can undo it.

pub mod freezer;

use crate::sys;
use colocate_observe::Pid;
use colocate_policy::JobIdx;
use freezer::Freezer;
use std::fmt;
use std::path::{Path, PathBuf};

/// How jobs are stopped, as the journal's head says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The kernel freezes cgroups in this folder.
    Freezer(PathBuf),
    /// SIGSTOP and SIGCONT.
    Signals,
}

impl How {
    /// Reads what [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("cgroup", path)) if path.starts_with('/') => Some(Self::Freezer(path.into())),
            None if text == "signals" => Some(Self::Signals),
            _ => None,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freezer(path) => write!(f, "cgroup {}", path.display()),
            Self::Signals => f.write_str("signals"),
        }
    }
}

/// Stops jobs and lets them go on.
#[derive(Debug)]
pub struct Pauser {
    freezer: Option<Freezer>,
    stopped: Vec<bool>,
}

impl Pauser {
    /// For so many jobs, none of them stopped; cgroups are made below that of this process, as `proc` and
    /// `mounts` (`/proc` and the mounts that it tells of) say. The line says why there are none, if so.
    #[must_use]
    pub fn new(jobs: usize, proc: &Path) -> (Self, Option<String>) {
        let made = freezer::own_cgroup(proc).and_then(|own| Freezer::create(&own, jobs));
        let (freezer, why) = match made {
            Ok(freezer) => (Some(freezer), None),
            Err(why) => (None, Some(why.to_string())),
        };
        (Self { freezer, stopped: vec![false; jobs] }, why)
    }

    /// How it stops jobs.
    #[must_use]
    pub fn how(&self) -> How {
        match &self.freezer {
            Some(freezer) => How::Freezer(freezer.folder().to_owned()),
            None => How::Signals,
        }
    }

    /// Whether a job is stopped by us.
    #[must_use]
    pub fn is_stopped(&self, job: JobIdx) -> bool {
        self.stopped.get(job.0 as usize).copied().unwrap_or(false)
    }

    /// Takes in the first process of a job, before it begins its program. The line says what went wrong; then
    /// no job is stopped by its cgroup.
    ///
    /// # Errors
    /// If the kernel does not let the process into the job's cgroup.
    pub fn enter(&mut self, job: JobIdx, pid: Pid) -> std::io::Result<()> {
        match &self.freezer {
            Some(freezer) => freezer.enter(job, pid),
            None => Ok(()),
        }
    }

    /// Stops a job; `pids` are its processes as far as they are known.
    ///
    /// # Errors
    /// If the kernel does not; processes that have ended are none.
    pub fn stop(&mut self, job: JobIdx, pids: &[Pid]) -> std::io::Result<()> {
        self.set(job, true);
        match &self.freezer {
            Some(freezer) => freezer.freeze(job, true),
            None => signal(pids, libc::SIGSTOP),
        }
    }

    /// Stops a process that a stopped job has borne; where jobs have cgroups it is stopped already.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_newborn(&self, pid: Pid) -> std::io::Result<()> {
        if self.freezer.is_some() { Ok(()) } else { signal(&[pid], libc::SIGSTOP) }
    }

    /// Lets a job go on.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn go_on(&mut self, job: JobIdx, pids: &[Pid]) -> std::io::Result<()> {
        self.set(job, false);
        match &self.freezer {
            Some(freezer) => freezer.freeze(job, false),
            None => signal(pids, libc::SIGCONT),
        }
    }

    /// Gives up the cgroups: everything in them goes on, where this process is.
    ///
    /// # Errors
    /// If a process cannot be moved or a cgroup not be removed.
    pub fn dissolve(&mut self) -> std::io::Result<()> {
        self.freezer.take().map_or(Ok(()), |freezer| freezer::dissolve(freezer.folder()).map(drop))
    }

    fn set(&mut self, job: JobIdx, stopped: bool) {
        if let Some(known) = self.stopped.get_mut(job.0 as usize) {
            *known = stopped;
        }
    }
}

/// Sends a signal to all; the first error that is not "has ended" counts.
pub(crate) fn signal(pids: &[Pid], signal: libc::c_int) -> std::io::Result<()> {
    let mut result = Ok(());
    for &pid in pids {
        match sys::kill(pid, signal).map_err(|error| error.source) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                result = result.and(Err(error));
            }
            _ => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::Stat;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    struct Sleepers(Vec<Child>);

    impl Drop for Sleepers {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    fn state(pid: Pid) -> char {
        Stat::read(Path::new("/proc"), pid, pid.first_thread()).unwrap().state
    }

    fn wait_for(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(10), "waited for {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn how_is_read_as_it_is_written() {
        let there = How::Freezer("/sys/fs/cgroup/a b/colocate-7".into());
        for how in [there, How::Signals] {
            assert_eq!(How::parse(&how.to_string()), Some(how));
        }
        assert_eq!(How::parse("cgroup relative"), None);
        assert_eq!(How::parse("by magic"), None);
    }

    #[test]
    fn signals_stop_and_let_go() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let sleepers = Sleepers(vec![child]);
        let mut pauser = Pauser { freezer: None, stopped: vec![false] };
        pauser.stop(JobIdx(0), &[pid, Pid(i32::MAX)]).unwrap();
        assert!(pauser.is_stopped(JobIdx(0)));
        wait_for("a stop", || state(pid) == 'T');
        pauser.go_on(JobIdx(0), &[pid, Pid(i32::MAX)]).unwrap();
        wait_for("going on", || state(pid) != 'T');
        assert!(!pauser.is_stopped(JobIdx(0)));
        drop(sleepers);
    }
}
