//! Serpa et al. again, simulated: SMT-Bench's scenarios and the study of all pairs of two applications.
//!
//! Nothing here was measured, and nothing is fitted to what the paper publishes. Demand vectors are those of
//! `studies/serpa/*.toml`, where every figure has its source; what they leave unknown is drawn, and so is
//! what the model assumes.

pub mod bench;
pub mod length;
pub mod pairs;
pub mod table;
pub mod tail;
pub mod work;

use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use serde::{Deserialize, Serialize};

/// Version of the report that this build writes. Version 1 had applications of half a second, and ranges
/// without verdicts.
pub const VERSION: u32 = 2;

/// How long each application takes alone, unless said otherwise: what [`length`]'s rule gives for the
/// applications of `studies/serpa/nas.toml` on two EPYC 7301.
pub const ALONE: Nanos = Nanos::from_secs(32);

/// What the study is made with.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// How fast it is.
    pub performance: &'a Performance,
    /// The sets of assumptions, the usual one first; never empty.
    pub draws: &'a [Assumptions],
    /// How many seeds for each; at least 1.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long each application takes alone. Never 0.
    pub alone: Nanos,
}

impl Study<'_> {
    /// When a simulation is ended that has not come to its end: after an hour, or a hundred times the length where
    /// that is later.
    fn horizon(&self) -> Nanos {
        Nanos::from_secs(3600).max(Nanos(self.alone.0.saturating_mul(100)))
    }
}

/// What came of the study, simulated (`docs/schemas/study-serpa.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// The machine that is simulated.
    pub machine: String,
    /// How many sets of assumptions.
    pub draws: u32,
    /// How many seeds for each.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long each application takes alone, in seconds.
    pub alone_s: f64,
    /// A digest of the machine, the demand vectors and all that was asked for.
    pub inputs: String,
    /// Least difference that counts as resolved.
    pub resolution: f64,
    /// SMT-Bench on one core.
    pub bench: bench::Figures,
    /// Two applications of as many threads as cores.
    pub pairs: pairs::Figures,
    /// What the metric shows where there is nothing to match.
    pub tail: Vec<tail::Figures>,
}
