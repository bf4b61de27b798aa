//! Which tasks wake which.

use crate::TaskId;
use colocate_machine::Nanos;
use serde::Serialize;
use std::ops::Add;

/// Wake-ups of one task by another since both were created.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WakeUps {
    /// Waking task; `None` for interrupts and for threads of no job.
    pub waker: Option<TaskId>,
    /// Woken task.
    pub wakee: TaskId,
    /// Number of wake-ups after which the wakee ran; an estimate if wake-ups are sampled.
    pub count: u64,
    /// Number of these wake-ups after which the wakee ran on its waker's PU; `None` if unknown.
    pub same_pu: Option<u64>,
    /// Total wait of the wakee for a PU after these wake-ups; `None` if unknown.
    #[serde(rename = "waited_ns")]
    pub waited: Option<Nanos>,
    /// Time in which both had a PU at once, as far as neither woke another task meanwhile. Counts
    /// the cases where the wakee leaves its PU first; the rest is in the entry with the two
    /// exchanged. `None` if unknown.
    #[serde(rename = "both_ran_ns")]
    pub both_ran: Option<Nanos>,
    /// Turns of the wakee that began on another PU than its waker's; `None` if unknown.
    pub turns_apart: Option<Turns>,
    /// Turns of the wakee that began on its waker's PU; `None` if unknown.
    pub turns_together: Option<Turns>,
}

/// Turns of a woken task, from the wake-up until it wakes its waker or sleeps. A turn has all that a
/// wake-up costs: the wait for a PU, the waker's time, caches and idle states.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// Number of turns.
    pub count: u64,
    /// Their total length.
    #[serde(rename = "total_ns")]
    pub total: Nanos,
}

impl Add for Turns {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, total: self.total + other.total }
    }
}
