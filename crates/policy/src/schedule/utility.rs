//! `utility`: fast cores for the threads of greatest utility factor, from speed-up factor and
//! number of runnable threads (CAMP; Saez et al.).
//!
//! # Problem
//! [`efficiency`](super::efficiency) ignores that the speed-up of one thread of many hardly speeds
//! up the job. [`parallelism-aware`](super::parallelism_aware) ignores that a thread that waits for
//! memory gains nothing.
//! # Approach
//! One number for both: the gain of a job with as many of its threads as possible on fast cores.
//! # Terms
//! - *SF*: speed-up factor of a thread ([`factors`](super::asymmetric::factors)). If unknown, the
//!   ratio of the cores' speeds, the most that a computing thread can gain.
//! - *N*: mean number of runnable threads of the job, at least 1. *N_FC*: number of usable fast
//!   cores.
//! - *UF* `= (SF − 1) / max(1, N − (N_FC − 1))² + 1`; remembered and unverified. UF is SF for a
//!   lone thread, and near 1 for a thread of many more than there are fast cores.
//! # Algorithm
//! 1. Classes by UF: *high* from two thirds of the way from 1 to the ratio of the cores' speeds,
//!    *medium* from one third, else *low*. The published thresholds were not found; thirds are
//!    chosen.
//! 2. The thread of a job in a new serial phase is *boosted*, for [`BOOST`] quanta (published,
//!    remembered: a bounded time).
//! 3. Boosted threads come first, then high, medium, low. Within the first three classes the least
//!    time on fast cores comes first, so the threads of a class share them. Ours: of the low
//!    threads, those on fast cores stay, since moves gain nothing.
//! 4. A thread on a fast core keeps the core, else gets one of its domain if possible. The other
//!    threads are spread over the remaining cores, siblings of fast-core threads last.
//! 5. Ours: sleeping jobs do not compete and are left to the kernel until they wake. So are threads
//!    whose programs chose their PUs. If the number of runnable threads of any job is unknown, all
//!    jobs are left to the kernel.
//! # Properties
//! - **Sane**: UF is SF for one thread, and falls with more. -> test `utility_by_hand`
//! - **Serial first**: a serial phase takes a fast core from a parallel one.
//!   -> test `serial_before_parallel`
//! - **Fair**: threads of one class share within a quantum. -> test `a_class_shares`
//! - **Nothing for sleepers** or bound threads. -> tests `sleepers_take_no_turns`,
//!   `bound_ones_take_no_turns`
//! - **No credit** while there are no fast cores. -> test `without_fast_cores_no_thread_has_turns`
//! - **Still**: where nothing changes and no core is shared no thread moves.
//!   -> test `low_ones_stay`
//! - **As `os`** without phases, and where cores are alike. -> test `unknown_is_os`

use super::asymmetric::factors::Factors;
use super::asymmetric::rotation::Rotation;
use super::asymmetric::{
    Messages, NO_PHASES, RATES_AND_PHASES, choices, cores_of, demands, fast_for, free_places_of,
    threads_of,
};
use super::phases::{CONFIRM, Hysteresis, JobPhase, JobPhases, PARALLEL, SERIAL, hysteresis};
use super::{
    Allocated, Quantum, QuantumOutcome, QueuedJob, Scheduler, SelectedJob, leave_to_kernel,
};
use crate::by_id::{ById, IdSet};
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::row::PolicyRow;
use colocate_evidence::{JobIdx, SourceSet, TaskId};
use colocate_machine::{Nanos, Performance};
use colocate_model::Phase;
use std::cmp::Reverse;

/// Quanta for which the thread of a new serial phase precedes all others. Chosen: the time until
/// its time on fast cores is meaningful.
pub(crate) const BOOST: u32 = 5;

/// Class of a thread by its utility of a fast core, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UtilityClass {
    Low,
    Medium,
    High,
    Boosted,
}

/// Utility factor `UF`, see the module: `factor` is SF, `runnable` is N, `fast` is N_FC.
pub fn utility(factor: f64, runnable: f64, fast: usize) -> f64 {
    let crowd = (runnable.max(1.0) - (fast as f64 - 1.0)).max(1.0);
    (factor - 1.0) / (crowd * crowd) + 1.0
}

