//! Decisions of load balancing: unequal groups, the thread to move, the time of the next balancing.
//! The rules are described in `crate::world::balance`.

use crate::kernel::PeriodicBalance;
use crate::loads::{Loads, compare_loads};
use crate::targets::Targets;
use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};
use std::cmp::Reverse;

/// Two unequal groups of a domain: a thread should move from the first to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Imbalance {
    /// The most loaded group, by place.
    from: usize,
    /// The least loaded group, by place.
    to: usize,
    /// Whether a thread waits in `from` and may be moved.
    waiting: bool,
    /// Whether all groups are full.
    full: bool,
}

/// Loads and targets from which load balancing decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balance<'p> {
    loads: Loads<'p>,
    targets: &'p Targets,
}

impl<'p> Balance<'p> {
    /// A decision from these facts.
    pub const fn new(loads: Loads<'p>, targets: &'p Targets) -> Self {
        Self { loads, targets }
    }

    /// Whether any PU has more than one thread.
    pub fn has_waiting(&self) -> bool {
        self.loads.pus.machine().all_pus().any(|pu| self.loads.queues.load(pu) > 1)
    }

    /// The nearest waiting thread for an idle PU; `None` for a busy PU, or for a busy core if
    /// `only_idle_cores`. `within` limits the search to a domain.
    pub fn thread_for(
        &self,
        pu: PuIdx,
        within: Option<usize>,
        only_idle_cores: bool,
    ) -> Option<TaskNo> {
        let load = if only_idle_cores { self.loads.core(pu) } else { self.loads.pu(pu) };
        let idle = self.loads.pus.has(pu) && load == 0;
        if idle { self.nearest_waiting(pu, within) } else { None }
    }

    /// The last waiting thread of the most loaded queue in the nearest part of the machine. A
    /// filler only if no normal thread waits, and only for an empty PU.
    fn nearest_waiting(&self, pu: PuIdx, within: Option<usize>) -> Option<TaskNo> {
        let normal = self.nearest_spare(pu, within, &|from| self.spare_for(from, Some(pu)));
        if normal.is_some() || !self.loads.is_empty(pu) {
            return normal;
        }
        self.nearest_spare(pu, within, &|from| self.spare_filler(from))
    }

    /// The result of `spare` for the most loaded PU of the smallest domain with a result.
    fn nearest_spare(
        &self,
        pu: PuIdx,
        within: Option<usize>,
        spare: &dyn Fn(PuIdx) -> Option<TaskNo>,
    ) -> Option<TaskNo> {
        let domains = &self.loads.pus.domains;
        let over = &domains.over[pu.idx()];
        let last = within.and_then(|within| over.iter().position(|&domain| domain == within));
        over[..last.map_or(over.len(), |last| last + 1)].iter().find_map(|&domain| {
            let most = domains.all[domain].pus.iter().filter(|&&pu| spare(pu).is_some());
            let most = most.max_by_key(|pu| (self.loads.pu(**pu), Reverse(**pu)));
            spare(*most?)
        })
    }

    /// The last movable thread waiting on a PU, of those allowed on `to`.
    fn spare_for(&self, pu: PuIdx, to: Option<PuIdx>) -> Option<TaskNo> {
        // One thread runs, or is about to: only with two or more is a waiting thread spare.
        if self.loads.pu(pu) <= 1 {
            return None;
        }
        let mut waiting = self.loads.queues.waiting(pu).iter().rev().copied();
        waiting.find(|&task| {
            self.is_movable(task) && to.is_none_or(|to| self.targets.may_be_on(task, to))
        })
    }

    /// Whether load balancing may move a running or waiting task: neither pinned nor a filler.
    fn is_movable(&self, task: TaskNo) -> bool {
        self.targets.pinned(task).is_none() && !self.loads.queues.is_filler(task)
    }

    /// The last filler waiting on a PU.
    fn spare_filler(&self, pu: PuIdx) -> Option<TaskNo> {
        let queues = self.loads.queues;
        let waiting = if queues.load(pu) > 1 { queues.waiting(pu) } else { &[] };
        waiting.iter().rev().copied().find(|&task| queues.is_filler(task))
    }

    /// The thread running on a PU, or about to, if movable.
    fn runner(&self, pu: PuIdx) -> Option<TaskNo> {
        self.loads.queues.members(pu).next().filter(|&task| self.is_movable(task))
    }

