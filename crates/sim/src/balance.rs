//! How the simulated kernel balances load between PUs.
//!
//! # Problem
//! Threads come and go, and PUs end up with several or with none.
//!
//! # Approach
//! What `kernel/sched/fair.c` does (Linux 6.6), in few rules:
//! - A PU that runs out of threads takes a waiting one at once, from the nearest part of the machine where
//!   one waits; PUs of idle cores are served first.
//! - The groups of a domain are compared time and again. PUs that have been idle for longer take what waits
//!   then, and while the least loaded group has room, it gets a running thread of the most loaded when a few
//!   attempts failed and that makes them more equal. That is how idle cores get one of two siblings.
//! - Idle PUs sleep, and balance only if they are woken: by a PU with a thread too many, or under a last-level
//!   cache with two busy PUs or more (`nohz_balancer_kick`). Between nodes that run little a small
//!   difference is left alone.
//! - Where all groups are full, one that has too much by a percentage gives a waiting thread away; so threads
//!   change PUs for ever if they cannot be divided evenly.
//!
//! Threads that are pinned stay. Of all groups with the same load the first counts.

use crate::kernel::PeriodicBalance;
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};

/// What a balancing would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Imbalance {
    /// Groups.
    from: usize,
    to: usize,
    /// Whether there are waiting threads for it.
    waiting: bool,
    /// Whether all groups are full.
    full: bool,
}