pub static ROW: PolicyRow = PolicyRow {
    name: "utility",
    summary: "gives fast cores to the threads of greatest utility factor",
    source: "Saez et al., EuroSys 2010 (CAMP)",
    settings: &[SERIAL, PARALLEL, CONFIRM],
    waits: false,
    make: |values, known| Box::new(Utility::new(hysteresis(values), demands(known))),
    ..PolicyRow::EACH_QUANTUM
};

/// Scheduler of `utility`.
#[derive(Clone, Debug)]
pub struct Utility {
    factors: Factors,
    phases: JobPhases,
    /// Quanta since a job entered its serial phase. Absent outside serial phases.
    serial: ById<JobIdx, u32>,
    /// Length of the last quantum.
    took: Nanos,
    turns: Rotation<TaskId>,
    /// Threads that had a fast core in the last quantum.
    seated: IdSet<TaskId>,
    messages: Messages,
}

impl Utility {
    /// A scheduler without samples. `known`: the machine's performance and the demands of each job.
    pub fn new(hysteresis: Hysteresis, known: Option<(Performance, Vec<Phase>)>) -> Self {
        Self {
            factors: Factors::new(known),
            phases: JobPhases::new(hysteresis),
            serial: ById::default(),
            took: Nanos::ZERO,
            turns: Rotation::default(),
            seated: IdSet::default(),
            messages: Messages::default(),
        }
    }

    /// Counts the quanta of each job in its serial phase.
    fn note_serial(&mut self, queue: &[QueuedJob]) {
        self.serial = queue
            .iter()
            .filter_map(|job| {
                let seen = self.phases.of(job.job).filter(|seen| seen.phase == JobPhase::Serial)?;
                // A job that was serial from the start has not just become so.
                let first = if seen.changes > 0 { 1 } else { u32::MAX };
                let before = self.serial.get(&job.job);
                Some((job.job, before.map_or(first, |quanta| quanta.saturating_add(1))))
            })
            .collect();
    }

    /// Utility and class of each thread, in the order of the queue.
    fn classes(&self, queue: &[QueuedJob], fast: usize, ratio: f64) -> Vec<(f64, UtilityClass)> {
        let mut found = Vec::new();
        for job in queue {
            // Unknown only for jobs that did not run; such a job counts as one thread.
            let runnable = job.runnable.unwrap_or(1.0);
            let serial = self.phases.of(job.job).and_then(|seen| seen.thread);
            let is_new = self.serial.get(&job.job).is_some_and(|quanta| *quanta <= BOOST);
            for thread in &job.threads {
                // An unknown factor counts as the ratio, the most that a computing thread gains.
                let factor = self.factors.of(thread.id).unwrap_or(ratio);
                let utility = utility(factor, runnable, fast);
                // Thirds of the way from 1 to the ratio.
                // Cores are not alike here, so the ratio is above 1.
                let class = match (utility - 1.0) / (ratio - 1.0) {
                    _ if is_new && serial == Some(thread.id) => UtilityClass::Boosted,
                    high if high >= 2.0 / 3.0 => UtilityClass::High,
                    medium if medium >= 1.0 / 3.0 => UtilityClass::Medium,
                    _ => UtilityClass::Low,
                };
                found.push((utility, class));
            }
        }
        found
    }

    /// Places of the free threads of jobs that do not sleep, most useful first.
    fn ranked(
        &mut self,
        now: &Quantum<'_>,
        ids: &[TaskId],
        classes: &[(f64, UtilityClass)],
    ) -> Vec<usize> {
        let active = free_places_of(now.queue, |job| !self.phases.sleeps(job.job));
        let competitors: Vec<TaskId> = active.iter().map(|&at| ids[at]).collect();
        let order = self.turns.order(&competitors);
        let mut order: Vec<usize> = order.into_iter().map(|place| active[place]).collect();
        // The sort is stable: within a class the order of the rotation stays.
        order.sort_by_key(|&at| {
            let class = classes[at].1;
            let stays = class == UtilityClass::Low && self.seated.contains(&ids[at]);
            (Reverse(class), !stays)
        });
        order
    }

