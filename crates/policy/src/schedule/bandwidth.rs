//! `mmas`, `mhas`, `idas`, `bas`, `l1-static` and `l1-dynamic`: schedulers by traffic to memory and caches.
//!
//! # Problem
//! Performance falls the faster the nearer the memory is to its peak, so quanta with much traffic together lose more than
//! quanta with little gain. Threads that share a cache fight for it in the same way.
//! # Approach
//! Keep the memory traffic of every quantum close to an average; put threads with much traffic to a shared cache apart.
//! # Terms
//! - `AvgTR(p)`: traffic of `p` alone, averaged over its time `T(p)` alone, t/µs. `TR(p)`: that in its last quantum.
//! - `IABW = Σ AvgTR(p)·T(p) / (Σ T(p)·width(p) / contexts)`: all traffic of the jobs that are left over the time in which
//!   the contexts can run them, t/µs. For jobs of one thread that is contexts × the mean traffic, weighted by time.
//! - *Throttle* `s = Σ TR / Σ AvgTR` over the jobs that have run: how much of their traffic alone they get. Ours: the original's
//!   prediction was not found. The last rate alone is none: rates fall where the memory is short, so jobs that flood it
//!   together seem to have little traffic, and are together again (simulated on a Xeon X3320).
//! - `Pen(p) = κ · max(0, g(p) − mean g) · mean AvgTR`, at most the largest `AvgTR`: bandwidth that is reserved for a job that
//!   loses more than others. `g(p)` is the share of its speed that `p` loses for each t/µs of others' traffic, measured
//!   beside the micro-benchmark of `colocate bench bandwidth`. Ours: how it was computed was not published with what we have.
//! - `SIABW`: `IABW` with `AvgTR(p) + Pen(p)` for `AvgTR(p)`.
//! - `OATR`: contexts × the mean of the last rates of the jobs that wait. The formula of the paper was not found. This one is
//!   that of its author's published teaching code; a mean of what was delivered, the other reading, falls when contention
//!   throttles traffic.
//! # Algorithm
//! | policy | selection | allocation | source |
//! |---|---|---|---|
//! | `mmas` | [`select::by_traffic`], `BW = IABW`, demand `TR(p) / s` | PUs in order | Xu, Wu and Yew, PACT 2010 |
//! | `mhas` | as `mmas` | [`allocate::balanced`] | Feliu et al., IPDPS 2012, Algorithm 2 |
//! | `idas` | `BW = SIABW`, demand `TR(p) / s + Pen(p)` | as `mhas`, by the plain rates | TPDS 2014, Algorithm 3 |
//! | `bas` | `BW = OATR`, demand `TR(p)` | [`allocate::most_with_least`], by the last quantum | IEEE TC 2016, Algorithm 4 |
//! | `l1-dynamic` | in the order of the queue | as `bas` | PACT 2013, Algorithm 6 |
//! | `l1-static` | in the order of the queue | by runs alone, so no thread moves | PACT 2013, Algorithm 6 |
//!
//! The traffic of a job alone is of all its threads together: each has its part of that, all runnable ones the same. A job of
//! several threads takes as many contexts (ours). The published study of `l1` has as many jobs as contexts, so no selection.
//! # Properties
//! - **Jobs that are gone do not count** -> tests `by_hand`, `oatr_by_hand`
//! - **Threads take contexts**: jobs of several threads that flood the memory are kept apart, too. -> test
//!   `wide_floods_are_kept_apart`
//! - **Scarcity is not modesty**: the same jobs are chosen when all rates fall alike. -> tests `floods_are_kept_apart`,
//!   `rates_that_fall_alike_change_nothing`
//! - **Balanced**: threads with much traffic to a shared cache are apart. -> test `caches_are_balanced`
//! - **Penalties are bounded** and no thread that loses less than the mean has one. -> test `penalties_by_hand`
//! - **None, none**: if all lose alike, `idas` is `mhas`. -> test `alike_is_mhas`
//! - **First come, first served** until rates are known. -> test `first_quantum`
//! - **Each its part**: a thread of many has no more than its part of the job's traffic. -> tests `a_job_of_many_threads`,
//!   `by_what_is_known_alone_or_by_the_last_quantum`

