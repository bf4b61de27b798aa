//! A policy: evidence in, plan out.

use crate::evidence::Evidence;
use crate::plan::Plan;
use colocate_evidence::SourceSet;
use colocate_machine::Nanos;

/// Decides where tasks run. Pure: the same evidence in the same order gives the same plans, and it never learns which host
/// it faces.
pub trait Policy {
    /// Evidence that it needs; by default none. What a host cannot provide is unknown.
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    /// How soon it is to be asked again, even if nothing has happened; `None` if only then.
    fn period(&self) -> Option<Nanos> {
        None
    }

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

impl<F: FnMut(&Evidence<'_>) -> Plan> Policy for ByRule<F> {
    fn needs(&self) -> SourceSet {
        self.needs
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        (self.rule)(evidence)
    }
}
