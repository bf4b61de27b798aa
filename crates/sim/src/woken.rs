//! Wake-ups of tasks by tasks: pending ones, and sums of past ones.

use colocate_machine::{Nanos, PuIdx};
use std::collections::BTreeMap;

/// A pending wake-up: the task has not had a PU since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    /// The waker, by place in the list of all tasks.
    pub by: usize,
    /// Time of the wake-up.
    pub at: Nanos,
    /// PU of the waker.
    pub on: Option<PuIdx>,
}

/// Sums over a task's wake-ups by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub count: u64,
    /// Wake-ups after which the woken task got the waker's PU.
    pub same_pu: u64,
    /// Time from the wake-ups until the woken task made progress.
    pub waited: Nanos,
    /// Time during which both tasks had a PU.
    pub both_ran: Nanos,
}

/// Sums by waker and wakee.
pub(crate) type WakeUpSums = BTreeMap<(usize, usize), Sums>;
