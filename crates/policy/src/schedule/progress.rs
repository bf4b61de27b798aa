//! How far each job has come, compared with running alone, and quanta that find out how fast alone is.
//!
//! # Problem
//! To be fair to jobs one has to know how much slower they are than alone, while they are not alone.
//! # Approach
//! From time to time a job gets cores of its own, beside others that hardly use what cores share. How fast
//! it is then is taken for how fast it is alone, for some quanta (Feliu et al., IPDPS 2015).
//! # Terms
//! - *Speed* of a job: instructions per cycle of all its threads, added up.
//! - *Estimate*: its speed in its last quantum with cores of its own. *Age*: quanta that it has run since.
//! - *Progress*: quanta's worth of running alone: the sum of speed / estimate over the quanta in which it ran.
//! - *Light*: a job that asks no more of the memory and of the last cache than a third of the jobs do. The
//!   published definition was not found; this is ours.
//! # Algorithm
//! A job without an estimate, or with one of age `n`, needs a new one; who has waited longest for it comes
//! first, then who has come least far. It gets cores of its own. If it is light, light jobs whose estimates
//! end within `m` quanta get theirs, too, those that end first before the others, at most `K` jobs in all.
//! The other contexts go to light jobs that have come least far, then to those that ask least of the memory.
//!
//! Where speed is not counted, a quantum counts 1: then progress is time. A quantum before the first estimate
//! counts 1, too, until there is one; then it counts what it was.
//! # Properties
//! - **Everybody is estimated** within a bounded number of quanta. -> test `everybody_is_estimated`
//! - **Alone is 1**: who runs at its estimated speed has the progress of its quanta. -> test
//!   `progress_by_hand`
//! - **Late is not lost**: quanta before the first estimate count as those after it. -> test
//!   `before_the_first_estimate`
//! - **No counters, no estimates**: who showed no speed on cores of its own is not asked again. -> test
//!   `without_counters`
//! - **Near the truth** on a simulated machine, see docs/benchmarks.md. -> crates/sim/tests/progress.rs

use super::{Quantum, Queued, select};
use crate::plan::JobIdx;
use colocate_machine::CoreIdx;
use std::collections::BTreeMap;

/// Settings of the estimates; the published values were not found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimating {
    /// `n`: for how many quanta an estimate is good.
    pub valid: u32,
    /// `m`: an estimate that is good for no more quanta than that is renewed when there is occasion.
    pub soon: u32,
    /// `K`: most jobs that are estimated at once, as a share of the cores.
    pub at_once: f64,
    /// The share of the jobs that a light one may not exceed in what it asks for.
    pub light: f64,
}

impl Default for Estimating {
    /// Chosen. With 24 jobs on the 12 contexts of an E5645, simulated, 42 % of the quanta make estimates, which
    /// costs `fair` its gain (docs/feliu.md): longer may be better.
    /// Measured, simulated: with 5, 10, 20 and 40 quanta progress of jobs with phases is off by 6.8, 7.8, 9.4
    /// and 11.3 % on average; with 5 it takes more than twice as many quanta until all are done. See docs/benchmarks.md.
    fn default() -> Self {
        Self { valid: 20, soon: 4, at_once: 0.5, light: 1.0 / 3.0 }
    }
}

/// What is known of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Quanta's worth of running alone.
    pub done: f64,
    /// Instructions per cycle with cores of its own; `None` before it had any.
    pub alone: Option<f64>,
    /// Quanta that it has run since.
    pub age: u32,
    /// Quanta before the first estimate in which its speed was counted, and the sum of its speeds in them.
    unjudged: (f64, f64),
    /// Whether it has had cores of its own and nobody counted its speed.
    uncounted: bool,
}

impl Progress {
    /// Takes in a quantum with cores of its own.
    fn ran_alone(&mut self, speed: Option<f64>) {
        self.done += 1.0;
        self.age = 0;
        self.uncounted = speed.is_none();
        let Some(alone) = speed else { return };
        if self.alone.is_none() {
            let (quanta, speeds) = std::mem::take(&mut self.unjudged);
            self.done += speeds / alone - quanta;
        }
        self.alone = Some(alone);
    }

