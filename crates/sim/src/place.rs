//! Where the simulated kernel puts new and woken threads.

use crate::kernel::{Fork, Wake};
use crate::task::TaskNo;
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

    /// The group with the fewest tasks for each PU: `local`'s if it is one of them, else a random one.
    fn idlest_group(&mut self, domain: usize, local: PuIdx) -> Vec<PuIdx> {
        let groups = &self.domains.all[domain].groups;
        let load = |group: &[PuIdx]| {
            let tasks: usize = group.iter().map(|&pu| self.pu_load(pu)).sum();
            (tasks, group.len())
        };
        // a/b < c/d without a division.
        let less = |(a, b): (usize, usize), (c, d): (usize, usize)| a * d < c * b;
        let loads: Vec<_> = groups.iter().map(|group| load(group)).collect();
        let is_least = |&at: &usize| !loads.iter().any(|&other| less(other, loads[at]));
        let least: Vec<usize> = (0..groups.len()).filter(is_least).collect();
        let home = groups.iter().position(|group| group.contains(&local));
        let stays = |&home: &usize| least.contains(&home) || self.may_stay(domain, home, least[0]);
        let chosen = home.filter(stays);
        let chosen = chosen.unwrap_or_else(|| least[self.rng.below(least.len())]);
        self.domains.all[domain].groups[chosen].clone()
    }

    /// Whether a new thread stays on its parent's node although another one has more idle PUs.
    fn may_stay(&self, domain: usize, home: usize, idlest: usize) -> bool {
        let domain = &self.domains.all[domain];
        let load = |pu: &PuIdx| self.pu_load(*pu);
        let idle = |group: usize| domain.groups[group].iter().filter(|pu| load(pu) == 0).count();
        let tasks: usize = domain.groups[home].iter().map(load).sum();
        domain.lets(idle(home).abs_diff(idle(idlest)) as u64, tasks) && idle(home) > 0
    }

    /// The PU where a thread goes on that wakes up.
    pub(crate) fn wake_pu(&self, task: TaskNo) -> Option<PuIdx> {
        let previous = self.tasks[task].pu?;
        let Wake::IdleSibling { idle_cores } = self.scenario.kernel.wake else {
            return Some(previous);
        };
        let may = |pu: PuIdx| self.usable[pu.idx()] && self.may_be_on(task, pu);
        let idle = |pu: PuIdx| self.pu_load(pu) == 0 && may(pu);
        if idle(previous) {
            return Some(previous);
        }
        let machine = self.platform.machine();
        let Some(cache) = machine.last_level_cache(previous) else { return Some(previous) };
        // The search begins behind the PU where it ran.
        let near = &machine.caches[cache.idx()].pus;
        let from = near.iter().position(|&pu| pu == previous).map_or(0, |at| at + 1);
        let (before, after) = near.split_at(from);
        let mut idle_near = after.iter().chain(before).copied().filter(|&pu| idle(pu));
        let first = idle_near.clone().next();
        let sibling = machine.core_of(previous);
        let sibling = idle_near.clone().find(|&pu| machine.core_of(pu) == sibling);
        let on_idle_core = idle_near.find(|&pu| idle_cores && self.core_load(pu) == 0);
        Some(on_idle_core.or(sibling).or(first).unwrap_or(previous))
    }
}
