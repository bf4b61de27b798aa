//! What the model assumes and nobody has measured: parameters, and the ensemble of them that every
//! comparison is run over.

use serde::{Deserialize, Serialize};

/// What siblings get an equal part of while they compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// Progress: each gets the same fraction of the rate that it has alone.
    Progress,
    /// Front-end slots.
    Slots,
}

/// One choice of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Assumptions {
    /// What siblings share equally.
    pub fairness: Fairness,
    /// Front-end slots a cycle more (or fewer) than described.
    pub width: f64,
    /// How much of a task's stalls leave the core to its siblings: 1 all of them (pessimistic for
    /// pairs of stalling tasks: 0), 0 none.
    pub overlap: f64,
    /// Factor on every bandwidth.
    pub bandwidth: f64,
    /// Factor on every latency beyond the first cache.
    pub latency: f64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            fairness: Fairness::Progress,
            width: 0.0,
            overlap: 1.0,
            bandwidth: 1.0,
            latency: 1.0,
        }
    }
}