    /// Takes in a quantum beside others.
    fn ran_beside(&mut self, speed: Option<f64>) {
        self.age = self.age.saturating_add(1);
        self.done += match (speed, self.alone) {
            (Some(speed), Some(alone)) => speed / alone,
            _ => 1.0,
        };
        if let (Some(speed), None) = (speed, self.alone) {
            self.unjudged.0 += 1.0;
            self.unjudged.1 += speed;
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
pub struct Book {
    jobs: BTreeMap<JobIdx, Progress>,
    /// Jobs that were to have cores of their own in the quantum before.
    solo: Vec<JobIdx>,
}

/// A job's speed in its last quantum: instructions per cycle; `None` if it is not counted.
#[must_use]
pub fn speed(job: &Queued) -> Option<f64> {
    let each = |thread: &super::Thread| thread.ran.as_ref()?.ipc.filter(|ipc| *ipc > 0.0);
    let known: Vec<f64> = job.threads.iter().filter_map(each).collect();
    (!known.is_empty()).then(|| known.into_iter().sum())
}

impl Book {
    /// What is known of a job.
    #[must_use]
    pub fn of(&self, job: JobIdx) -> Progress {
        self.jobs.get(&job).copied().unwrap_or_default()
    }

    /// Takes in what the last quantum showed.
    pub fn note(&mut self, queue: &[Queued]) {
        for job in queue.iter().filter(|job| job.just_ran) {
            let known = self.jobs.entry(job.job).or_default();
            if job.had_own_cores && self.solo.contains(&job.job) {
                known.ran_alone(speed(job));
            } else {
                known.ran_beside(speed(job));
            }
        }
        self.solo.clear();
    }

    /// Places in the queue of the jobs that are to have cores of their own now; none if all estimates are
    /// good. Remembers them until [`Self::note`].
    pub fn begin_estimates(&mut self, now: &Quantum<'_>, settings: &Estimating) -> Vec<usize> {
        let is_due = |job: &Queued| self.of(job.job).good_for(settings) == 0;
        let due = (0..now.queue.len()).filter(|&at| is_due(&now.queue[at]));
        let key = |at: &usize| {
            let known = self.of(now.queue[*at].job);
            let waited = known.alone.map_or(u32::MAX, |_| known.age);
            (std::cmp::Reverse(waited), ordered(known.done), *at)
        };
        let Some(first) = due.min_by_key(key) else { return Vec::new() };
        let mut solo = vec![first];
        let light = light(now, settings.light);
        if light[first] {
            solo.extend(self.that_end_soon(now, settings, first, &light));
        }
        self.solo = solo.iter().map(|&at| now.queue[at].job).collect();
        solo
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
        let mut used = now.queue[first].width(cores);
        soon.retain(|&at| {
            let width = now.queue[at].width(cores);
            let fits = used + width <= most;
            used += if fits { width } else { 0 };
            fits
        });
        soon
    }

    /// The line for a report.
    #[must_use]
    pub fn state(&self) -> String {
        let done = || self.jobs.values().map(|job| job.done);
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

/// Which jobs of the queue are light.
#[must_use]
pub fn light(now: &Quantum<'_>, share: f64) -> Vec<bool> {
    let last = super::allocate::shared_levels(now.machine, now.pus).first().copied();
    let to_cache = |job: &Queued| {
        let of = |thread: &super::Thread| last.map_or(0.0, |level| thread.traffic().at(level));
        job.threads.iter().map(of).fold(0.0, |sum, each| sum + each)
    };
    let limit = |asked: &dyn Fn(&Queued) -> f64| {
        let mut all: Vec<f64> = now.queue.iter().map(asked).collect();
        all.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of the jobs
        let place = (select::float(all.len()) * share) as usize;
        all.get(place.min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let (memory, cache) = (limit(&Queued::to_memory), limit(&to_cache));
    now.queue.iter().map(|job| job.to_memory() <= memory && to_cache(job) <= cache).collect()
}

/// Cores with a usable PU, in logical order.
#[must_use]
pub fn cores(now: &Quantum<'_>) -> Vec<CoreIdx> {
    let mut cores: Vec<CoreIdx> = now.pus.iter().map(|&pu| now.machine.core_of(pu)).collect();
    cores.dedup();
    cores
}

/// A number that is not negative as one that can be a key: the order of such numbers is that of their bits.
pub(super) fn ordered(number: f64) -> u64 {
    number.max(0.0).to_bits()
}
