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

/// A policy that needs no more state than `rule` holds.
pub(crate) fn by_rule(
    needs: SourceSet,
    rule: impl FnMut(&Evidence<'_>) -> Plan + 'static,
) -> Box<dyn Policy> {
    Box::new(ByRule { needs, rule })
}

struct ByRule<F> {
    needs: SourceSet,
    rule: F,
}

impl<F> fmt::Debug for ByRule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRule").field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl<F: FnMut(&Evidence<'_>) -> Plan> Policy for ByRule<F> {
    fn needs(&self) -> SourceSet {
        self.needs
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        (self.rule)(evidence)
    }
}
