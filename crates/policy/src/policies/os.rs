//! `os`: leave every task to the kernel.
//!
//! # Problem
//! Every other policy must be compared with doing nothing.
//! # Approach
//! Pin nothing. The inherited affinity mask stays as it is.
//! # Terms
//! None.
//! # Algorithm
//! No task gets a PU; neither do tasks created later. All jobs run.
//! # Properties
//! - **Hands off**: no decision names a PU. -> test `hands_off`

use super::{Placement, PuChoice, planned};
use crate::evidence::Evidence;
use crate::plan::{DefaultPlacement, PlaceReason, Plan};
use crate::policy::by_rule;
use crate::row::{Cadence, PolicyRow, Purpose};
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "os",
    purpose: Purpose::Baseline,
    summary: "leaves every thread unpinned, kernel-scheduled",
    source: "a baseline",
    cadence: Cadence::Either,
    make: |_, _| by_rule(SourceSet::NONE, decide),
    ..PolicyRow::ONCE
};

fn decide(evidence: &Evidence<'_>) -> Plan {
    if evidence.may_wait {
        return evidence.leave_to_kernel();
    }
    planned(evidence, |_, tasks| place(tasks.len()))
}

pub(super) fn place(tasks: usize) -> Placement {
    Placement {
        choices: vec![PuChoice { pu: None, why: PlaceReason::LeftToKernel }; tasks],
        default_placement: DefaultPlacement::LeaveToKernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Quantum;
    use crate::schedule::testing::queue;
    use crate::testing::{letters, machine, plan};
    use crate::{DefaultPlacement, Place};

    #[test]
    fn hands_off() {
        let machine = machine("core:2 pu:2");
        let all: Vec<_> = machine.all_pus().collect();
        let made = plan("os", &machine, &all, &letters("ABC", ""));
        assert_eq!(made.decisions.len(), 3);
        assert!(made.decisions.iter().all(|decision| decision.place == Place::LeftToKernel));
        assert_eq!(made.default_placement, DefaultPlacement::LeaveToKernel);
        assert_eq!(made.predicted, None);
    }

    #[test]
    fn the_kernel_gets_everything() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 5]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let found = decide(&Evidence::of_queue(now));
        assert_eq!(found.decisions.len(), 5);
        assert!(found.decisions.iter().all(|decision| decision.place == Place::LeftToKernel));
    }
}
