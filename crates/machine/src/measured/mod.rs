//! Measured speeds of cores: the file written by `colocate-study bench cores`, and its application
//! to a machine.
//!
//! Kinds of cores reported by firmware and kernel are wrong if a hypervisor hides them, if a core
//! is slowed down, or if other load occupies it. [`kinds_of`] classifies measured cores,
//! [`CoreSpeeds::of_machine`] replaces the kinds of a machine, and [`disagreements`] lists
//! differences between report and measurement. `docs/reference/cores.md` describes the measurement.

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

/// Confidence of the range of a [`Speed`]. Chosen wide, as for siblings in `bench smt`: with the
/// usual 95 %, one of twenty equal cores would differ by chance.
pub const CONFIDENCE: f64 = 0.999;

/// Speed relative to the fastest core, with its range of confidence [`CONFIDENCE`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Speed; 1 is the fastest. Above 0.
    pub value: f64,
    /// Lower end of the range. Above 0.
    pub low: f64,
    /// Upper end of the range; may be above 1, since the fastest speed is uncertain too.
    pub high: f64,
}

impl Speed {
    /// Converts the speed to units of `unit`.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        Self { value: self.value / unit, low: self.low / unit, high: self.high / unit }
    }

    /// Converts to the kernel's `cpu_capacity`: 1024 is the fastest; at least 1, as a core of
    /// capacity 0 could not run.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to 1024
    pub fn capacity(self) -> u32 {
        (self.value * 1024.0).round().clamp(1.0, 1024.0) as u32
    }
}

/// Measured and reported speed of one PU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PuSpeed {
    /// Kernel number of the PU.
    pub pu: PuNr,
    /// Work per second of wall time, relative to the fastest core. Includes time lost to other
    /// load, since any thread on the PU waits as long.
    pub speed: Speed,
    /// Work per second of CPU time, relative to the fastest PU by this measure: as if nothing else
    /// ran. 0 to 1.
    pub speed_while_running: f64,
    /// Share of time in which the measuring thread had the PU, 0 to 1.
    pub share_of_pu: f64,
    /// Clock rate while the measuring thread ran: the median of all rounds.
    pub clock: Hertz,
    /// Speeds reported by firmware and kernel.
    pub reported: Reported,
}

/// A kind of core by measurement.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKind {
    /// Geometric mean of the cores, relative to the fastest kind, with the least and the greatest
    /// end of their ranges.
    pub speed: Speed,
    /// Measured PUs of the kind.
    pub pus: PuSet,
}

/// Result of `colocate-study bench cores`: `docs/schemas/core-speeds.json`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreSpeeds {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Processor model, if known.
    pub processor: Option<String>,
    /// Name and release of the kernel, if known.
    pub kernel: Option<String>,
    /// Beginning of the measurement, in seconds since 1970.
    pub started_unix_s: u64,
    /// Number of visits to each PU.
    pub rounds: u32,
    /// Timed work of one visit.
    pub visit_ns: Nanos,
    /// Seed of the order of visits.
    pub seed: u64,
    /// Runnable tasks of other programs at the start; `None` if the kernel does not report them.
    pub others_runnable: Option<u32>,
    /// Cores of the machine, each with its online PUs, in logical order: identifies the machine. At
    /// most 8,192, none of them empty.
    #[serde(deserialize_with = "sets::read")]
    pub cores: Vec<PuSet>,
    /// Measurements, lowest PU first.
    pub pus: Vec<PuSpeed>,
    /// Kinds of cores, slowest first. No more kinds than cores.
    #[serde(deserialize_with = "sets::read")]
    pub kinds: Vec<MeasuredKind>,
    /// Differences between report and measurement, one line each.
    pub disagreements: Vec<String>,
}
