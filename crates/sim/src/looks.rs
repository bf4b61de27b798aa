//! When the simulated kernel looks at its domains.

use crate::domains::Domains;
use colocate_machine::{Nanos, PuIdx};

/// When each domain is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    /// Whether loads have changed since `due` was found out.
    pub stale: bool,
    /// By domain; `None` while a look would change nothing.
    pub due: Vec<Option<Nanos>>,
    /// Looks in vain.
    pub failures: Vec<u32>,
    /// PUs that ran out of threads since the last look at all.
    pub emptied: Vec<PuIdx>,
}

impl Looks {
    pub fn new(domains: &Domains) -> Self {
        let domains = domains.all.len();
        let (due, failures) = (vec![None; domains], vec![0; domains]);
        Self { stale: true, due, failures, emptied: Vec::new() }
    }
}
