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
//! The decisions are in [`crate::imbalance`].

use crate::imbalance::{Balance, patience};
use crate::kernel::PeriodicBalance;
use crate::world::World;
use colocate_machine::PuIdx;

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

    fn decision(&self) -> Balance<'_> {
        Balance::new(self.loads(), &self.targets)
    }

    /// Gives every emptied PU the nearest waiting thread.
    fn fill_emptied(&mut self) {
        let emptied = self.timers.take_empty();
        if self.scenario.kernel.idle_balance && self.decision().has_waiting() {
            self.fill(&emptied, None);
        }
    }

    /// Gives each idle PU of `pus` the nearest waiting thread, PUs of idle cores first. `within`
    /// limits the search to a domain. Whether a thread was moved.
    fn fill(&mut self, pus: &[PuIdx], within: Option<usize>) -> bool {
        let mut found = false;
        for only_idle_cores in [true, false] {
            for &pu in pus {
                let task = self.decision().thread_for(pu, within, only_idle_cores);
                if let Some(task) = task {
                    self.migrate(task, pu);
                    found = true;
                }
            }
        }
        found
    }

    /// Moves a thread within a domain, if its groups are unequal and enough attempts failed.
    fn balance_domain(&mut self, domain: usize, settings: PeriodicBalance) {
        self.timers.expire(domain);
        if self.decision().waits_beside_idle(domain) {
            let pus = self.pus.domains().all[domain].pus.clone();
            if self.fill(&pus, Some(domain)) {
                return;
            }
        }
        let Some(found) = self.decision().imbalance(domain, settings) else { return };
        if self.timers.fails(domain, patience(&found, settings)) {
            return;
        }
        if let Some((task, to)) = self.decision().step(domain, &found) {
            self.migrate(task, to);
        }
    }

    /// Sets the timer of a domain, if there is a reason to balance it.
    fn schedule(&mut self, domain: usize, settings: PeriodicBalance) {
        match self.decision().next(domain, settings, self.events.now()) {
            Some(next) => self.timers.set(domain, next),
            None => self.timers.clear(domain),
        }
    }
}
