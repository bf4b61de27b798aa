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

use super::{PageGroupKey, PageGroupUse, Paging, Rule, most};
use crate::evidence::Evidence;
use crate::row::PolicyRow;
use colocate_machine::{Bytes, Machine, NodeIdx};
use std::collections::{BTreeMap, BTreeSet};

pub static ROW: PolicyRow = PolicyRow {
    name: "autonuma",
    summary: "moves page groups that the same far node uses twice in a row",
    source: "Linux's NUMA balancing, by samples",
    make: |_, _| Paging::by(AutoNuma::default()),
    ..PolicyRow::ONCE
};

/// Bytes scanned per task and period.
const SCAN: Bytes = Bytes::mib(256);

#[derive(Default)]
struct AutoNuma {
    /// Bytes that may still move in this period.
    budget: u64,
    /// User of each group in its last period with samples.
    last: BTreeMap<PageGroupKey, Option<NodeIdx>>,
}

impl Rule for AutoNuma {
    fn begin(&mut self, groups: &[PageGroupUse<'_>], _: &Evidence<'_>) {
        let uses = groups.iter().flat_map(|group| &group.new);
        let tasks: BTreeSet<_> = uses.map(|one| one.task).collect();
        self.budget = SCAN.0.saturating_mul(tasks.len() as u64);
    }

    fn target(&mut self, group: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        let all = Some(group.samples()).filter(|all| *all > 0)?;
        let user = most(&group.by_node);
        // Two samples drawn with replacement are both from the node with probability n² / N².
        let user = user.filter(|node| 2 * group.by_node[node.idx()].pow(2) > all.pow(2));
        let before = self.last.insert(group.key(), user).flatten();
        let to = user.filter(|to| before == user && group.is_far(*to))?;
        self.budget = self.budget.checked_sub(group.pages.bytes().0)?;
        Some((to, format!("{} of {all} samples from there, twice", group.by_node[to.idx()])))
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
