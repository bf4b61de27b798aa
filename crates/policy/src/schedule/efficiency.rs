//! `efficiency`: fast cores for the threads that gain most (efficiency specialisation, ES).
//!
//! # Problem
//! A thread that waits for memory is hardly faster on a fast core; a computing thread is faster by
//! the ratio of the cores.
//! # Approach
//! Threads are ranked by their speed-up factors, and the first get the fast cores. Factors are
//! sampled while the threads run, or predicted by the model
//! ([`factors`](super::asymmetric::factors)).
//! # Terms
//! See [`factors`](super::asymmetric::factors): rate, factor; [`cores`](super::asymmetric::cores):
//! fast core, domain.
//! - *Incumbent*: a thread that had a fast core in the last quantum.
//! # Algorithm
//! 1. A thread of unknown factor runs for a quantum on the kind of core on which its rate is
//!    missing. Fast cores go to these threads in the order of the queue, at most half of the cores
//!    but at least one.
//! 2. The other threads follow by their factors, greatest first. Factors of incumbents count
//!    `1 + gain` times, so that noise moves no thread. Unknown factors count as 1.
//! 3. A thread on a fast core keeps the core, else gets one of its domain if possible. The other
//!    threads are spread over the remaining cores, siblings of fast-core threads last.
//! 4. Sleeping jobs ([`phases`](super::phases)) do not compete and are left to the kernel until
//!    they wake. So are threads whose programs chose their PUs.
//!
//! Ours: steps 1, 3 and 4 and the gain. A known factor is not sampled again while the thread stays
//! on one kind of core. If neither instructions are counted nor demands known, all jobs are left to
//! the kernel.
//! # Properties
//! - **Best first**: no thread on a slow core has a factor that is greater by more than the gain.
//!   -> test `best_first_and_still`
//! - **Still**: where nothing changes no thread moves once all factors are known.
//!   -> test `best_first_and_still`
//! - **Nothing for sleepers**: a thread that sleeps keeps no other off a fast core.
//!   -> test `sleepers_make_room`
//! - **As `os`** without rates, and where cores are alike. -> test `nothing_known_is_os`

use super::asymmetric::factors::{Factors, MissingRate};
use super::asymmetric::{
    Messages, RATES_AND_PHASES, choices, cores_of, demands, fast_for, free_places_of, threads_of,
};
use super::phases::ASLEEP;
use super::{Allocated, Quantum, Scheduler, SelectedJob, Thread, leave_to_kernel};
use crate::by_id::IdSet;
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::row::{PolicyRow, Setting};
use colocate_evidence::{SourceSet, TaskId};
use colocate_machine::Performance;
use colocate_model::Phase;

/// Share by which a factor must exceed the factor of an incumbent. Chosen: 5 %, the noise of stacks
/// and rates from quantum to quantum that `symbiotic` assumes.
pub const GAIN: f64 = 0.05;

pub static ROW: PolicyRow = PolicyRow {
    name: "efficiency",
    summary: "gives fast cores to the threads that gain most from them",
    source: "Fedorova et al., efficiency specialisation (ES)",
    settings: &[Setting::not_below_0("gain", GAIN, "gain below which a thread keeps its core")],
    waits: false,
    make: |values, known| Box::new(Efficiency::new(values.number("gain"), demands(known))),
    ..PolicyRow::EACH_QUANTUM
};

/// Scheduler of `efficiency`.
#[derive(Clone, Debug)]
pub struct Efficiency {
    /// Share by which a factor must exceed the factor of an incumbent; not below 0.
    gain: f64,
    factors: Factors,
    /// Incumbents.
    seated: IdSet<TaskId>,
    messages: Messages,
}

impl Efficiency {
    /// A scheduler without samples. `known`: the machine's performance and the demands of each job.
    pub fn new(gain: f64, known: Option<(Performance, Vec<Phase>)>) -> Self {
        let factors = Factors::new(known);
        Self { gain, factors, seated: IdSet::default(), messages: Messages::default() }
    }

    /// The threads at these places, in the order of their gain from a fast core; see the module.
    fn ranked(&self, threads: &[&Thread], active: &[usize], fast: usize) -> Vec<usize> {
        let mut explored = Vec::new();
        let mut known = Vec::new();
        let mut sent_off = Vec::new();
        for &at in active {
            let id = threads[at].id;
            match self.factors.missing(id) {
                // At most half of the fast cores, so that samples do not displace all known
                // threads.
                Some(MissingRate::Fast) if explored.len() < (fast / 2).max(1) => explored.push(at),
                Some(MissingRate::Slow) => sent_off.push(at),
                _ => known.push((self.weight(id), at)),
            }
        }
        // A stable sort: threads with equal factors stay in the order of the queue.
        known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let known = known.into_iter().map(|(_, at)| at);
        // Last, because the rate on a slow core is missing.
        explored.into_iter().chain(known).chain(sent_off).collect()
    }

    /// Factor of a thread for the order; 1 if unknown, and raised by `gain` for an incumbent.
    fn weight(&self, id: TaskId) -> f64 {
        let stays = if self.seated.contains(&id) { 1.0 + self.gain } else { 1.0 };
        self.factors.of(id).unwrap_or(1.0) * stays
    }

    /// Whether a rate or a factor of any thread is known.
    fn is_any_known(&self, threads: &[&Thread]) -> bool {
        threads.iter().any(|thread| {
            thread.ran.as_ref().is_some_and(|ran| ran.ipc.is_some())
                || self.factors.of(thread.id).is_some()
        })
    }
}

