//! The interface of a policy: evidence in, plan out.

use crate::evidence::Evidence;
use crate::plan::Plan;
use colocate_evidence::SourceSet;
use colocate_machine::Nanos;

/// Placement policy. Pure: the same evidence in the same order gives the same plans, on any host.
pub trait Policy {
    /// Evidence sources to collect; by default none. Evidence that a host cannot provide is `None`.
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    /// Longest time between two decisions; `None`: decide on events only.
    fn period(&self) -> Option<Nanos> {
        None
    }

    /// Plan until the next decision.
    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan;
}

/// Policy from a closure, which holds all state.
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
