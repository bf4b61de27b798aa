//! Load balancing of the simulated kernel.
//!
//! # Problem
//! Threads come and go, so some PUs have several threads and some have none.
//!
//! # Approach
//! The rules of `kernel/sched/fair.c` (Linux 6.6), in short:
//! - A PU that runs out of threads takes a waiting one at once, from the nearest part of the
//!   machine where one waits; PUs of idle cores are served first.
//! - The groups of a domain are compared periodically. PUs that have been idle for longer take
//!   waiting threads then. While the least loaded group has room, it gets a running thread of the
//!   most loaded group, if a few attempts failed and the move makes them more equal. So idle cores
//!   get one of two siblings.
//! - Idle PUs sleep, and balance only if they are woken: by a PU with a thread too many, or under a
//!   last-level cache with two busy PUs or more (`nohz_balancer_kick`). Between nodes that run
//!   little a small difference is left alone.
//! - Where all groups are full, a group that has too much by a percentage gives a waiting thread
//!   away. So threads change PUs for ever if they cannot be divided evenly.
//!
//! Threads that are pinned stay. Of all groups with the same load the first counts.

use crate::kernel::PeriodicBalance;
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};
use std::cmp::{Ordering, Reverse};

/// Two unequal groups of a domain: a thread should move from the first to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Imbalance {
    /// The most loaded group, by place.
    from: usize,
    /// The least loaded group, by place.
    to: usize,
    /// Whether a thread waits in `from` and may be moved.
    waiting: bool,
    /// Whether all groups are full.
    full: bool,
}

