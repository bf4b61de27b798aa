//! `mmas`: main-memory bandwidth-aware scheduling (Xu, Wu and Yew, PACT 2010).
//!
//! # Problem
//! Performance falls the faster the nearer the memory is to its peak, so quanta with much traffic together lose more than
//! quanta with little gain.
//! # Approach
//! Keep the traffic of every quantum close to the average of the workload, which is known from runs alone.
//! # Terms
//! - `AvgTR(p)`: traffic of `p` alone, averaged over its time `T(p)` alone, t/µs.
//! - `IABW = Σ AvgTR(p)·T(p) / (Σ T(p)·width(p) / contexts)`: all traffic over the time in which the contexts can run all
//!   jobs, t/µs. For jobs of one thread that is contexts × the mean traffic, weighted by time.
//! - `TR(p)`: traffic of `p` in its last quantum, t/µs.
//! - *Throttle* `s = Σ TR / Σ AvgTR` over the jobs that have run: how much of their traffic alone they get.
//! # Algorithm
//! [`select::by_traffic`] with `BW = IABW` and `TR(p) / s` as a job's demand; then PUs in order, without regard to caches.
//!
//! Ours is `s`: the original's prediction was not found. The last rate alone is no prediction beside an average of runs alone:
//! rates fall where the memory is short, so jobs that flood it together seem to have little traffic, and are together again
//! (simulated on a Xeon X3320: three of four streaming programs ran in every quantum). Ours, too: `IABW` is that of the jobs
//! that are left, and a job of several threads takes as many contexts.
//! # Properties
//! - **Jobs that are gone do not count** -> test `by_hand`
//! - **Threads take contexts**: jobs of several threads that flood the memory are kept apart, too. -> test
//!   `wide_floods_are_kept_apart`
//! - **Scarcity is not modesty**: the same jobs are chosen when all rates fall alike. -> tests `floods_are_kept_apart`,
//!   `rates_that_fall_alike_change_nothing`

use super::allocate::{self, choices, threads_of};
use super::{Allocated, Choice, Quantum, QueuedJob, Selected, select};
use crate::places::Places;
use crate::policy::by_rule;
use crate::row::{COUNTERS, Prior, Row, SoloProfile};

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "mmas",
    summary: "keeps traffic to memory close to its known average",
    source: "Xu, Wu and Yew, PACT 2010",
    prior: &[Prior::Solo],
    make: |_, known| {
        let alone = known.alone.to_vec();
        by_rule(COUNTERS, move |it| it.plan(&choose(&it.now, &alone)))
    },
    ..Row::EACH_QUANTUM
};

/// Which threads run in this quantum, and where; `alone` is what is known of each job alone.
fn choose(now: &Quantum<'_>, alone: &[SoloProfile]) -> Vec<Choice> {
    let chosen = select(now, alone);
    let threads = threads_of(now.queue, &chosen, now.pus.len());
    let order = Places::new(now.machine, now.pus).spread_pus();
    let pus = allocate::in_order(&order, &threads);
    choices(now, chosen, &pus, |_| Allocated::Next)
}

/// The jobs that run, by their memory traffic.
pub(super) fn select(now: &Quantum<'_>, alone: &[SoloProfile]) -> Vec<(usize, Selected)> {
    let wanted = ideal(now, alone, |alone| alone.memory);
    let throttle = throttle(now, alone);
    let demand = |job: &QueuedJob| job.to_memory() / throttle;
    select::by_traffic(now.queue, now.pus.len(), wanted, demand)
}

/// `s`: traffic of the jobs of the queue that have run in their last quanta, over that alone;
/// 1 if nothing is known. Above 0.
pub(crate) fn throttle(now: &Quantum<'_>, alone: &[SoloProfile]) -> f64 {
    let has_run = |job: &&QueuedJob| job.threads.iter().any(|t| t.traffic().memory.is_some());
    let (mut now_traffic, mut alone_traffic) = (0.0, 0.0);
    for job in now.queue.iter().filter(has_run) {
        now_traffic += job.to_memory();
        alone_traffic += alone.get(job.job.0 as usize).map_or(0.0, |alone| alone.memory);
    }
    let throttle = now_traffic / alone_traffic;
    if throttle.is_finite() && throttle > 0.0 { throttle } else { 1.0 }
}

