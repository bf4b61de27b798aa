//! A thread as the actuators see it: which one it is, what was done to it, and what it may have handed down.

use crate::fair::Fair;
use crate::journal::{Mark, Slot};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr, PuSet};
use std::sync::Arc;

/// A thread of a program.
#[derive(Debug)]
pub struct Thread {
    /// Its process.
    pub pid: Pid,
    /// Its number.
    pub tid: Tid,
    /// What all that is done to it goes through. Nothing is done to it without.
    pub process: Option<Arc<ProcessHandle>>,
    /// Clock ticks since boot at its creation, once read.
    pub start_ticks: Option<u64>,
    /// Its line in the journal, once it has one.
    pub slot: Option<Slot>,
    /// What was done to its mask last; what was done to its creator's, for a new thread.
    pub mark: Mark,
    /// What was last set on this very thread, and read back; `None` if nothing was, or if it is not sure that it still has that.
    pub set: Option<Mark>,
    /// Where it, or its creator, was put before that.
    pub recent: Recent,
    /// Mask that its program was seen to have set on it or its creator, and that is left to it.
    pub programs: Option<PuSet>,
    /// Where it may run, as last read back.
    pub allowed: PuSet,
    /// Where it was last seen to run.
    pub last_ran: Option<PuNr>,
    /// The policy that it had before we put it under SCHED_IDLE, where it is now.
    pub lowered: Option<Fair>,
    /// The same of the last time that it, or its creator, was put there.
    pub last_lowered: Option<Fair>,
}

/// What a new thread has from its creator.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// What was done to the creator's mask.
    pub mark: Mark,
    /// Where the creator was put.
    pub recent: Recent,
    /// Mask that the program was seen to have set on the creator.
    pub programs: Option<PuSet>,
    /// The policy that the creator had before it was put under SCHED_IDLE.
    pub lowered: Option<Fair>,
}

impl Default for Inherited {
    fn default() -> Self {
        Self { mark: Mark::Original, recent: Recent::default(), programs: None, lowered: None }
    }
}

impl Thread {
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

    /// What a thread has that it creates now.
    pub fn hands_down(&self) -> Inherited {
        Inherited {
            mark: self.mark,
            recent: self.recent.clone(),
            programs: self.programs.clone(),
            lowered: self.last_lowered,
        }
    }

    /// Whether it is the first thread of its process.
    pub fn is_first(&self) -> bool {
        self.tid == self.pid.first_thread()
    }
}

/// Where a thread was put whose mask it may have handed down, beside where it is now: where it was put or was to be put
/// last, and all that it has left within ten seconds before.
///
/// A new thread has the mask that its creator had when its creation began, and is reported when that is over.
/// Meanwhile its creator may have been put elsewhere more than once, and may have ended before its last mask
/// was read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent(Vec<(Mark, Nanos)>);

/// So long after a thread was created it has been found at the latest. Chosen: on a busy machine its creator waits for a PU
/// in the middle of it, and so do we: where `/proc` is scanned, up to 1.1 s were seen.
const CREATION_TAKES: Nanos = Nanos::from_secs(10);

impl Recent {
    /// Notes that a thread which was put as `from` says is about to be put as `to` says. To be called before it is done:
    /// that may succeed and not be read back.
    pub fn changes(&mut self, from: Mark, to: Mark, at: Nanos) {
        if from != to {
            [from, to].into_iter().for_each(|mark| self.note(mark, at));
        }
    }

    /// Notes that it was there until `at`, if it was put there.
    pub fn note(&mut self, mark: Mark, at: Nanos) {
        if mark.is_put() {
            self.0.retain(|(other, left)| *other != mark && *left + CREATION_TAKES > at);
            self.0.push((mark, at));
        }
    }

    /// Where it was put.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.0.iter().map(|(mark, _)| *mark)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
