//! `scatter`: as far apart as possible.
//!
//! # Problem
//! Tasks that do not communicate need as much cache and bandwidth each as there is.
//! # Approach
//! Put the next task into the domain with the fewest tasks: another package before another node,
//! another node before another last-level cache, another cache before another core, and a core's
//! second PU only when every core has a task. Fast kinds of core come before slow kinds: a whole
//! slow core still comes before half a fast core, as in the kernel's own schedulers for hybrid
//! processors.
//! # Terms
//! `P`: usable PUs, a count.
//! # Algorithm
//! Deal the cores of each kind in turns: one of each package, in a package one of each node, in a
//! node one of each last-level cache. Then take the first PU of every core, then every core's
//! second, and so on. Task `i` takes place `i mod P`.
//! # Properties
//! - **Packages, nodes, caches, cores, siblings**: in this order.
//!   -> test `packages_nodes_caches_cores_siblings`
//! - **Fast first**: the fastest kind fills before slower ones. -> test `fast_first`
//! - **Balanced domains**: while a domain has room, no package has two tasks more than another.
//!   -> test `balanced_domains`

use super::in_order;
use crate::policy::by_rule;
use crate::row::{PolicyRow, Purpose};
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "scatter",
    purpose: Purpose::Baseline,
    summary: "puts tasks as far apart as possible",
    source: "a baseline",
    make: |_, _| {
        by_rule(SourceSet::NONE, |it| in_order(it, "farthest apart", |p, _| p.spread_pus()))
    },
    ..PolicyRow::ONCE
};

#[cfg(test)]
mod tests {
    use crate::testing::{check, letters, machine, plan};
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn packages_nodes_caches_cores_siblings() {
        // 2 packages x 2 nodes x 2 caches x 2 cores x 2 PUs, named in the order they are filled.
        check(
            "scatter",
            "pack:2 node:2 l3:2 core:2 pu:2",
            "ABCDEFGHIJKLMNOPQ",
            "",
            expect![[r#"
            [A Q][I _]
            [E _][M _]
            [C _][K _]
            [G _][O _]
            [B _][J _]
            [F _][N _]
            [D _][L _]
            [H _][P _]
        "#]],
        );
    }

    #[test]
    fn fast_first() {
        // Cores 0 and 1 are fast with two PUs each, 2 and 3 slow with one.
        check(
            "scatter",
            "core:2 pu:2 + slow core:2 pu:1",
            "ABCDE",
            "",
            expect![[r#"
            [A E][B _]
            [C][D]
        "#]],
        );
    }

    proptest! {
        #[test]
        fn balanced_domains(tasks in 0_usize..=16) {
            let machine = machine("pack:2 l3:2 core:2 pu:2");
            let all: Vec<_> = machine.all_pus().collect();
            let names: String = (0..tasks).map(|_| 'A').collect();
            let made = plan("scatter", &machine, &all, &letters(&names, ""));
            let mut of_package = [0_i32; 2];
            for decision in &made.decisions {
                let pu = machine.pu_by_os(decision.place.pu().unwrap()).unwrap();
                of_package[machine.cores[machine.core_of(pu).idx()].package.idx()] += 1;
            }
            prop_assert!((of_package[0] - of_package[1]).abs() <= 1, "{of_package:?}");
        }
    }
}
