//! Placement of new and woken threads by the simulated kernel.

use super::balance::compare_loads;
use crate::kernel::{Fork, Wake};
use crate::task::TaskNo;
use crate::world::World;
use colocate_machine::PuIdx;

impl World<'_> {
    /// PU of a new thread whose parent is on `parent`.
    pub(crate) fn fork_pu(&mut self, parent: PuIdx) -> PuIdx {
        let Fork::Idlest { reclaim_distance } = self.scenario.kernel.fork else { return parent };
        let mut over = self.pus.domains().over[parent.idx()].iter().rev();
        let top = over.find(|domain| {
            self.pus.domains().all[**domain].distance.is_none_or(|far| far <= reclaim_distance)
        });
        let Some(&top) = top else {
            return parent;
        };
        let mut part = self.pus.domains().all[top].pus.clone();
        let mut local = parent;
        // Ends: every step leaves a smaller part.
        while let Some(domain) = self.domain_of(&part) {
            part = self.idlest_group(domain, local);
            if !part.contains(&local) {
                // The search goes on around a PU of the chosen group.
                local = part[0];
            }
        }
        part[0]
    }

    /// The largest domain within `part`; `None` without such a domain.
    fn domain_of(&self, part: &[PuIdx]) -> Option<usize> {
        let mut over = self.pus.domains().over[part[0].idx()].iter().rev();
        over.find(|d| self.pus.domains().all[**d].pus.iter().all(|pu| part.contains(pu))).copied()
    }

    /// The group with the fewest tasks for each PU: `local`'s if it is among them, else a random
    /// one.
    fn idlest_group(&mut self, domain: usize, local: PuIdx) -> Vec<PuIdx> {
        let groups = &self.pus.domains().all[domain].groups;
        let loads: Vec<_> = groups.iter().map(|group| self.group_load(group)).collect();
        let least = (0..groups.len())
            .filter(|&at| !loads.iter().any(|&other| compare_loads(other, loads[at]).is_lt()));
        let least: Vec<usize> = least.collect();
        let home = groups.iter().position(|group| group.contains(&local));
        let chosen =
            home.filter(|home| least.contains(home) || self.may_stay(domain, *home, least[0]));
        let chosen = chosen.unwrap_or_else(|| least[self.rng.below(least.len())]);
        self.pus.domains().all[domain].groups[chosen].clone()
    }

    /// Whether a new thread stays on its parent's node although another node has more idle PUs.
    fn may_stay(&self, domain: usize, home: usize, idlest: usize) -> bool {
        let domain = &self.pus.domains().all[domain];
        let tasks: usize = domain.groups[home].iter().map(|pu| self.pu_load(*pu)).sum();
        let idle_home = self.idle_pus(&domain.groups[home]);
        let idle_there = self.idle_pus(&domain.groups[idlest]);
        domain.lets(idle_home.abs_diff(idle_there) as u64, tasks) && idle_home > 0
    }

    /// Number of PUs without tasks, fillers left out.
    fn idle_pus(&self, group: &[PuIdx]) -> usize {
        group.iter().filter(|pu| self.pu_load(**pu) == 0).count()
    }

    /// PU of a woken thread; `None` for a thread without an earlier PU.
    pub(crate) fn wake_pu(&self, task: TaskNo) -> Option<PuIdx> {
        let previous = self.tasks[task].pu?;
        let Wake::IdleSibling { idle_cores } = self.scenario.kernel.wake else {
            return Some(previous);
        };
        if self.is_idle_for(task, previous) {
            return Some(previous);
        }
        let machine = self.platform.machine();
        let Some(cache) = machine.last_level_cache(previous) else { return Some(previous) };
        // The search begins after the PU where the thread ran.
        let near = &machine.caches[cache.idx()].pus;
        let from = near.iter().position(|&pu| pu == previous).map_or(0, |at| at + 1);
        let (before, after) = near.split_at(from);
        let idle_near = after.iter().chain(before).copied();
        let mut idle_near = idle_near.filter(|&pu| self.is_idle_for(task, pu));
        let first = idle_near.clone().next();
        let sibling = machine.core_of(previous);
        let sibling = idle_near.clone().find(|&pu| machine.core_of(pu) == sibling);
        let on_idle_core = idle_near.find(|&pu| idle_cores && self.core_load(pu) == 0);
        Some(on_idle_core.or(sibling).or(first).unwrap_or(previous))
    }

    /// Whether a PU is allowed for a task, and has only fillers.
    fn is_idle_for(&self, task: TaskNo, pu: PuIdx) -> bool {
        self.pu_load(pu) == 0 && self.pus.has(pu) && self.may_be_on(task, pu)
    }
}
