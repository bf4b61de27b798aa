//! Errors of scenarios.

use thiserror::Error;

/// A part of a scenario that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct ScenarioError {
    /// Part of the scenario, e.g. `job 2, thread 0`.
    pub place: String,
    /// Accepted values.
    pub expected: &'static str,
    /// The value of the scenario.
    pub found: String,
}

/// Refuses a scenario.
pub(crate) fn refuse(
    place: &str,
    expected: &'static str,
    found: &str,
) -> Result<(), ScenarioError> {
    Err(ScenarioError { place: place.to_owned(), expected, found: found.to_owned() })
}