impl World<'_> {
    /// Whatever balancing is due now.
    pub fn balance(&mut self) {
        self.fill_emptied();
        let Some(settings) = self.scenario.kernel.periodic_balance else {
            self.timers.stale = false;
            return;
        };
        for domain in 0..self.domains.all.len() {
            if self.timers.due[domain].is_some_and(|due| due <= self.now) {
                self.balance_domain(domain, settings);
            }
        }
        // A task that was moved while it ran may have left an idle PU.
        self.fill_emptied();
        if std::mem::take(&mut self.timers.stale) {
            (0..self.domains.all.len()).for_each(|domain| self.schedule(domain, settings));
        }
    }

    pub(crate) fn next_balance(&self) -> Option<Nanos> {
        self.timers.due.iter().flatten().copied().min()
    }

    /// Gives every PU that ran out of threads a waiting one from as near as there is one.
    fn fill_emptied(&mut self) {
        let mut emptied = std::mem::take(&mut self.timers.emptied);
        if !self.scenario.kernel.idle_balance || !self.a_task_waits() {
            return;
        }
        emptied.sort_unstable();
        emptied.dedup();
        self.fill(&emptied, None);
    }

    fn a_task_waits(&self) -> bool {
        self.queues.iter().any(|queue| queue.load() > 1)
    }

    /// Gives those of `pus` that are idle a waiting thread from as near as there is one, within a domain if one is
    /// given; PUs of idle cores first. Whether there was one.
    fn fill(&mut self, pus: &[PuIdx], within: Option<usize>) -> bool {
        let mut found = false;
        for only_idle_cores in [true, false] {
            for &pu in pus {
                let load = if only_idle_cores { self.core_load(pu) } else { self.pu_load(pu) };
                let idle = self.usable[pu.idx()] && load == 0;
                let task = if idle { self.nearest_waiting(pu, within) } else { None };
                if let Some(task) = task {
                    self.migrate(task, pu);
                    found = true;
                }
            }
        }
        found
    }

    /// Tasks on a PU that do not only fill it.
    pub(crate) fn pu_load(&self, pu: PuIdx) -> usize {
        self.queues[pu.idx()].normal_load(&self.tasks)
    }

    /// Whether no task uses a PU, fillers included.
    fn is_empty(&self, pu: PuIdx) -> bool {
        self.queues[pu.idx()].load() == 0
    }

    /// Of the most loaded queue in the nearest part of the machine, the thread that came last; a filler only if there is no
    /// other, and for a PU that no task uses.
    fn nearest_waiting(&self, pu: PuIdx, within: Option<usize>) -> Option<TaskNo> {
        let filler = || self.nearest_spare(pu, within, &|pu| self.spare_filler(pu));
        let normal = self.nearest_spare(pu, within, &|from| self.spare_for(from, Some(pu)));
        normal.or_else(|| self.is_empty(pu).then(filler).flatten())
    }

    fn nearest_spare(
        &self,
        pu: PuIdx,
        within: Option<usize>,
        spare: &dyn Fn(PuIdx) -> Option<TaskNo>,
    ) -> Option<TaskNo> {
        let over = &self.domains.over[pu.idx()];
        let last = within.and_then(|within| over.iter().position(|&domain| domain == within));
        over[..last.map_or(over.len(), |last| last + 1)].iter().find_map(|&domain| {
            let pus = self.domains.all[domain].pus.iter();
            let most = pus.filter(|&&pu| spare(pu).is_some());
            let most = most.max_by_key(|pu| (self.pu_load(**pu), std::cmp::Reverse(**pu)));
            spare(*most?)
        })
    }

    /// A thread that waits on a PU for others and may go; the one that came last.
    fn spare(&self, pu: PuIdx) -> Option<TaskNo> {
        self.spare_for(pu, None)
    }

    /// The same of those that may go to a PU.
    fn spare_for(&self, pu: PuIdx, to: Option<PuIdx>) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        // If none runs, one of those that wait is about to.
        let waiting = if self.pu_load(pu) > 1 { &queue.waiting[..] } else { &[] };
        let may_go = |task: &TaskNo| {
            let is_movable = self.tasks[*task].pinned.is_none() && !self.tasks[*task].fills;
            is_movable && to.is_none_or(|to| self.may_be_on(*task, to))
        };
        waiting.iter().rev().copied().find(may_go)
    }

    /// A filler that waits on a PU for others and may go; the one that came last.
    fn spare_filler(&self, pu: PuIdx) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        let waiting = if queue.load() > 1 { &queue.waiting[..] } else { &[] };
        waiting.iter().rev().copied().find(|&task| self.tasks[task].fills)
    }

    /// A thread that runs on a PU, or is about to, and may go.
    fn runner(&self, pu: PuIdx) -> Option<TaskNo> {
        let queue = &self.queues[pu.idx()];
        let runs = queue.running.or(queue.waiting.first().copied());
        runs.filter(|&task| self.tasks[task].pinned.is_none() && !self.tasks[task].fills)
    }

    fn balance_domain(&mut self, domain: usize, settings: PeriodicBalance) {
        self.timers.due[domain] = None;
        self.timers.stale = true;
        if self.waits_beside_idle(domain) {
            let pus = self.domains.all[domain].pus.clone();
            if self.fill(&pus, Some(domain)) {
                return;
            }
        }
        let Some(found) = self.imbalance(domain, settings) else { return };
        let patient = found.full || !found.waiting;
        let patience = if found.full { FULL_PATIENCE } else { settings.patience };
        if patient && self.timers.failures[domain] < patience {
            self.timers.failures[domain] += 1;
            return;
        }
        self.timers.failures[domain] = 0;
        let task = self.task_to_move(domain, &found);
        let moves = task.zip(self.pu_to_fill(domain, found.to));
        if let Some((task, to)) = moves.filter(|(task, to)| self.may_be_on(*task, *to)) {
            self.migrate(task, to);
        }
    }

    /// Sets when a domain is balanced next: at the next multiple of its interval, if there is a reason.
    fn schedule(&mut self, domain: usize, settings: PeriodicBalance) {
        let idle = self.waits_beside_idle(domain);
        let found = self.imbalance(domain, settings);
        let room = found.is_some_and(|found| !found.full);
        if !(idle || found.is_some()) || (room && !idle && !self.is_kicked()) {
            self.timers.due[domain] = None;
            self.timers.failures[domain] = 0;
            return;
        }
        let pus = self.domains.all[domain].pus.len() as u64;
        let busy = if !idle && !room { u64::from(settings.busy_factor.max(1)) } else { 1 };
        let interval = settings.interval_per_pu.0.saturating_mul(pus).saturating_mul(busy);
        let next = (self.now.0 / interval + 1).saturating_mul(interval);
        // One that was far off because all were busy may be due sooner now.
        let next = self.timers.due[domain].map_or(next, |due| due.0.min(next));
        self.timers.due[domain] = Some(Nanos(next));
    }

    /// Whether a thread that may go waits in a domain while a PU of it is idle. Or is about to run: which one that will be
    /// is not known before turns are taken.
    fn waits_beside_idle(&self, domain: usize) -> bool {
        let pus = &self.domains.all[domain].pus;
        let any = |holds: &dyn Fn(PuIdx) -> bool| pus.iter().any(|&pu| holds(pu));
        let normal = any(&|pu| self.spare(pu).is_some()) && any(&|pu| self.pu_load(pu) == 0);
        normal || (any(&|pu| self.has_filler_too_many(pu)) && any(&|pu| self.is_empty(pu)))
    }

    /// Whether a filler shares a PU. One that runs now waits when its slice is over, and no load changes then.
    fn has_filler_too_many(&self, pu: PuIdx) -> bool {
        let queue = &self.queues[pu.idx()];
        queue.load() > 1 && queue.members().any(|task| self.tasks[task].fills)
    }

    /// Twice the longest balancing interval where a PU is idle, since a balancing can fall on an instant at which
    /// none waits; `None` if there are none.
    pub fn patience(&self) -> Option<Nanos> {
        let settings = self.scenario.kernel.periodic_balance?;
        let most = self.domains.all.iter().map(|domain| domain.pus.len() as u64).max()?;
        Some(Nanos(settings.interval_per_pu.0.saturating_mul(2 * most)))
    }

    /// Whether something wakes idle PUs so that they take threads: a PU with two, or a last-level cache with
    /// two busy PUs.
    fn is_kicked(&self) -> bool {
        let machine = self.platform.machine();
        let mut busy = vec![false; machine.caches.len()];
        machine.all_pus().any(|pu| {
            match (self.queues[pu.idx()].load(), machine.last_level_cache(pu)) {
                (0, _) => false,
                (1, Some(cache)) => std::mem::replace(&mut busy[cache.idx()], true),
                (1, None) => self.core_load(pu) > 1,
                _ => true,
            }
        })
    }

    /// What a balancing of a domain would find.
    fn imbalance(&self, domain: usize, settings: PeriodicBalance) -> Option<Imbalance> {
        let groups = &self.domains.all[domain].groups;
        let load =
            |group: &[PuIdx]| -> u64 { group.iter().map(|&pu| self.pu_load(pu) as u64).sum() };
        let loads: Vec<(u64, u64)> = groups.iter().map(|g| (load(g), g.len() as u64)).collect();
        let compare = |&a: &usize, &b: &usize| {
            let ((tasks_a, pus_a), (tasks_b, pus_b)) = (loads[a], loads[b]);
            (tasks_a * pus_b).cmp(&(tasks_b * pus_a)).then(b.cmp(&a))
        };
        let from = (0..groups.len()).max_by(compare)?;
        let to = (0..groups.len()).rev().min_by(compare)?;
        let ((much, pus_from), (little, pus_to)) = (loads[from], loads[to]);
        let full = little >= pus_to;
        let few = usize::try_from(little).unwrap_or(usize::MAX);
        let small = much <= pus_from && self.domains.all[domain].lets(much - little.min(much), few);
        let worth = if full {
            100 * much * pus_to > u64::from(settings.percent) * little * pus_from
        } else {
            much * pus_to > (little + 1) * pus_from && !small
        };
        let waiting = groups[from].iter().any(|&pu| self.spare(pu).is_some());
        let runs = groups[from].iter().any(|&pu| self.runner(pu).is_some());
        (worth && (waiting || (runs && !full))).then_some(Imbalance { from, to, waiting, full })
    }

    /// From the most loaded core of the group the thread that waits, or else one that runs.
    fn task_to_move(&self, domain: usize, found: &Imbalance) -> Option<TaskNo> {
        let task = |pu: PuIdx| if found.waiting { self.spare(pu) } else { self.runner(pu) };
        let group = &self.domains.all[domain].groups[found.from];
        let can = group.iter().copied().filter(|&pu| task(pu).is_some());
        let most =
            can.max_by_key(|&pu| (self.core_load(pu), self.pu_load(pu), std::cmp::Reverse(pu)));
        task(most?)
    }

    /// Of a group the PU with the least load, on the core with the least load.
    fn pu_to_fill(&self, domain: usize, group: usize) -> Option<PuIdx> {
        let pus = self.domains.all[domain].groups[group].iter().copied();
        pus.min_by_key(|&pu| (self.pu_load(pu), self.core_load(pu), pu))
    }

    pub(crate) fn core_load(&self, pu: PuIdx) -> usize {
        let machine = self.platform.machine();
        let core = &machine.cores[machine.core_of(pu).idx()];
        core.pus.iter().map(|&pu| self.pu_load(pu)).sum()
    }

    /// Whether a task is on a queue and may be put on another one.
    pub fn is_free(&self, task: TaskNo) -> bool {
        self.tasks[task].state == State::Ready && self.tasks[task].is_unbound()
    }
}

/// Timers in vain until a waiting thread is taken from one full group to another: the second succeeds, since
/// the load that is compared is halved with each (`detach_tasks` in kernel/sched/fair.c, 6.6).
const FULL_PATIENCE: u32 = 1;
