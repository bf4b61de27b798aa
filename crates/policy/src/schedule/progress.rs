//! Progress of each job compared with running alone, and quanta that estimate the speed alone.
//!
//! # Problem
//! Fairness needs the slowdown of jobs against running alone, while they do not run alone.
//! # Approach
//! From time to time a job gets cores of its own (Feliu et al., IPDPS 2015). Its behaviour and
//! speed there are kept as a sample. A quantum beside other jobs is compared with the samples of
//! the same phase, so each quantum shows progress ([`samples`]). A job is estimated again when its
//! behaviour is new, not after a fixed time.
//! # Terms
//! - *Speed* of a job: instructions per cycle, summed over all its threads; for threads that share
//!   fewer PUs, times the PUs per thread.
//! - *Estimate*: a quantum with cores of its own, kept as a sample.
//! - *Progress*: the sum of time × speed / speed alone over the quanta in which the job ran, in
//!   seconds of running alone. Shown in quanta of mean length.
//! - *Doubt* of a job: its distance from the samples beyond the tolerated, summed over the quanta
//!   since its last estimate, plus a part for the time: after `n` quanta without change doubt is 1.
//! - *Tolerated*: [`NOISE`] at first. Where an estimate shows nothing new, neighbours caused the
//!   distance: half of its excess over the tolerated is tolerated from then on.
//! # Algorithm
//! A job without a sample, or with a doubt of 1, needs an estimate. Jobs without a sample come
//! first, then the greatest doubt. One job at a time has the machine to itself, for a twentieth of
//! a quantum or [`LEAST_S`]. An estimate that is not a job's first comes at least `A` quanta after
//! the last estimate. The published scheduler renews an estimate after a number of quanta, beside
//! jobs that hardly use the shared resources; its numbers were not found. Our estimates are rare,
//! so an idle machine costs less than wrong estimates: see docs/results/feliu.md.
//!
//! Ours, since the sources say nothing:
//! - No job is estimated before every job of the queue has run.
//! - A later job begins with the least progress of all. A quantum counts at most its own length: a
//!   job that is faster than its estimate is in another phase.
//! - Without a counted speed a quantum counts as if alone. So does a quantum before the first
//!   estimate, until the estimate. A quantum that was cut short counts its real length, and is no
//!   estimate if shorter than [`ENOUGH`] of one.
//! - A job that was not chosen and ran on idle PUs counts its CPU time, divided by its threads, as
//!   if alone.
//! - A thread that slept through the quantum has no speed. A quantum in which all threads of a job
//!   slept counts as if alone, and the samples stay. The job is not estimated again before it has
//!   shown a speed.
//! # Properties
//! - **Every job is estimated** within a bounded number of quanta. -> test `every_job_is_estimated`
//! - **Alone is 1**: a job at its estimated speed has the progress of its quanta.
//!   -> test `progress_by_hand`
//! - **No more than itself** -> test `no_quantum_counts_more_than_itself`
//! - **Late is not lost**: quanta before the first estimate count as those after it.
//!   -> test `before_the_first_estimate`
//! - **Each phase by itself**: an estimate of one phase is not held against another.
//!   -> test `phases_by_hand`
//! - **Filling counts**: so does CPU time of a job that was not chosen. -> test `filling_by_hand`
//! - **Short is short** -> tests `cut_short_by_hand`, `cutting_changes_nothing`
//! - **Few**: once all are estimated, at most one quantum of `A` makes estimates.
//!   -> test `estimates_are_few`
//! - **No arrears**: a later job does not keep the others from running.
//!   -> test `a_later_job_has_no_arrears`
//! - **No counters, no estimates** -> test `without_counters`
//! - **Asleep is not slow** -> tests `asleep_on_cores_of_its_own`,
//!   `asleep_when_an_estimate_is_renewed`
//! - **Turns**: threads that share a PU are no faster than one. -> test `more_threads_than_pus`
//! - **Near the truth** on a simulated machine, see docs/results/benchmarks.md. ->
//!   crates/sim/tests/all/progress.rs

mod samples;

use super::{Quantum, QuantumOutcome, QueuedJob, Thread};
use crate::by_id::ById;
use crate::places::UsableMachine;
use colocate_evidence::JobIdx;
use colocate_machine::Nanos;
use samples::{JobSamples, Signature, signature};

