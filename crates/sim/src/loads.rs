//! Loads of PUs, cores and groups of PUs, as the simulated kernel compares them.

use crate::hotplug::UsablePus;
use crate::queues::Queues;
use colocate_machine::PuIdx;
use std::cmp::Ordering;

/// Numbers of tasks on queues; fillers are left out unless a name says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loads<'p> {
    /// The usable PUs.
    pub pus: &'p UsablePus<'p>,
    /// The queues.
    pub queues: &'p Queues,
}

impl<'p> Loads<'p> {
    /// Loads of these queues.
    pub const fn new(pus: &'p UsablePus<'p>, queues: &'p Queues) -> Self {
        Self { pus, queues }
    }

    /// Tasks of a PU.
    pub fn pu(&self, pu: PuIdx) -> usize {
        self.queues.normal_load(pu)
    }

    /// Tasks of all PUs of a PU's core.
    pub fn core(&self, pu: PuIdx) -> usize {
        let core = &self.pus.machine().cores[self.pus.machine().core_of(pu).idx()];
        core.pus.iter().map(|&pu| self.pu(pu)).sum()
    }

    /// Tasks of a group, and its PUs.
    pub fn group(&self, group: &[PuIdx]) -> (u64, u64) {
        (group.iter().map(|&pu| self.pu(pu) as u64).sum(), group.len() as u64)
    }

    /// PUs of a group without tasks.
    pub fn idle_pus(&self, group: &[PuIdx]) -> usize {
        group.iter().filter(|pu| self.pu(**pu) == 0).count()
    }

    /// Whether a PU has no task, fillers included.
    pub fn is_empty(&self, pu: PuIdx) -> bool {
        self.queues.load(pu) == 0
    }

    /// The PU with the fewest tasks, of several that on the core with the fewest.
    pub fn least(&self, pus: &[PuIdx]) -> Option<PuIdx> {
        pus.iter().copied().min_by_key(|&pu| (self.pu(pu), self.core(pu)))
    }
}

/// Compares the tasks for each PU of two groups, given as (tasks, PUs): a/b < c/d without a
/// division.
pub(crate) fn compare_loads(a: (u64, u64), b: (u64, u64)) -> Ordering {
    (a.0 * b.1).cmp(&(b.0 * a.1))
}
