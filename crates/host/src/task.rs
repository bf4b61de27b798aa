//! A task as this host sees it: which one it is, where it is placed, and what it has done.

use crate::placed::PlacedTimes;
use colocate_act::affinity::Pinned;
use colocate_act::thread::Thread;
use colocate_evidence::{PlacementStatus, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuSet};
use colocate_observe::pmu::Metered;
use colocate_observe::sources::TaskRef;
use colocate_observe::sources::run_states::Read;
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
    pub usage: Usage,
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
    /// Why it must not be put on one PU, if so.
    pub exempt: Option<&'static str>,
    /// Until when it must not, as it has created a process; zero if it never has.
    pub forked_until: Nanos,
    /// Whether it was put back once after its program had set the original mask.
    pub was_widened: bool,
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
            was_widened: false,
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

/// What a task has done since it was created, as last read.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// CPU time.
    pub cpu_time: Option<Nanos>,
    /// What of it was before it was attached to.
    pub cpu_before: Nanos,
    /// Time for which it could run and had no PU.
    pub waited: Option<Nanos>,
    /// How often it has waited of its own accord, or read or written, whichever is more.
    pub switches: Option<u64>,
    /// What was counted of it; `None` where nothing is.
    pub counted: Option<Box<Metered>>,
    /// Whether it had not run when it was last read, and did not wait for a PU.
    pub sleeps: bool,
}

impl Usage {
    /// Takes in its times.
    pub fn note_times(&mut self, read: Read) {
        self.note_cpu_time(read.times.cpu_time);
        self.waited = self.waited.max(Some(read.times.waited));
        self.sleeps = read.sleeps;
    }

    /// CPU time since it is followed.
    pub fn own_cpu_time(&self) -> Option<Nanos> {
        Some(self.cpu_time?.saturating_sub(self.cpu_before))
    }

    /// Takes in its CPU time by another clock, which may be coarser.
    pub fn note_cpu_time(&mut self, time: Nanos) {
        self.cpu_time = self.cpu_time.max(Some(time));
    }

    /// Takes in what was counted. What is not counted any more did what was counted before, but what it does now is
    /// unknown.
    pub fn note_counted(&mut self, counted: Option<Metered>) {
        let Some(counted) = counted else {
            if let Some(counted) = &mut self.counted {
                **counted = Metered { instructions: counted.instructions, ..Metered::default() };
            }
            return;
        };
        self.note_cpu_time(counted.on_cpu);
        **self.counted.get_or_insert_default() = counted;
    }

    /// Instructions that were counted of it.
    pub fn instructions(&self) -> Option<u64> {
        self.counted.as_ref()?.instructions
    }
}

impl Task {
    /// As backends of evidence know it.
    pub const fn named(&self) -> TaskRef {
        TaskRef { id: self.id, pid: self.thread.pid, tid: self.thread.tid }
    }
}