/// Share of its length that an estimate must have lasted to count. Chosen.
pub const ENOUGH: f64 = 0.5;

/// Length of an estimate as a share of the longest quantum so far. Chosen by three mixes of
/// `study feliu-3` (simulated): a tenth loses more than the better estimate gains.
pub const SLICE: f64 = 0.05;

/// Least length of an estimate, in seconds, for warm caches. Chosen.
pub const LEAST_S: f64 = 0.01;

/// Distance of a job from its samples tolerated at first: a few times the noise of counters.
/// Chosen; values from 0.02 to 0.1 make little difference in `study feliu-3`.
pub const NOISE: f64 = 0.05;

/// Settings of the estimates; the published values were not found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimating {
    /// `n`: quanta for which an estimate is valid, if the job does not change.
    pub valid: u32,
    /// Doubt added by a quantum, for a distance of 1 from the samples beyond the tolerated.
    pub doubt: f64,
    /// `A`: least number of quanta from the last estimate to a renewed estimate; at least 2.
    pub apart: u32,
}

impl Estimating {
    /// Chosen by simulated measurements (docs/results/benchmarks.md).
    pub const USUAL: Self = Self { valid: 1000, doubt: 2.0, apart: 3 };
}

/// Progress of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobProgress {
    /// Progress in seconds of running alone.
    pub done: f64,
    /// Seconds since the job's arrival.
    pub there: f64,
    /// Samples of quanta with cores of its own.
    samples: JobSamples,
    /// Doubt since the last estimate; from 1 on a new estimate is due.
    doubt: f64,
    /// Distance from the samples in the last quantum beside others.
    off: f64,
    /// Distance without doubt.
    tolerated: f64,
    /// Least rank of all jobs at the job's arrival, in seconds.
    begun: f64,
    /// Whether the job ever ran.
    has_run: bool,
    /// Before the first estimate: seconds with a counted speed, and the sum of speed × seconds.
    unjudged: (f64, f64),
    /// Whether the job had cores of its own without a counted speed, or slept there.
    uncounted: bool,
}

impl JobProgress {
    /// Progress for comparison, in seconds: as if the job had been there from the start.
    #[must_use]
    pub fn rank(&self) -> f64 {
        self.begun + self.done
    }

    /// Whether there is a sample of the job.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        !self.samples.0.is_empty()
    }

    /// Takes in a quantum of `seconds` with cores of its own; `ran` is signature and speed.
    fn ran_alone(&mut self, ran: Option<(Signature, f64)>, seconds: f64) {
        self.done += seconds;
        self.doubt = 0.0;
        self.uncounted = ran.is_none();
        let Some((signature, alone)) = ran else { return };
        // Quanta before the first estimate counted as if alone; now their speeds can be judged.
        if !self.is_estimated() {
            let (seconds, speeds) = std::mem::take(&mut self.unjudged);
            // At most as fast as alone, as in `ran_beside`.
            self.done += (speeds / alone).min(seconds) - seconds;
        }
        // A known phase: the doubt came from neighbours, so more is tolerated.
        if !self.samples.put(signature, 1.0 / alone) {
            self.tolerated += ((self.off - self.tolerated) / 2.0).max(0.0);
        }
    }

    /// Takes in a quantum of `seconds` beside other jobs; `ran` is signature and speed.
    fn ran_beside(&mut self, ran: Option<(Signature, f64)>, seconds: f64, settings: &Estimating) {
        let alone = ran.and_then(|(signature, _)| self.samples.nearest(&signature));
        // After `valid` quanta this alone makes an estimate due.
        self.doubt += 1.0 / f64::from(settings.valid);
        self.done += match (ran, alone) {
            (Some((_, speed)), Some(alone)) => {
                self.off = alone.off;
                self.doubt += settings.doubt * (alone.off - self.tolerated).max(0.0);
                // At most 1: a job faster than its estimate is in another phase.
                (speed * alone.cycles).min(1.0) * seconds
            }
            _ => seconds,
        };
        if let (Some((_, speed)), false) = (ran, self.is_estimated()) {
            self.unjudged.0 += seconds;
            self.unjudged.1 += speed * seconds;
        }
        // Once a speed is counted, an estimate can succeed again.
        self.uncounted &= ran.is_none();
    }

    /// Need of an estimate, due from 1 on; infinite without a sample, 0 without a countable speed.
    fn need(&self) -> f64 {
        if self.uncounted {
            0.0
        } else if self.is_estimated() {
            self.doubt
        } else {
            f64::INFINITY
        }
    }
}

