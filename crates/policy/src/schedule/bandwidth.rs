//! `mmas`, `mhas`, `idas`, `bas`, `l1-static` and `l1-dynamic`: schedulers by traffic to memory and
//! caches.
//!
//! # Problem
//! Performance falls faster the nearer the memory is to its peak, so quanta with much traffic lose
//! more than quanta with little traffic gain. The same holds for threads that share a cache.
//! # Approach
//! Keep the memory traffic of every quantum close to an average; separate threads with much traffic
//! to a shared cache.
//! # Terms
//! - `AvgTR(p)`: traffic of `p` alone, averaged over its time `T(p)` alone, t/µs. `TR(p)`: traffic
//!   in its last quantum.
//! - `IABW = Σ AvgTR(p)·T(p) / (Σ T(p)·width(p) / contexts)`: all traffic of the jobs in the queue
//!   over the time in which the contexts can run them, t/µs. For jobs of one thread: contexts × the
//!   mean traffic, weighted by time.
//! - *Throttle* `s = Σ TR / Σ AvgTR` over the jobs that have run: the share of their traffic alone
//!   that jobs get. A job that has not run has the demand `AvgTR`. Ours: the original's prediction
//!   was not found. The last rate alone is no prediction: rates fall where the memory is short, so
//!   jobs that flood the memory together seem to have little traffic, and run together again
//!   (simulated on a Xeon X3320).
//! - `Pen(p) = κ · max(0, g(p) − mean g) · mean AvgTR`, at most the largest `AvgTR`: bandwidth
//!   reserved for a job that loses more than others. `g(p)` is the share of its speed that `p`
//!   loses for each t/µs of others' traffic, measured beside the micro-benchmark of
//!   `colocate-study bench bandwidth`. Ours: the published computation was not found.
//! - `SIABW`: `IABW` with `AvgTR(p) + Pen(p)` for `AvgTR(p)`.
//! - `OATR`: contexts × the mean of the last rates of the waiting jobs (`oatr=waiting`), or the
//!   mean delivered traffic of each quantum so far (`oatr=delivered`), which falls when contention
//!   throttles traffic. The formula of the paper was not found. The first is that of its author's
//!   published teaching code; the second is the figure reported by that code.
//! # Algorithm
//! | policy | selection | allocation | source |
//! |---|---|---|---|
//! | `mmas` | [`select::by_traffic`], `BW = IABW` of the jobs that are left, demand `TR(p) / s` | PUs in order | Xu, Wu and Yew, PACT 2010 |
//! | `mmas:published` | the same with the `IABW` of all jobs, computed once, and demand `TR(p)` | PUs in order | the same |
//! | `mhas` | as `mmas`, `mmas:published` | [`allocate::balanced`] | Feliu et al., IPDPS 2012, Algorithm 2 |
//! | `idas` | the same with `SIABW`, demand and `Pen(p)` | as `mhas`, by the plain rates | TPDS 2014, Algorithm 3 |
//! | `bas` | `BW = OATR`, demand `TR(p)` | [`allocate::most_with_least`], by the last quantum | IEEE TC 2016, Algorithm 4 |
//! | `l1-dynamic` | in the order of the queue | as `bas` | PACT 2013, Algorithm 6 |
//! | `l1-static` | in the order of the queue | by runs alone, so no thread moves | PACT 2013, Algorithm 6 |
//!
//! The traffic of a job alone is that of all its threads: each runnable thread has an equal part. A
//! job of several threads takes as many contexts (ours). The published study of `l1` has as many
//! jobs as contexts, so no selection. Unknown traffic counts as the mean of the known; if no
//! traffic is known, a message says that jobs are not ordered.
//! # Properties
//! - **Jobs that are gone do not count** -> tests `by_hand`, `oatr_by_hand`
//! - **Threads take contexts**: jobs of several threads that flood the memory are kept apart, too.
//!   -> test `wide_floods_are_kept_apart`
//! - **Scarcity is not modesty**: the same jobs are chosen when all rates fall alike.
//!   -> tests `floods_are_kept_apart`, `rates_that_fall_alike_change_nothing`
//! - **Balanced**: threads with much traffic to a shared cache are apart.
//!   -> test `caches_are_balanced`
//! - **Penalties are bounded** and no thread that loses less than the mean has one.
//!   -> test `penalties_by_hand`
//! - **None, none**: if all lose alike, `idas` is `mhas`. -> test `alike_is_mhas`
//! - **First come, first served** until rates are known. -> test `first_quantum`
//! - **As published**, the average stays when jobs leave. -> test `as_published_by_hand`
//! - **Unknown is reported** once, if it is so after jobs have run. -> test `without_counters`
//! - **Each its part**: a thread of many has no more than its part of the job's traffic.
//!   -> tests `a_job_of_many_threads`, `by_what_is_known_alone_or_by_the_last_quantum`

