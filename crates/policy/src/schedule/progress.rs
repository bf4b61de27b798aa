//! How far each job has come, compared with running alone, and quanta that estimate how fast alone is.
//!
//! # Problem
//! Fairness needs to know how much slower jobs are than alone, while they are not alone.
//! # Approach
//! From time to time a job gets cores of its own, beside others that hardly use what cores share. Its speed then is taken
//! for its speed alone, for some quanta (Feliu et al., IPDPS 2015).
//! # Terms
//! - *Speed* of a job: instructions per cycle of all its threads, added up; where they shared fewer PUs, times the PUs for
//!   each.
//! - *Estimate*: its speed in its last quantum with cores of its own. *Age*: quanta that it has run since.
//! - *Progress*: seconds' worth of running alone: the sum of time × speed / estimate over the quanta in which it ran. Shown
//!   in quanta of mean length.
//! - *Light*: a job with no more traffic to the memory and to the last cache than a third of the jobs have (ours; the
//!   published definition was not found).
//! # Algorithm
//! A job without an estimate, or with one of age `n`, needs a new one; the one that has waited longest for it comes first,
//! then the one with the least progress. It gets cores of its own. If it is light, light jobs whose estimates end within `m`
//! quanta get theirs, too, at most `K` jobs in all. The other contexts go to light jobs with the least progress, then to
//! those with the least traffic.
//!
//! Ours, since the sources say nothing:
//! - No job is estimated before every job of the queue has run: it is unknown which are light. A quantum that renews an
//!   estimate comes `A` quanta after the last one at the earliest.
//! - A later job begins with the least progress that there is. A quantum counts no more than itself: a job that is faster
//!   than its estimate has begun another phase.
//! - Where speed is not counted, a quantum counts as if alone. So does one before the first estimate, until there is one. A
//!   quantum that was cut short counts as long as it was, and estimates nothing if that is less than [`ENOUGH`] of the mean.
//! - A job that was not chosen and ran on idle PUs counts its CPU time, shared by its threads, as if alone.
//! - A thread that slept through the quantum has no speed. A quantum through which all of a job slept counts as if alone, and
//!   its estimate stays; it is not estimated again before it has shown a speed.
//! # Properties
//! - **Every job is estimated** within a bounded number of quanta. -> test `every_job_is_estimated`
//! - **Alone is 1**: a job at its estimated speed has the progress of its quanta. -> test `progress_by_hand`
//! - **No more than itself** -> test `no_quantum_counts_more_than_itself`
//! - **Late is not lost**: quanta before the first estimate count as those after it. -> test `before_the_first_estimate`
//! - **Filling counts**: so does CPU time of a job that was not chosen. -> test `filling_by_hand`
//! - **Short is short** -> tests `cut_short_by_hand`, `cutting_changes_nothing`
//! - **Rates first**: floods are not taken for light because nothing is known of them. -> test `no_job_is_light_unseen`
//! - **Few**: once all are estimated, at most one quantum of `A` makes estimates. -> test `estimates_are_few`
//! - **No arrears**: a later job does not keep the others from running. -> test `a_later_job_has_no_arrears`
//! - **No counters, no estimates** -> test `without_counters`
//! - **Asleep is not slow** -> tests `asleep_on_cores_of_its_own`, `asleep_when_an_estimate_is_renewed`
//! - **Turns**: threads that share a PU are no faster than one. -> test `more_threads_than_pus`
//! - **Near the truth** on a simulated machine, see docs/benchmarks.md. -> crates/sim/tests/all/progress.rs

use super::{JobUsage, Quantum, QuantumOutcome, QueuedJob, Thread, select};
use crate::plan::JobIdx;
use colocate_machine::PuIdx;
use std::collections::BTreeMap;

/// The share of a quantum's usual length that it must have lasted to be an estimate. Chosen: counts of half a quantum
/// are as good as those of a whole one, those of a millisecond are not.
pub const ENOUGH: f64 = 0.5;

/// Settings of the estimates; the published values were not found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimating {
    /// `n`: for how many quanta an estimate is good.
    pub valid: u32,
    /// `m`: an estimate that is good for no more quanta than that may be renewed beside another.
    pub soon: u32,
    /// `K`: most jobs that are estimated at once, as a share of the cores.
    pub at_once: f64,
    /// The share of the jobs whose traffic a light one may not exceed.
    pub light: f64,
    /// `A`: an estimate is renewed so many quanta after the last one was made, or later.
    pub apart: u32,
}