    /// Time of a domain's next balancing: the next multiple of its interval, `None` without a
    /// reason.
    pub fn next(&self, domain: usize, settings: PeriodicBalance, now: Nanos) -> Option<Nanos> {
        let idle = self.waits_beside_idle(domain);
        let found = self.imbalance(domain, settings);
        let room = found.is_some_and(|found| !found.full);
        if !(idle || found.is_some()) || (room && !idle && !self.is_kicked()) {
            return None;
        }
        let pus = self.loads.pus.domains.all[domain].pus.len() as u64;
        // Where no PU has room the kernel balances less often (`busy_factor`).
        let busy = if !idle && !room { u64::from(settings.busy_factor.max(1)) } else { 1 };
        let interval = settings.interval_per_pu.0.saturating_mul(pus).saturating_mul(busy);
        Some(Nanos((now.0 / interval + 1).saturating_mul(interval)))
    }

    /// Whether a movable thread waits in a domain, or is about to run, while one of its PUs is
    /// idle. A queue's next thread is unknown until the queue is rescheduled.
    pub fn waits_beside_idle(&self, domain: usize) -> bool {
        let pus = &self.loads.pus.domains.all[domain].pus;
        let is_any_idle = pus.iter().any(|&pu| self.loads.pu(pu) == 0);
        let is_any_empty = pus.iter().any(|&pu| self.loads.is_empty(pu));
        (is_any_idle && pus.iter().any(|&pu| self.spare_for(pu, None).is_some()))
            || (is_any_empty && pus.iter().any(|&pu| self.has_filler_too_many(pu)))
    }

    /// Whether a filler shares a PU. A running filler counts too: at its slice's end it waits, and
    /// no load changes.
    fn has_filler_too_many(&self, pu: PuIdx) -> bool {
        let queues = self.loads.queues;
        queues.load(pu) > 1 && queues.members(pu).any(|task| queues.is_filler(task))
    }

    /// Whether a busy PU wakes idle PUs to balance: a PU with two threads, or the second busy PU
    /// under a last-level cache.
    fn is_kicked(&self) -> bool {
        let machine = self.loads.pus.machine();
        let mut busy = vec![false; machine.caches.len()];
        machine.all_pus().any(|pu| {
            match (self.loads.queues.load(pu), machine.last_level_cache(pu)) {
                (0, _) => false,
                // The first busy PU under a cache only marks it.
                (1, Some(cache)) => std::mem::replace(&mut busy[cache.idx()], true),
                (1, None) => self.loads.core(pu) > 1,
                _ => true,
            }
        })
    }

    /// Imbalance of a domain; `None` if a balancing would move no thread.
    pub fn imbalance(&self, domain: usize, settings: PeriodicBalance) -> Option<Imbalance> {
        let domain = &self.loads.pus.domains.all[domain];
        let groups = &domain.groups;
        let loads: Vec<(u64, u64)> = groups.iter().map(|group| self.loads.group(group)).collect();
        // Of groups with the same load the first counts, for the most loaded and for the least.
        let from =
            (0..groups.len()).max_by(|&a, &b| compare_loads(loads[a], loads[b]).then(b.cmp(&a)))?;
        let to = (0..groups.len())
            .rev()
            .min_by(|&a, &b| compare_loads(loads[a], loads[b]).then(b.cmp(&a)))?;
        let (much, pus_from) = loads[from];
        let (little, pus_to) = loads[to];
        let full = little >= pus_to;
        let few = usize::try_from(little).unwrap_or(usize::MAX);
        // Loads are compared per PU: a group with fewer PUs can be fuller with fewer tasks.
        let small = much <= pus_from && domain.lets(much - little.min(much), few);
        // Full groups differ by a percentage, else a whole thread has to make them more equal.
        let worth = if full {
            100 * much * pus_to > u64::from(settings.percent) * little * pus_from
        } else {
            much * pus_to > (little + 1) * pus_from && !small
        };
        let waiting = groups[from].iter().any(|&pu| self.spare_for(pu, None).is_some());
        let runs = groups[from].iter().any(|&pu| self.runner(pu).is_some());
        (worth && (waiting || (runs && !full))).then_some(Imbalance { from, to, waiting, full })
    }