/// Progress of all jobs.
#[derive(Clone, Debug)]
pub struct ProgressTable {
    jobs: ById<JobIdx, JobProgress>,
    settings: Estimating,
    /// Job chosen to have cores of its own in the last quantum.
    solo: Option<JobIdx>,
    /// Jobs with more threads than PUs in the last quantum, and the number of these PUs.
    turns: ById<JobIdx, usize>,
    /// Length of the last quantum, in seconds; `None` if unknown.
    took: Option<f64>,
    /// CPU time of each job in the last quantum, in seconds.
    used: ById<JobIdx, f64>,
    /// Number of quanta, and their total length in seconds.
    quanta: (f64, f64),
    /// Length of the longest quantum, in seconds.
    longest: f64,
    /// Quanta since the last quantum with an estimate.
    since: u32,
}

/// Speed of a job in its last quantum, in instructions per cycle. `None` if not counted, or if no
/// thread was runnable. `turns` is the number of PUs shared by more threads; `None` if not shared.
#[must_use]
pub fn speed(job: &QueuedJob, turns: Option<usize>) -> Option<f64> {
    let active = job.threads.iter().filter(|thread| !slept(thread));
    let known: Vec<f64> =
        active.filter_map(|thread| thread.ran.as_ref()?.ipc.filter(|ipc| *ipc > 0.0)).collect();
    if known.is_empty() {
        return None;
    }
    let threads = known.len() as f64;
    // Threads that share PUs run one after the other, and each rate is of its own time only.
    let share = turns.map_or(1.0, |pus| (pus as f64 / threads).min(1.0));
    Some(known.into_iter().sum::<f64>() * share)
}

/// Whether a thread was not runnable in its job's last quantum. Its rates are then older.
pub(super) fn slept(thread: &Thread) -> bool {
    thread.runnable == Some(0.0)
}

impl ProgressTable {
    /// A table without jobs.
    #[must_use]
    pub fn new(settings: Estimating) -> Self {
        Self {
            jobs: ById::default(),
            settings,
            solo: None,
            turns: ById::default(),
            took: None,
            used: ById::default(),
            quanta: (0.0, 0.0),
            longest: 0.0,
            since: 0,
        }
    }

    /// Progress of a job; `None` if the job was never in the queue.
    #[must_use]
    pub fn of(&self, job: JobIdx) -> Option<&JobProgress> {
        self.jobs.get(&job)
    }

    /// Takes in the length of the last quantum and the CPU times. Unknown lengths count as 1 s.
    pub(crate) fn on_quantum_end(&mut self, done: &QuantumOutcome<'_>) {
        self.took = Some(done.took.as_secs_f64());
        let used = done.did.iter().filter_map(|did| Some((did.job, did.cpu_time?.as_secs_f64())));
        self.used = used.collect();
    }

