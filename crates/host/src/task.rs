//! A task as this host sees it: which one it is, where it is placed, and what it has done.

use crate::placed::PlacedTimes;
use colocate_act::affinity::Pinned;
use colocate_act::thread::Thread;
use colocate_evidence::{Exemption, PlacementStatus, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuSet};
use colocate_observe::sources::{TaskRef, TaskUsage};
use colocate_policy::Place;
use std::sync::Arc;

/// A task, living or remembered.
#[derive(Debug)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// Its thread, and what was done to that.
    pub thread: Thread,
    /// Its job's name and its own, of at most 15 bytes, with a slash between them.
    pub name: Arc<str>,
    /// When it was created, on the kernel's clock.
    pub created: Nanos,
    /// When it ended; `None` while it lives.
    pub ended: Option<Nanos>,
    /// Where it is meant to be.
    pub placement: Placement,
    /// What it has done, as last read.
    pub usage: TaskUsage,
    /// Whether it continues as another task, with its times: see [`crate::task_table::TaskTable::created`].
    pub goes_on: bool,
}

/// Process, thread, places and CPU time of a task, for reports.
#[derive(Clone, Debug)]
pub struct TaskRecord {
    /// Its process.
    pub pid: Pid,
    /// Its thread.
    pub tid: Tid,
    /// For how long it was on which PUs by our doing.
    pub placed: Vec<(PuSet, Nanos)>,
    /// For how long it was followed.
    pub followed: Nanos,
    /// CPU time that it had used before it was attached to.
    pub cpu_before: Nanos,
}

/// Where a task is meant to be, and whether it is there.
#[derive(Debug)]
pub struct Placement {
    /// By the plan or its default placement.
    pub target: Place,
    /// Whether it is there.
    pub status: PlacementStatus,
    /// Reason why it must not be pinned to one PU.
    pub exempt: Option<Exemption>,
    /// End of its exemption as it has created a process; zero if it never has.
    pub forked_until: Nanos,
    /// Whether its program has set the original mask on it while it was pinned.
    pub was_reset: bool,
    /// For how long it was placed, and where.
    pub times: PlacedTimes,
}

impl Placement {
    /// Of a new task.
    pub fn none() -> Self {
        Self {
            target: Place::LeftToKernel,
            status: PlacementStatus::LeftToKernel,
            exempt: None,
            forked_until: Nanos::ZERO,
            was_reset: false,
            times: PlacedTimes::default(),
        }
    }

    /// Notes what has become of an action that was to lead to the status `then`.
    pub fn note(&mut self, pinned: &Pinned, then: PlacementStatus) {
        self.status = match pinned {
            Pinned::Done => then,
            Pinned::ByProgram => PlacementStatus::PinnedByProgram,
            Pinned::Failed(why) => PlacementStatus::Trouble(why.clone()),
            // What was to be left unpinned was left so.
            Pinned::Ended if then == PlacementStatus::LeftToKernel => then,
            Pinned::Ended if self.status == PlacementStatus::Placed => PlacementStatus::Placed,
            Pinned::Ended => PlacementStatus::Missed,
        };
    }
}

impl Task {
    /// As backends of evidence know it.
    pub const fn named(&self) -> TaskRef {
        TaskRef { id: self.id, pid: self.thread.pid, tid: self.thread.tid }
    }
}
