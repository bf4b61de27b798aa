//! Why a scenario does not make sense.

use thiserror::Error;

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct ScenarioError {
    /// Which part of it, e.g. `job 2, thread 0`.
    pub place: String,
    /// What would do.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

pub(crate) fn error(place: String, expected: &'static str, found: &str) -> ScenarioError {
    ScenarioError { place, expected, found: found.to_owned() }
}