impl Estimating {
    /// `A` is chosen by what was measured, simulated, with 24 random jobs on an E5645 (docs/benchmarks.md): with 1 nearly
    /// half of all quanta make estimates, in which light jobs run however far they have come; with 5 the last job is done
    /// earliest, and hardly later than the first; with 10 and more progress is further from the truth. The others are
    /// chosen.
    pub const USUAL: Self = Self { valid: 20, soon: 4, at_once: 0.5, light: 1.0 / 3.0, apart: 5 };
}

/// What is known of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds' worth of running alone.
    pub done: f64,
    /// Seconds since it came.
    pub there: f64,
    /// Instructions per cycle with cores of its own; `None` before it had any.
    pub alone: Option<f64>,
    /// Quanta that it has run since.
    pub age: u32,
    /// How far those had come that had come least far, when it came.
    begun: f64,
    /// Whether it ever ran.
    has_run: bool,
    /// Seconds before the first estimate in which its speed was counted, and its speed times these.
    unjudged: (f64, f64),
    /// Whether it has had cores of its own and its speed was not counted, or it slept.
    uncounted: bool,
}

impl Progress {
    /// How far it has come where jobs are compared: as if it had been there from the beginning.
    #[must_use]
    pub fn rank(&self) -> f64 {
        self.begun + self.done
    }

    /// Takes in a quantum of so many seconds with cores of its own.
    fn ran_alone(&mut self, speed: Option<f64>, seconds: f64) {
        self.done += seconds;
        self.age = 0;
        self.uncounted = speed.is_none();
        let Some(alone) = speed else { return };
        if self.alone.is_none() {
            let (seconds, speeds) = std::mem::take(&mut self.unjudged);
            self.done += (speeds / alone).min(seconds) - seconds;
        }
        self.alone = Some(alone);
    }

    /// Takes in a quantum of so many seconds with cores of its own through which it slept.
    fn slept_alone(&mut self, seconds: f64) {
        self.done += seconds;
        self.uncounted = true;
    }

    /// Takes in a quantum of so many seconds beside others.
    fn ran_beside(&mut self, speed: Option<f64>, seconds: f64) {
        self.age = self.age.saturating_add(1);
        self.done += match (speed, self.alone) {
            (Some(speed), Some(alone)) => (speed / alone).min(1.0) * seconds,
            _ => seconds,
        };
        if let (Some(speed), None) = (speed, self.alone) {
            self.unjudged.0 += seconds;
            self.unjudged.1 += speed * seconds;
        }
        self.uncounted &= speed.is_none();
    }

    /// For how many quanta its estimate is still good; for ever if there cannot be one.
    const fn good_for(&self, settings: &Estimating) -> u32 {
        match self.alone {
            _ if self.uncounted => u32::MAX,
            Some(_) => settings.valid.saturating_sub(self.age),
            None => 0,
        }
    }
}

/// What is known of all jobs.
#[derive(Clone, Debug, Default)]
pub struct ProgressTable {
    jobs: BTreeMap<JobIdx, Progress>,
    /// Jobs that were to have cores of their own in the quantum before.
    solo: Vec<JobIdx>,
    /// Jobs that had more threads than PUs in it, if they ran, and on how many PUs these took turns.
    turns: BTreeMap<JobIdx, usize>,
    /// How long the quantum before took, in seconds; `None` if unknown.
    took: Option<f64>,
    /// CPU time of each job in it, in seconds.
    used: BTreeMap<JobIdx, f64>,
    /// How many quanta there were, and how long they took together, in seconds.
    quanta: (f64, f64),
    /// Quanta since the last one that made estimates.
    since: u32,
}

/// A job's speed in its last quantum: instructions per cycle; `None` if it is not counted, or none of its threads was
/// runnable. `turns` is on how many PUs they took turns, if they did.
#[must_use]
pub fn speed(job: &QueuedJob, turns: Option<usize>) -> Option<f64> {
    let active = job.threads.iter().filter(|thread| !slept(thread));
    let each = |thread: &Thread| thread.ran.as_ref()?.ipc.filter(|ipc| *ipc > 0.0);
    let known: Vec<f64> = active.filter_map(each).collect();
    let each_for = |pus| (select::float(pus) / select::float(known.len())).min(1.0);
    let share = turns.map_or(1.0, each_for);
    (!known.is_empty()).then(|| known.into_iter().sum::<f64>() * share)
}

