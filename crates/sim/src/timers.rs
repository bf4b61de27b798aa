//! Timers of the simulated kernel's periodic load balancing.

use crate::domains::Domains;
use colocate_machine::{Nanos, PuIdx};

/// Times of the next balancing.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// Whether loads have changed since `due` was set.
    pub is_stale: bool,
    /// By domain; `None` while a balancing would change nothing.
    due: Vec<Option<Nanos>>,
    /// By domain: failed balancings in a row.
    failures: Vec<u32>,
    /// PUs emptied since the last balancing.
    pub emptied: Vec<PuIdx>,
}

impl Timers {
    pub fn new(domains: &Domains) -> Self {
        let domains = domains.all.len();
        let due = vec![None; domains];
        Self { is_stale: true, due, failures: vec![0; domains], emptied: Vec::new() }
    }

    /// Begins anew, with other domains.
    pub fn reset(&mut self, domains: &Domains) {
        *self = Self::new(domains);
    }

    /// Whether loads have changed since the last call.
    pub const fn take_change(&mut self) -> bool {
        std::mem::replace(&mut self.is_stale, false)
    }

    /// PUs emptied since the last call, in order.
    pub fn take_empty(&mut self) -> Vec<PuIdx> {
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.sort_unstable();
        emptied.dedup();
        emptied
    }

    /// Time of the next balancing; `None` while none is due.
    pub fn next(&self) -> Option<Nanos> {
        self.due.iter().flatten().copied().min()
    }

    /// Whether the balancing of a domain is due.
    pub fn is_due(&self, domain: usize, now: Nanos) -> bool {
        self.due[domain].is_some_and(|due| due <= now)
    }

    /// Ends the timer of a domain that is balanced now; it is to be set anew.
    pub fn expire(&mut self, domain: usize) {
        self.due[domain] = None;
        self.is_stale = true;
    }

    /// Counts a failed balancing of a domain. False, and no failure is left, after `patience`
    /// failures.
    pub fn fails(&mut self, domain: usize, patience: u32) -> bool {
        let fails = self.failures[domain] < patience;
        self.failures[domain] = if fails { self.failures[domain] + 1 } else { 0 };
        fails
    }

    /// Sets the timer of a domain; an earlier time stays.
    pub fn set(&mut self, domain: usize, at: Nanos) {
        // A time that was far off because all PUs were busy may be sooner now.
        self.due[domain] = Some(self.due[domain].map_or(at, |due| due.min(at)));
    }

    /// Ends the timer of a domain without a reason to balance.
    pub fn clear(&mut self, domain: usize) {
        self.due[domain] = None;
        self.failures[domain] = 0;
    }
}
