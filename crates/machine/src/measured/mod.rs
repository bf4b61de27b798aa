//! How fast cores are by measurement: the file that `colocate-study bench cores` writes, and what becomes of a machine
//! with it.
//!
//! What firmware and kernel say of kinds of cores is wrong where a hypervisor hides them, where a core is slowed
//! down, or where others hold it. [`kinds_of`] puts measured cores into kinds, [`CoreSpeeds::of_machine`] makes a
//! machine whose kinds are these, and [`disagreements`] says where reports and measurement differ. `docs/reference/cores.md`
//! says how the figures come about.

mod apply;
mod check;
mod kinds;
mod reported;
mod sets;
#[cfg(test)]
mod testing;

pub use apply::{NotThisMachine, cores_of};
pub use check::CoreSpeedsError;
pub use kinds::{NOISE, kinds_of};
pub use reported::{Reported, disagreements};

use crate::cpulist::PuSet;
use crate::ids::PuNr;
use crate::units::{Hertz, Nanos};
use serde::{Deserialize, Serialize};

/// Version of the format that this build reads and writes.
pub const VERSION: u32 = 1;

/// How likely a [`Speed`]'s range holds the true value. Chosen wide, as for siblings in `bench smt`: with the usual
/// 95 % one of twenty alike cores would come apart from another by chance.
pub const CONFIDENCE: f64 = 0.999;

/// A speed relative to the fastest, and the range that holds it with [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// 1 is as fast as the fastest. Above 0.
    pub value: f64,
    /// Lower end of its range. Above 0.
    pub low: f64,
    /// Upper end of its range; above 1 where the fastest is not known better.
    pub high: f64,
}

impl Speed {
    /// This speed in units of `unit`.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        Self { value: self.value / unit, low: self.low / unit, high: self.high / unit }
    }

    /// As the kernel's `cpu_capacity`: 1024 is the fastest; at least 1, since a core of no capacity could not run.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to 1024
    pub fn capacity(self) -> u32 {
        (self.value * 1024.0).round().clamp(1.0, 1024.0) as u32
    }
}

/// What was measured on one PU, and what is reported of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PuSpeed {
    /// The kernel's number.
    pub pu: PuNr,
    /// Work done in a second on the wall, relative to the fastest core. Time in which others held the PU is in it,
    /// since any thread there waits as long.
    pub speed: Speed,
    /// Work done in a second of CPU time, relative to the fastest PU by that: as if nothing else ran. 0 to 1.
    pub speed_while_running: f64,
    /// The share of the time in which the measuring thread had the PU, 0 to 1.
    pub share_of_pu: f64,
    /// Clock rate while it ran: the median of all rounds.
    pub clock: Hertz,
    /// What firmware and kernel say.
    pub reported: Reported,
}

/// Cores that measure alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKind {
    /// The geometric mean of its cores, relative to the fastest kind, with the least and the greatest end of their
    /// ranges.
    pub speed: Speed,
    /// The PUs that were measured on its cores.
    pub pus: PuSet,
}

/// What `colocate-study bench cores` found: `docs/schemas/core-speeds.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreSpeeds {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Processor model, if known.
    pub processor: Option<String>,
    /// The kernel's name and release, if known.
    pub kernel: Option<String>,
    /// When the measurement began, in seconds since 1970.
    pub started_unix_s: u64,
    /// Visits to each PU.
    pub rounds: u32,
    /// How long the work of one visit was timed.
    pub visit_ns: Nanos,
    /// Seed of the order of visits.
    pub seed: u64,
    /// Tasks of others that ran or waited for a PU at the start; `None` if the kernel does not say.
    pub others_runnable: Option<u32>,
    /// The machine's cores, each with its online PUs, in logical order: how the machine is known again.
    /// At most 8,192, none of them empty.
    #[serde(deserialize_with = "sets::read")]
    pub cores: Vec<PuSet>,
    /// What was measured, lowest PU first.
    pub pus: Vec<PuSpeed>,
    /// Slowest first. No more than there are cores.
    #[serde(deserialize_with = "sets::read")]
    pub kinds: Vec<MeasuredKind>,
    /// Where what is reported differs from what was measured, one line each.
    pub disagreements: Vec<String>,
}
