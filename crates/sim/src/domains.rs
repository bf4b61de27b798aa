//! Scheduling domains: parts of the machine within which the kernel balances load. Cores, caches,
//! nodes, and nodes within growing distances.

use colocate_machine::{Machine, NodeIdx, PuIdx};
use std::collections::BTreeSet;

/// A part of the machine, with groups to balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    /// All PUs, in logical order.
    pub pus: Vec<PuIdx>,
    /// Partition of the domain, each part in logical order; at least two parts.
    pub groups: Vec<Vec<PuIdx>>,
    /// Distance between the domain's farthest nodes; `None` within a node.
    pub distance: Option<u32>,
    /// While a group has fewer threads than this, a small difference is left alone (`imb_numa_nr`);
    /// 0 within a node.
    pub leeway: usize,
}

/// The domains of a machine's usable PUs.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    /// Smallest first.
    pub all: Vec<Domain>,
    /// Domains over each PU, smallest first, by place in `Machine::pus`. Empty for unusable PUs.
    pub over: Vec<Vec<usize>>,
}

/// A part of the machine, and the distance between its farthest nodes.
type DomainPart = (Vec<PuIdx>, Option<u32>);

impl Domains {
    pub fn new(machine: &Machine, usable: &[bool]) -> Self {
        let mut all: Vec<Domain> = Vec::new();
        let mut over = vec![Vec::new(); machine.pus.len()];
        for pu in machine.all_pus().filter(|pu| usable[pu.idx()]) {
            // Parts follow from the machine; domains are parts of usable PUs that differ.
            let mut inner = vec![pu];
            for (pus, distance) in parts_over(machine, pu) {
                let pus: Vec<_> = pus.into_iter().filter(|pu| usable[pu.idx()]).collect();
                // A part that adds no usable PU is not a domain of its own.
                if pus.len() <= inner.len() || !inner.iter().all(|pu| pus.contains(pu)) {
                    continue;
                }
                let known = all.iter().position(|domain| domain.pus == pus);
                let domain = known.unwrap_or_else(|| {
                    let groups = groups(machine, usable, &pus, inner.len());
                    all.push(Domain { pus: pus.clone(), groups, distance, leeway: 0 });
                    all.len() - 1
                });
                over[pu.idx()].push(domain);
                inner = pus;
            }
        }
        let mut domains = Self { all, over };
        domains.give_leeway(machine);
        domains
    }

    /// Sets `imb_numa_nr` as `build_sched_domains` (kernel/sched/topology.c, since 5.18): an eighth
    /// of a node's PUs if they are under one last-level cache, else the number of its caches; at
    /// least 1. Larger domains get more, in proportion to their size over the first domain across
    /// nodes.
    fn give_leeway(&mut self, machine: &Machine) {
        for over in &self.over {
            let Some(&first) = over.iter().find(|d| self.all[**d].distance.is_some()) else {
                continue;
            };
            let pu = self.all[over[0]].pus[0];
            let core = &machine.cores[machine.core_of(pu).idx()];
            let Some(node) = core.node.map(|node| machine.home_pus(node).count()) else { continue };
            let cache = machine.last_level_cache(pu).map(|c| machine.caches[c.idx()].pus.len());
            let caches = node / cache.unwrap_or(core.pus.len()).max(1);
            let leeway = if caches <= 1 { node / 8 } else { caches }.max(1);
            let first = self.all[first].pus.len();
            for &domain in over {
                let domain = &mut self.all[domain];
                let factor = (domain.pus.len() / first).max(1);
                domain.leeway = if domain.distance.is_some() { leeway * factor } else { 0 };
            }
        }
    }
}

impl Domain {
    /// Whether the kernel leaves a difference in threads between nodes alone, with `few` on the
    /// node with fewer (`adjust_numa_imbalance` in kernel/sched/fair.c, 6.1).
    pub fn lets(&self, difference: u64, few: usize) -> bool {
        few < self.leeway && difference <= 2
    }
}

/// Parts of the machine with this PU, ever larger: core, last-level cache, node, nodes within
/// growing distances, everything.
fn parts_over(machine: &Machine, pu: PuIdx) -> Vec<DomainPart> {
    let core = &machine.cores[machine.core_of(pu).idx()];
    let mut parts = vec![(core.pus.clone(), None)];
    if let Some(cache) = machine.last_level_cache(pu) {
        parts.push((machine.caches[cache.idx()].pus.clone(), None));
    }
    if let Some(node) = core.node {
        parts.push((machine.home_pus(node).collect(), None));
        parts.extend(nodes_around(machine, node));
    }
    parts.push((machine.all_pus().collect(), farthest(machine)));
    parts
}

