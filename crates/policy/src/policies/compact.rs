//! `compact`: as close together as possible.
//!
//! # Problem
//! Tasks that communicate need the same cache; idle packages save power.
//! # Approach
//! Use the fewest packages, in them the fewest nodes, then last-level caches, then cores. If part
//! of the machine is forbidden, this differs from filling in logical order.
//! # Terms
//! *Room*: usable PUs of a domain, a count.
//! # Algorithm
//! At each level: the domain with the least room that still holds all the tasks; if none holds
//! them, the one with the most room is filled and the rest goes on in the others. In logical order
//! among equals. More tasks than PUs start again from the first.
//! # Properties
//! - **Fewest domains**: all on one package, cache or core if one has room.
//!   -> test `fewest_domains`
//! - **Best fit**: the smallest domain with room is taken. -> test `best_fit`
//! - **Whole cores first**: at most one core is used in part. -> test `whole_cores_first`

use super::in_order;
use crate::policy::by_rule;
use crate::row::{PolicyRow, Purpose};
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "compact",
    purpose: Purpose::Baseline,
    summary: "puts tasks as close together as possible",
    source: "a baseline",
    make: |_, _| {
        by_rule(SourceSet::NONE, |it| in_order(it, "closest together", |p, n| p.close_pus(n)))
    },
    ..PolicyRow::ONCE
};

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_on};
    use expect_test::expect;

    #[test]
    fn fewest_domains() {
        // Logical order would start with the one PU that is left of package 0.
        check_on(
            "compact",
            "pack:2 core:2 pu:2",
            &[3, 4, 5, 6, 7],
            "AAAA",
            "",
            expect![[r#"
            [x x][x _]
            [A A][A A]
        "#]],
        );
    }

    #[test]
    fn best_fit() {
        // The first cache has four usable PUs, the second two: two tasks fit in the second.
        check_on(
            "compact",
            "l3:2 core:2 pu:2",
            &[0, 1, 2, 3, 4, 5],
            "AA",
            "",
            expect![[r#"
            [_ _][_ _]
            [A A][x x]
        "#]],
        );
    }

    #[test]
    fn whole_cores_first() {
        check(
            "compact",
            "core:4 pu:2",
            "AAABB",
            "",
            expect![[r#"
            [A A][A B][B _][_ _]
        "#]],
        );
    }
}
