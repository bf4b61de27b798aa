//! Wake-ups of tasks by tasks, as they are kept.

use colocate_machine::{Nanos, PuIdx};
use std::collections::BTreeMap;

/// That a task was woken and has not had a PU since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    /// Its waker, by its place in the list of all tasks.
    pub by: usize,
    pub at: Nanos,
    /// Where its waker was.
    pub on: Option<PuIdx>,
}

/// Wake-ups of one task by another so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub count: u64,
    /// Of these, how often the woken one had the PU where its waker was.
    pub same_pu: u64,
    /// From the wake-ups until the woken one went on.
    pub waited: Nanos,
    /// For how long both had a PU.
    pub both_ran: Nanos,
}

/// By waker and wakee.
pub(crate) type WakeUpSums = BTreeMap<(usize, usize), Sums>;