    /// Takes in the state of the queue after the last quantum.
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
            // A job that was not chosen may have run on idle PUs.
            if !job.just_ran {
                let each = job.threads.len().max(1) as f64;
                // A quantum counts at most its own length.
                known.done += (self.used.get(&job.job).unwrap_or(&0.0) / each).min(took);
                continue;
            }
            known.has_run = true;
            let speed = speed(job, self.turns.get(&job.job).copied());
            let ran = speed.map(|speed| (signature(job, speed), speed));
            let alone = job.had_own_cores && self.solo == Some(job.job);
            match alone {
                // Too short to be judged.
                true if !enough => known.done += took,
                true if job.threads.iter().all(slept) => {
                    known.done += took;
                    known.uncounted = true;
                }
                true => known.ran_alone(ran, took),
                false => known.ran_beside(ran, took, &self.settings),
            }
        }
        self.solo = None;
    }

    /// Adds jobs that are new in the queue, at the least rank of the known jobs.
    fn meet(&mut self, queue: &[QueuedJob]) {
        let ranks = queue.iter().filter_map(|job| self.jobs.get(&job.job)).map(JobProgress::rank);
        let begun = ranks.min_by(f64::total_cmp).unwrap_or(0.0);
        for job in queue {
            let fresh = JobProgress { begun, tolerated: NOISE, ..JobProgress::default() };
            self.jobs.entry(job.job).or_insert(fresh);
        }
    }

    /// Mean length of a quantum so far, in seconds; 1 before there was one.
    fn quantum(&self) -> f64 {
        let (quanta, seconds) = self.quanta;
        if seconds > 0.0 { seconds / quanta } else { 1.0 }
    }

    /// Length of an estimate, in seconds: at most the longest quantum so far.
    fn estimate_s(&self) -> f64 {
        // `min` last: the longest quantum also bounds `LEAST_S`.
        (SLICE * self.longest).max(LEAST_S).min(self.longest)
    }

    /// Length of the next estimate; `None` before the first quantum.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a part of a quantum
    pub(super) fn estimate(&self) -> Option<Nanos> {
        Some(Nanos((self.estimate_s() * 1e9) as u64)).filter(|time| *time > Nanos::ZERO)
    }

    /// Progress of a job, in quanta of mean length alone.
    pub(crate) fn quanta_alone(&self, job: JobIdx) -> f64 {
        self.of(job).map_or(0.0, |known| known.done) / self.quantum()
    }

    /// Greatest slowdown of the jobs of the queue over the least, each since the job's arrival,
    /// compared with running alone. Infinite if a job has no progress yet; 1 if nothing is known.
    #[must_use]
    pub fn unfairness(&self, queue: &[QueuedJob]) -> f64 {
        let known = queue.iter().filter_map(|job| self.of(job.job));
        let known = known.filter(|known| known.there > 0.0);
        let slowdowns = known.map(|known| known.there / known.done);
        let range = slowdowns.fold((f64::INFINITY, 0.0_f64), |(least, most), each| {
            (least.min(each), most.max(each))
        });
        match range {
            (least, most) if most > 0.0 && least.is_finite() => most / least,
            (_, most) if most > 0.0 => f64::INFINITY,
            _ => 1.0,
        }
    }

    /// Place in the queue of the job that gets cores of its own now; `None` if no estimate is due.
    /// The job is remembered until [`Self::note`].
    pub(crate) fn begin_estimate(&mut self, now: &Quantum<'_>) -> Option<usize> {
        self.since = self.since.saturating_add(1);
        // Set anew for the quantum to come.
        self.turns.clear();
        self.let_take_turns(now.queue, now.pus.len());
        let known: Option<Vec<&JobProgress>> =
            now.queue.iter().map(|job| self.of(job.job)).collect();
        // No estimate before every job has run.
        let known = known.filter(|known| known.iter().all(|known| known.has_run))?;
        let may_renew = self.since >= self.settings.apart;
        let needs = known.iter().map(|known| known.need()).enumerate();
        let due = needs.filter(|(_, need)| need.is_infinite() || may_renew && *need >= 1.0);
        // The job of greatest need; of several, the job of least progress.
        let first = due.min_by(|a, b| {
            b.1.total_cmp(&a.1).then(known[a.0].rank().total_cmp(&known[b.0].rank()))
        });
        let first = first?.0;
        let job = &now.queue[first];
        self.since = 0;
        self.let_take_turns([job], UsableMachine::new(now.machine, now.pus).cores.len());
        self.solo = Some(job.job);
        Some(first)
    }

    /// Remembers the jobs that have more threads than there are PUs.
    fn let_take_turns<'a>(&mut self, jobs: impl IntoIterator<Item = &'a QueuedJob>, pus: usize) {
        let wide = jobs.into_iter().filter(|job| job.threads.len() > pus);
        self.turns.extend(wide.map(|job| (job.job, pus)));
    }

    /// Summary for a report: range of progress, and number of estimated jobs.
    #[must_use]
    pub fn state(&self) -> String {
        let done: Vec<f64> = self.jobs.values().map(|job| job.done / self.quantum()).collect();
        let least = done.iter().copied().fold(f64::INFINITY, f64::min);
        let most = done.iter().copied().fold(0.0, f64::max);
        let estimated = self.jobs.values().filter(|job| job.is_estimated()).count();
        match self.jobs.len() {
            0 => "no job has run yet".to_owned(),
            jobs => format!(
                "progress {least:.1} to {most:.1} quanta alone, {estimated} of {jobs} jobs estimated"
            ),
        }
    }
}

/// Sort key of a number: its bits are in its order. Negative numbers and NaN count as 0.
pub(super) fn ordered(number: f64) -> u64 {
    number.max(0.0).to_bits()
}
