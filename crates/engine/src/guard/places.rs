//! Places of threads under the kernel, where they begin its next quantum after one of the policy's.

use super::trial::Owner;
use colocate_evidence::TaskId;
use colocate_machine::{PuIdx, PuNr};
use colocate_policy::schedule::{Quantum, Thread};
use std::collections::BTreeMap;

/// Places that the kernel has chosen last, by its own numbers.
#[derive(Clone, Debug, Default)]
pub struct KernelPlaces(BTreeMap<TaskId, PuNr>);

impl KernelPlaces {
    /// Notes the places after a quantum of `last`, and returns the initial places for a quantum of `next`: none unless the
    /// kernel has it after the policy.
    pub fn pass(
        &mut self,
        now: &Quantum<'_>,
        last: Option<Owner>,
        next: Owner,
    ) -> Vec<(TaskId, PuIdx)> {
        if last == Some(Owner::Kernel) {
            self.0 = threads(now).filter_map(|thread| place(now, thread)).collect();
        }
        if last == Some(Owner::Policy) && next == Owner::Kernel {
            threads(now).filter_map(|thread| self.usable(now, thread.id)).collect()
        } else {
            Vec::new()
        }
    }

    /// A thread with its place, if that may still be used.
    fn usable(&self, now: &Quantum<'_>, id: TaskId) -> Option<(TaskId, PuIdx)> {
        let pu = now.machine.pu_by_os(*self.0.get(&id)?)?;
        now.pus.contains(&pu).then_some((id, pu))
    }
}

fn threads<'a>(now: &Quantum<'a>) -> impl Iterator<Item = &'a Thread> + use<'a> {
    now.queue.iter().flat_map(|job| &job.threads)
}

fn place(now: &Quantum<'_>, thread: &Thread) -> Option<(TaskId, PuNr)> {
    // Kernel numbers stay valid when the machine changes; indexes do not.
    Some((thread.id, now.machine.pus[thread.pu?.idx()].os))
}