/// Whether a thread was not runnable in the last quantum in which its job ran: what is known of it is older.
pub(super) fn slept(thread: &Thread) -> bool {
    thread.runnable == Some(0.0)
}

impl ProgressTable {
    /// What is known of a job.
    #[must_use]
    pub fn of(&self, job: JobIdx) -> Progress {
        self.jobs.get(&job).copied().unwrap_or_default()
    }

    /// Takes in how long the last quantum took. Unknown times count as a second.
    pub(crate) fn on_quantum_end(&mut self, done: &QuantumOutcome<'_>) {
        self.took = Some(done.took.as_secs_f64());
        let used = |did: &JobUsage| Some((did.job, did.cpu_time?.as_secs_f64()));
        self.used = done.did.iter().filter_map(used).collect();
    }

    /// Takes in what the last quantum showed.
    pub fn note(&mut self, queue: &[QueuedJob]) {
        let took = self.took.take().unwrap_or(1.0);
        self.meet(queue);
        if queue.iter().any(|job| job.just_ran) {
            self.quanta = (self.quanta.0 + 1.0, self.quanta.1 + took);
        }
        let enough = took >= ENOUGH * self.quantum();
        for job in queue {
            let known = self.jobs.entry(job.job).or_default();
            known.there += took;
            if !job.just_ran {
                let each = select::float(job.threads.len().max(1));
                known.done += (self.used.get(&job.job).unwrap_or(&0.0) / each).min(took);
                continue;
            }
            known.has_run = true;
            let speed = speed(job, self.turns.get(&job.job).copied());
            let alone = job.had_own_cores && self.solo.contains(&job.job);
            match alone {
                true if !enough => known.done += took,
                true if job.threads.iter().all(slept) => known.slept_alone(took),
                true => known.ran_alone(speed, took),
                false => known.ran_beside(speed, took),
            }
        }
        self.solo.clear();
    }

    /// Jobs that are there for the first time begin where the job that has come least far is.
    fn meet(&mut self, queue: &[QueuedJob]) {
        let ranks = queue.iter().filter_map(|job| self.jobs.get(&job.job)).map(Progress::rank);
        let begun = ranks.min_by(f64::total_cmp).unwrap_or(0.0);
        for job in queue {
            self.jobs.entry(job.job).or_insert(Progress { begun, ..Progress::default() });
        }
    }

    /// Mean length of a quantum so far, in seconds; 1 before there was one.
    fn quantum(&self) -> f64 {
        let (quanta, seconds) = self.quanta;
        if seconds > 0.0 { seconds / quanta } else { 1.0 }
    }

    /// How far a job has come, in quanta of mean length alone.
    pub(crate) fn quanta_alone(&self, job: JobIdx) -> f64 {
        self.of(job).done / self.quantum()
    }

    /// The greatest slowdown of the jobs of the queue over the least, as far as is known: each since it came,
    /// compared with running alone. Infinite if one has done nothing yet; 1 if there is nothing to compare.
    #[must_use]
    pub fn unfairness(&self, queue: &[QueuedJob]) -> f64 {
        let known = queue.iter().map(|job| self.of(job.job)).filter(|known| known.there > 0.0);
        let slowdown = |known: Progress| known.there / known.done;
        let range = known.map(slowdown).fold((f64::INFINITY, 0.0_f64), |(least, most), each| {
            (least.min(each), most.max(each))
        });
        match range {
            (least, most) if most > 0.0 && least.is_finite() => most / least,
            (_, most) if most > 0.0 => f64::INFINITY,
            _ => 1.0,
        }
    }

