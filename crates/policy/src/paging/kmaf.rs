//! `kmaf`: page groups go to the node that uses them most.
//!
//! # Problem
//! Pages are used from remote nodes by threads without profiles.
//! # Approach
//! kMAF (Diener et al., PACT 2014) counts the faults of each page by node, in the kernel, and moves
//! the page to the node with most faults. Its mapping of threads is `communication`. Here samples
//! of page groups are counted.
//! # Terms
//! None.
//! # Algorithm
//! Counts of a group are halved each period, rounded up, so that new samples weigh more. A group
//! moves to the node with the largest count, if that is at least two samples and more than its
//! home's count.
//! # Properties
//! - **To the most**: a group is where most of its samples are from. -> test `to_the_most`
//! - **One sample is none**: -> test `one_sample_moves_nothing`

use super::{PageGroupKey, PageGroupUse, Paging, Rule, most};
use crate::row::{PolicyRow, Purpose};
use colocate_machine::{Machine, NodeIdx};
use std::collections::BTreeMap;

pub static ROW: PolicyRow = PolicyRow {
    name: "kmaf",
    purpose: Purpose::Recommended,
    summary: "moves page groups to the node that uses them most",
    source: "Diener et al., PACT 2014, by samples",
    make: |_, _| Paging::by(Kmaf::default()),
    ..PolicyRow::ONCE
};

/// Least number of samples that move a group. Chosen: a single sample says little.
const LEAST: u64 = 2;

#[derive(Default)]
struct Kmaf {
    counts: BTreeMap<PageGroupKey, Vec<u64>>,
}

impl Rule for Kmaf {
    fn target(&mut self, group: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        let known = self.counts.entry(group.key());
        let counts = known.or_insert_with(|| vec![0; group.by_node.len()]);
        for (sum, new) in counts.iter_mut().zip(&group.by_node) {
            // Rounded up, a single old sample never fades.
            *sum = sum.div_ceil(2) + new;
        }
        let to = most(counts)?;
        let there = counts[to.idx()];
        let here = counts[group.pages.home()?.idx()];
        let moves = group.samples() > 0 && there >= LEAST && there > here;
        moves.then(|| (to, format!("{there} samples from there, {here} from its node")))
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{orders, used};

    #[test]
    fn to_the_most() {
        let periods = [
            used(&[(7, 0, 5, 0), (8, 1, 6, 0)]),
            used(&[(7, 0, 1, 0), (8, 1, 1, 0)]),
            // 5 and 3 are new: of node 0 then 2 + 5, of node 1 2 + 3.
            used(&[(7, 0, 5, 0), (8, 1, 3, 0)]),
            used(&[]),
        ];
        assert_eq!(orders("kmaf", &periods), [vec![(0, 1)], vec![], vec![(0, 0)], vec![]]);
    }

    #[test]
    fn one_sample_moves_nothing() {
        assert_eq!(orders("kmaf", &[used(&[(7, 2, 1, 0)])]), [vec![]]);
    }
}
