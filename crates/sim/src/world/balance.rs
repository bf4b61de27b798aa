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
use crate::parts::Parts;
use crate::world::moves::migrate;
use colocate_machine::PuIdx;

/// Balances every domain with an expired timer, and fills emptied PUs.
pub(crate) fn balance(parts: &mut Parts<'_>) {
    fill_emptied(parts);
    let Some(settings) = parts.scenario.kernel.periodic_balance else {
        parts.timers.take_change();
        return;
    };
    for domain in 0..parts.pus.domains.all.len() {
        if parts.timers.is_due(domain, parts.events.now) {
            balance_domain(parts, domain, settings);
        }
    }
    // A task that was moved while it ran may have left an idle PU.
    fill_emptied(parts);
    if parts.timers.take_change() {
        (0..parts.pus.domains.all.len()).for_each(|domain| schedule(parts, domain, settings));
    }
}

fn decision<'p>(parts: &'p Parts<'_>) -> Balance<'p> {
    Balance::new(parts.loads(), &parts.targets)
}

/// Gives every emptied PU the nearest waiting thread.
fn fill_emptied(parts: &mut Parts<'_>) {
    let emptied = parts.timers.take_empty();
    if parts.scenario.kernel.idle_balance && decision(parts).has_waiting() {
        fill(parts, &emptied, None);
    }
}

/// Gives each idle PU of `pus` the nearest waiting thread, PUs of idle cores first. `within`
/// limits the search to a domain. Whether a thread was moved.
fn fill(parts: &mut Parts<'_>, pus: &[PuIdx], within: Option<usize>) -> bool {
    let mut found = false;
    for only_idle_cores in [true, false] {
        for &pu in pus {
            let task = decision(parts).thread_for(pu, within, only_idle_cores);
            if let Some(task) = task {
                migrate(parts, task, pu);
                found = true;
            }
        }
    }
    found
}

/// Moves a thread within a domain, if its groups are unequal and enough attempts failed.
fn balance_domain(parts: &mut Parts<'_>, domain: usize, settings: PeriodicBalance) {
    parts.timers.expire(domain);
    if decision(parts).waits_beside_idle(domain) {
        let pus = parts.pus.domains.all[domain].pus.clone();
        if fill(parts, &pus, Some(domain)) {
            return;
        }
    }
    let Some(found) = decision(parts).imbalance(domain, settings) else { return };
    if parts.timers.fails(domain, patience(&found, settings)) {
        return;
    }
    if let Some((task, to)) = decision(parts).step(domain, &found) {
        migrate(parts, task, to);
    }
}

/// Sets the timer of a domain, if there is a reason to balance it.
fn schedule(parts: &mut Parts<'_>, domain: usize, settings: PeriodicBalance) {
    match decision(parts).next(domain, settings, parts.events.now) {
        Some(next) => parts.timers.set(domain, next),
        None => parts.timers.clear(domain),
    }
}