impl Scheduler for Efficiency {
    const NEEDS: SourceSet = RATES_AND_PHASES;

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        let Some(cores) = cores_of(now, &mut self.messages) else {
            return leave_to_kernel(now.queue);
        };
        self.factors.note(now.machine, &cores, now.queue);
        let threads = threads_of(now.queue);
        if !self.is_any_known(&threads) {
            // Before any job has run, missing rates mean nothing.
            if now.queue.iter().any(|job| job.just_ran) {
                self.messages.once("instructions are not counted and no demands are known, so it is unknown which threads gain from fast cores: everything is left to the kernel");
            }
            return leave_to_kernel(now.queue);
        }
        let fast = cores.fast().count();
        // A job of unknown state competes, too.
        let active =
            free_places_of(now.queue, |job| job.runnable.is_none_or(|count| count >= ASLEEP));
        let ranked = self.ranked(&threads, &active, fast);
        let places =
            fast_for(&cores, &threads, &ranked, |at| match self.factors.of(threads[at].id) {
                Some(factor) => Allocated::Gains { factor },
                None => Allocated::Explored,
            });
        self.seated = ranked.iter().take(fast).map(|&at| threads[at].id).collect();
        let choices = choices(now.queue, places);
        self.factors.put(now.queue, &choices);
        choices
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.messages = self.messages.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::super::asymmetric::testing::{World, amp_4x12, halves, machines, parallel};
    use super::*;
    use colocate_machine::PuIdx;
    use proptest::prelude::*;

    fn new() -> Efficiency {
        Efficiency::new(GAIN, None)
    }

    #[test]
    fn nothing_known_is_os() {
        let mut world = World::new(amp_4x12(), &[4]);
        let mut scheduler = new();
        for _ in 0..3 {
            let placed = world.quantum(&mut scheduler, &[parallel(4)]);
            assert!(placed.iter().all(|placed| placed.pu.is_none()));
        }
        assert_eq!(world.messages.len(), 1);
    }

    /// One fast core of two, twice as fast. A computes: one instruction per cycle on both, so its
    /// factor is 2; B's is 1.2. Both are on the other one for a quantum, and then A stays on the
    /// fast one.
    #[test]
    fn greatest_gains_by_hand() {
        let machine = halves("core:2", &[0]);
        let mut world = World::new(machine, &[1, 1]);
        world.ipc =
            Box::new(|id, pu| Some(if id.job.0 == 1 && pu == PuIdx(0) { 0.6 } else { 1.0 }));
        let mut scheduler = new();
        let mut fast = |_| -> u32 {
            let placed = world.quantum(&mut scheduler, &[vec![1.0], vec![1.0]]);
            placed.iter().find(|placed| placed.pu == Some(PuIdx(0))).expect("it is used").id.job.0
        };
        let found: Vec<u32> = (0..6).map(&mut fast).collect();
        assert_eq!(found, [0, 1, 0, 0, 0, 0]);
    }

    /// A fast core and one of half its speed. A's factor is 1.5, B's 2: B has the fast core until
    /// it sleeps, then A has it, and B, of which nothing new is known, is left to the kernel. When
    /// it has woken it has the fast core back.
    #[test]
    fn sleepers_make_room() {
        let mut world = World::new(halves("core:2", &[0]), &[1, 1]);
        world.ipc =
            Box::new(|id, pu| Some(if id.job.0 == 0 && pu == PuIdx(0) { 0.75 } else { 1.0 }));
        let mut scheduler = new();
        let mut next = |b: f64| {
            let placed = world.quantum(&mut scheduler, &[vec![1.0], vec![b]]);
            (placed[0].pu.map(|pu| pu.0), placed[1].pu.map(|pu| pu.0))
        };
        let active: Vec<_> = (0..4).map(|_| next(1.0)).collect();
        assert_eq!(active[2..], [(Some(1), Some(0)); 2]);
        assert_eq!([0.04, 0.0, 0.0].map(&mut next), [(Some(0), None); 3]);
        assert_eq!(next(1.0), (Some(1), Some(0)));
    }

    proptest! {
        /// Rates per cycle on fast cores and on slow ones, all counted.
        #[test]
        fn best_first_and_still(which in 0_usize..5, rates in prop::collection::vec((0.3_f64..1.0, 0.3_f64..1.0), 1..20)) {
            let mut world = World::new(machines()[which].clone(), &[rates.len()]);
            let fast: Vec<bool> = world.pus.iter().map(|pu| world.is_fast(*pu)).collect();
            world.ipc = Box::new(move |id, pu| {
                let (on_fast, on_slow) = rates[id.order as usize];
                Some(if fast[pu.idx()] { on_fast } else { on_slow })
            });
            let mut scheduler = new();
            let shares = [parallel(world.threads(0))];
            for _ in 0..50 {
                world.quantum(&mut scheduler, &shares);
            }
            let placed = world.quantum(&mut scheduler, &shares);
            prop_assert!(placed.iter().all(|placed| !placed.moved));
            let of = |on_fast: bool| placed.iter()
                .filter(move |placed| matches!(placed.why, Allocated::OffFast) != on_fast)
                .map(|placed| scheduler.factors.of(placed.id));
            let least = of(true).flatten().fold(f64::INFINITY, f64::min);
            prop_assert!(of(false).flatten().all(|factor| factor <= least * (1.0 + GAIN) + 1e-9));
        }
    }
}
