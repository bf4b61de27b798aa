//! Tasks on PUs.

use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};

/// A task on a PU, and how it goes on there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnPu {
    pub task: TaskNo,
    pub pu: PuIdx,
    pub phase: usize,
    /// Instructions per second, here and alone on the best core.
    pub speed: f64,
    pub alone: f64,
    /// Instructions that it has done since its rates were predicted, and seconds that it filled cold caches.
    pub did: f64,
    pub cold: f64,
    /// Bytes per second.
    pub memory: f64,
    pub clock: f64,
    /// Part of its memory that is on other nodes.
    pub far: f64,
    /// When its phase or its work is over.
    pub until: Nanos,
}
