//! A policy: evidence in, plan out.

use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::source::SourceSet;
use std::fmt;

/// Decides where tasks run. Pure: the same evidence in the same order gives the same plans, and it never learns which host
/// it faces.
pub trait Policy: fmt::Debug {
    /// Evidence that it needs. What a host cannot provide is unknown.
    fn needs(&self) -> SourceSet;

    /// The plan for the time until the next decision.
    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan;
}