use super::allocate::{self, Rate, seated, spread};
use super::{Allocated, COUNTERS, Choice, Quantum, QueuedJob, Selected, Thread, select};
use crate::plan::JobIdx;
use crate::policy::{Policy, by_rule};
use crate::row::{Kind, Knowledge, Preset, Prior, Row, Setting, SoloProfile};
use std::collections::BTreeMap;

/// How much of a job's excess sensitivity becomes a penalty. Chosen: with 100, a job that loses one
/// percent more than the mean for each t/µs has the mean traffic reserved once more.
const KAPPA: f64 = 100.0;

/// Its row in the table of policies.
pub static MMAS: Row = Row {
    name: "mmas",
    summary: "keeps traffic to memory close to its known average",
    source: "Xu, Wu and Yew, PACT 2010",
    prior: &[Prior::Solo],
    make: |_, prior| by_average(prior, 0.0, spread),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static MHAS: Row = Row {
    name: "mhas",
    summary: "balances traffic at each level of the memory hierarchy",
    source: "Feliu et al., IPDPS 2012, Algorithm 2",
    prior: &[Prior::Solo],
    make: |_, prior| by_average(prior, 0.0, balance),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static IDAS: Row = Row {
    name: "idas",
    summary: "as mhas, with a penalty for jobs that suffer from traffic",
    source: "Feliu et al., TPDS 2014, Algorithm 3",
    settings: &[Setting {
        name: "kappa",
        kind: Kind::Number("not below 0", |kappa| kappa.is_finite() && kappa >= 0.0),
        default: Preset::Shown(&Preset::Number(KAPPA)),
        meaning: "scale of the penalties",
    }],
    prior: &[Prior::Solo],
    make: |values, prior| by_average(prior, values.number("kappa"), balance),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static BAS: Row = Row {
    name: "bas",
    summary: "balances traffic to memory, then to first caches, by the last quantum",
    source: "Feliu et al., IEEE TC 2016, Algorithm 4",
    make: |_, _| by_rule(COUNTERS, |it| it.plan(&by_last_average(&it.now))),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static L1_STATIC: Row = Row {
    name: "l1-static",
    summary: "pairs most with least first-cache traffic, by runs alone",
    source: "Feliu et al., PACT 2013, Algorithm 6",
    prior: &[Prior::Solo],
    make: |_, prior| {
        let rates: Vec<f64> = prior.alone.iter().map(|job| job.first_cache).collect();
        by_rule(COUNTERS, move |it| it.plan(&by_runs_alone(&it.now, &rates)))
    },
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static L1_DYNAMIC: Row = Row {
    name: "l1-dynamic",
    summary: "pairs most with least first-cache traffic, by the last quantum",
    source: "Feliu et al., PACT 2013, Algorithm 6",
    make: |_, _| by_rule(COUNTERS, |it| it.plan(&by_last_quantum(&it.now))),
    ..Row::EACH_QUANTUM
};

type Chosen = Vec<(usize, Selected)>;

/// What is known of a job alone, and its penalty in t/µs.
type Known = (SoloProfile, f64);

/// Selects by averages of runs alone.
fn by_average(
    prior: &Knowledge<'_>,
    kappa: f64,
    allocate: fn(&Quantum<'_>, Chosen) -> Vec<Choice>,
) -> Box<dyn Policy> {
    let known = known(prior.alone, kappa);
    by_rule(COUNTERS, move |it| it.plan(&allocate(&it.now, select(&it.now, &known))))
}

/// What is known of each job, with the penalties of this scale.
fn known(alone: &[SoloProfile], kappa: f64) -> Vec<Known> {
    let mean = |of: fn(&SoloProfile) -> f64| {
        let sum = alone.iter().map(of).fold(0.0, |sum, each| sum + each);
        sum / select::float(alone.len().max(1))
    };
    let (loss, traffic) = (mean(|job| job.loss), mean(|job| job.memory));
    let most = alone.iter().map(|job| job.memory).fold(0.0, f64::max);
    let penalty = |job: &SoloProfile| (kappa * (job.loss - loss).max(0.0) * traffic).min(most);
    alone.iter().map(|job| (*job, penalty(job))).collect()
}

fn of<'a>(known: &'a [Known], job: &QueuedJob) -> Option<&'a Known> {
    known.get(job.job.0 as usize)
}

/// The jobs that run, by their memory traffic.
fn select(now: &Quantum<'_>, known: &[Known]) -> Chosen {
    let throttle = throttle(now, known);
    let penalty = |job: &QueuedJob| of(known, job).map_or(0.0, |known| known.1);
    let demand = |job: &QueuedJob| job.to_memory() / throttle + penalty(job);
    select::by_traffic(now.queue, now.pus.len(), ideal(now, known), demand)
}

/// `s`; 1 if nothing is known. Above 0.
fn throttle(now: &Quantum<'_>, known: &[Known]) -> f64 {
    let has_run = |job: &&QueuedJob| job.threads.iter().any(|t| t.traffic().memory.is_some());
    let (mut now_traffic, mut alone_traffic) = (0.0, 0.0);
    for job in now.queue.iter().filter(has_run) {
        now_traffic += job.to_memory();
        alone_traffic += of(known, job).map_or(0.0, |(alone, _)| alone.memory);
    }
    let throttle = now_traffic / alone_traffic;
    if throttle.is_finite() && throttle > 0.0 { throttle } else { 1.0 }
}

/// `IABW`, and with penalties `SIABW`; 0 if no job takes time.
fn ideal(now: &Quantum<'_>, known: &[Known]) -> f64 {
    let contexts = now.pus.len();
    let known = || now.queue.iter().filter_map(|job| Some((job, of(known, job)?)));
    let width = |job: &QueuedJob| select::float(job.width(contexts));
    let time = known().fold(0.0, |sum, (job, (alone, _))| sum + alone.seconds * width(job));
    let asked = known()
        .fold(0.0, |sum, (_, (alone, penalty))| sum + (alone.memory + penalty) * alone.seconds);
    if time > 0.0 { asked / time * select::float(contexts) } else { 0.0 }
}

/// Which threads run in this quantum, and where: `bas`.
fn by_last_average(now: &Quantum<'_>) -> Vec<Choice> {
    let contexts = now.pus.len();
    let chosen = select::all(now.queue, contexts).unwrap_or_else(|| {
        select::by_traffic(now.queue, contexts, oatr(now.queue, contexts), QueuedJob::to_memory)
    });
    pair(now, chosen, &to_first_cache)
}

/// `OATR`, t/µs.
pub(super) fn oatr(queue: &[QueuedJob], contexts: usize) -> f64 {
    let threads: usize = queue.iter().map(|job| job.width(contexts)).sum();
    let asked = queue.iter().map(QueuedJob::to_memory).fold(0.0, |sum, each| sum + each);
    if threads == 0 { 0.0 } else { asked / select::float(threads) * select::float(contexts) }
}

fn by_last_quantum(now: &Quantum<'_>) -> Vec<Choice> {
    pair(now, select::all_or_first(now), &to_first_cache)
}

/// `rates` are requests of each job to the first cache, alone, all its threads together, t/µs; by job.
fn by_runs_alone(now: &Quantum<'_>, rates: &[f64]) -> Vec<Choice> {
    let threads: BTreeMap<JobIdx, usize> =
        now.queue.iter().map(|job| (job.job, job.threads.len())).collect();
    let rate = |thread: &Thread| {
        let job = thread.id.job;
        let all = rates.get(job.0 as usize).copied().unwrap_or(0.0);
        all / select::float(threads.get(&job).copied().unwrap_or(1))
    };
    pair(now, select::all_or_first(now), &rate)
}

/// Traffic of a thread to its first cache in its last quantum.
fn to_first_cache(thread: &Thread) -> f64 {
    thread.traffic().at(1)
}

/// Places the chosen jobs by [`allocate::most_with_least`], by the last quantum.
pub(super) fn pair_by_last_quantum(now: &Quantum<'_>, chosen: Chosen) -> Vec<Choice> {
    pair(now, chosen, &to_first_cache)
}

fn pair(now: &Quantum<'_>, chosen: Chosen, rate: Rate<'_>) -> Vec<Choice> {
    let place = |it: &[&Thread]| allocate::most_with_least(now.machine, now.pus, it, rate);
    seated(now, chosen, place, |thread| Allocated::MostWithLeast { has: rate(thread) })
}

/// Places the chosen jobs so that the caches of every shared level have about as many requests.
fn balance(now: &Quantum<'_>, chosen: Chosen) -> Vec<Choice> {
    let lowest = allocate::shared_levels(now.machine, now.pus).last().copied();
    let place = |it: &[&Thread]| allocate::balanced(now.machine, now.pus, it);
    seated(now, chosen, place, |_| match lowest {
        Some(level) => Allocated::Balanced { level },
        None => Allocated::Next,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue, traffic};
    use super::*;
    use crate::plan::TaskId;
    use crate::testing::machine;
    use proptest::prelude::*;

    /// Jobs of this memory traffic and these seconds, without penalties.
    fn alone(rates: &[(f64, f64)]) -> Vec<Known> {
        let of = |&(memory, seconds): &(f64, f64)| {
            (SoloProfile { memory, seconds, ..SoloProfile::default() }, 0.0)
        };
        rates.iter().map(of).collect()
    }

    /// IABW = 2 · (30·1 + 10·1 + 10·2)/4 = 30. Head 30 leaves 0 for one context: 9 is nearer than 11.
    #[test]
    fn by_hand() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let alone = alone(&[(30.0, 1.0), (10.0, 1.0), (10.0, 2.0)]);
        let waiting = queue(&[30.0, 11.0, 9.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
        assert!((ideal(&now, &alone) - 30.0).abs() < 1e-12);
        assert_eq!(chosen(&spread(&now, select(&now, &alone))), [(0, 0), (2, 1)]);
        let rest = Quantum { queue: &waiting[1..], ..now };
        assert!((ideal(&rest, &alone) - 20.0).abs() < 1e-12);
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
        assert!((ideal(&now, &known) - 40.0).abs() < 1e-12);
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

    /// All four run; by requests to the shared caches, 20 + 2 and 16 + 6 are together, though in the queue
    /// 20 and 16 follow each other.
    #[test]
    fn caches_are_balanced() {
        let machine = machine("l3:2 core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let of = |rate: f64| ([None, None, Some(rate), None], 1.0);
        let queue = traffic([20.0, 16.0, 2.0, 6.0].map(of));
        let alone = alone(&[(1.0, 1.0); 4]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let mut found = chosen(&balance(&now, select(&now, &alone)));
        found.sort_unstable();
        let half = |job: usize| found[job].1 / 2;
        assert_eq!((half(0), half(1)), (half(2), half(3)));
        assert_ne!(half(0), half(1));
    }

    fn sensitive(jobs: &[(f64, f64)]) -> Vec<SoloProfile> {
        let one =
            |&(memory, loss)| SoloProfile { memory, loss, seconds: 1.0, ..SoloProfile::default() };
        jobs.iter().map(one).collect()
    }

    /// Mean loss 0.02, mean traffic 20. The second job loses 0.01 more: 100 · 0.01 · 20 = 20. The third 0.05
    /// more: 100, but no traffic is above 40.
    #[test]
    fn penalties_by_hand() {
        let jobs = sensitive(&[(40.0, 0.0), (10.0, 0.03), (10.0, 0.07), (20.0, -0.02)]);
        let found = known(&jobs, 100.0);
        for ((_, found), wanted) in found.iter().zip([0.0, 20.0, 40.0, 0.0]) {
            assert!((found - wanted).abs() < 1e-9, "{found}");
        }
    }

    #[test]
    fn alike_is_mhas() {
        let machine = machine("l3:2 core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let jobs = sensitive(&[(40.0, 0.1), (10.0, 0.1), (30.0, 0.1), (20.0, 0.1), (1.0, 0.1)]);
        let queue = queue(&[40.0, 10.0, 30.0, 20.0, 1.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let mhas = balance(&now, select(&now, &known(&jobs, 0.0)));
        assert_eq!(balance(&now, select(&now, &known(&jobs, KAPPA))), mhas);
    }

    /// On two contexts, 20 and 20 alone: SIABW = 2 · (20 + 20 + 0 + 40)/4 = 40. The head leaves 20 for one:
    /// without its penalty the second is nearest, with it the fourth.
    #[test]
    fn a_penalty_counts_as_traffic() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut jobs = sensitive(&[(20.0, 0.0), (20.0, 0.08), (0.0, 0.0), (20.0, 0.0)]);
        let queue = queue(&[20.0, 20.0, 0.0, 20.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let second = |jobs: &[_]| balance(&now, select(&now, &known(jobs, KAPPA)))[1].job.0;
        assert_eq!(second(&jobs), 3);
        jobs[1].loss = 0.0;
        assert_eq!(second(&jobs), 1);
    }

    /// (30 + 20 + 10)/3 = 20 a job, on two contexts 40; without the first 15 and 30.
    #[test]
    fn oatr_by_hand() {
        let queue = queue(&[30.0, 20.0, 10.0]);
        assert!((oatr(&queue, 2) - 40.0).abs() < 1e-12);
        assert!((oatr(&queue[1..], 2) - 30.0).abs() < 1e-12);
        assert!(oatr(&[], 2).abs() < f64::EPSILON);
    }

    #[test]
    fn first_quantum() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut queue = queue(&[0.0; 6]);
        queue.iter_mut().for_each(|job| job.threads[0].ran = None);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let jobs: Vec<u32> =
            chosen(&by_last_average(&now)).into_iter().map(|(job, _)| job).collect();
        assert_eq!(jobs, [0, 1, 2, 3]);
    }

    /// Alone, the jobs have traffic of 1, 9, 5, 7; in the last quantum for 9, 1, 5, 7.
    #[test]
    fn by_what_is_known_alone_or_by_the_last_quantum() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let of = |rate: f64| ([Some(rate), None, None, None], 1.0);
        let queue = traffic([9.0, 1.0, 5.0, 7.0].map(of));
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let dynamic = by_last_quantum(&now);
        let fixed = by_runs_alone(&now, &[1.0, 9.0, 5.0, 7.0]);
        assert_eq!(chosen(&dynamic), [(0, 0), (1, 1), (2, 3), (3, 2)]);
        assert_eq!(chosen(&fixed), [(0, 1), (1, 0), (2, 3), (3, 2)]);
    }

    /// Four threads have 400 together, so 100 each, and one of another job 150: it is beside the one with 10.
    #[test]
    fn a_job_of_many_threads() {
        let machine = machine("core:3 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut queue = traffic([0.0; 3].map(|_| ([None; 4], 1.0)));
        let first = queue[0].threads[0].clone();
        let id = |order| TaskId { order, ..first.id };
        queue[0].threads = (0..4).map(|order| Thread { id: id(order), ..first.clone() }).collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let choices = by_runs_alone(&now, &[400.0, 150.0, 10.0]);
        assert_eq!(chosen(&choices)[4..], [(1, 0), (2, 1)]);
        assert_eq!(choices[0].places[0].1, Allocated::MostWithLeast { has: 100.0 });
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
