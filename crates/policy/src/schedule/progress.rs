//! How far each job has come, compared with running alone, and quanta that find out how fast alone is.
//!
//! # Problem
//! Fairness needs to know how much slower jobs are than alone, while they are not alone.
//! # Approach
//! From time to time a job gets cores of its own (Feliu et al., IPDPS 2015). What it does there, and how fast, is kept; a quantum
//! beside others is held against what was kept of the same phase, so each quantum shows progress ([`samples`]). A job is estimated
//! when it does what is not known of it, and not because time has passed.
//! # Terms
//! - *Speed* of a job: instructions per cycle of all its threads, added up; where they shared fewer PUs, times the PUs for
//!   each.
//! - *Estimate*: a quantum with cores of its own, which is kept as a sample.
//! - *Progress*: seconds' worth of running alone: the sum of time × speed / speed alone over the quanta in which it ran. Shown
//!   in quanta of mean length.
//! - *Doubt* of a job: how far it was off from its samples by more than it is tolerated, added up over the quanta since its last
//!   estimate, and a part for the time: in `n` quanta doubt reaches 1 though nothing has changed.
//! - *Tolerated*: [`NOISE`] at first. Where an estimate shows nothing new, the job is off by its neighbours: half of what
//!   it was off by more than is tolerated, is tolerated from then on.
//! # Algorithm
//! A job without a sample, or with a doubt of 1, needs an estimate. Those without come first, then those with the greatest doubt.
//! One job at a time has the machine for itself, for a twentieth of a quantum or [`LEAST_S`]. An estimate that is not a first one
//! comes `A` quanta after the last at the earliest. The published scheduler renews an estimate after a number of quanta, beside jobs
//! that hardly use what cores share; its numbers were not found. Ours are rare, so an idle machine costs less than estimates that
//! are off: see docs/results/feliu.md.
//!
//! Ours, since the sources say nothing:
//! - No job is estimated before every job of the queue has run.
//! - A later job begins with the least progress that there is. A quantum counts no more than itself: a job that is faster
//!   than its estimate is in another phase.
//! - Where speed is not counted, a quantum counts as if alone. So does one before the first estimate, until there is one. A
//!   quantum that was cut short counts as long as it was, and estimates nothing if that is less than [`ENOUGH`] of an estimate.
//! - A job that was not chosen and ran on idle PUs counts its CPU time, shared by its threads, as if alone.
//! - A thread that slept through the quantum has no speed. A quantum through which all of a job slept counts as if alone, and
//!   its samples stay; it is not estimated again before it has shown a speed.
//! # Properties
//! - **Every job is estimated** within a bounded number of quanta. -> test `every_job_is_estimated`
//! - **Alone is 1**: a job at its estimated speed has the progress of its quanta. -> test `progress_by_hand`
//! - **No more than itself** -> test `no_quantum_counts_more_than_itself`
//! - **Late is not lost**: quanta before the first estimate count as those after it. -> test `before_the_first_estimate`
//! - **Each phase by itself**: an estimate of one phase is not held against another. -> test `phases_by_hand`
//! - **Filling counts**: so does CPU time of a job that was not chosen. -> test `filling_by_hand`
//! - **Short is short** -> tests `cut_short_by_hand`, `cutting_changes_nothing`
//! - **Few**: once all are estimated, at most one quantum of `A` makes estimates. -> test `estimates_are_few`
//! - **No arrears**: a later job does not keep the others from running. -> test `a_later_job_has_no_arrears`
//! - **No counters, no estimates** -> test `without_counters`
//! - **Asleep is not slow** -> tests `asleep_on_cores_of_its_own`, `asleep_when_an_estimate_is_renewed`
//! - **Turns**: threads that share a PU are no faster than one. -> test `more_threads_than_pus`
//! - **Near the truth** on a simulated machine, see docs/results/benchmarks.md. -> crates/sim/tests/all/progress.rs

mod samples;

use super::{JobUsage, Quantum, QuantumOutcome, QueuedJob, Thread, select};
use colocate_evidence::JobIdx;
use colocate_machine::{Nanos, PuIdx};
use samples::{Samples, Signature, signature};
use std::collections::BTreeMap;

/// How much of its length an estimate must have lasted to count. Chosen.
pub const ENOUGH: f64 = 0.5;

/// How long an estimate is, as a share of the longest quantum so far. Chosen by three mixes of `study feliu-3` (simulated): with a tenth
/// more is lost than what the estimate is better by.
pub const SLICE: f64 = 0.05;

/// How long an estimate is at least, in seconds, so that it is of warm caches. Chosen.
pub const LEAST_S: f64 = 0.01;

/// How far a job may be off from its samples without doubt, at first: a few times the noise of counters. Chosen; 0.02 to 0.1 make
/// little difference in `study feliu-3`.
pub const NOISE: f64 = 0.05;

