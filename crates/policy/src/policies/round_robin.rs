//! `round-robin`: tasks on PUs in hwloc's logical order, the baseline of Serpa et al. If jobs may
//! wait, the jobs that have waited longest run.
//!
//! # Problem
//! The published gains are against this mapping, so it must be built exactly as it was.
//! # Approach
//! Task `i` goes to the `i`-th usable PU in hwloc's *logical* order. In that order the PUs of a
//! core follow each other, so two threads of one program share each core. The kernel's numbers
//! would not do: on most x86 machines siblings are `i` and `i + n/2` there, and the baseline would
//! spread.
//! # Terms
//! `P`: usable PUs, a count.
//! # Algorithm
//! Task `i`, in the order of IDs, takes PU `i mod P`. Where jobs may wait: jobs in the order of the
//! queue as far as there are PUs, and PUs far apart first.
//! # Properties
//! - **Siblings together**: two tasks that follow each other share a core. -> test
//!   `siblings_together`
//! - **Logical order**: the kernel's numbering has no influence. -> test `logical_order`
//! - **Wraps around**: with more tasks than PUs every PU gets ⌊n/P⌋ or ⌈n/P⌉.
//!   -> test `wraps_around`

use super::in_order;
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::policy::by_rule;
use crate::row::{Cadence, PolicyRow, Purpose};
use crate::schedule::allocate::spread;
use crate::schedule::select;
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "round-robin",
    purpose: Purpose::Baseline,
    summary: "fills PUs in logical order; where jobs wait, in turn",
    source: "Serpa et al., baseline; where jobs wait, a baseline of ours",
    cadence: Cadence::Either,
    waits: true,
    make: |_, _| by_rule(SourceSet::NONE, decide),
    ..PolicyRow::ONCE
};

fn decide(evidence: &Evidence<'_>) -> Plan {
    if evidence.may_wait {
        return evidence.plan(&spread(&evidence.now, select::all_or_first(&evidence.now)));
    }
    in_order(evidence, "hwloc logical order", |places, _| places.pus.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Quantum;
    use crate::schedule::testing::{chosen, queue};
    use crate::testing::{check, machine};
    use expect_test::expect;

    #[test]
    fn siblings_together() {
        check(
            "round-robin",
            "core:4 pu:2",
            "AABB",
            "",
            expect![[r#"
            [A A][B B][_ _][_ _]
        "#]],
        );
    }

    #[test]
    fn logical_order() {
        // Numbered as Linux does on EPYC: siblings are i and i + 4.
        check(
            "round-robin",
            "core:4 pu:2 linux",
            "AABB",
            "",
            expect![[r#"
            [A A][B B][_ _][_ _]
        "#]],
        );
    }

    #[test]
    fn wraps_around() {
        check(
            "round-robin",
            "core:2 pu:2",
            "AAAAAB",
            "",
            expect![[r#"
            [AA AB][A A]
        "#]],
        );
    }

    #[test]
    fn cores_before_siblings() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 2]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        assert_eq!(chosen(&spread(&now, select::all_or_first(&now))), [(0, 0), (1, 2)]);
    }
}
