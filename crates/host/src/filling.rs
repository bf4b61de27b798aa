//! Jobs that a plan has wait and that fill idle PUs meanwhile; see [`colocate_act::sched_class`].
//!
//! A job fills as a whole or is stopped as a whole. It is stopped where one of its threads must not be lowered, or
//! could not be raised again, or lowering would not help; that is said once.

use crate::workload::HostState;
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
    threaded: BTreeSet<Pid>,
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

impl Fillers {
    /// Whether a job has to be stopped where it could fill idle PUs.
    pub fn refuses(&self, job: JobIdx) -> bool {
        self.refused.contains(&job)
    }

    /// Whether the threads of a job are under SCHED_IDLE by our doing.
    pub fn fills(&self, job: JobIdx) -> bool {
        self.down.contains(&job)
    }

    /// Jobs whose threads are under SCHED_IDLE by our doing.
    pub fn jobs(&self) -> Vec<JobIdx> {
        self.down.iter().copied().collect()
    }

    /// Puts all threads of a running job under SCHED_IDLE. False if the job has to be stopped instead.
    pub fn lower(&mut self, work: &mut HostState, job: JobIdx) -> bool {
        // Before the first thread: `raise` undoes a failure half way.
        self.down.insert(job);
        let pids = work.table.processes.of(job);
        let other_session = self.session.and_then(|ours| {
            pids.into_iter().find(|pid| sys::session_of(*pid).is_ok_and(|its| its != ours))
        });
        let mut why = other_session.map(|pid| {
            format!("process {pid} has a session of its own, which has a share of the CPU time as a whole (autogroup)")
        });
        for task in work.table.tasks.living_of(job) {
            if why.is_none() {
                let lowered = work.actuators.lower(&mut task.thread, self.permission);
                why = lowered.err().map(|why| why.to_string());
            }
        }
        let Some(why) = why else { return true };
        self.raise(work, job);
        work.note_on(job, &format!("is stopped while it waits, and fills no idle PUs: {why}"));
        self.refused.insert(job);
        false
    }

    /// Restores the policies of all threads of a job that were put under SCHED_IDLE.
    pub fn raise(&mut self, work: &mut HostState, job: JobIdx) {
        if !self.down.remove(&job) {
            return;
        }
        let mut trouble = None;
        for task in work.table.tasks.living_of(job) {
            // Every thread is raised; one reason is enough for the report.
            trouble = work.actuators.raise(&mut task.thread).err().or(trouble);
        }
        let raised = trouble.map_or(Ok(()), |why| Err(std::io::Error::other(why)));
        work.report_failure(job, "take out of SCHED_IDLE", raised);
    }

    /// Applies the class inherited from the creator, as of the beginning of the creation, to a new
    /// thread.
    pub fn inherit_class(&mut self, work: &mut HostState, id: TaskId) {
        let down = self.fills(id.job);
        let Some(task) = work.table.tasks.get_mut(id) else { return };
        if !task.thread.is_first() {
            self.threaded.insert(task.thread.pid);
        }
        work.actuators.note_inherited(&mut task.thread);
        let met = if down {
            work.actuators.lower(&mut task.thread, self.permission)
        } else {
            work.actuators.raise(&mut task.thread)
        };
        let what = if down { "put under SCHED_IDLE" } else { "take out of SCHED_IDLE" };
        work.report_failure(id.job, what, met.map_err(std::io::Error::other));
    }

    /// Whether a process has had several threads; its number may be another's from now on.
    pub fn forget_threaded(&mut self, pid: Pid) -> bool {
        self.threaded.remove(&pid)
    }
}
