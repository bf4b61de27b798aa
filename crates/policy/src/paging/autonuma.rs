//! `autonuma`: the rule of the kernel's NUMA balancing for pages, by samples.
//!
//! # Problem
//! A page is used from a remote node, in a program without NUMA hints.
//! # Approach
//! The kernel periodically unmaps a part of a thread's memory, and moves a page that faults twice
//! in a row from the same node (`should_numa_migrate_memory` in kernel/sched/fair.c, Linux 6.6).
//! Here the samples of a period replace a group's faults. The kernel's own NUMA balancing, which
//! also moves threads to their memory, is `kernel.numa_balancing`.
//! # Terms
//! *Scan*: bytes that may move in a period, per task: `numa_balancing_scan_size_mb`, 256.
//! # Algorithm
//! A group moves to the node with most of its samples, if its last period with samples had the same
//! node, and two random samples are both from this node with a probability above one half: 2 n² >
//! N², of n samples from the node among N. No more bytes move than the scans of all tasks together.
//! # Properties
//! - **Twice**: one period from another node moves nothing. -> test `twice_in_a_row`
//! - **Shared stays**: a group that no node uses for most of the time stays.
//!   -> test `shared_alike_stays`

use super::{Move, PageGroupKey, Paging, Rule, RuleInput, most};
use crate::row::PolicyRow;
use colocate_machine::{Bytes, NodeIdx};
use std::collections::{BTreeMap, BTreeSet};

/// Row in the table of policies.
pub static ROW: PolicyRow = PolicyRow {
    name: "autonuma",
    summary: "moves page groups that the same far node uses twice in a row",
    source: "Linux's NUMA balancing, by samples",
    make: |_, _| Paging::by(AutoNuma::default()),
    ..PolicyRow::ONCE
};

/// Bytes scanned per task and period.
const SCAN: Bytes = Bytes::mib(256);

#[derive(Debug, Default)]
struct AutoNuma {
    last: BTreeMap<PageGroupKey, Option<NodeIdx>>,
}

impl Rule for AutoNuma {
    fn moves(&mut self, seen: &RuleInput<'_>) -> Vec<Move> {
        let uses = seen.groups.iter().flat_map(|group| &group.new);
        let tasks: BTreeSet<_> = uses.map(|one| one.task).collect();
        let mut budget = SCAN.0.saturating_mul(tasks.len() as u64);
        let mut moves = Vec::new();
        for (place, group) in
            seen.groups.iter().enumerate().filter(|(_, group)| group.samples() > 0)
        {
            let counts = group.by_node(seen.nodes());
            let all = group.samples();
            // Two samples drawn with replacement are both from the node with probability n² / N².
            let user = most(&counts).filter(|node| 2 * counts[node.idx()].pow(2) > all.pow(2));
            // The user of the last period with samples.
            let before = self.last.insert(group.key(), user).flatten();
            let Some(to) = user.filter(|_| before == user) else { continue };
            let bytes = group.pages.bytes().0;
            if group.pages.home().is_some_and(|home| home != to) && bytes <= budget {
                budget -= bytes;
                let why = format!("{} of {all} samples from there, twice", counts[to.idx()]);
                moves.push(Move { group: place, to, why });
            }
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{orders, used};

    #[test]
    fn twice_in_a_row() {
        let periods = [1, 2, 1, 1, 1].map(|node| used(&[(7, node, 3, 0)]));
        assert_eq!(orders("autonuma", &periods), [vec![], vec![], vec![], vec![(0, 1)], vec![]]);
    }

    #[test]
    fn shared_alike_stays() {
        let periods = vec![used(&[(1, 1, 5, 1), (2, 2, 5, 1), (3, 3, 4, 0)]); 4];
        assert_eq!(orders("autonuma", &periods), vec![vec![]; 4]);
    }
}
