//! A thread as the actuators see it: which one it is, what was done to it, and what it may have handed down.

use crate::fair::Fair;
use crate::journal::{Mark, Slot};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr, PuSet};
use std::sync::Arc;

/// A thread of a program.
#[derive(Debug)]
pub struct ManagedThread {
    /// Process number.
    pub pid: Pid,
    /// Number.
    pub tid: Tid,
    /// Handle for every action on the process; `None` forbids every action.
    pub process: Option<Arc<ProcessHandle>>,
    /// Clock ticks since boot at its creation, once read.
    pub start_ticks: Option<u64>,
    /// Journal line of the thread; `None` before its first change.
    pub slot: Option<Slot>,
    /// Last change of the mask; for a new thread its creator's.
    pub mark: Mark,
    /// Last mask set on this very thread and read back; `None` if none was set, or if the mask may
    /// be lost.
    pub set: Option<Mark>,
    /// Earlier placements of the thread or its creator.
    pub recent: Recent,
    /// Mask set by the program on the thread or its creator, and respected.
    pub programs: Option<PuSet>,
    /// Mask as last read back.
    pub allowed: PuSet,
    /// PU of the last observed execution.
    pub last_ran: Option<PuNr>,
    /// Policy before the present change to SCHED_IDLE; `None` if not changed.
    pub lowered: Option<Fair>,
    /// Policy before the last change to SCHED_IDLE of the thread or its creator.
    pub last_lowered: Option<Fair>,
}

/// Inherited state of a new thread.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// Change of the creator's mask.
    pub mark: Mark,
    /// Earlier placements of the creator.
    pub recent: Recent,
    /// Mask set by the program on the creator.
    pub programs: Option<PuSet>,
    /// Policy of the creator before its change to SCHED_IDLE.
    pub lowered: Option<Fair>,
}

impl Default for Inherited {
    fn default() -> Self {
        Self { mark: Mark::Original, recent: Recent::default(), programs: None, lowered: None }
    }
}

impl ManagedThread {
    /// A new thread.
    pub fn new(pid: Pid, tid: Tid, process: Option<Arc<ProcessHandle>>, from: Inherited) -> Self {
        Self {
            pid,
            tid,
            process,
            start_ticks: None,
            slot: None,
            mark: from.mark,
            set: None,
            recent: from.recent,
            programs: from.programs,
            allowed: PuSet::new(),
            last_ran: None,
            lowered: None,
            last_lowered: from.lowered,
        }
    }

    /// State inherited by a thread created now.
    pub fn hands_down(&self) -> Inherited {
        Inherited {
            mark: self.mark,
            recent: self.recent.clone(),
            programs: self.programs.clone(),
            lowered: self.last_lowered,
        }
    }

    /// Whether the thread is the first thread of its process.
    pub fn is_first(&self) -> bool {
        self.tid == self.pid.first_thread()
    }
}

/// Earlier placements of a thread whose mask new threads may have inherited, beside the present
/// placement: the last attempted or completed placement, and all placements that it has left within
/// the last ten seconds.
///
/// A new thread has its creator's mask from the beginning of the creation, and is reported at the
/// end of the creation. Meanwhile the creator may have been placed elsewhere more than once, and
/// may have ended before its last mask was read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent(Vec<(Mark, Nanos)>);

/// Maximum time from a thread's creation to its discovery. Chosen: on a busy machine both the
/// creator, in the middle of the creation, and colocate wait for a PU; with scans of `/proc`, up to
/// 1.1 s were seen.
const CREATION_TAKES: Nanos = Nanos::from_secs(10);

impl Recent {
    /// Records a pending change from the mark `from` to `to`. Must be called before the change,
    /// which may succeed without being read back.
    pub fn changes(&mut self, from: Mark, to: Mark, at: Nanos) {
        if from != to {
            [from, to].into_iter().for_each(|mark| self.note(mark, at));
        }
    }

    /// Records `mark` as left at `at`, if it is a placement.
    pub fn note(&mut self, mark: Mark, at: Nanos) {
        if mark.is_put() {
            self.0.retain(|(other, left)| *other != mark && *left + CREATION_TAKES > at);
            self.0.push((mark, at));
        }
    }

    /// Marks of the recent placements.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.0.iter().map(|(mark, _)| *mark)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
