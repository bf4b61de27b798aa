//! Jobs that a plan has wait and that fill idle PUs meanwhile; see [`colocate_act::sched_class`].
//!
//! A job fills as a whole or is stopped as a whole. It is stopped where one of its threads must not be lowered, or
//! could not be raised again, or lowering would not help; that is said once.

use crate::LinuxHost;
use colocate_act::sched_class::{Permission, permission, sessions_are_groups};
use colocate_engine::Meanwhile;
use colocate_evidence::{JobIdx, TaskId};
use colocate_linux::Pid;
use colocate_linux::sys;
use std::collections::BTreeSet;
use std::path::Path;

/// State of the jobs that may fill idle PUs.
#[derive(Debug)]
pub(crate) struct Fillers {
    permission: Permission,
    /// Session required of all threads, so that each thread has its own share of the CPU time.
    session: Option<Pid>,
    /// Jobs whose threads are under SCHED_IDLE by our doing.
    down: BTreeSet<JobIdx>,
    /// Jobs that are stopped instead of filling idle PUs.
    refused: BTreeSet<JobIdx>,
    /// Processes that have had several threads, until they are reaped, and processes reaped by
    /// other processes.
    pub threaded: BTreeSet<Pid>,
}

impl Fillers {
    /// State for jobs that fill idle PUs; `None` if not requested or impossible, with the reason in
    /// `notes`. Must be called before threads are created. `proc` is `/proc`.
    pub fn new(meanwhile: Meanwhile, proc: &Path, notes: &mut Vec<String>) -> Option<Self> {
        if meanwhile == Meanwhile::Stop {
            return None;
        }
        let permission = permission()
            .map_err(|why| {
                notes.push(format!("waiting jobs are stopped and fill no idle PUs: {why}"));
            })
            .ok()?;
        let session = sessions_are_groups(proc).then(|| sys::session_of(Pid(0)).ok()).flatten();
        let (down, refused, threaded) = Default::default();
        Some(Self { permission, session, down, refused, threaded })
    }
}

impl LinuxHost {
    /// Puts all threads of a waiting job under SCHED_IDLE. False if the job has to be stopped
    /// instead, as all jobs have to while the plan `measures` a job.
    pub(crate) fn lower(&mut self, job: JobIdx, measures: bool) -> bool {
        let Some(fillers) = &self.fillers else { return false };
        if measures || fillers.refused.contains(&job) {
            self.raise(job);
            return false;
        }
        if fillers.down.contains(&job) {
            return true;
        }
        if self.is_stopped(job) {
            // It was stopped while a job was measured.
            self.continue_stopped(job);
        }
        self.lower_all(job)
    }

    /// Puts the threads of a running job under SCHED_IDLE, as [`Self::lower`] does.
    fn lower_all(&mut self, job: JobIdx) -> bool {
        let pids = self.tasks.processes_of(job);
        let Some(fillers) = &mut self.fillers else { return false };
        fillers.down.insert(job);
        let permission = fillers.permission;
        let other_session = fillers.session.and_then(|ours| {
            pids.iter().copied().find(|pid| sys::session_of(*pid).is_ok_and(|its| its != ours))
        });
        let mut why = other_session.map(|pid| {
            format!("process {pid} has a session of its own, which has a share of the CPU time as a whole (autogroup)")
        });
        for task in self.tasks.living_of(job) {
            if why.is_none() {
                why = self
                    .actuators
                    .lower(&mut task.thread, permission)
                    .err()
                    .map(|why| why.to_string());
            }
        }
        let Some(why) = why else { return true };
        self.raise(job);
        self.note_on(job, &format!("is stopped while it waits, and fills no idle PUs: {why}"));
        if let Some(fillers) = &mut self.fillers {
            fillers.refused.insert(job);
        }
        false
    }

    /// Restores the policies of all threads of a job that were put under SCHED_IDLE.
    pub(crate) fn raise(&mut self, job: JobIdx) {
        let Some(fillers) = &mut self.fillers else { return };
        if !fillers.down.remove(&job) {
            return;
        }
        let mut trouble = None;
        for task in self.tasks.living_of(job) {
            trouble = self.actuators.raise(&mut task.thread).err().or(trouble);
        }
        self.report_failure(
            job,
            "take out of SCHED_IDLE",
            trouble.map_or(Ok(()), |why| Err(std::io::Error::other(why))),
        );
    }

    /// Whether the threads of a job are under SCHED_IDLE by our doing.
    pub(crate) fn fills(&self, job: JobIdx) -> bool {
        self.fillers.as_ref().is_some_and(|fillers| fillers.down.contains(&job))
    }

    /// Applies the class inherited from the creator, as of the beginning of the creation, to a new
    /// thread.
    pub(crate) fn inherit_class(&mut self, id: TaskId) {
        let down = self.fills(id.job);
        let Some(fillers) = &mut self.fillers else { return };
        let permission = fillers.permission;
        let Some(task) = self.tasks.task(id) else { return };
        if !task.thread.is_first() {
            fillers.threaded.insert(task.thread.pid);
        }
        self.actuators.note_inherited(&mut task.thread);
        let met = if down {
            self.actuators.lower(&mut task.thread, permission)
        } else {
            self.actuators.raise(&mut task.thread)
        };
        let what = if down { "put under SCHED_IDLE" } else { "take out of SCHED_IDLE" };
        self.report_failure(id.job, what, met.map_err(std::io::Error::other));
    }

    /// Checks that filling threads still have the lowest priority: programs may have changed it.
    pub(crate) fn check_fillers(&mut self) {
        let down =
            self.fillers.as_ref().map_or(Vec::new(), |all| all.down.iter().copied().collect());
        for job in down {
            if !self.lower_all(job) && self.pausing.waiting.contains(&job) {
                self.stop_now(job);
            }
        }
    }

    /// Waiting jobs that are stopped.
    pub(crate) fn stopped_jobs(&self) -> BTreeSet<JobIdx> {
        self.pausing.waiting.iter().copied().filter(|job| !self.fills(*job)).collect()
    }
}