use super::allocate::{self, RateFunction, seated, spread};
use super::asymmetric::Messages;
use super::{Allocated, COUNTERS, Quantum, QueuedJob, Selected, SelectedJob, select};
use crate::plan::Plan;
use crate::policy::{Policy, by_rule};
use crate::predict::mean;
use crate::row::{
    Knowledge, PolicyRow, PolicySpec, Prior, Purpose, Setting, SettingKind, SoloProfile,
};
use colocate_evidence::JobIdx;
use std::collections::BTreeMap;

/// Scale of penalties, `κ`. Chosen: with 100, a job that loses one percent more than the mean for
/// each t/µs has the mean traffic reserved once more.
const KAPPA: f64 = 100.0;

pub static MMAS: PolicyRow = PolicyRow {
    name: "mmas",
    summary: "keeps traffic to memory close to its known average",
    source: "Xu, Wu and Yew, PACT 2010",
    settings: &[PUBLISHED],
    prior: &[Prior::Solo],
    make: |values, prior| by_average(values, prior, 0.0, spread),
    ..PolicyRow::EACH_QUANTUM
};

pub static MHAS: PolicyRow = PolicyRow {
    name: "mhas",
    summary: "balances traffic at each level of the memory hierarchy",
    source: "Feliu et al., IPDPS 2012, Algorithm 2",
    settings: &[PUBLISHED],
    prior: &[Prior::Solo],
    make: |values, prior| by_average(values, prior, 0.0, balance),
    ..PolicyRow::EACH_QUANTUM
};

pub static IDAS: PolicyRow = PolicyRow {
    name: "idas",
    summary: "as mhas, with a penalty for jobs that suffer from traffic",
    source: "Feliu et al., TPDS 2014, Algorithm 3",
    settings: &[Setting::not_below_0("kappa", KAPPA, "scale of the penalties").shown(), PUBLISHED],
    prior: &[Prior::Solo],
    make: |values, prior| by_average(values, prior, values.number("kappa"), balance),
    ..PolicyRow::EACH_QUANTUM
};

pub static BAS: PolicyRow = PolicyRow {
    name: "bas",
    purpose: Purpose::Recommended,
    summary: "balances traffic to memory, then to first caches, by the last quantum",
    source: "Feliu et al., IEEE TC 2016, Algorithm 4",
    settings: &[Setting::word(
        "oatr",
        &["waiting", DELIVERED],
        "traffic that a quantum should have: the mean of what waits, or of what was delivered",
    )],
    make: |values, _| match values.word("oatr") {
        Some(DELIVERED) => {
            let mut mean = Delivered::default();
            by_rates(move |now| by_last_average(now, mean.next(now)))
        }
        _ => by_rates(|now| by_last_average(now, oatr(now.queue, now.pus.len()))),
    },
    ..PolicyRow::EACH_QUANTUM
};

pub static L1_STATIC: PolicyRow = PolicyRow {
    name: "l1-static",
    summary: "pairs most with least first-cache traffic, by runs alone",
    source: "Feliu et al., PACT 2013, Algorithm 6",
    prior: &[Prior::Solo],
    make: |_, prior| {
        let rates: Vec<Option<f64>> = prior.alone.iter().map(|job| job.first_cache).collect();
        by_rates(move |now| by_runs_alone(now, &rates))
    },
    ..PolicyRow::EACH_QUANTUM
};

