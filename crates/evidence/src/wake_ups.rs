//! Which tasks wake which.

use crate::TaskId;
use colocate_machine::Nanos;
use serde::Serialize;

/// Wake-ups of one task by another since both were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WakeUps {
    /// The task that wakes; `None` for interrupts and for threads of no job.
    pub waker: Option<TaskId>,
    /// The task that is woken.
    pub wakee: TaskId,
    /// How often, where the woken task had a PU afterwards; estimated where wake-ups are sampled.
    pub count: u64,
    /// Of these, how often it had the PU where its waker was; `None` if that is unknown.
    pub same_pu: Option<u64>,
    /// For how long it waited for a PU after them, in all; `None` if that is unknown.
    #[serde(rename = "waited_ns")]
    pub waited: Option<Nanos>,
    /// For how long both had a PU at the same time, as far as neither woke others meanwhile. What is counted when the woken
    /// task leaves its PU first: the rest is with the same two the other way round. `None` if that is unknown.
    #[serde(rename = "both_ran_ns")]
    pub both_ran: Option<Nanos>,
}
