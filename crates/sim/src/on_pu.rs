//! Running tasks.

use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};

/// A running task and its rates, constant within a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnPu {
    pub task: TaskNo,
    pub pu: PuIdx,
    pub phase: usize,
    /// Instructions per second here.
    pub speed: f64,
    /// Instructions per second alone on a core of the fastest kind.
    pub alone: f64,
    /// Instructions since its rates were predicted.
    pub did: f64,
    /// Seconds of refills of cold caches since then.
    pub cold: f64,
    /// Bytes per second to and from memory.
    pub memory: f64,
    /// Cycles per second of its core.
    pub clock: f64,
    /// Share of its memory on other nodes.
    pub far: f64,
    /// End of its phase or its work.
    pub until: Nanos,
}
