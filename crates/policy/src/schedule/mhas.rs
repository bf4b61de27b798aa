//! `mhas`: memory-hierarchy bandwidth-aware scheduling (Feliu et al., IPDPS 2012, Algorithm 2).
//!
//! # Problem
//! Jobs with no more memory traffic than others can still fight for a cache that some cores share.
//! # Approach
//! Select as [`mmas`], then balance the requests of the caches of every shared level.
//! # Terms
//! See [`mmas`]: `IABW`; and [`allocate`]: shared level.
//! # Algorithm
//! Selection of [`mmas`]; [`allocate::balanced`].
//! # Properties
//! - **Balanced**: threads with much traffic to a shared cache are apart. -> test
//!   `caches_are_balanced`

use super::allocate::{self, choices, threads_of};
use super::{Allocated, Choice, Quantum, Selected, mmas};
use crate::policy::by_rule;
use crate::row::{COUNTERS, Prior, Row};

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "mhas",
    summary: "balances traffic at each level of the memory hierarchy",
    source: "Feliu et al., IPDPS 2012, Algorithm 2",
    prior: &[Prior::Solo],
    make: |_, known| {
        let alone = known.alone.to_vec();
        by_rule(COUNTERS, move |it| it.plan(&balance(&it.now, mmas::select(&it.now, &alone))))
    },
    ..Row::EACH_QUANTUM
};

/// Seats the chosen jobs so that the caches of every shared level have about as many requests.
pub(super) fn balance(now: &Quantum<'_>, chosen: Vec<(usize, Selected)>) -> Vec<Choice> {
    let threads = threads_of(now.queue, &chosen, now.pus.len());
    let pus = allocate::balanced(now.machine, now.pus, &threads);
    let lowest = allocate::shared_levels(now.machine, now.pus).last().copied();
    choices(now, chosen, &pus, |_| match lowest {
        Some(level) => Allocated::Balanced { level },
        None => Allocated::Next,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, traffic};
    use super::*;
    use crate::row::SoloProfile;
    use crate::testing::machine;

    /// All four run; by requests to the shared caches, 20 + 2 and 16 + 6 are together, though in the queue
    /// 20 and 16 follow each other.
    #[test]
    fn caches_are_balanced() {
        let machine = machine("l3:2 core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let of = |rate: f64| ([None, None, Some(rate), None], 1.0);
        let queue = traffic([20.0, 16.0, 2.0, 6.0].map(of));
        let alone = vec![SoloProfile { memory: 1.0, seconds: 1.0, ..SoloProfile::default() }; 4];
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let mut found = chosen(&balance(&now, mmas::select(&now, &alone)));
        found.sort_unstable();
        let half = |job: usize| found[job].1 / 2;
        assert_eq!((half(0), half(1)), (half(2), half(3)));
        assert_ne!(half(0), half(1));
    }
}