pub static L1_DYNAMIC: PolicyRow = PolicyRow {
    name: "l1-dynamic",
    summary: "pairs most with least first-cache traffic, by the last quantum",
    source: "Feliu et al., PACT 2013, Algorithm 6",
    make: |_, _| by_rates(|now| pair_by_last_quantum(now, select::all_or_first(now))),
    ..PolicyRow::EACH_QUANTUM
};

const PUBLISHED: Setting = Setting::new(
    "published",
    SettingKind::Flag,
    None,
    "as published: an average of all jobs, once, and rates as they were last",
);

const DELIVERED: &str = "delivered";

/// Places of the chosen jobs in the queue, with the reasons.
type Chosen = Vec<(usize, Selected)>;

/// Profile of a job alone, and its penalty in t/µs.
type SoloPenalty = (SoloProfile, f64);

/// Message where no rate orders the jobs.
const NO_TRAFFIC: &str = "traffic to memory is neither counted nor known of runs alone, so jobs run in the order of the queue";
/// Message where no rate orders the threads.
const NO_REQUESTS: &str = "requests to caches are neither counted nor known of runs alone, so threads are placed in the order of the queue";

/// A policy by rates, with messages where rates are unknown.
fn by_rates(mut choose: impl FnMut(&Quantum<'_>) -> Vec<SelectedJob> + 'static) -> Box<dyn Policy> {
    let mut messages = Messages::default();
    by_rule(COUNTERS, move |it| {
        let choices = choose(&it.now);
        unknown(&it.now, &choices).into_iter().for_each(|text| messages.once(text));
        Plan { messages: messages.drain(), ..it.plan(&choices) }
    })
}

/// Messages where jobs have run without showing rates, and no rates of runs alone are known.
fn unknown(now: &Quantum<'_>, choices: &[SelectedJob]) -> Vec<&'static str> {
    let ran: Vec<&QueuedJob> = now.queue.iter().filter(|job| job.just_ran).collect();
    let mut texts = Vec::new();
    if ran.is_empty() {
        return texts;
    }
    // The head runs whatever its traffic is.
    let selected = choices.iter().skip(1).map(|choice| &choice.selected);
    if ran.iter().all(|job| job.to_memory().is_none())
        && are_all(selected, &Selected::TrafficUnknown)
    {
        texts.push(NO_TRAFFIC);
    }
    let allocated = choices.iter().flat_map(|choice| &choice.places).map(|(_, why)| why);
    if ran.iter().all(|job| job.to_caches(1).is_none())
        && are_all(allocated, &Allocated::TrafficUnknown)
    {
        texts.push(NO_REQUESTS);
    }
    texts
}

/// Whether there are values, all equal to `value`.
fn are_all<'a, T: PartialEq + 'a>(values: impl Iterator<Item = &'a T>, value: &T) -> bool {
    let mut values = values.peekable();
    values.peek().is_some() && values.all(|each| each == value)
}

/// A policy that selects by averages of runs alone.
fn by_average(
    values: &PolicySpec,
    prior: &Knowledge<'_>,
    kappa: f64,
    allocate: fn(&Quantum<'_>, Chosen) -> Vec<SelectedJob>,
) -> Box<dyn Policy> {
    let known = known(prior.alone, kappa);
    if !values.is_set("published") {
        return by_rates(move |now| allocate(now, select(now, &known)));
    }
    let mut average = None;
    by_rates(move |now| {
        // Once, from the jobs of the first quantum.
        let wanted = *average.get_or_insert_with(|| ideal(now, &known));
        allocate(now, by_demand(now, &known, wanted, 1.0))
    })
}

/// Profiles of the jobs, with penalties of the scale `kappa`.
fn known(alone: &[SoloProfile], kappa: f64) -> Vec<SoloPenalty> {
    let loss = mean(&alone.iter().map(|job| job.loss).collect::<Vec<_>>());
    let traffic = mean(&alone.iter().map(|job| job.memory).collect::<Vec<_>>());
    // No job reserves more than the largest traffic alone.
    let most = alone.iter().map(|job| job.memory).fold(0.0, f64::max);
    let jobs = alone.iter();
    jobs.map(|job| (*job, (kappa * (job.loss - loss).max(0.0) * traffic).min(most))).collect()
}

/// Profile of a job; `None` if unknown.
fn of<'a>(known: &'a [SoloPenalty], job: &QueuedJob) -> Option<&'a SoloPenalty> {
    known.get(job.job.0 as usize)
}

/// The jobs chosen by their memory traffic.
fn select(now: &Quantum<'_>, known: &[SoloPenalty]) -> Chosen {
    by_demand(now, known, ideal(now, known), throttle(now, known))
}

/// Jobs with about `wanted` t/µs in all. `throttle`: share of their traffic alone that jobs get.
fn by_demand(now: &Quantum<'_>, known: &[SoloPenalty], wanted: f64, throttle: f64) -> Chosen {
    select::by_traffic(now.queue, now.pus.len(), wanted, |job| {
        let alone = of(known, job);
        // The last rate was throttled; divided, it is the demand.
        let traffic = job.to_memory().map(|last| last / throttle);
        let penalty = alone.map_or(0.0, |known| known.1);
        Some(traffic.or(alone.map(|known| known.0.memory))? + penalty)
    })
}

/// `s`, above 0; 1 if unknown.
fn throttle(now: &Quantum<'_>, known: &[SoloPenalty]) -> f64 {
    let mut now_traffic = 0.0;
    let mut alone_traffic = 0.0;
    for job in now.queue {
        let Some((traffic, (alone, _))) = job.to_memory().zip(of(known, job)) else { continue };
        now_traffic += traffic;
        alone_traffic += alone.memory;
    }
    // 0 / 0 before any job has run.
    let throttle = now_traffic / alone_traffic;
    if throttle.is_finite() && throttle > 0.0 { throttle } else { 1.0 }
}

/// `IABW`, or `SIABW` with penalties, in t/µs; 0 if no job takes time.
fn ideal(now: &Quantum<'_>, known: &[SoloPenalty]) -> f64 {
    let contexts = now.pus.len();
    let mut time = 0.0;
    let mut asked = 0.0;
    for job in now.queue {
        let Some((alone, penalty)) = of(known, job) else { continue };
        time += alone.seconds * job.width(contexts) as f64;
        asked += (alone.memory + penalty) * alone.seconds;
    }
    if time > 0.0 { asked / time * contexts as f64 } else { 0.0 }
}

/// Choices of `bas`. `oatr` is in t/µs.
fn by_last_average(now: &Quantum<'_>, oatr: f64) -> Vec<SelectedJob> {
    let contexts = now.pus.len();
    // With room for all jobs there is nothing to select.
    let chosen = select::all(now.queue, contexts)
        .unwrap_or_else(|| select::by_traffic(now.queue, contexts, oatr, QueuedJob::to_memory));
    pair_by_last_quantum(now, chosen)
}

/// `OATR` of the waiting jobs, t/µs; 0 if no job's traffic is known.
pub(super) fn oatr(queue: &[QueuedJob], contexts: usize) -> f64 {
    let demands: Vec<Option<f64>> = queue.iter().map(QueuedJob::to_memory).collect();
    select::mean_of_a_thread(queue, contexts, &demands) * contexts as f64
}

/// `OATR` as the mean of the delivered traffic.
#[derive(Default)]
struct Delivered {
    /// Quanta with a known traffic of any job.
    quanta: f64,
    /// Mean traffic of these quanta, t/µs.
    mean: f64,
}

impl Delivered {
    /// Takes in the last quantum. The mean, t/µs; before the first, `OATR` of waiting jobs.
    fn next(&mut self, now: &Quantum<'_>) -> f64 {
        let ran = now.queue.iter().filter(|job| job.just_ran);
        let known: Vec<f64> = ran.filter_map(QueuedJob::to_memory).collect();
        // A quantum of unknown traffic is no quantum without traffic.
        if !known.is_empty() {
            let delivered = known.into_iter().fold(0.0, |sum, each| sum + each);
            self.quanta += 1.0;
            // Running mean, without a sum that grows.
            self.mean += (delivered - self.mean) / self.quanta;
        }
        if self.quanta > 0.0 { self.mean } else { oatr(now.queue, now.pus.len()) }
    }
}

/// Choices of `l1-static`. `rates`: by job, requests of all threads to the first cache, t/µs.
fn by_runs_alone(now: &Quantum<'_>, rates: &[Option<f64>]) -> Vec<SelectedJob> {
    let threads: BTreeMap<JobIdx, usize> =
        now.queue.iter().map(|job| (job.job, job.threads.len())).collect();
    pair(now, select::all_or_first(now), &|thread| {
        let job = thread.id.job;
        let all = rates.get(job.0 as usize).copied().flatten()?;
        // The threads are those of queued jobs, so the default is not used.
        Some(all / threads.get(&job).copied().unwrap_or(1) as f64)
    })
}

/// Places the chosen jobs by [`allocate::most_with_least`], with the rates of the last quantum.
pub(super) fn pair_by_last_quantum(now: &Quantum<'_>, chosen: Chosen) -> Vec<SelectedJob> {
    pair(now, chosen, &|thread| thread.traffic().at(1))
}

/// Places the chosen jobs by [`allocate::most_with_least`].
fn pair(now: &Quantum<'_>, chosen: Chosen, rate: RateFunction<'_>) -> Vec<SelectedJob> {
    seated(
        now,
        chosen,
        |threads| allocate::most_with_least(now.machine, now.pus, threads, rate),
        |thread| match rate(thread) {
            Some(has) => Allocated::MostWithLeast { has },
            None => Allocated::TrafficUnknown,
        },
    )
}

/// Places the chosen jobs so that the caches of every shared level have about equal requests.
fn balance(now: &Quantum<'_>, chosen: Chosen) -> Vec<SelectedJob> {
    // Levels are listed from the last one on, so the lowest is at the end.
    let lowest = allocate::shared_levels(now.machine, now.pus).last().copied();
    seated(
        now,
        chosen,
        |threads| allocate::balanced(now.machine, now.pus, threads),
        |thread| match lowest {
            Some(level) if thread.traffic().at(level).is_some() => Allocated::Balanced { level },
            Some(_) => Allocated::TrafficUnknown,
            // No cache is shared, so no rate matters.
            None => Allocated::Next,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::Thread;
    use super::super::testing::{chosen, queue, traffic};
    use super::*;
    use crate::evidence::{Evidence, Rates};
    use crate::plan::{Place, PlaceReason};
    use crate::testing::machine;
    use colocate_evidence::TaskId;
    use proptest::prelude::*;

    /// Jobs of this memory traffic and these seconds, without penalties.
    fn alone(rates: &[(f64, f64)]) -> Vec<SoloPenalty> {
        let of = |&(memory, seconds): &(f64, f64)| {
            (SoloProfile { memory, seconds, ..SoloProfile::default() }, 0.0)
        };
        rates.iter().map(of).collect()
    }

    /// IABW = 2 · (30·1 + 10·1 + 10·2)/4 = 30. Head 30 leaves 0 for one context: 9 is nearer than
    /// 11.
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

    /// Two floods have 60 each alone and 30 each together; two others have none. IABW = 2 · 120/4 =
    /// 60, s = 60/120. The head has 60, so nothing is left, and nothing is nearest. By the plain
    /// rates 30 would be left, and the second flood would be just that.
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

    /// Four PUs, four jobs of two threads, of which two have 40 each: a context should have 80/8,
    /// so a quantum 40. The head leaves nothing for two contexts.
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

    /// A job that has not run has no rate: the throttle is that of the others, 10/20, and 1 before
    /// any has run.
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

    /// All four run; by requests to the shared caches, 20 + 2 and 16 + 6 are together, though in
    /// the queue 20 and 16 follow each other.
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

    /// Mean loss 0.02, mean traffic 20. The second job loses 0.01 more: 100 · 0.01 · 20 = 20. The
    /// third 0.05 more: 100, but no traffic is above 40.
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

    /// On two contexts, 20 and 20 alone: SIABW = 2 · (20 + 20 + 0 + 40)/4 = 40. The head leaves 20
    /// for one: without its penalty the second is nearest, with it the fourth.
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
        let jobs: Vec<u32> = chosen(&by_last_average(&now, oatr(&queue, 4)))
            .into_iter()
            .map(|(job, _)| job)
            .collect();
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
        let dynamic = pair_by_last_quantum(&now, select::all_or_first(&now));
        let fixed = by_runs_alone(&now, &[1.0, 9.0, 5.0, 7.0].map(Some));
        assert_eq!(chosen(&dynamic), [(0, 0), (1, 1), (2, 3), (3, 2)]);
        assert_eq!(chosen(&fixed), [(0, 1), (1, 0), (2, 3), (3, 2)]);
    }

    /// Four threads have 400 together, so 100 each, and one of another job 150: it is beside the
    /// one with 10.
    #[test]
    fn a_job_of_many_threads() {
        let machine = machine("core:3 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut queue = traffic([0.0; 3].map(|_| ([None; 4], 1.0)));
        let first = queue[0].threads[0].clone();
        let id = |order| TaskId { order, ..first.id };
        queue[0].threads = (0..4).map(|order| Thread { id: id(order), ..first.clone() }).collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let choices = by_runs_alone(&now, &[400.0, 150.0, 10.0].map(Some));
        assert_eq!(chosen(&choices)[4..], [(1, 0), (2, 1)]);
        assert_eq!(choices[0].places[0].1, Allocated::MostWithLeast { has: 100.0 });
    }

    /// IABW = 2 · (30 + 30 + 10 + 10)/4 = 40. Head 10 leaves 30. When the first one has left, ours
    /// has 2 · 50/3, and published is 40 still: for the head 10 there the 30 is nearest, and so it
    /// is for ours. By the last rates, 15 and 5 where jobs got half, 35 are left for one, and 15 is
    /// nearest.
    #[test]
    fn as_published_by_hand() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let jobs: Vec<SoloProfile> = [30.0, 30.0, 10.0, 10.0]
            .map(|memory| SoloProfile { memory, seconds: 1.0, ..SoloProfile::default() })
            .to_vec();
        let knowledge = Knowledge { alone: &jobs, ..Knowledge::default() };
        let mut policy = PolicySpec::named("mmas:published").policy(&knowledge);
        let mut second = |queue: &[QueuedJob]| -> Vec<PlaceReason> {
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue };
            let plan = policy.decide(&Evidence::of_queue(now));
            let placed = plan.decisions.into_iter().filter(|it| it.place != Place::Waiting);
            placed.map(|it| it.why).collect()
        };
        let wanted = |wanted: f64, has: f64| {
            let selected = Selected::Traffic { wanted, has };
            PlaceReason::Chosen { selected, allocated: Allocated::Next }
        };
        let mut waiting = queue(&[15.0, 15.0, 5.0, 5.0]);
        waiting.swap(0, 3);
        assert!(second(&waiting).contains(&wanted(35.0, 15.0)), "the last rates, as they are");
        assert!(second(&waiting[..3]).contains(&wanted(35.0, 15.0)), "the average of all jobs");
    }

    /// 10 + 20, then 10 + 0: means of 30 and 20.
    #[test]
    fn delivered_by_hand() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut mean = Delivered::default();
        let mut next = |rates: &[f64], ran: usize| {
            let mut queue = queue(rates);
            queue.iter_mut().take(ran).for_each(|job| job.just_ran = true);
            mean.next(&Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue })
        };
        assert!((next(&[10.0, 20.0, 90.0], 0) - 80.0).abs() < 1e-12, "of those that wait");
        assert!((next(&[10.0, 20.0, 90.0], 2) - 30.0).abs() < 1e-12);
        assert!((next(&[10.0, 0.0, 90.0], 2) - 20.0).abs() < 1e-12);
    }

    #[test]
    fn without_counters() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut jobs = queue(&[0.0; 6]);
        for job in &mut jobs {
            job.threads[0].ran = Some(Rates::default());
        }
        for (name, expected) in
            [("bas", vec![NO_TRAFFIC, NO_REQUESTS]), ("l1-dynamic", vec![NO_REQUESTS])]
        {
            let mut policy = PolicySpec::named(name).plain();
            let mut said = |queue: &[QueuedJob]| {
                let now = Quantum { number: 0, machine: &machine, pus: &pus, queue };
                policy.decide(&Evidence::of_queue(now)).messages
            };
            jobs[0].just_ran = false;
            assert!(said(&jobs).is_empty(), "no job has run");
            jobs[0].just_ran = true;
            assert_eq!(said(&jobs), expected);
            assert!(said(&jobs).is_empty(), "once");
        }
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
