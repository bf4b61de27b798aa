//! Timers of the simulated kernel's periodic load balancing.

use crate::domains::Domains;
use colocate_machine::{Nanos, PuIdx};

/// Times of the next balancing.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// Whether loads have changed since `due` was set.
    pub stale: bool,
    /// By domain; `None` while a balancing would change nothing.
    pub due: Vec<Option<Nanos>>,
    /// By domain: failed balancings in a row.
    pub failures: Vec<u32>,
    /// PUs emptied since the last balancing.
    pub emptied: Vec<PuIdx>,
}

impl Timers {
    pub fn new(domains: &Domains) -> Self {
        let domains = domains.all.len();
        let due = vec![None; domains];
        Self { stale: true, due, failures: vec![0; domains], emptied: Vec::new() }
    }
}