/// Settings of the estimates; the published values were not found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimating {
    /// `n`: for how many quanta an estimate is good, if the job does the same.
    pub valid: u32,
    /// How much doubt a quantum brings, for each time that its requests are off by all of them, beyond what is tolerated.
    pub doubt: f64,
    /// `A`: an estimate that is not a job's first is made so many quanta after the last one, or later; from 2 on.
    pub apart: u32,
}

impl Estimating {
    /// Chosen by what was measured, simulated (docs/results/benchmarks.md).
    pub const USUAL: Self = Self { valid: 1000, doubt: 2.0, apart: 3 };
}

/// What is known of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds' worth of running alone.
    pub done: f64,
    /// Seconds since it came.
    pub there: f64,
    /// What it did with cores of its own.
    samples: Samples,
    /// How much it does what the samples do not tell.
    doubt: f64,
    /// How far it was off from its samples in its last quantum beside others, and how far it may be without doubt.
    off: f64,
    tolerated: f64,
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

    /// Whether it has had cores of its own and a speed there.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Takes in a quantum of so many seconds with cores of its own.
    fn ran_alone(&mut self, ran: Option<(Signature, f64)>, seconds: f64) {
        self.done += seconds;
        self.doubt = 0.0;
        self.uncounted = ran.is_none();
        let Some((signature, alone)) = ran else { return };
        if !self.is_estimated() {
            let (seconds, speeds) = std::mem::take(&mut self.unjudged);
            self.done += (speeds / alone).min(seconds) - seconds;
        }
        if !self.samples.put(signature, 1.0 / alone) {
            self.tolerated += ((self.off - self.tolerated) / 2.0).max(0.0);
        }
    }

    /// Takes in a quantum of so many seconds with cores of its own through which it slept.
    fn slept_alone(&mut self, seconds: f64) {
        self.done += seconds;
        self.uncounted = true;
    }

    /// Takes in a quantum of so many seconds beside others.
    fn ran_beside(&mut self, ran: Option<(Signature, f64)>, seconds: f64, settings: &Estimating) {
        let alone = ran.and_then(|(signature, _)| self.samples.nearest(&signature));
        self.doubt += 1.0 / f64::from(settings.valid);
        self.done += match (ran, alone) {
            (Some((_, speed)), Some(alone)) => {
                self.off = alone.off;
                self.doubt += settings.doubt * (alone.off - self.tolerated).max(0.0);
                (speed * alone.cycles).min(1.0) * seconds
            }
            _ => seconds,
        };
        if let (Some((_, speed)), false) = (ran, self.is_estimated()) {
            self.unjudged.0 += seconds;
            self.unjudged.1 += speed * seconds;
        }
        self.uncounted &= ran.is_none();
    }

    /// How much it needs an estimate: from 1 on. Never if there cannot be one.
    fn need(&self) -> f64 {
        match self.is_estimated() {
            _ if self.uncounted => 0.0,
            true => self.doubt,
            false => f64::INFINITY,
        }
    }
}

/// What is known of all jobs.
#[derive(Clone, Debug)]
pub struct ProgressTable {
    jobs: BTreeMap<JobIdx, Progress>,
    settings: Estimating,
    /// The job that was to have cores of its own in the quantum before.
    solo: Option<JobIdx>,
    /// Jobs that had more threads than PUs in it, if they ran, and on how many PUs these took turns.
    turns: BTreeMap<JobIdx, usize>,
    /// How long the quantum before took, in seconds; `None` if unknown.
    took: Option<f64>,
    /// CPU time of each job in it, in seconds.
    used: BTreeMap<JobIdx, f64>,
    /// How many quanta there were, and how long they took together, in seconds.
    quanta: (f64, f64),
    /// How long the longest one took, in seconds.
    longest: f64,
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
    /// Of no jobs.
    #[must_use]
    pub fn new(settings: Estimating) -> Self {
        Self {
            jobs: BTreeMap::new(),
            settings,
            solo: None,
            turns: BTreeMap::new(),
            took: None,
            used: BTreeMap::new(),
            quanta: (0.0, 0.0),
            longest: 0.0,
            since: 0,
        }
    }

    /// What is known of a job; `None` if it was never in the queue.
    #[must_use]
    pub fn of(&self, job: JobIdx) -> Option<&Progress> {
        self.jobs.get(&job)
    }

