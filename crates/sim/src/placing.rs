//! Placement of new and woken threads by the simulated kernel.

use crate::kernel::{Fork, Wake};
use crate::loads::{Loads, compare_loads};
use crate::targets::Targets;
use crate::task::TaskNo;
use colocate_machine::PuIdx;
use colocate_policy::rng::SplitMix64;

/// PU of a new thread whose parent is on `parent`.
pub(crate) fn fork_pu(loads: Loads<'_>, fork: Fork, rng: &mut SplitMix64, parent: PuIdx) -> PuIdx {
    let Fork::Idlest { reclaim_distance } = fork else { return parent };
    let domains = &loads.pus.domains;
    let mut over = domains.over[parent.idx()].iter().rev();
    let top = over
        .find(|domain| domains.all[**domain].distance.is_none_or(|far| far <= reclaim_distance));
    let Some(&top) = top else {
        return parent;
    };
    let mut part = &domains.all[top].pus[..];
    let mut local = parent;
    // Ends: every step leaves a smaller part.
    while let Some(domain) = domain_of(loads, part) {
        part = idlest_group(loads, rng, domain, local);
        if !part.contains(&local) {
            // Next, the search is around a PU of the chosen group.
            local = part[0];
        }
    }
    part[0]
}

/// The largest domain within `part`; `None` without such a domain.
fn domain_of(loads: Loads<'_>, part: &[PuIdx]) -> Option<usize> {
    let domains = &loads.pus.domains;
    let mut over = domains.over[part[0].idx()].iter().rev();
    over.find(|d| domains.all[**d].pus.iter().all(|pu| part.contains(pu))).copied()
}

/// The group with the fewest tasks for each PU: `local`'s if it is among them, else a random one.
fn idlest_group<'p>(
    loads: Loads<'p>,
    rng: &mut SplitMix64,
    domain: usize,
    local: PuIdx,
) -> &'p [PuIdx] {
    let groups = &loads.pus.domains.all[domain].groups;
    let all: Vec<_> = groups.iter().map(|group| loads.group(group)).collect();
    let least = (0..groups.len())
        .filter(|&at| !all.iter().any(|&other| compare_loads(other, all[at]).is_lt()));
    let least: Vec<usize> = least.collect();
    let home = groups.iter().position(|group| group.contains(&local));
    let chosen =
        home.filter(|home| least.contains(home) || may_stay(loads, domain, *home, least[0]));
    &groups[chosen.unwrap_or_else(|| least[rng.below(least.len())])]
}

/// Whether a new thread stays on its parent's node although another node has more idle PUs.
fn may_stay(loads: Loads<'_>, domain: usize, home: usize, idlest: usize) -> bool {
    let domain = &loads.pus.domains.all[domain];
    let tasks: usize = domain.groups[home].iter().map(|pu| loads.pu(*pu)).sum();
    let idle_home = loads.idle_pus(&domain.groups[home]);
    let idle_there = loads.idle_pus(&domain.groups[idlest]);
    domain.lets(idle_home.abs_diff(idle_there) as u64, tasks) && idle_home > 0
}

/// PU of a woken thread; `None` for a thread without an earlier PU.
pub(crate) fn wake_pu(
    loads: Loads<'_>,
    targets: &Targets,
    wake: Wake,
    task: TaskNo,
) -> Option<PuIdx> {
    let previous = loads.queues.pu_of(task)?;
    let Wake::IdleSibling { idle_cores } = wake else {
        return Some(previous);
    };
    if is_idle_for(loads, targets, task, previous) {
        return Some(previous);
    }
    let machine = loads.pus.machine();
    let Some(cache) = machine.last_level_cache(previous) else { return Some(previous) };
    // The search begins after the PU where the thread ran.
    let near = &machine.caches[cache.idx()].pus;
    let from = near.iter().position(|&pu| pu == previous).map_or(0, |at| at + 1);
    let (before, after) = near.split_at(from);
    let mut idle_near =
        after.iter().chain(before).copied().filter(|&pu| is_idle_for(loads, targets, task, pu));
    let first = idle_near.clone().next();
    let sibling = machine.core_of(previous);
    let sibling = idle_near.clone().find(|&pu| machine.core_of(pu) == sibling);
    let on_idle_core = idle_near.find(|&pu| idle_cores && loads.core(pu) == 0);
    Some(on_idle_core.or(sibling).or(first).unwrap_or(previous))
}

/// Whether a PU is allowed for a task, and has only fillers.
fn is_idle_for(loads: Loads<'_>, targets: &Targets, task: TaskNo, pu: PuIdx) -> bool {
    loads.pu(pu) == 0 && loads.pus.has(pu) && targets.may_be_on(task, pu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::UsablePus;
    use crate::queues::Queues;
    use crate::testing::{platform, scenario};
    use colocate_machine::Nanos;
    use colocate_model::Phase;

    #[test]
    fn a_woken_thread_goes_to_an_idle_core_near_its_last_pu() {
        let scenario = scenario(Phase::default(), false);
        let pus = UsablePus::new(platform(), &scenario);
        let targets = Targets::new(2);
        let mut queues = Queues::new(64, 2, Nanos::from_millis(3));
        let wake = Wake::IdleSibling { idle_cores: true };
        assert_eq!(wake_pu(Loads::new(&pus, &queues), &targets, wake, 0), None, "it is new");
        queues.enqueue(0, PuIdx(0));
        queues.dequeue(0);
        let last = wake_pu(Loads::new(&pus, &queues), &targets, wake, 0);
        assert_eq!(last, Some(PuIdx(0)));
        queues.enqueue(1, PuIdx(0));
        let loads = Loads::new(&pus, &queues);
        assert_eq!(wake_pu(loads, &targets, wake, 0), Some(PuIdx(2)), "the other core");
        assert_eq!(wake_pu(loads, &targets, Wake::Previous, 0), Some(PuIdx(0)));
    }

    #[test]
    fn a_new_thread_starts_on_an_idle_core_near_its_parent() {
        let scenario = scenario(Phase::default(), false);
        let pus = UsablePus::new(platform(), &scenario);
        let mut queues = Queues::new(64, 1, Nanos::from_millis(3));
        queues.enqueue(0, PuIdx(0));
        let loads = Loads::new(&pus, &queues);
        let mut rng = SplitMix64::new(1);
        let fork = Fork::Idlest { reclaim_distance: 32 };
        let pu = fork_pu(loads, fork, &mut rng, PuIdx(0));
        assert_eq!(loads.core(pu), 0);
        assert_eq!(fork_pu(loads, Fork::WithParent, &mut rng, PuIdx(0)), PuIdx(0));
    }
}
