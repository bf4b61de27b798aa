//! `carrefour`: co-location and interleaving under global conditions.
//!
//! # Problem
//! A congested memory controller costs more than distance: shared pages should be spread, private
//! pages should be near, and with little memory traffic nothing should move.
//! # Approach
//! Carrefour (Dashti et al., ASPLOS 2013; rules as in the published module). The original samples
//! accesses by IBS. Replication needs a modified kernel, so groups to be replicated are left to the
//! other rules.
//! # Terms
//! *MAPTU*: memory accesses per microsecond, of all threads. *LAR*: local access ratio, the share
//! of samples with a near page. *Imbalance*: standard deviation over mean of the samples served by
//! each node.
//! # Algorithm
//! Each second, if MAPTU is at least 50, or unknown:
//! 1. Interleaving is on if LAR is below 1 and the imbalance above 0.35; migration if LAR is below
//!    0.8.
//! 2. With interleaving on, a group used by several nodes moves with a probability equal to its
//!    node's share of all accesses, to a node drawn with weight 1 − that node's share.
//! 3. With migration on, a group used by one node moves there, if it has at least two samples or
//!    interleaving is on.
//! # Properties
//! - **Near**: private groups go to their users. -> test `private_groups_go_home`
//! - **Spread**: where one node serves all, shared groups are spread.
//!   -> test `shared_groups_are_spread`
//! - **Content**: where most is near nothing moves. -> test `near_enough`
//! - **Idle memory**: below the MAPTU nothing moves. -> test `hardly_any_traffic`

use super::{PageGroupUse, Paging, Rule, with_memory};
use crate::evidence::Evidence;
use crate::predict::{mean, variance};
use crate::rng::SplitMix64;
use crate::row::{PolicyRow, Setting};
use colocate_evidence::{Source, SourceSet};
use colocate_machine::{Machine, NodeIdx};

pub static ROW: PolicyRow = PolicyRow {
    name: "carrefour",
    summary: "moves private page groups to their node, spreads shared ones",
    source: "Dashti et al., ASPLOS 2013, by samples, without replication",
    settings: &[Setting::count("seed", 0, 1, "seed of what is drawn")],
    make: |values, _| {
        let rng = SplitMix64::new(values.count("seed").into());
        Paging::by(Carrefour { rng, part: Vec::new(), interleaves: false, migrates: false })
    },
    ..PolicyRow::ONCE
};

/// Memory accesses per microsecond below which nothing moves.
const LEAST_MAPTU: f64 = 50.0;
/// Share of near accesses below which private groups move.
const MOST_NEAR: f64 = 0.8;
/// Imbalance above which shared groups are spread.
const MOST_IMBALANCE: f64 = 0.35;

struct Carrefour {
    rng: SplitMix64,
    /// Share of samples served by each node.
    part: Vec<f64>,
    interleaves: bool,
    migrates: bool,
}

impl Rule for Carrefour {
    const ALSO: SourceSet = SourceSet::of(&[Source::Counters]);

    fn begin(&mut self, groups: &[PageGroupUse<'_>], evidence: &Evidence<'_>) {
        let machine = evidence.now.machine;
        let is_idle = maptu(evidence).is_some_and(|rate| rate < LEAST_MAPTU);
        let near = self.serve(groups, machine.nodes.len());
        // With all samples near, spreading would only move pages away from their users.
        self.interleaves = !is_idle && near < 1.0 && self.imbalance(machine) > MOST_IMBALANCE;
        self.migrates = !is_idle && near < MOST_NEAR;
    }

    fn target(&mut self, group: &PageGroupUse<'_>, machine: &Machine) -> Option<(NodeIdx, String)> {
        let home = group.pages.home()?;
        // Two users are enough to know that a group is shared.
        let counts = group.by_node.iter().enumerate();
        let mut users = counts.filter(|(_, count)| **count > 0).map(|(node, _)| NodeIdx::new(node));
        match (users.next(), users.next()) {
            (Some(_), Some(_)) if self.interleaves => {
                Some((self.draw(home, machine)?, "spread".to_owned()))
            }
            (Some(to), None) if self.migrates && (group.samples() >= 2 || self.interleaves) => {
                Some((to, "used from there only".to_owned()))
            }
            _ => None,
        }
    }
}

impl Carrefour {
    /// Draws the destination of a shared group, a node with memory; `None`: stays.
    fn draw(&mut self, home: NodeIdx, machine: &Machine) -> Option<NodeIdx> {
        // The more samples the home serves, the likelier a group leaves.
        if self.rng.unit() >= self.part[home.idx()] {
            return None;
        }
        let weights = self.part.iter().enumerate().map(|(node, part)| {
            let may_be = node != home.idx() && machine.has_memory(NodeIdx::new(node));
            // The fewer samples a node serves, the likelier the group goes there.
            if may_be { 1.0 - part } else { 0.0 }
        });
        let weights: Vec<f64> = weights.collect();
        // Roulette-wheel selection.
        let mut left = self.rng.unit() * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // Rounding can leave a rest beyond the last weight: the group then stays.
        drawn.map(NodeIdx::new)
    }

