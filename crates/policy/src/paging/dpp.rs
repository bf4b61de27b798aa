//! `dpp`: dynamic page placement by competing counters.
//!
//! # Problem
//! Pages used mostly by one node should be on that node; pages used by several nodes should not
//! bounce.
//! # Approach
//! Verghese et al. (ASPLOS 1996): miss counters per page and node, and four thresholds. Here
//! samples of page groups are counted. The published thresholds are for a machine of 1996; these
//! are chosen. Replication needs a kernel that keeps copies coherent, so a group that the paper
//! replicates stays.
//! # Terms
//! *Trigger*: samples from a node that make a group hot there. *Sharing*: samples from another node
//! that make it shared. *Migrate*: moves after which it stays. *Reset*: periods after which all
//! counts are 0.
//! # Algorithm
//! A group that is hot on a node other than its home moves there, unless it is shared or has moved
//! too often.
//! # Properties
//! - **Hot**: below the trigger nothing moves, however long. -> test `below_the_trigger`
//! - **Shared stays**: a group that two nodes use stays. -> test `shared_stays`
//! - **Frozen**: a group moves at most so often until the counts are reset. -> test `frozen`

use super::{PageGroupKey, PageGroupUse, Paging, Rule, most};
use crate::evidence::Evidence;
use crate::row::{PolicyRow, Setting};
use colocate_machine::{Machine, NodeIdx};
use std::collections::BTreeMap;

pub static ROW: PolicyRow = PolicyRow {
    name: "dpp",
    summary: "moves page groups that one node uses much, by competing counters",
    source: "Verghese et al., ASPLOS 1996, by samples",
    settings: &[
        Setting::count("trigger", 1, 4, "samples from a node that make a group hot there"),
        Setting::count("sharing", 1, 2, "samples from another node that make it shared"),
        Setting::count("migrate", 1, 1, "moves after which it stays"),
        Setting::count("reset", 1, 8, "periods after which counts are 0"),
    ],
    make: |values, _| {
        Paging::by(Dpp {
            trigger: values.count("trigger").into(),
            sharing: values.count("sharing").into(),
            migrate: values.count("migrate"),
            reset: values.count("reset"),
            periods: 0,
            counts: BTreeMap::new(),
        })
    },
    ..PolicyRow::ONCE
};

struct Dpp {
    trigger: u64,
    sharing: u64,
    migrate: u32,
    reset: u32,
    periods: u32,
    /// Samples by node, and number of moves, of each group.
    counts: BTreeMap<PageGroupKey, (Vec<u64>, u32)>,
}

impl Rule for Dpp {
    fn begin(&mut self, _: &[PageGroupUse<'_>], _: &Evidence<'_>) {
        // The reset also thaws groups that have reached the `migrate` limit.
        if self.periods == self.reset {
            self.periods = 0;
            self.counts.clear();
        }
        self.periods += 1;
    }

    fn target(&mut self, group: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        if group.samples() == 0 {
            return None;
        }
        let known = self.counts.entry(group.key());
        let (counts, moved) = known.or_insert_with(|| (vec![0; group.by_node.len()], 0));
        counts.iter_mut().zip(&group.by_node).for_each(|(sum, new)| *sum += new);
        let to = most(counts).filter(|to| counts[to.idx()] >= self.trigger)?;
        let mut others = counts.iter().enumerate().filter(|(node, _)| *node != to.idx());
        let is_shared = others.any(|(_, count)| *count >= self.sharing);
        if !group.is_far(to) || is_shared || *moved >= self.migrate {
            return None;
        }
        *moved += 1;
        Some((to, format!("{} samples from there", counts[to.idx()])))
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{orders, used};

    #[test]
    fn below_the_trigger() {
        // One sample a period: three, and then the counts are reset.
        let periods = vec![used(&[(7, 1, 1, 0)]); 9];
        assert_eq!(orders("dpp:reset=3", &periods), vec![vec![]; 9]);
        let with_four = orders("dpp:reset=4", &periods);
        assert_eq!(with_four.iter().position(|orders| *orders == [(0, 1)]), Some(3));
    }

    #[test]
    fn shared_stays() {
        let periods = vec![used(&[(7, 1, 9, 0), (8, 2, 2, 0)]); 3];
        assert_eq!(orders("dpp", &periods), vec![vec![]; 3]);
    }

    #[test]
    fn frozen() {
        // Node 2 uses it so much more in the second period that it is hot there and hardly shared.
        let second = used(&[(7, 2, 9, 0)]);
        let periods = [used(&[(7, 1, 4, 0)]), second.clone(), second];
        assert_eq!(orders("dpp:sharing=5", &periods), [vec![(0, 1)], vec![], vec![]]);
        let twice = orders("dpp:sharing=5:migrate=2", &periods);
        assert_eq!(twice, [vec![(0, 1)], vec![(0, 2)], vec![]]);
    }
}