    /// Where a job is compared with others.
    pub(super) fn rank(&self, job: JobIdx) -> f64 {
        self.of(job).map_or(0.0, Progress::rank)
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
            self.longest = self.longest.max(took);
        }
        let enough = took >= ENOUGH * self.estimate_s();
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
            let ran = speed.map(|speed| (signature(job, speed), speed));
            let alone = job.had_own_cores && self.solo == Some(job.job);
            match alone {
                true if !enough => known.done += took,
                true if job.threads.iter().all(slept) => known.slept_alone(took),
                true => known.ran_alone(ran, took),
                false => known.ran_beside(ran, took, &self.settings),
            }
        }
        self.solo = None;
    }

    /// Jobs that are there for the first time begin where the job that has come least far is.
    fn meet(&mut self, queue: &[QueuedJob]) {
        let ranks = queue.iter().filter_map(|job| self.jobs.get(&job.job)).map(Progress::rank);
        let begun = ranks.min_by(f64::total_cmp).unwrap_or(0.0);
        for job in queue {
            let fresh = Progress { begun, tolerated: NOISE, ..Progress::default() };
            self.jobs.entry(job.job).or_insert(fresh);
        }
    }

    /// Mean length of a quantum so far, in seconds; 1 before there was one.
    fn quantum(&self) -> f64 {
        let (quanta, seconds) = self.quanta;
        if seconds > 0.0 { seconds / quanta } else { 1.0 }
    }

    /// How long an estimate is, in seconds: no longer than the longest quantum so far.
    fn estimate_s(&self) -> f64 {
        (SLICE * self.longest).max(LEAST_S).min(self.longest)
    }

    /// How long an estimate is to be; `None` before there was a quantum.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a part of a quantum
    pub(super) fn estimate(&self) -> Option<Nanos> {
        Some(Nanos((self.estimate_s() * 1e9) as u64)).filter(|time| *time > Nanos::ZERO)
    }

    /// How far a job has come, in quanta of mean length alone.
    pub(crate) fn quanta_alone(&self, job: JobIdx) -> f64 {
        self.of(job).map_or(0.0, |known| known.done) / self.quantum()
    }

    /// The greatest slowdown of the jobs of the queue over the least, as far as is known: each since it came,
    /// compared with running alone. Infinite if one has done nothing yet; 1 if there is nothing to compare.
    #[must_use]
    pub fn unfairness(&self, queue: &[QueuedJob]) -> f64 {
        let known = queue.iter().filter_map(|job| self.of(job.job));
        let known = known.filter(|known| known.there > 0.0);
        let slowdown = |known: &Progress| known.there / known.done;
        let range = known.map(slowdown).fold((f64::INFINITY, 0.0_f64), |(least, most), each| {
            (least.min(each), most.max(each))
        });
        match range {
            (least, most) if most > 0.0 && least.is_finite() => most / least,
            (_, most) if most > 0.0 => f64::INFINITY,
            _ => 1.0,
        }
    }

    /// The place in the queue of the job that is to have cores of its own now; `None` if no job is to be estimated. Remembers it
    /// until [`Self::note`].
    pub(crate) fn begin_estimate(&mut self, now: &Quantum<'_>) -> Option<usize> {
        self.since = self.since.saturating_add(1);
        self.turns.clear();
        self.let_take_turns(now.queue, now.pus.len());
        let known = |at: usize| self.of(now.queue[at].job);
        if !(0..now.queue.len()).all(|at| known(at).is_some_and(|known| known.has_run)) {
            return None;
        }
        let needs = (0..now.queue.len()).map(|at| (at, known(at).map_or(0.0, Progress::need)));
        let may_renew = self.since >= self.settings.apart;
        let due = needs.filter(|(_, need)| need.is_infinite() || may_renew && *need >= 1.0);
        let rank = |at: usize| self.rank(now.queue[at].job);
        // The job of greatest need, of several that which has come least far.
        let first = due.min_by(|a, b| b.1.total_cmp(&a.1).then(rank(a.0).total_cmp(&rank(b.0))))?.0;
        let job = &now.queue[first];
        self.since = 0;
        self.let_take_turns([job], cores(now).len());
        self.solo = Some(job.job);
        Some(first)
    }

    /// Remembers which of these jobs have more threads than so many PUs.
    fn let_take_turns<'a>(&mut self, jobs: impl IntoIterator<Item = &'a QueuedJob>, pus: usize) {
        let wide = jobs.into_iter().filter(|job| job.threads.len() > pus);
        self.turns.extend(wide.map(|job| (job.job, pus)));
    }

    /// The line for a report.
    #[must_use]
    pub fn state(&self) -> String {
        let done = || self.jobs.values().map(|job| job.done / self.quantum());
        let (least, most) =
            done().fold((f64::INFINITY, 0.0_f64), |range, n| (range.0.min(n), range.1.max(n)));
        let estimated = self.jobs.values().filter(|job| job.is_estimated()).count();
        match self.jobs.len() {
            0 => "no job has run yet".to_owned(),
            jobs => format!(
                "progress {least:.1} to {most:.1} quanta alone, {estimated} of {jobs} jobs estimated"
            ),
        }
    }
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