    /// Takes in the samples served by each node. Returns the share with a near page; 1 without any.
    fn serve(&mut self, groups: &[PageGroupUse<'_>], nodes: usize) -> f64 {
        self.part = vec![0.0; nodes];
        let mut near = 0.0;
        let mut all = 0.0;
        for PageGroupUse { pages, new, .. } in groups {
            for one in new {
                let samples = one.samples as f64;
                all += samples;
                near += samples * pages.on.get(one.node.idx()).copied().unwrap_or(0.0);
                self.part.iter_mut().zip(&pages.on).for_each(|(sum, on)| *sum += samples * on);
            }
        }
        // Without samples nothing is known to be far.
        if all == 0.0 {
            return 1.0;
        }
        self.part.iter_mut().for_each(|sum| *sum /= all);
        near / all
    }

    /// Standard deviation over mean of the samples served, over the nodes with memory.
    fn imbalance(&self, machine: &Machine) -> f64 {
        let nodes = with_memory(machine);
        let parts: Vec<f64> = nodes.iter().map(|node| self.part[node.idx()]).collect();
        let mean = mean(&parts);
        if mean > 0.0 { variance(&parts).sqrt() / mean } else { 0.0 }
    }
}

/// Memory accesses per microsecond of all threads; `None`: not counted.
fn maptu(evidence: &Evidence<'_>) -> Option<f64> {
    let threads = evidence.now.queue.iter().flat_map(|job| &job.threads);
    let rates = threads.filter_map(|thread| thread.traffic().memory);
    // A sum of no rates would be 0, not unknown.
    rates.reduce(|sum, rate| sum + rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Evidence, Quantum, QueuedJob, Rates, Thread, Traffic};
    use crate::paging::testing::orders;
    use crate::table::PolicySpec;
    use crate::testing::machine;
    use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse, SourceReports, TaskId};
    use colocate_machine::Nanos;

    #[test]
    fn private_groups_go_home() {
        let all = (1..4).map(|node| (0, vec![(node, node as usize, 2, 0)])).collect();
        assert_eq!(orders("carrefour", &[all]), [vec![(0, 1), (1, 2), (2, 3)]]);
    }

    /// All of it is on node 0, so each group moves with probability 1, and evenly to the others.
    #[test]
    fn shared_groups_are_spread() {
        let all = vec![(0, vec![(1, 1, 1, 0), (2, 2, 1, 0)]); 300];
        let found = orders("carrefour", &[all]).remove(0);
        assert_eq!(found.len(), 300);
        for node in 1..4 {
            let there = found.iter().filter(|(_, to)| *to == node).count();
            assert!((75..=125).contains(&there), "{there} on node {node}");
        }
    }

    #[test]
    fn near_enough() {
        let near = |node: u32| (node as usize, vec![(node, node as usize, 9, 0)]);
        let all = vec![near(0), near(1), near(2), near(3), (0, vec![(5, 2, 1, 0)])];
        assert_eq!(orders("carrefour", &[all]), [vec![]]);
    }

    #[test]
    fn nodes_without_memory_get_nothing() {
        let mut machine = machine("node:3 core:1");
        machine.nodes[1].memory = Some(colocate_machine::Bytes(0));
        let mut carrefour = Carrefour {
            rng: SplitMix64::new(1),
            part: vec![1.0, 0.0, 0.0],
            interleaves: true,
            migrates: true,
        };
        let mut draw = || carrefour.draw(NodeIdx::new(0), &machine);
        assert_eq!([draw(), draw(), draw(), draw()], [Some(NodeIdx::new(2)); 4]);
    }

    #[test]
    fn hardly_any_traffic() {
        let machine = machine("node:4 core:4");
        let pus: Vec<_> = machine.all_pus().collect();
        let task = TaskId { job: JobIdx(0), order: 0 };
        let (node, time) = (NodeIdx::new(1), Nanos::from_millis(40));
        let uses = vec![PageUse { task, node, time, samples: 10, writes: 0 }];
        let range = AddressRange { start: 0, end: 2 << 20 };
        let group = PageGroup { job: JobIdx(0), range, on: vec![1.0, 0.0, 0.0, 0.0], uses };
        let moved = |rate: f64| {
            let traffic = Traffic { memory: Some(rate), ..Traffic::default() };
            let ran = Some(Rates { traffic, ..Rates::default() });
            let thread = Thread { id: task, ran, pu: None, runnable: None, bound: false };
            let threads = vec![thread];
            let queue = [QueuedJob {
                job: JobIdx(0),
                threads,
                runnable: None,
                just_ran: true,
                had_own_cores: false,
            }];
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
            let groups = std::slice::from_ref(&group);
            let evidence = Evidence {
                reports: &SourceReports { pages: Some(groups.to_vec()), ..SourceReports::NONE },
                ..Evidence::of_queue(now)
            };
            PolicySpec::named("carrefour").plain().decide(&evidence).pages.len()
        };
        assert_eq!((moved(49.0), moved(51.0)), (0, 1));
    }
}
