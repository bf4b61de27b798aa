//! A given plan, from `colocate plan` or written by hand. It has no row in the table: its plan is
//! read from a file.

use crate::evidence::Evidence;
use crate::plan::{DefaultPlacement, Place, Plan};
use crate::policy::Policy;

/// Policy that follows a given plan.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedPlan(pub Plan);

impl Policy for FixedPlan {
    /// The given plan, with tasks on unusable PUs left to the kernel.
    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        // The file may be older than a change of the allowed PUs.
        let mut plan = Plan { pus: evidence.empty_plan().pus, ..self.0.clone() };
        for decision in &mut plan.decisions {
            if decision.place.named_pu().is_some_and(|pu| !plan.pus.contains(&pu)) {
                decision.place = Place::LeftToKernel;
            }
        }
        if let DefaultPlacement::FillInOrder { pus } = &mut plan.default_placement {
            pus.retain(|pu| plan.pus.contains(pu));
            if pus.is_empty() {
                plan.default_placement = DefaultPlacement::LeaveToKernel;
            }
        }
        plan
    }
}
