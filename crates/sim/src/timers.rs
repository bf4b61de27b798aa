//! When the simulated kernel balances its domains.

use crate::domains::Domains;
use colocate_machine::{Nanos, PuIdx};

/// When each domain is balanced.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// Whether loads have changed since `due` was found out.
    pub stale: bool,
    /// By domain; `None` while balancing would change nothing.
    pub due: Vec<Option<Nanos>>,
    /// Timers in vain.
    pub failures: Vec<u32>,
    /// PUs that ran out of threads since the last balancing.
    pub emptied: Vec<PuIdx>,
}

impl Timers {
    pub fn new(domains: &Domains) -> Self {
        let domains = domains.all.len();
        let (due, failures) = (vec![None; domains], vec![0; domains]);
        Self { stale: true, due, failures, emptied: Vec::new() }
    }
}