    /// The thread that makes two groups more equal, and the PU to move it to.
    pub fn step(&self, domain: usize, found: &Imbalance) -> Option<(TaskNo, PuIdx)> {
        let groups = &self.loads.pus.domains.all[domain].groups;
        let task = self.task_to_move(&groups[found.from], found.waiting)?;
        let to = self.loads.least(&groups[found.to])?;
        self.targets.may_be_on(task, to).then_some((task, to))
    }

    /// The thread to move from the group's most loaded core: a waiting thread, else the running
    /// one.
    fn task_to_move(&self, group: &[PuIdx], waiting: bool) -> Option<TaskNo> {
        let movable = group.iter().filter_map(|&pu| {
            let task = if waiting { self.spare_for(pu, None) } else { self.runner(pu) };
            Some((pu, task?))
        });
        let most =
            movable.max_by_key(|&(pu, _)| (self.loads.core(pu), self.loads.pu(pu), Reverse(pu)));
        most.map(|(_, task)| task)
    }
}

/// Failed balancings before a thread moves.
pub(crate) const fn patience(found: &Imbalance, settings: PeriodicBalance) -> u32 {
    match found {
        Imbalance { full: true, .. } => FULL_PATIENCE,
        // Only a waiting thread moves at once, and only to a group with room.
        Imbalance { waiting: true, .. } => 0,
        _ => settings.patience,
    }
}

/// Longest wait of a free thread while a PU is idle: twice the longest balancing interval, since a
/// balancing can fall on an instant without waiting threads. `None` without domains.
pub(crate) fn longest_wait(loads: Loads<'_>, settings: PeriodicBalance) -> Option<Nanos> {
    let most = loads.pus.domains.all.iter().map(|domain| domain.pus.len() as u64).max()?;
    Some(Nanos(settings.interval_per_pu.0.saturating_mul(2 * most)))
}

/// Failed balancings before a waiting thread moves between full groups. The second succeeds, since
/// each halves the compared load (`detach_tasks` in kernel/sched/fair.c, 6.6).
const FULL_PATIENCE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::UsablePus;
    use crate::queues::Queues;
    use crate::testing::{platform, scenario};
    use colocate_model::Phase;

    /// The first domain is a core, PUs 0 and 1.
    #[test]
    fn an_idle_pu_takes_the_waiting_thread() {
        let scenario = scenario(Phase::default(), false);
        let pus = UsablePus::new(platform(), &scenario);
        let targets = Targets::new(3);
        let mut queues = Queues::new(64, 3, Nanos::from_millis(3));
        let busy = PuIdx(0);
        queues.enqueue(0, busy);
        queues.reschedule(busy, Nanos::ZERO, || Nanos::from_millis(3));
        let alone = Balance::new(Loads::new(&pus, &queues), &targets);
        assert!(!alone.has_waiting() && !alone.waits_beside_idle(0));
        queues.enqueue(1, busy);
        let shared = Balance::new(Loads::new(&pus, &queues), &targets);
        assert!(shared.has_waiting() && shared.waits_beside_idle(0));
        assert_eq!(shared.thread_for(PuIdx(1), None, true), None, "the core is busy");
        assert_eq!(shared.thread_for(PuIdx(1), None, false), Some(1));
        assert_eq!(shared.thread_for(busy, None, false), None, "the PU is busy");
    }

    #[test]
    fn unequal_groups_become_more_equal() {
        let scenario = scenario(Phase::default(), false);
        let pus = UsablePus::new(platform(), &scenario);
        let targets = Targets::new(3);
        let mut queues = Queues::new(64, 3, Nanos::from_millis(3));
        for (task, pu) in [(0, PuIdx(0)), (1, PuIdx(0))] {
            queues.enqueue(task, pu);
        }
        let settings = PeriodicBalance::default();
        let balance = Balance::new(Loads::new(&pus, &queues), &targets);
        let found = balance.imbalance(0, settings).unwrap();
        assert_eq!(found, Imbalance { from: 0, to: 1, waiting: true, full: false });
        assert_eq!(patience(&found, settings), 0);
        assert_eq!(balance.step(0, &found), Some((1, PuIdx(1))));
        // Two PUs: every 2 ms.
        assert_eq!(balance.next(0, settings, Nanos(1)), Some(Nanos::from_millis(2)));
        let longest = longest_wait(Loads::new(&pus, &queues), settings);
        assert_eq!(longest, Some(Nanos::from_millis(128)));
    }
}
