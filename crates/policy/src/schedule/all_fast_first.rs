//! `all-fast-first`: fast cores first for every thread. A baseline.
//!
//! # Problem
//! A policy for cores of different speeds has to be better than filling the fast cores first.
//! # Approach
//! Fast cores get a thread each, then slow cores, then siblings on fast cores, then on slow cores,
//! and again from the first.
//! # Terms
//! See [`cores`](super::asymmetric::cores): fast core, domain, spreading.
//! # Algorithm
//! [`Cores::spread`](super::asymmetric::cores::Cores::spread): a thread on an allowed core stays;
//! others go to a core of their domain with room, if any. Rates and phases are not used, and
//! nothing rotates. Where all cores are alike, all threads are left to the kernel. Threads whose
//! programs chose their PUs always are.
//! # Properties
//! - **Fast first**: no slow core has a thread while a fast one has none. -> test `fast_first`
//! - **Stays**: the same threads are not moved. -> test `fast_first`
//! - **As `os`** where cores are alike. -> test `alike_is_os`

use super::asymmetric::{Messages, NO_SEAT, choices, cores_of, free_places_of, threads_of};
use super::{Allocated, Quantum, Scheduler, SelectedJob, Thread, leave_to_kernel};
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::row::{PolicyRow, Purpose};
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "all-fast-first",
    purpose: Purpose::Baseline,
    summary: "fills fast cores before slow ones",
    source: "a baseline",
    waits: false,
    make: |_, _| Box::<AllFastFirst>::default(),
    ..PolicyRow::EACH_QUANTUM
};

/// Scheduler of `all-fast-first`.
#[derive(Clone, Debug, Default)]
pub struct AllFastFirst {
    messages: Messages,
}

impl Scheduler for AllFastFirst {
    const NEEDS: SourceSet = SourceSet::NONE;

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        let Some(cores) = cores_of(now, &mut self.messages) else {
            return leave_to_kernel(now.queue);
        };
        let threads = threads_of(now.queue);
        // Bound threads keep the PUs chosen by their programs.
        let free = free_places_of(now.queue, |_| true);
        let to_place: Vec<&Thread> = free.iter().map(|&at| threads[at]).collect();
        let pus = cores.spread(&to_place, &cores.groups_fast_first(), &[]);
        let mut places = vec![NO_SEAT; threads.len()];
        for (at, pu) in free.into_iter().zip(pus).filter(|(_, pu)| pu.is_some()) {
            places[at] = (pu, Allocated::FastFirst);
        }
        choices(now.queue, places)
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.messages = self.messages.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::super::asymmetric::testing::{World, machines, parallel};
    use super::*;
    use crate::testing::machine;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn alike_is_os() {
        let mut world = World::new(machine("core:4 pu:2"), &[3]);
        let mut scheduler = AllFastFirst::default();
        let placed = world.quantum(&mut scheduler, &[parallel(3)]);
        assert!(placed.iter().all(|placed| placed.pu.is_none()));
        assert!(world.messages.len() == 1);
    }

    proptest! {
        #[test]
        fn fast_first(which in 0_usize..5, threads in prop::collection::vec(1_usize..9, 1..4)) {
            let mut world = World::new(machines()[which].clone(), &threads);
            let shares: Vec<Vec<f64>> = threads.iter().map(|count| parallel(*count)).collect();
            let mut scheduler = AllFastFirst::default();
            let placed = world.quantum(&mut scheduler, &shares);
            let core = |pu| world.machine.core_of(pu);
            let used: BTreeSet<_> = placed.iter().filter_map(|placed| Some(core(placed.pu?))).collect();
            let all: BTreeSet<_> = world.pus.iter().map(|pu| (core(*pu), world.is_fast(*pu))).collect();
            let slow_used = all.iter().any(|(core, fast)| !fast && used.contains(core));
            prop_assert!(!slow_used || all.iter().all(|(core, fast)| !fast || used.contains(core)));
            prop_assert_eq!(used.len(), all.len().min(threads.iter().sum()));
            prop_assert!(world.quantum(&mut scheduler, &shares).iter().all(|placed| !placed.moved));
        }
    }
}
