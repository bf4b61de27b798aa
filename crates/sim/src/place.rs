//! Where the simulated kernel puts new and woken threads.

use crate::kernel::{Fork, Wake};
use crate::queues::TaskNo;
use crate::world::World;
use colocate_machine::PuIdx;

impl World<'_> {
    /// The PU where a new thread of a parent on `parent` starts.
    pub(crate) fn fork_pu(&mut self, parent: PuIdx) -> PuIdx {
        let Fork::Idlest { reclaim_distance } = self.scenario.kernel.fork else { return parent };
        let near = |domain: &usize| {
            self.domains.all[*domain].distance.is_none_or(|far| far <= reclaim_distance)
        };
        let Some(&top) = self.domains.over[parent.idx()].iter().rev().find(|d| near(d)) else {
            return parent;
        };
        let mut part = self.domains.all[top].pus.clone();
        let mut local = parent;
        // Every step leaves a smaller part, so this ends.
        while let Some(domain) = self.domain_of(&part) {
            part = self.idlest_group(domain, local);
            if !part.contains(&local) {
                local = part[0];
            }
        }
        part[0]
    }

    /// The largest domain that lies within `part`.
    fn domain_of(&self, part: &[PuIdx]) -> Option<usize> {
        let within = |d: &&usize| self.domains.all[**d].pus.iter().all(|pu| part.contains(pu));
        self.domains.over[part[0].idx()].iter().rev().find(within).copied()
    }

    /// The group with the fewest tasks for each PU: `local`'s if it is one of them, else by lot.
    fn idlest_group(&mut self, domain: usize, local: PuIdx) -> Vec<PuIdx> {
        let groups = &self.domains.all[domain].groups;
        let load = |group: &[PuIdx]| {
            let tasks: usize = group.iter().map(|pu| self.queues[pu.idx()].load()).sum();
            (tasks, group.len())
        };
        // a/b < c/d without a division.
        let less = |(a, b): (usize, usize), (c, d): (usize, usize)| a * d < c * b;
        let loads: Vec<_> = groups.iter().map(|group| load(group)).collect();
        let is_least = |&at: &usize| !loads.iter().any(|&other| less(other, loads[at]));
        let least: Vec<usize> = (0..groups.len()).filter(is_least).collect();
        let at_home = least.iter().find(|&&at| groups[at].contains(&local)).copied();
        let chosen = at_home.unwrap_or_else(|| least[self.rng.below(least.len())]);
        groups[chosen].clone()
    }

    /// The PU where a thread goes on that wakes up.
    pub(crate) fn wake_pu(&self, task: TaskNo) -> Option<PuIdx> {
        let previous = self.tasks[task].pu?;
        let Wake::IdleSibling { idle_cores } = self.scenario.kernel.wake else {
            return Some(previous);
        };
        let idle = |pu: PuIdx| self.usable[pu.idx()] && self.queues[pu.idx()].load() == 0;
        if idle(previous) {
            return Some(previous);
        }
        let machine = self.platform.machine();
        let Some(cache) = machine.last_level_cache(previous) else { return Some(previous) };
        let near = &machine.caches[cache.idx()].pus;
        let core_idle = |pu: PuIdx| {
            machine.cores[machine.core_of(pu).idx()]
                .pus
                .iter()
                .all(|pu| self.queues[pu.idx()].load() == 0)
        };
        let mut idle_near = near.iter().copied().filter(|&pu| idle(pu));
        let first = idle_near.clone().next();
        let on_idle_core = idle_near.find(|&pu| idle_cores && core_idle(pu));
        Some(on_idle_core.or(first).unwrap_or(previous))
    }
}