    /// Places in the queue of the jobs that are to have cores of their own now; none if no job is to be estimated.
    /// Remembers them until [`Self::note`].
    pub(crate) fn begin_estimates(
        &mut self,
        now: &Quantum<'_>,
        settings: &Estimating,
    ) -> Vec<usize> {
        self.since = self.since.saturating_add(1);
        self.turns.clear();
        self.let_take_turns(now.queue, now.pus.len());
        if now.queue.iter().any(|job| !self.of(job.job).has_run) {
            return Vec::new();
        }
        let may_renew = self.since >= settings.apart;
        let is_due = |job: &QueuedJob| {
            let known = self.of(job.job);
            known.good_for(settings) == 0 && (known.alone.is_none() || may_renew)
        };
        let due = (0..now.queue.len()).filter(|&at| is_due(&now.queue[at]));
        let key = |at: &usize| {
            let known = self.of(now.queue[*at].job);
            let waited = known.alone.map_or(u32::MAX, |_| known.age);
            (std::cmp::Reverse(waited), ordered(known.rank()), *at)
        };
        let Some(first) = due.min_by_key(key) else { return Vec::new() };
        let mut solo = vec![first];
        let light = light(now, settings.light);
        if light[first] {
            solo.extend(self.that_end_soon(now, settings, first, &light));
        }
        self.since = 0;
        let jobs = solo.iter().map(|&at| &now.queue[at]);
        self.let_take_turns(jobs.clone(), cores(now).len());
        self.solo = jobs.map(|job| job.job).collect();
        solo
    }

    /// Remembers which of these jobs have more threads than so many PUs.
    fn let_take_turns<'a>(&mut self, jobs: impl IntoIterator<Item = &'a QueuedJob>, pus: usize) {
        let wide = jobs.into_iter().filter(|job| job.threads.len() > pus);
        self.turns.extend(wide.map(|job| (job.job, pus)));
    }

    /// Light jobs whose estimates end soon, as far as cores may be spent on them.
    fn that_end_soon(
        &self,
        now: &Quantum<'_>,
        settings: &Estimating,
        first: usize,
        light: &[bool],
    ) -> Vec<usize> {
        let left = |at: usize| self.of(now.queue[at].job).good_for(settings);
        let others = (0..now.queue.len()).filter(|&at| at != first && light[at]);
        let mut soon: Vec<usize> = others.filter(|&at| left(at) <= settings.soon).collect();
        soon.sort_by_key(|&at| left(at));
        let cores = cores(now).len();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of the cores
        let most = (select::float(cores) * settings.at_once) as usize;
        let width = |at: usize| now.queue[at].width(cores);
        select::fitting(soon, most.saturating_sub(width(first)), width).collect()
    }

    /// The line for a report.
    #[must_use]
    pub fn state(&self) -> String {
        let done = || self.jobs.values().map(|job| job.done / self.quantum());
        let (least, most) =
            done().fold((f64::INFINITY, 0.0_f64), |range, n| (range.0.min(n), range.1.max(n)));
        let estimated = self.jobs.values().filter(|job| job.alone.is_some()).count();
        match self.jobs.len() {
            0 => "no job has run yet".to_owned(),
            jobs => format!(
                "progress {least:.1} to {most:.1} quanta alone, {estimated} of {jobs} jobs estimated"
            ),
        }
    }
}

/// Which jobs of the queue are light: those among the given share of the jobs, rounded down, with the least
/// memory traffic, and among the share with the least traffic to the last cache that is shared; with them those with as
/// much as the last of these.
pub(crate) fn light(now: &Quantum<'_>, share: f64) -> Vec<bool> {
    let last = super::allocate::shared_levels(now.machine, now.pus).first().copied();
    let to_cache = |job: &QueuedJob| {
        let of = |thread: &Thread| last.map_or(0.0, |level| thread.traffic().at(level));
        job.threads.iter().map(of).fold(0.0, |sum, each| sum + each)
    };
    let limit = |asked: &dyn Fn(&QueuedJob) -> f64| {
        let mut all: Vec<f64> = now.queue.iter().map(asked).collect();
        all.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of the jobs
        let count = (select::float(all.len()) * share) as usize;
        let last = count.checked_sub(1).and_then(|last| all.get(last));
        last.copied().unwrap_or(f64::NEG_INFINITY)
    };
    let (memory, cache) = (limit(&QueuedJob::to_memory), limit(&to_cache));
    now.queue.iter().map(|job| job.to_memory() <= memory && to_cache(job) <= cache).collect()
}

/// Usable PUs by core, in logical order.
pub(super) fn cores(now: &Quantum<'_>) -> Vec<Vec<PuIdx>> {
    let same = |a: &PuIdx, b: &PuIdx| now.machine.core_of(*a) == now.machine.core_of(*b);
    now.pus.chunk_by(same).map(<[PuIdx]>::to_vec).collect()
}

/// A number that is not negative as one that can be a key: the order of such numbers is that of their bits.
pub(super) fn ordered(number: f64) -> u64 {
    number.max(0.0).to_bits()
}