/// Distance between the farthest nodes; `None` if the machine has no distances.
fn farthest(machine: &Machine) -> Option<u32> {
    machine.distances.as_ref()?.rows.iter().flatten().copied().max()
}

/// The PUs within each distance of a node, nearest first.
fn nodes_around(machine: &Machine, node: NodeIdx) -> Vec<DomainPart> {
    let Some(distances) = &machine.distances else { return Vec::new() };
    let row = &distances.rows[node.idx()];
    let steps: BTreeSet<u32> = row.iter().copied().collect();
    let within = steps.into_iter().map(|distance| {
        let near = (0..row.len()).filter(|&other| row[other] <= distance);
        let mut pus: Vec<_> = near.flat_map(|n| machine.home_pus(NodeIdx::new(n))).collect();
        pus.sort_unstable();
        (pus, Some(distance))
    });
    within.collect()
}

/// Divides `pus` into the largest parts of at most `inner` PUs, the size of a known part. With
/// regular levels the result is the next smaller level.
fn groups(machine: &Machine, usable: &[bool], pus: &[PuIdx], inner: usize) -> Vec<Vec<PuIdx>> {
    let mut groups: Vec<Vec<PuIdx>> = Vec::new();
    for &pu in pus {
        if groups.iter().any(|group| group.contains(&pu)) {
            continue;
        }
        let parts = parts_over(machine, pu).into_iter().map(|(part, _)| {
            let part = part.into_iter().filter(|pu| {
                let is_taken = groups.iter().any(|group| group.contains(pu));
                usable[pu.idx()] && pus.contains(pu) && !is_taken
            });
            part.collect::<Vec<_>>()
        });
        let fits = parts.chain([vec![pu]]).filter(|part| part.len() <= inner.max(1));
        let group = fits.max_by_key(Vec::len).unwrap_or_else(|| vec![pu]);
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::described;

    fn of(name: &str) -> (Machine, Domains) {
        let text = described::MACHINES.iter().find(|(known, _)| *known == name).unwrap().1;
        let machine = described::from_toml(text).unwrap().machine;
        let domains = Domains::new(&machine, &vec![true; machine.pus.len()]);
        (machine, domains)
    }

    /// Core 2, L3 4, die 8, socket 32, both 64 PUs.
    #[test]
    fn two_sockets_of_four_dies() {
        let (_, domains) = of("epyc-7301");
        let chain: Vec<_> = domains.over[0].iter().map(|&d| &domains.all[d]).collect();
        let shape: Vec<_> =
            chain.iter().map(|d| (d.pus.len(), d.groups.len(), d.distance)).collect();
        let expected =
            [(2, 2, None), (4, 2, None), (8, 2, None), (32, 4, Some(16)), (64, 2, Some(32))];
        assert_eq!(shape, expected);
        assert_eq!(domains.all.len(), 32 + 16 + 8 + 2 + 1);
        // Two caches a node; twice as many on twice the nodes.
        assert_eq!(chain.iter().map(|d| d.leeway).collect::<Vec<_>>(), [0, 0, 0, 2, 4]);
        assert!(chain[3].lets(2, 1) && !chain[3].lets(3, 1) && !chain[3].lets(2, 2));
    }

    #[test]
    fn every_machine_is_covered() {
        for (name, _) in described::MACHINES {
            let (machine, domains) = of(name);
            for domain in &domains.all {
                let mut all: Vec<_> = domain.groups.iter().flatten().copied().collect();
                all.sort_unstable();
                assert_eq!(all, domain.pus, "{name}");
                assert!(domain.groups.len() > 1, "{name}: {domain:?}");
            }
            for pu in machine.all_pus() {
                let top = domains.over[pu.idx()].last().map(|&top| domains.all[top].pus.len());
                assert_eq!(top, Some(machine.pus.len()), "{name}");
            }
        }
    }

    #[test]
    fn what_may_not_be_used_is_in_no_part() {
        let (machine, _) = of("epyc-7301");
        let usable: Vec<bool> = machine.all_pus().map(|pu| pu.0 % 2 == 0).collect();
        let domains = Domains::new(&machine, &usable);
        assert!(domains.all.iter().flat_map(|domain| &domain.pus).all(|pu| pu.0 % 2 == 0));
        assert_eq!(domains.all[0].pus.len(), 2, "two cores under one L3");
        assert!(domains.over[1].is_empty());
    }
}