impl World<'_> {
    /// Balances every domain with an expired timer, and fills emptied PUs.
    pub fn balance(&mut self) {
        self.fill_emptied();
        let Some(settings) = self.scenario.kernel.periodic_balance else {
            self.timers.take_change();
            return;
        };
        for domain in 0..self.pus.domains().all.len() {
            if self.timers.is_due(domain, self.events.now()) {
                self.balance_domain(domain, settings);
            }
        }
        // A task that was moved while it ran may have left an idle PU.
        self.fill_emptied();
        if self.timers.take_change() {
            (0..self.pus.domains().all.len()).for_each(|domain| self.schedule(domain, settings));
        }
    }

    /// Gives every emptied PU the nearest waiting thread.
    fn fill_emptied(&mut self) {
        let emptied = self.timers.take_empty();
        if !self.scenario.kernel.idle_balance || !self.a_task_waits() {
            return;
        }
        self.fill(&emptied, None);
    }

    fn a_task_waits(&self) -> bool {
        self.queues.iter().any(|queue| queue.load() > 1)
    }

    /// Gives each idle PU of `pus` the nearest waiting thread, PUs of idle cores first. `within`
    /// limits the search to a domain. Whether a thread was moved.
    fn fill(&mut self, pus: &[PuIdx], within: Option<usize>) -> bool {
        let mut found = false;
        for only_idle_cores in [true, false] {
            for &pu in pus {
                let load = if only_idle_cores { self.core_load(pu) } else { self.pu_load(pu) };
                let idle = self.pus.has(pu) && load == 0;
                let task = if idle { self.nearest_waiting(pu, within) } else { None };
                if let Some(task) = task {
                    self.migrate(task, pu);
                    found = true;
                }
            }
        }
        found
    }

    /// Tasks on a PU, fillers left out.
    pub(crate) fn pu_load(&self, pu: PuIdx) -> usize {
        self.queues[pu.idx()].normal_load(&self.tasks)
    }

    /// Whether no task uses a PU, fillers included.
    fn is_empty(&self, pu: PuIdx) -> bool {
        self.queues[pu.idx()].load() == 0
    }

    /// The last waiting thread of the most loaded queue in the nearest part of the machine. A
    /// filler only if no normal thread waits, and only for an empty PU.
    fn nearest_waiting(&self, pu: PuIdx, within: Option<usize>) -> Option<TaskNo> {
        let normal = self.nearest_spare(pu, within, &|from| self.spare_for(from, Some(pu)));
        if normal.is_some() || !self.is_empty(pu) {
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
        let over = &self.pus.domains().over[pu.idx()];
        let last = within.and_then(|within| over.iter().position(|&domain| domain == within));
        over[..last.map_or(over.len(), |last| last + 1)].iter().find_map(|&domain| {
            let pus = self.pus.domains().all[domain].pus.iter();
            let most = pus.filter(|&&pu| spare(pu).is_some());
            let most = most.max_by_key(|pu| (self.pu_load(**pu), Reverse(**pu)));
            spare(*most?)
        })
    }

    /// The last movable thread waiting on a PU.
    fn spare(&self, pu: PuIdx) -> Option<TaskNo> {
        self.spare_for(pu, None)
    }

    /// As [`Self::spare`], of the threads allowed on `to`.
    fn spare_for(&self, pu: PuIdx, to: Option<PuIdx>) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        // One thread runs, or is about to: only with two or more is a waiting thread spare.
        let waiting = if self.pu_load(pu) > 1 { &queue.waiting[..] } else { &[] };
        waiting
            .iter()
            .rev()
            .copied()
            .find(|&task| self.is_movable(task) && to.is_none_or(|to| self.may_be_on(task, to)))
    }

    /// Whether load balancing may move a running or waiting task: neither pinned nor a filler.
    fn is_movable(&self, task: TaskNo) -> bool {
        self.tasks[task].pinned.is_none() && !self.tasks[task].fills
    }

    /// The last filler waiting on a PU.
    fn spare_filler(&self, pu: PuIdx) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        let waiting = if queue.load() > 1 { &queue.waiting[..] } else { &[] };
        waiting.iter().rev().copied().find(|&task| self.tasks[task].fills)
    }

    /// The thread running on a PU, or about to, if movable.
    fn runner(&self, pu: PuIdx) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        let runs = queue.running.or(queue.waiting.first().copied());
        runs.filter(|&task| self.is_movable(task))
    }

    /// Moves a thread within a domain, if its groups are unequal and enough attempts failed.
    fn balance_domain(&mut self, domain: usize, settings: PeriodicBalance) {
        self.timers.expire(domain);
        if self.waits_beside_idle(domain) {
            let pus = self.pus.domains().all[domain].pus.clone();
            if self.fill(&pus, Some(domain)) {
                return;
            }
        }
        let Some(found) = self.imbalance(domain, settings) else { return };
        // Only a waiting thread moves at once, and only to a group with room.
        let patient = found.full || !found.waiting;
        let patience = if found.full { FULL_PATIENCE } else { settings.patience };
        if self.timers.fails(domain, if patient { patience } else { 0 }) {
            return;
        }
        let task = self.task_to_move(domain, &found);
        let moves = task.zip(self.pu_to_fill(domain, found.to));
        if let Some((task, to)) = moves.filter(|(task, to)| self.may_be_on(*task, *to)) {
            self.migrate(task, to);
        }
    }

    /// Sets the timer of a domain: the next multiple of its interval, `None` without a reason.
    fn schedule(&mut self, domain: usize, settings: PeriodicBalance) {
        let idle = self.waits_beside_idle(domain);
        let found = self.imbalance(domain, settings);
        let room = found.is_some_and(|found| !found.full);
        if !(idle || found.is_some()) || (room && !idle && !self.is_kicked()) {
            self.timers.clear(domain);
            return;
        }
        let pus = self.pus.domains().all[domain].pus.len() as u64;
        // Where no PU has room the kernel balances less often (`busy_factor`).
        let busy = if !idle && !room { u64::from(settings.busy_factor.max(1)) } else { 1 };
        let interval = settings.interval_per_pu.0.saturating_mul(pus).saturating_mul(busy);
        let next = (self.events.now().0 / interval + 1).saturating_mul(interval);
        self.timers.set(domain, Nanos(next));
    }

    /// Whether a movable thread waits in a domain, or is about to run, while one of its PUs is
    /// idle. A queue's next thread is unknown until the queue is rescheduled.
    fn waits_beside_idle(&self, domain: usize) -> bool {
        let pus = &self.pus.domains().all[domain].pus;
        let is_any_idle = pus.iter().any(|&pu| self.pu_load(pu) == 0);
        let is_any_empty = pus.iter().any(|&pu| self.is_empty(pu));
        (is_any_idle && pus.iter().any(|&pu| self.spare(pu).is_some()))
            || (is_any_empty && pus.iter().any(|&pu| self.has_filler_too_many(pu)))
    }

    /// Whether a filler shares a PU. A running filler counts too: at its slice's end it waits, and
    /// no load changes.
    fn has_filler_too_many(&self, pu: PuIdx) -> bool {
        let queue = &self.queues[pu.idx()];
        queue.load() > 1 && queue.members().any(|task| self.tasks[task].fills)
    }

    /// Longest wait of a free thread while a PU is idle: twice the longest balancing interval,
    /// since a balancing can fall on an instant without waiting threads. `None` without periodic
    /// balancing.
    pub fn patience(&self) -> Option<Nanos> {
        let settings = self.scenario.kernel.periodic_balance?;
        let most = self.pus.domains().all.iter().map(|domain| domain.pus.len() as u64).max()?;
        Some(Nanos(settings.interval_per_pu.0.saturating_mul(2 * most)))
    }

    /// Whether a busy PU wakes idle PUs to balance: a PU with two threads, or the second busy PU
    /// under a last-level cache.
    fn is_kicked(&self) -> bool {
        let machine = self.platform.machine();
        let mut busy = vec![false; machine.caches.len()];
        machine.all_pus().any(|pu| {
            match (self.queues[pu.idx()].load(), machine.last_level_cache(pu)) {
                (0, _) => false,
                // The first busy PU under a cache only marks it.
                (1, Some(cache)) => std::mem::replace(&mut busy[cache.idx()], true),
                (1, None) => self.core_load(pu) > 1,
                _ => true,
            }
        })
    }

    /// Tasks of a group, fillers left out, and its PUs.
    pub(crate) fn group_load(&self, group: &[PuIdx]) -> (u64, u64) {
        (group.iter().map(|&pu| self.pu_load(pu) as u64).sum(), group.len() as u64)
    }

    /// Imbalance of a domain; `None` if a balancing would move no thread.
    fn imbalance(&self, domain: usize, settings: PeriodicBalance) -> Option<Imbalance> {
        let groups = &self.pus.domains().all[domain].groups;
        let loads: Vec<(u64, u64)> = groups.iter().map(|group| self.group_load(group)).collect();
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
        let small =
            much <= pus_from && self.pus.domains().all[domain].lets(much - little.min(much), few);
        // Full groups differ by a percentage, else a whole thread has to make them more equal.
        let worth = if full {
            100 * much * pus_to > u64::from(settings.percent) * little * pus_from
        } else {
            much * pus_to > (little + 1) * pus_from && !small
        };
        let waiting = groups[from].iter().any(|&pu| self.spare(pu).is_some());
        let runs = groups[from].iter().any(|&pu| self.runner(pu).is_some());
        (worth && (waiting || (runs && !full))).then_some(Imbalance { from, to, waiting, full })
    }

    /// The thread to move from the group's most loaded core: a waiting thread, else the running
    /// one.
    fn task_to_move(&self, domain: usize, found: &Imbalance) -> Option<TaskNo> {
        let group = &self.pus.domains().all[domain].groups[found.from];
        let movable = group.iter().filter_map(|&pu| {
            let task = if found.waiting { self.spare(pu) } else { self.runner(pu) };
            Some((pu, task?))
        });
        let most =
            movable.max_by_key(|&(pu, _)| (self.core_load(pu), self.pu_load(pu), Reverse(pu)));
        most.map(|(_, task)| task)
    }

    /// The least loaded PU of a group, on its least loaded core.
    fn pu_to_fill(&self, domain: usize, group: usize) -> Option<PuIdx> {
        let pus = self.pus.domains().all[domain].groups[group].iter().copied();
        pus.min_by_key(|&pu| (self.pu_load(pu), self.core_load(pu), pu))
    }

    /// Tasks on all PUs of a PU's core, fillers left out.
    pub(crate) fn core_load(&self, pu: PuIdx) -> usize {
        let machine = self.platform.machine();
        let core = &machine.cores[machine.core_of(pu).idx()];
        core.pus.iter().map(|&pu| self.pu_load(pu)).sum()
    }

    /// Whether a task is on a queue and may be put on any PU.
    pub fn is_free(&self, task: TaskNo) -> bool {
        self.tasks[task].state == State::Ready && self.tasks[task].is_unbound()
    }
}

/// Compares the tasks for each PU of two groups, given as (tasks, PUs): a/b < c/d without a
/// division.
pub(crate) fn compare_loads(a: (u64, u64), b: (u64, u64)) -> Ordering {
    (a.0 * b.1).cmp(&(b.0 * a.1))
}

/// Failed balancings before a waiting thread moves between full groups. The second succeeds, since
/// each halves the compared load (`detach_tasks` in kernel/sched/fair.c, 6.6).
const FULL_PATIENCE: u32 = 1;
