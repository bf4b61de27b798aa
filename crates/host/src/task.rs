//! A task as this host knows it: which one it is, where it is placed, and what it has done.

use colocate_act::fair::Fair;
use colocate_act::handle::ProcessHandle;
use colocate_act::journal::{Mark, Slot};
use colocate_engine::PlacementStatus;
use colocate_machine::{Nanos, PuNr, PuSet};
use colocate_observe::pmu::Metered;
use colocate_observe::sources::TaskRef;
use colocate_observe::sources::run_states::Read;
use colocate_observe::{Pid, Tid};
use colocate_policy::TaskId;
use std::sync::Arc;

/// A task, living or remembered.
#[derive(Debug)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What all that is done to it goes through. Nothing is done to it without.
    pub process: Option<Arc<ProcessHandle>>,
    /// Its job's name and its own, of at most 15 bytes, with a slash between them.
    pub name: Arc<str>,
    /// When it was created, on the kernel's clock.
    pub created: Nanos,
    /// When it ended; `None` while it lives.
    pub ended: Option<Nanos>,
    /// Clock ticks since boot at its creation, once asked for.
    pub start_ticks: Option<u64>,
    /// Where it is meant to be, and how it stands to that.
    pub placement: PlacementState,
    /// What it has done, as last read.
    pub usage: Usage,
    /// Whether it goes on as another task, with its times: see [`crate::task_table::TaskTable::created`].
    pub goes_on: bool,
}

/// Where a task is meant to be, what was done to it, and where it is.
#[derive(Debug)]
pub struct PlacementState {
    /// Its line in the journal, once it has one.
    pub slot: Option<Slot>,
    /// What was done to it last; what was done to its creator, for a new thread.
    pub mark: Mark,
    /// Whether it was itself given the original mask, and not put anywhere since.
    pub given_back: bool,
    /// Where it, or its creator, was put before that.
    pub had: Had,
    /// Where the plan or its default placement wants it.
    pub target_pu: Option<PuNr>,
    /// How it stands to that.
    pub status: PlacementStatus,
    /// Why it must not be put on one PU, if so.
    pub exempt: Option<&'static str>,
    /// Where it may run, as last read back.
    pub allowed: PuSet,
    /// Where it was last seen to run.
    pub last_ran: Option<PuNr>,
    /// The policy that it had before we put it under SCHED_IDLE, where it is now.
    pub lowered: Option<Fair>,
    /// The same of the last time that it, or its creator, was put there.
    pub was_lowered: Option<Fair>,
}

impl PlacementState {
    /// Of a new task, which has what its creator had.
    pub fn inherited(mark: Mark, had: Had, was_lowered: Option<Fair>) -> Self {
        Self {
            slot: None,
            mark,
            given_back: false,
            had,
            target_pu: None,
            status: PlacementStatus::LeftToKernel,
            exempt: None,
            allowed: PuSet::new(),
            last_ran: None,
            lowered: None,
            was_lowered,
        }
    }
}

/// What a task has done since it was created, as last read.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// CPU time.
    pub cpu_time: Option<Nanos>,
    /// Time for which it could run and had no PU.
    pub waited: Option<Nanos>,
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
    #[must_use]
    pub fn instructions(&self) -> Option<u64> {
        self.counted.as_ref()?.instructions
    }
}

impl Task {
    /// As backends of evidence know it.
    #[must_use]
    pub const fn named(&self) -> TaskRef {
        TaskRef { id: self.id, pid: self.pid, tid: self.tid }
    }

    /// Whether it is the first thread of its process.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.tid == self.pid.first_thread()
    }
}

/// PUs that a task may have handed down beside the one it is on now: those that it was put on or was to be put on
/// last, and all that it has left within a second before.
///
/// A new thread has the mask that its creator had when its creation began, and is reported when that is over.
/// Meanwhile its creator may have been put elsewhere more than once, and may have ended before its last mask
/// was read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Had(Vec<(PuNr, Nanos)>);

/// How long a creation takes at most. Chosen: its creator may have to wait in the middle of it, on a busy machine for
/// some turns of others.
const CREATION_TAKES: Nanos = Nanos::from_secs(1);

impl Had {
    /// Notes that a task which was put as `from` says is about to be put as `to` says. To be called before the
    /// deed, which may succeed and not be read back.
    pub fn goes(&mut self, from: Mark, to: Mark, at: Nanos) {
        if from != to {
            [from, to].into_iter().filter_map(Mark::pu).for_each(|pu| self.note(pu, at));
        }
    }

    /// Notes that it was on a PU until `at`.
    pub fn note(&mut self, pu: PuNr, at: Nanos) {
        self.0.retain(|(other, left)| *other != pu && *left + CREATION_TAKES > at);
        self.0.push((pu, at));
    }

    /// The PUs.
    pub fn pus(&self) -> impl Iterator<Item = PuNr> {
        self.0.iter().map(|(pu, _)| *pu)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
