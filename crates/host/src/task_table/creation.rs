//! New tasks, and what they inherit from their creators.

use super::{Process, Processes, TaskTable, Tasks};
use crate::task::{Placement, TrackedTask};
use colocate_act::fair::Fair;
use colocate_act::thread::{Inherited, ManagedThread, Recent};
use colocate_evidence::{JobIdx, PlacementStatus, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_observe::sources::TaskUsage;
use std::collections::HashMap;
use std::sync::Arc;

/// Thread creation, as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// Time on the kernel's clock.
    pub at: Nanos,
    /// The new thread's process.
    pub pid: Pid,
    /// The new thread.
    pub tid: Tid,
    /// The process of its creator.
    pub parent_pid: Pid,
    /// Creator, or the first thread of its process if the creation record was lost.
    pub parent_tid: Tid,
    /// Whether the creation record was lost or the kernel gives none: any thread of the process may
    /// be the creator.
    pub lost: bool,
}

/// Inherited state of a thread whose creator may be any thread of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct OfAny {
    /// Whether the program has set the mask of a thread of this process; if so, it may have set
    /// any.
    binds_itself: bool,
    /// Recent masks of all remembered threads of the process.
    pub recent: Recent,
    /// Policy of a thread of the process before it was put under SCHED_IDLE.
    lowered: Option<Fair>,
}

/// State that threads may inherit from any thread of a process, before the events of the current
/// batch.
#[derive(Debug, Default)]
pub struct Inheritable(HashMap<Pid, OfAny>);

impl Inheritable {
    /// Begins a batch of events. New threads of the batch may have inherited state from before it.
    pub fn begin_events(&mut self) {
        self.0.clear();
    }

    /// State that any remembered thread of a process could have handed down at `at`. Computed once
    /// per batch of events: the threads of a batch were created before any action that the batch
    /// causes.
    pub(super) fn of(
        &mut self,
        tasks: &Tasks,
        processes: &Processes,
        pid: Pid,
        at: Nanos,
    ) -> OfAny {
        let any = self.0.entry(pid).or_insert_with(|| {
            let job = processes.get(pid).map(|process| process.job);
            // Of a process that is gone the job is unknown.
            let first = TaskId { job: job.unwrap_or(JobIdx(0)), order: 0 };
            let last = TaskId { job: job.unwrap_or(JobIdx(u32::MAX)), order: u32::MAX };
            let of_process = tasks.range(first..=last).filter(|task| task.thread.pid == pid);
            let mut any = OfAny::default();
            of_process.for_each(|task| any.add(task, at));
            any
        });
        any.clone()
    }
}

impl OfAny {
    fn add(&mut self, task: &TrackedTask, at: Nanos) {
        self.binds_itself |= task.placement.status == PlacementStatus::PinnedByProgram;
        let marks = task.thread.recent.marks().chain([task.thread.mark]);
        marks.for_each(|mark| self.recent.note(mark, at));
        self.lowered = self.lowered.or(task.thread.last_lowered);
    }
}

impl TaskTable {
    /// Adds a new thread. `None` if its process belongs to no job.
    ///
    /// A first thread created by its own process, or in a living process, takes over from another
    /// thread of the process. The old thread executes a program and continues under the first
    /// thread's number; its end was reported or will be.
    pub fn created(&mut self, creation: Creation) -> Option<TaskId> {
        let Creation { at, pid, tid, parent_pid, parent_tid, .. } = creation;
        let (name, inherited) = self.inherited(creation);
        let mut usage = TaskUsage::default();
        if takes_over(&self.processes, creation)
            && let Some(id) = self.tasks.living(parent_tid)
            && let Some(executing) = self.tasks.get_mut(id)
        {
            executing.goes_on = executing.thread.pid == pid;
            usage.cpu_before = executing.usage.cpu_before;
        }
        let parent = self.processes.get(parent_pid);
        let process = self.processes.get(pid).or(parent);
        let just_ended = self.processes.ended_last;
        let just_ended = just_ended.filter(|(ended, _)| (pid, parent_pid) == (*ended, pid));
        let job = process.map(|process| process.job).or_else(|| Some(just_ended?.1))?;
        let runtime = parent.and_then(|process| process.runtime);
        let entry = self.jobs.get_mut(job)?;
        let id = TaskId { job, order: entry.created };
        entry.created += 1;
        entry.living += 1;
        let process = self.processes.by_pid.entry(pid);
        let process = process.or_insert_with(|| Process::new(job, runtime));
        process.further += u32::from(tid != pid.first_thread());
        process.living.insert(id);
        let handle = process.handle.clone();
        // A job begins with the name of its program.
        let name = name.unwrap_or_else(|| entry.name_of(&entry.name));
        self.tasks.add(TrackedTask {
            id,
            thread: ManagedThread::new(pid, tid, handle, inherited),
            name,
            created: at,
            ended: None,
            placement: Placement::none(),
            usage,
            read_at: None,
            goes_on: false,
        });
        Some(id)
    }

    /// Name and colocate's changes that a new thread inherits from its creator.
    fn inherited(&mut self, creation: Creation) -> (Option<Arc<str>>, Inherited) {
        let mut any = |pid| self.inheritable.of(&self.tasks, &self.processes, pid, creation.at);
        let creator = self.tasks.living(creation.parent_tid).and_then(|id| self.tasks.get(id));
        if takes_over(&self.processes, creation) {
            let executing = creator.filter(|task| task.thread.pid == creation.pid).map(handed_down);
            return executing.unwrap_or_else(|| {
                let OfAny { recent, lowered, .. } = any(creation.pid);
                (None, Inherited { recent, lowered, ..Inherited::default() })
            });
        }
        let (name, mut inherited) = creator.map(handed_down).unwrap_or_default();
        if creation.lost {
            let any = any(creation.parent_pid);
            // Where a program sets masks itself, the same mask may be its own choice.
            if !any.binds_itself {
                inherited.lowered = inherited.lowered.or(any.lowered);
                inherited.recent = any.recent;
            }
        }
        (name, inherited)
    }
}

/// Name and colocate's changes that a thread created by `creator` inherits.
fn handed_down(creator: &TrackedTask) -> (Option<Arc<str>>, Inherited) {
    (Some(creator.name.clone()), creator.thread.hands_down())
}

/// Whether a new thread takes over from another thread of its process.
fn takes_over(processes: &Processes, creation: Creation) -> bool {
    let process = processes.get(creation.pid);
    let lives = process.is_some_and(|process| !process.living.is_empty());
    let of_own = creation.parent_pid == creation.pid;
    (lives || of_own) && creation.tid == creation.pid.first_thread()
}
