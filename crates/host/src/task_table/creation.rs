//! New tasks, and what they inherit from their creators.

use super::{Process, TaskTable};
use crate::task::{Placement, Task};
use colocate_act::fair::Fair;
use colocate_act::thread::{Inherited, Recent, Thread};
use colocate_evidence::{JobIdx, PlacementStatus, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_observe::sources::TaskUsage;
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
        if self.takes_over(creation)
            && let Some(id) = self.living(parent_tid)
            && let Some(executing) = self.tasks.get_mut(&id)
        {
            executing.goes_on = executing.thread.pid == pid;
            usage.cpu_before = executing.usage.cpu_before;
        }
        let process = self.processes.get(&pid).or_else(|| self.processes.get(&parent_pid));
        let just_ended = self.ended_last.filter(|(ended, _)| (pid, parent_pid) == (*ended, pid));
        let job = process.map(|process| process.job).or_else(|| Some(just_ended?.1))?;
        let runtime = self.processes.get(&parent_pid).map(|process| process.runtime);
        let process = self
            .processes
            .entry(pid)
            .or_insert_with(|| Process::new(job, runtime.unwrap_or_default()));
        process.further += u32::from(tid != pid.first_thread());
        let handle = process.handle.clone();
        let entry = &mut self.jobs[job.0 as usize];
        let id = TaskId { job, order: entry.created };
        entry.created += 1;
        entry.living += 1;
        process.living.insert(id);
        // A job begins with the name of its program.
        let name = name.unwrap_or_else(|| entry.name_of(&entry.name));
        let task = Task {
            id,
            thread: Thread::new(pid, tid, handle, inherited),
            name,
            created: at,
            ended: None,
            placement: Placement::none(),
            usage,
            goes_on: false,
        };
        self.tasks.insert(id, task);
        self.by_tid.insert(tid, id);
        self.to_read.insert(id);
        self.most_living = self.most_living.max(self.by_tid.len());
        Some(id)
    }

    /// Whether a new thread takes over from another thread of its process.
    fn takes_over(&self, creation: Creation) -> bool {
        let lives =
            self.processes.get(&creation.pid).is_some_and(|process| !process.living.is_empty());
        let of_own = creation.parent_pid == creation.pid;
        (lives || of_own) && creation.tid == creation.pid.first_thread()
    }

    /// Name and colocate's changes that a new thread inherits from its creator.
    fn inherited(&mut self, creation: Creation) -> (Option<Arc<str>>, Inherited) {
        let creator = self.living(creation.parent_tid).and_then(|id| self.tasks.get(&id));
        if self.takes_over(creation) {
            let executing = creator.filter(|task| task.thread.pid == creation.pid).map(handed_down);
            return executing.unwrap_or_else(|| {
                let OfAny { recent, lowered, .. } = self.of_any(creation.pid, creation.at);
                (None, Inherited { recent, lowered, ..Inherited::default() })
            });
        }
        let (name, mut inherited) = creator.map(handed_down).unwrap_or_default();
        if creation.lost {
            let any = self.of_any(creation.parent_pid, creation.at);
            // Where a program sets masks itself, the same mask may be its own choice.
            if !any.binds_itself {
                inherited.lowered = inherited.lowered.or(any.lowered);
                inherited.recent = any.recent;
            }
        }
        (name, inherited)
    }

    /// Begins a batch of events. New threads of the batch may have inherited state from before it.
    pub fn begin_events(&mut self) {
        self.of_any.clear();
    }

    /// State that any remembered thread of a process could have handed down at `at`. Computed once
    /// per batch of events: the threads of a batch were created before any action that the batch
    /// causes.
    pub(super) fn of_any(&mut self, pid: Pid, at: Nanos) -> OfAny {
        if let Some(known) = self.of_any.get(&pid) {
            return known.clone();
        }
        let mut any = OfAny::default();
        for task in self.remembered_of(pid) {
            any.binds_itself |= task.placement.status == PlacementStatus::PinnedByProgram;
            let marks = task.thread.recent.marks().chain([task.thread.mark]);
            marks.for_each(|mark| any.recent.note(mark, at));
            any.lowered = any.lowered.or(task.thread.last_lowered);
        }
        self.of_any.insert(pid, any.clone());
        any
    }

    /// The remembered tasks of a process.
    fn remembered_of(&self, pid: Pid) -> impl Iterator<Item = &Task> {
        let job = self.processes.get(&pid).map(|process| process.job);
        // Of a process that is gone the job is unknown.
        let first = TaskId { job: job.unwrap_or(JobIdx(0)), order: 0 };
        let last = TaskId { job: job.unwrap_or(JobIdx(u32::MAX)), order: u32::MAX };
        self.tasks
            .range(first..=last)
            .map(|(_, task)| task)
            .filter(move |task| task.thread.pid == pid)
    }
}

/// Name and colocate's changes that a thread created by `creator` inherits.
fn handed_down(creator: &Task) -> (Option<Arc<str>>, Inherited) {
    (Some(creator.name.clone()), creator.thread.hands_down())
}