    /// Leaves all threads to the kernel; no thread has a fast core.
    fn leave(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        self.turns.seat([]);
        self.seated.clear();
        leave_to_kernel(now.queue)
    }
}

impl Scheduler for Utility {
    const NEEDS: SourceSet = RATES_AND_PHASES;

    fn note(&mut self, last: &QuantumOutcome<'_>) {
        self.took = last.took;
        self.turns.took(last.took);
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        self.phases.update(now.queue, self.took);
        self.note_serial(now.queue);
        let Some(cores) = cores_of(now, &mut self.messages) else { return self.leave(now) };
        if now.queue.iter().any(|job| job.just_ran && job.runnable.is_none()) {
            self.messages.once(NO_PHASES);
            return self.leave(now);
        }
        self.factors.note(now.machine, &cores, now.queue);
        let threads = threads_of(now.queue);
        let ids: Vec<TaskId> = threads.iter().map(|thread| thread.id).collect();
        let fast = cores.fast().count();
        let classes = self.classes(now.queue, fast, cores.ratio);
        let ranked = self.ranked(now, &ids, &classes);
        // Forget threads that have ended.
        let there: IdSet<TaskId> = ids.iter().copied().collect();
        self.turns.retain(|id| there.contains(id));
        let places =
            fast_for(&cores, &threads, &ranked, |at| Allocated::Useful { utility: classes[at].0 });
        self.seated = ranked.iter().take(fast).map(|&at| ids[at]).collect();
        self.turns.seat(self.seated.iter().copied());
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
    use super::super::asymmetric::testing::{World, amp_4x12, halves, machines, parallel, serial};
    use super::*;
    use proptest::prelude::*;

    fn new() -> Utility {
        Utility::new(Hysteresis::USUAL, None)
    }

    /// Four fast cores, twice as fast: alone 2; of four 1 + 1/1² and of five 1 + 1/2², of nineteen
    /// 1 + 1/16².
    #[test]
    fn utility_by_hand() {
        for (runnable, wanted) in [(0.2, 2.0), (1.0, 2.0), (4.0, 2.0), (5.0, 1.25)] {
            assert!((utility(2.0, runnable, 4) - wanted).abs() < 1e-12, "{runnable}");
        }
        assert!((utility(2.0, 19.0, 4) - (1.0 + 1.0 / 256.0)).abs() < 1e-12);
        assert!((utility(1.0, 1.0, 4) - 1.0).abs() < 1e-12);
    }

    /// Two jobs on one fast core and three slow ones. Both run three threads, N is 3 and UF 1 +
    /// 1/9: low, and the thread that is there stays. In B's serial phase its thread is boosted;
    /// later it is high, and A's are low.
    #[test]
    fn serial_before_parallel() {
        let mut world = World::new(halves("core:4", &[0]), &[3, 3]);
        let mut scheduler = new();
        let mut on_fast = |a: &[f64], b: &[f64]| {
            let placed = world.quantum(&mut scheduler, &[a.to_vec(), b.to_vec()]);
            let fast = placed.iter().find(|placed| matches!(placed.why, Allocated::Useful { .. }));
            let id = fast.expect("it is used").id;
            (id.job.0, id.order)
        };
        let (all, one) = (parallel(3), serial(3, 2));
        assert_eq!(on_fast(&all, &all), (0, 0));
        assert_eq!(on_fast(&all, &all), (0, 0));
        for _ in 0..2 * BOOST {
            assert_eq!(on_fast(&all, &one), (1, 2));
        }
        assert_ne!(on_fast(&all, &all), (1, 0));
    }

    /// One fast core for two jobs of one thread, both of high utility, which take turns. While one
    /// sleeps the other one has it all the time. When it has woken, which is a new serial phase, it
    /// has it for five quanta, and the other one for the next five.
    #[test]
    fn sleepers_take_no_turns() {
        let mut world = World::new(halves("core:2", &[0]), &[1, 1]);
        let mut scheduler = new();
        let mut had = |b: f64, quanta: usize| {
            let mut had = [0, 0];
            for _ in 0..quanta {
                for placed in world.quantum(&mut scheduler, &[vec![1.0], vec![b]]) {
                    let fast = matches!(placed.why, Allocated::Useful { .. });
                    had[placed.id.job.0 as usize] += usize::from(fast);
                }
            }
            had
        };
        assert_eq!(had(1.0, 10), [5, 5]);
        assert_eq!(had(0.0, 10), [10, 0]);
        assert_eq!(had(1.0, 10), [5, 5]);
    }

    /// For how many of so many quanta each of two jobs of one thread that always run has the fast
    /// core.
    fn had(world: &mut World, scheduler: &mut Utility, quanta: usize) -> [usize; 2] {
        let mut had = [0, 0];
        for _ in 0..quanta {
            for placed in world.quantum(scheduler, &[vec![1.0], vec![1.0]]) {
                let fast = matches!(placed.why, Allocated::Useful { .. });
                had[placed.id.job.0 as usize] += usize::from(fast);
            }
        }
        had
    }

    /// B's program has bound it to the slow core.
    #[test]
    fn bound_ones_take_no_turns() {
        let mut world = World::new(halves("core:2", &[0]), &[1, 1]);
        world.bound = vec![TaskId { job: JobIdx(1), order: 0 }];
        assert_eq!(had(&mut world, &mut new(), 10), [10, 0]);
    }

    /// The fast core goes for 20 quanta. The thread that had it last did not have it for these.
    #[test]
    fn without_fast_cores_no_thread_has_turns() {
        let mut world = World::new(halves("core:2", &[0]), &[1, 1]);
        let mut scheduler = new();
        assert_eq!(had(&mut world, &mut scheduler, 4), [2, 2]);
        let fast = world.pus.remove(0);
        assert_eq!(had(&mut world, &mut scheduler, 20), [0, 0]);
        world.pus.insert(0, fast);
        assert_eq!(had(&mut world, &mut scheduler, 10), [5, 5]);
    }

    #[test]
    fn low_ones_stay() {
        let mut world = World::new(amp_4x12(), &[16]);
        let mut scheduler = new();
        world.quantum(&mut scheduler, &[parallel(16)]);
        for _ in 0..5 {
            let placed = world.quantum(&mut scheduler, &[parallel(16)]);
            assert!(placed.iter().all(|placed| placed.pu.is_some() && !placed.moved));
        }
    }

    #[test]
    fn unknown_is_os() {
        let world = World::new(amp_4x12(), &[4]);
        let mut queue = world.queue(&[parallel(4)]);
        queue[0].runnable = None;
        let now = Quantum { number: 0, machine: &world.machine, pus: &world.pus, queue: &queue };
        let mut scheduler = new();
        assert_eq!(scheduler.choose(&now), leave_to_kernel(now.queue));
        assert_eq!(scheduler.messages.drain(), [NO_PHASES]);
        let alike = World::new(crate::testing::machine("core:4"), &[2]);
        let queue = alike.queue(&[parallel(2)]);
        let now = Quantum { number: 0, machine: &alike.machine, pus: &alike.pus, queue: &queue };
        assert_eq!(scheduler.choose(&now), leave_to_kernel(now.queue));
    }

    proptest! {
        /// Jobs of one thread, all of high utility.
        #[test]
        fn a_class_shares(which in 0_usize..5, jobs in 1_usize..14, quanta in 1_usize..40) {
            let mut world = World::new(machines()[which].clone(), &vec![1; jobs]);
            let mut scheduler = new();
            let mut had = vec![0_usize; jobs];
            for _ in 0..quanta {
                for placed in world.quantum(&mut scheduler, &vec![vec![1.0]; jobs]) {
                    had[placed.id.job.0 as usize] += usize::from(placed.why != Allocated::OffFast);
                }
            }
            let (least, most) = (had.iter().min().expect("some"), had.iter().max().expect("some"));
            prop_assert!(most - least <= 1, "{:?}", had);
        }
    }
}