/// `IABW`: contexts × the traffic alone of the jobs of the queue for each context that they take, weighted by their times
/// alone; 0 if none of them takes time.
pub(crate) fn ideal(
    now: &Quantum<'_>,
    alone: &[SoloProfile],
    asks: impl Fn(&SoloProfile) -> f64,
) -> f64 {
    let contexts = now.pus.len();
    let known = || now.queue.iter().filter_map(|job| Some((job, alone.get(job.job.0 as usize)?)));
    let width = |job: &QueuedJob| select::float(job.width(contexts));
    let time = known().fold(0.0, |sum, (job, alone)| sum + alone.seconds * width(job));
    let asked = known().fold(0.0, |sum, (_, alone)| sum + asks(alone) * alone.seconds);
    if time > 0.0 { asked / time * select::float(contexts) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue};
    use super::*;
    use crate::testing::machine;
    use proptest::prelude::*;

    fn alone(rates: &[(f64, f64)]) -> Vec<SoloProfile> {
        rates
            .iter()
            .map(|&(memory, seconds)| SoloProfile { memory, seconds, ..SoloProfile::default() })
            .collect()
    }

    /// IABW = 2 · (30·1 + 10·1 + 10·2)/4 = 30. Head 30 leaves 0 for one context: 9 is nearer than 11.
    #[test]
    fn by_hand() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let alone = alone(&[(30.0, 1.0), (10.0, 1.0), (10.0, 2.0)]);
        let waiting = queue(&[30.0, 11.0, 9.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
        assert!((ideal(&now, &alone, |alone| alone.memory) - 30.0).abs() < 1e-12);
        assert_eq!(chosen(&choose(&now, &alone)), [(0, 0), (2, 1)]);
        let rest = Quantum { queue: &waiting[1..], ..now };
        assert!((ideal(&rest, &alone, |alone| alone.memory) - 20.0).abs() < 1e-12);
    }

    /// Two floods have 60 each alone and 30 each together; two others have none. IABW = 2 · 120/4
    /// = 60, s = 60/120. The head has 60, so nothing is left, and nothing is nearest. By the plain rates 30
    /// would be left, and the second flood would be just that.
    #[test]
    fn floods_are_kept_apart() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let known = alone(&[(60.0, 1.0), (60.0, 1.0), (0.0, 1.0), (0.0, 1.0)]);
        let waiting = queue(&[30.0, 30.0, 0.0, 0.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
        assert!((throttle(&now, &known) - 0.5).abs() < 1e-12);
        let chosen = select(&now, &known);
        assert_eq!(chosen[1], (2, Selected::Traffic { wanted: 0.0, has: 0.0 }));
        let plain = select::by_traffic(&waiting, 2, 60.0, QueuedJob::to_memory);
        assert_eq!(plain[1].0, 1);
    }

    /// Four PUs, four jobs of two threads, of which two have 40 each: a context should have 80/8, so a quantum 40.
    /// The head leaves nothing for two contexts.
    #[test]
    fn wide_floods_are_kept_apart() {
        let machine = machine("core:4");
        let pus: Vec<_> = machine.all_pus().collect();
        let known = alone(&[(40.0, 1.0), (40.0, 1.0), (0.0, 1.0), (0.0, 1.0)]);
        let mut waiting = queue(&[20.0, 20.0, 0.0, 0.0]);
        for job in &mut waiting {
            job.threads.push(job.threads[0].clone());
        }
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
        assert!((ideal(&now, &known, |alone| alone.memory) - 40.0).abs() < 1e-12);
        assert_eq!(select(&now, &known)[1].0, 2);
    }

    /// A job that has not run has no rate: the throttle is that of the others, 10/20, and 1 before any has run.
    #[test]
    fn a_job_that_has_not_run_is_not_throttled() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let known = alone(&[(20.0, 1.0), (50.0, 1.0)]);
        let mut waiting = queue(&[10.0, 0.0]);
        let of = |queue: &[QueuedJob]| {
            throttle(&Quantum { number: 0, machine: &machine, pus: &pus, queue }, &known)
        };
        waiting[1].threads[0].ran = None;
        assert!((of(&waiting) - 0.5).abs() < 1e-12);
        waiting[0].threads[0].ran = None;
        assert!((of(&waiting) - 1.0).abs() < 1e-12);
    }

    proptest! {
        /// A power of two, so that no rounding decides.
        #[test]
        fn rates_that_fall_alike_change_nothing(
            jobs in prop::collection::vec((0.0_f64..60.0, 0.0_f64..60.0), 1..24),
            halved in 0_i32..6,
        ) {
            let machine = machine("core:4");
            let pus: Vec<_> = machine.all_pus().collect();
            let known = alone(&jobs.iter().map(|(_, memory)| (*memory, 1.0)).collect::<Vec<_>>());
            let places = |share: f64| -> Vec<usize> {
                let waiting = queue(&jobs.iter().map(|(rate, _)| rate * share).collect::<Vec<_>>());
                let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
                select(&now, &known).into_iter().map(|(at, _)| at).collect()
            };
            prop_assert_eq!(places(0.5_f64.powi(halved)), places(1.0));
        }
    }
}
