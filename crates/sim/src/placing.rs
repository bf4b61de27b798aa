//! Placement of new threads by the simulated kernel.

use crate::kernel::Fork;
use crate::loads::{Loads, compare_loads};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::UsablePus;
    use crate::queues::Queues;
    use crate::testing::{platform, scenario};
    use colocate_machine::Nanos;
    use colocate_model::Phase;

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
