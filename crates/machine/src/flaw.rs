//! The error of every reader of this crate.

use thiserror::Error;

/// Reason to reject a machine, a description, a quantity or a set of PUs: one line with the expected
/// and the found content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Flaw(pub String);
