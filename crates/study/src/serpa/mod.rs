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

use crate::simulate::figures::Spread;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::phase::PhaseError;
use colocate_model::{Assumptions, ModelError};
use colocate_sim::SimError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the report that this build writes. Version 1 had applications of half a second, and ranges
/// without verdicts.
pub const VERSION: u32 = 2;

/// How long each application takes alone, unless said otherwise: what [`length`]'s rule gives for the
/// applications of `studies/serpa/nas.toml` on two EPYC 7301.
pub const ALONE: Nanos = Nanos::from_secs(32);

/// Why the study cannot be made.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A demand vector is not one.
    #[error("demand of {name}: {reason}")]
    Phase {
        /// Which.
        name: String,
        /// What is wrong.
        reason: PhaseError,
    },
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine has no core with two PUs.
    #[error("expected a machine with SMT, found {found}, whose cores have one PU each")]
    NoSiblings {
        /// The machine.
        found: String,
    },
}

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

/// What came of the study. All of it is simulated.
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

impl Report {
    /// The report as JSON text, ending in a newline (`docs/schemas/study-serpa.json`).
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }
}

/// From one figure a draw, the usual first; `None` if one is missing.
fn spread_of_all(figures: &[Option<f64>]) -> Option<Spread> {
    let known = figures.iter().copied().collect::<Option<Vec<f64>>>()?;
    Some(spread(&known))
}

/// From one figure a draw, the usual first.
fn spread(figures: &[f64]) -> Spread {
    let ends = figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &figure| {
        (low.min(figure), high.max(figure))
    });
    Spread { value: figures.first().copied().unwrap_or(f64::NAN), low: ends.0, high: ends.1 }
}

/// The geometric mean; 1 of nothing.
#[allow(clippy::cast_precision_loss)] // a few hundred at most
fn geometric_mean(figures: &[f64]) -> f64 {
    let sum = figures.iter().fold(0.0, |sum, figure| sum + figure.ln());
    (sum / figures.len().max(1) as f64).exp()
}
