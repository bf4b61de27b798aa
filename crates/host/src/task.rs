//! A task as this host sees it: which one it is, where it is placed, and what it has done.

use crate::placed::PlacedTimes;
use crate::placement::ForkExemption;
use colocate_act::affinity::Pinned;
use colocate_act::thread::ManagedThread;
use colocate_evidence::{Exemption, PlacementStatus, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuSet};
use colocate_observe::sources::{TaskRef, TaskUsage};
use colocate_policy::Place;
use std::sync::Arc;

/// A task, living or remembered.
#[derive(Debug)]
pub struct TrackedTask {
    /// Task ID.
    pub id: TaskId,
    /// Kernel thread, with colocate's changes to it.
    pub thread: ManagedThread,
    /// Names of job and thread (at most 15 bytes), separated by a slash.
    pub name: Arc<str>,
    /// Creation time on the kernel's clock.
    pub created: Nanos,
    /// End on the kernel's clock; `None` while the task lives.
    pub ended: Option<Nanos>,
    /// Target and status of its placement.
    pub placement: Placement,
    /// Usage as last read.
    pub usage: TaskUsage,
    /// CPU time when its state and mask were last read; `None` if they were not, or it is unknown.
    pub read_at: Option<Nanos>,
    /// Whether the task continues, with its times, as another task: see
    /// [`crate::task_table::TaskTable::created`].
    pub goes_on: bool,
}

impl TrackedTask {
    /// Whether the task neither ran nor waited since its state and mask were read: both are known, but for a mask that another
    /// thread has set, which is seen once the task runs.
    pub fn has_slept(&self) -> bool {
        self.usage.sleeps && self.read_at.is_some() && self.read_at == self.usage.cpu_time
    }
}

/// Process, thread, places and CPU time of a task, for reports.
#[derive(Clone, Debug)]
pub struct TaskRecord {
    /// Process number.
    pub pid: Pid,
    /// Thread number.
    pub tid: Tid,
    /// Time on each set of PUs where colocate placed the task.
    pub placed: Vec<(PuSet, Nanos)>,
    /// Time for which the task was followed.
    pub followed: Nanos,
    /// CPU time used before the task was attached.
    pub cpu_before: Nanos,
}

/// Target of a task and the status of its placement.
#[derive(Debug)]
pub struct Placement {
    /// Target by the plan or its default placement.
    pub target: Place,
    /// Status of the placement.
    pub status: PlacementStatus,
    /// Reason that forbids a single PU; `None` if allowed.
    pub exempt: Option<Exemption>,
    /// Ban on single PUs after the creation of a process.
    pub forked: ForkExemption,
    /// Whether the program has set the original mask on the task while it was pinned.
    pub was_reset: bool,
    /// Times of placement, by mask.
    pub times: PlacedTimes,
}

impl Placement {
    /// Of a new task.
    pub fn none() -> Self {
        Self {
            target: Place::LeftToKernel,
            status: PlacementStatus::LeftToKernel,
            exempt: None,
            forked: ForkExemption::default(),
            was_reset: false,
            times: PlacedTimes::default(),
        }
    }

    /// Updates the status from the result of an action; `then` is the status on success.
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

impl TrackedTask {
    /// Reference for evidence backends.
    pub const fn named(&self) -> TaskRef {
        TaskRef { id: self.id, pid: self.thread.pid, tid: self.thread.tid }
    }
}
