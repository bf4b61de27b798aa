//! State of the jobs between rounds: the queue, and the rates of each thread when it last ran.
//!
//! # Terms
//! - *Queue*: jobs that have work left. Jobs that ran go to its tail, in the order of the queue.
//! - *Active* thread: runnable for at least [`ACTIVE`] of the last quantum in which its job ran, or
//!   new since. Only active threads need a context; others are left to the kernel while their job
//!   runs.
//! - *Pause*: a quantum that took far longer than requested, and for most of which no chosen thread
//!   was runnable, as when a terminal stops the whole run. If only the loop itself was late, they
//!   stayed runnable.
//! # Properties
//! - **Order**: jobs that ran go to the tail, in the order of the queue. -> test `jobs_that_ran_go_to_the_tail`
//! - **Rates are of the last quantum**, and unknown where the host does not count.
//!   -> test `rates_of_the_last_quantum`
//! - **A pause teaches nothing**: policies see it as a quantum of no length in which nothing ran, and these
//!   teach nothing either. -> tests `a_pause_teaches_nothing`, `no_time_teaches_nothing`, `a_late_loop_still_learns`

mod own_cores;
mod threads;

use crate::lookup::{TaskLookup, by_job, of_job};
use crate::rates::{self, ThreadRates};
use colocate_evidence::JobIdx;
#[cfg(test)]
use colocate_evidence::TaskId;
use colocate_evidence::{Observation, PlacementStatus, SeenTask};
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_policy::schedule::{JobUsage, QuantumOutcome, QueuedJob, Rates, Thread};
use colocate_policy::{Place, Plan};
use own_cores::own_cores;
use std::cell::LazyCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use threads::ThreadMap;

/// Least share of a quantum in which an active thread has a PU or waits for it; if waits are
/// unknown, share of its fair part. Chosen: threads waiting for other threads or for input are
/// runnable far less, computing threads nearly all the time.
pub const ACTIVE: f64 = 0.05;

/// A quantum longer than this multiple of the requested time, plus [`PAUSE`], may be a pause.
/// Chosen: on a busy machine a quantum may take two or three times as long.
const STRETCHED: u64 = 4;

/// See [`STRETCHED`]. Chosen: a busy machine stretches the shortest quanta a lot, and a run is not
/// stopped for less.
const PAUSE: Nanos = Nanos::from_millis(500);

/// Runnable share of a chosen thread above which a long quantum is no pause. Chosen: rates of the
/// quantum are then off by a third at most.
const RUNNABLE: f64 = 0.75;

/// Running jobs of the queue, with the PU of each thread; `None`: the kernel's choice.
pub(crate) type QueuePlacement = BTreeMap<JobIdx, Vec<Option<PuIdx>>>;

/// The jobs of `queue` that `plan` lets run, with the PUs of their threads.
pub(crate) fn placed(plan: &Plan, queue: &[QueuedJob], machine: &Machine) -> QueuePlacement {
    queue.iter().filter_map(|job| Some((job.job, pus_of(plan, job, machine)?))).collect()
}

/// PUs of a job's threads under `plan`; `None` if the job waits.
fn pus_of(plan: &Plan, job: &QueuedJob, machine: &Machine) -> Option<Vec<Option<PuIdx>>> {
    // A job waits as a whole, so one waiting thread stands for all.
    let pus = job.threads.iter().map(|thread: &Thread| match plan.place_of(thread.id) {
        Some(Place::Waiting) => None,
        place => Some(place.and_then(Place::pu).and_then(|pu| machine.pu_by_os(pu))),
    });
    pus.collect()
}

/// A quantum that has ended.
pub(crate) struct Passed<'a> {
    /// Jobs that ran.
    pub placed: &'a QueuePlacement,
    pub machine: &'a Machine,
    /// Number of usable PUs.
    pub pus: usize,
    /// Requested length.
    pub asked: Nanos,
    /// Whether a CPU quota throttled the jobs in it.
    pub throttled: bool,
    pub before: &'a Observation,
    pub after: &'a Observation,
}

impl Passed<'_> {
    fn took(&self) -> Nanos {
        self.after.at.saturating_sub(self.before.at)
    }

    /// Whether its observations count: it took some time and was no pause.
    fn teaches(&self) -> bool {
        let most = self.asked.0.saturating_mul(STRETCHED).saturating_add(PAUSE.0);
        let took = self.took();
        took > Nanos::ZERO && (took.0 <= most || self.was_runnable())
    }

    /// Whether a chosen thread was runnable for most of the quantum.
    fn was_runnable(&self) -> bool {
        let most = self
            .chosen()
            .map(|(task, earlier): (&SeenTask, Option<&SeenTask>)| {
                let used = grown(task, earlier, |it| it.cpu_time).unwrap_or(Nanos::ZERO);
                used + grown(task, earlier, |it| it.waited).unwrap_or(Nanos::ZERO)
            })
            .max()
            .unwrap_or(Nanos::ZERO);
        float(most) > RUNNABLE * float(self.took())
    }

    /// Threads of the chosen jobs, at its end and at its begin.
    fn chosen(&self) -> impl Iterator<Item = (&SeenTask, Option<&SeenTask>)> {
        let mut before = TaskLookup::through(&self.before.tasks);
        let tasks = self.after.tasks.iter().filter(|task| self.placed.contains_key(&task.id.job));
        tasks.map(move |task| (task, before.find(task.id)))
    }

    /// Whether no task had the place that the plan gave it for all of the quantum: their programs had just begun.
    fn was_settling(&self) -> bool {
        let mut is_any = false;
        for (task, earlier) in self.chosen() {
            let mut statuses = [Some(task), earlier].into_iter().flatten().map(|seen| &seen.status);
            if statuses.any(|status| *status == PlacementStatus::Settling) {
                is_any = true;
            } else if task.status == PlacementStatus::Placed {
                return false;
            }
        }
        is_any
    }

    /// The outcome that the policy sees.
    pub fn outcome<'d>(&self, did: &'d [JobUsage]) -> QuantumOutcome<'d> {
        match self.teaches() && !self.was_settling() {
            true => QuantumOutcome { took: self.took(), did, throttled: self.throttled },
            false => QuantumOutcome::default(),
        }
    }

    /// Time available to a computing thread, in nanoseconds: less than all if more threads of the
    /// chosen jobs computed than there are PUs, as under the kernel. A thread with hardly any time
    /// beside the busiest thread did not compute.
    fn fair_part(&self) -> f64 {
        let used: Vec<f64> = self
            .chosen()
            .filter_map(|(task, earlier)| Some(float(grown(task, earlier, |it| it.cpu_time)?)))
            .collect();
        let most = used.iter().copied().fold(0.0, f64::max);
        let computed = used.iter().filter(|used| **used > ACTIVE * most).count();
        let share = self.pus as f64 / computed.max(1) as f64;
        float(self.took()) * share.min(1.0)
    }
}

/// Growth of a thread's counter between two observations; `None` if unknown.
fn grown(
    now: &SeenTask,
    before: Option<&SeenTask>,
    of: impl Fn(&SeenTask) -> Option<Nanos>,
) -> Option<Nanos> {
    Some(of(now)?.saturating_sub(before.and_then(of).unwrap_or(Nanos::ZERO)))
}

fn float(time: Nanos) -> f64 {
    time.0 as f64
}

/// State of the jobs between rounds.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    order: VecDeque<JobIdx>,
    known: BTreeMap<JobIdx, JobHistory>,
}

#[derive(Debug, Default)]
struct JobHistory {
    just_ran: bool,
    had_own_cores: bool,
    runnable: Option<f64>,
    threads: ThreadMap<LastRun>,
}

/// State of a thread after its last run.
#[derive(Debug)]
struct LastRun {
    ran: Rates,
    active: bool,
    pu: Option<PuIdx>,
    runnable: Option<f64>,
}

impl Default for LastRun {
    fn default() -> Self {
        // A new thread counts as active until a quantum shows otherwise.
        Self { ran: Rates::default(), active: true, pu: None, runnable: None }
    }
}

impl JobHistory {
    /// Its living runnable threads, or a sleeping thread if none is runnable: a job of sleeping
    /// threads must run, too. `None` without a living thread.
    fn queued(&self, tasks: &[SeenTask]) -> Option<Vec<Thread>> {
        let mut active = Vec::new();
        let mut idle = None;
        for task in tasks.iter().filter(|task| task.alive()) {
            let known = self.threads.get(task.id);
            let thread = || Thread {
                id: task.id,
                ran: known.map(|known| known.ran.clone()),
                pu: known.and_then(|known| known.pu),
                runnable: known.and_then(|known| known.runnable),
                bound: task.status == PlacementStatus::PinnedByProgram,
            };
            if known.is_none_or(|known| known.active) {
                active.push(thread());
            } else if idle.is_none() {
                idle = Some(thread());
            }
        }
        if active.is_empty() { idle.map(|idle| vec![idle]) } else { Some(active) }
    }
}

impl JobQueue {
    /// Appends new jobs to the tail and removes jobs that have ended.
    pub fn note_jobs(&mut self, seen: &Observation) {
        let over = seen.over();
        self.order.retain(|job| !over.contains(job));
        for (job, tasks) in by_job(&seen.tasks).filter(|(job, _)| !over.contains(job)) {
            let Entry::Vacant(new) = self.known.entry(job) else { continue };
            if tasks.iter().any(SeenTask::alive) {
                new.insert(JobHistory::default());
                self.order.push_back(job);
            }
        }
    }

    /// Renumbers the PUs of threads after PUs have come or gone.
    pub fn renumber(&mut self, before: &Machine, now: &Machine) {
        for job in self.known.values_mut() {
            for known in job.threads.values_mut() {
                // Indexes change with the machine, kernel numbers do not.
                known.pu = known.pu.and_then(|pu| now.pu_by_os(before.pus[pu.idx()].os));
            }
        }
    }

    /// The queue as a policy sees it, head first.
    pub fn queued(&self, seen: &Observation) -> Vec<QueuedJob> {
        let queued = |job: &JobIdx| {
            let known = &self.known[job];
            Some(QueuedJob {
                job: *job,
                threads: known.queued(of_job(&seen.tasks, *job))?,
                runnable: known.runnable,
                just_ran: known.just_ran,
                had_own_cores: known.had_own_cores,
            })
        };
        self.order.iter().filter_map(queued).collect()
    }

    /// Updates the state from a quantum and returns the rates. A quantum that teaches nothing
    /// updates only the places of threads.
    pub fn note(&mut self, passed: &Passed<'_>) -> Vec<ThreadRates> {
        let Passed { machine, after, .. } = *passed;
        let mut did = Vec::new();
        let took = passed.took();
        let teaches = passed.teaches();
        // Lazy: only unknown waits need the fair part, which visits every thread.
        let fair = LazyCell::new(|| passed.fair_part());
        let own = own_cores(passed.placed, machine);
        for (id, job) in &mut self.known {
            let chosen = own.get(id).filter(|_| teaches);
            job.just_ran = chosen.is_some();
            job.had_own_cores = chosen.copied().unwrap_or(job.had_own_cores);
            job.runnable = if job.just_ran { Some(0.0) } else { job.runnable };
        }
        let mut before = TaskLookup::through(&passed.before.tasks);
        for (id, tasks) in by_job(&after.tasks) {
            let job = self.known.get_mut(&id).filter(|_| own.contains_key(&id));
            let Some(job) = job else { continue };
            let mut alive = 0;
            for task in tasks {
                let earlier = before.find(task.id);
                alive += usize::from(task.alive());
                let known = job.threads.of(task.id);
                // A thread that ended before it was read keeps its last place.
                known.pu = task.last_ran.and_then(|pu| machine.pu_by_os(pu)).or(known.pu);
                did.extend(rates::of_thread(machine, task, earlier));
                if !teaches {
                    continue;
                }
                known.active = is_active(task, earlier, took, || *fair);
                known.runnable = rates::runnable(task, earlier, took);
                // A thread that was created and ended between two observations is unknown, and used
                // little time.
                if task.alive() || known.runnable.is_some() {
                    job.runnable = job.runnable.zip(known.runnable).map(|(sum, more)| sum + more);
                }
            }
            // A job may create threads by the million, so ended threads are dropped.
            if job.threads.len() > alive {
                let mut seen = TaskLookup::through(tasks);
                job.threads.retain(|id| seen.find(id).is_some_and(SeenTask::alive));
            }
        }
        let (ran, waited): (Vec<JobIdx>, Vec<JobIdx>) =
            self.order.iter().partition(|job| own.contains_key(job));
        self.order = waited.into_iter().chain(ran).collect();
        did
    }

    /// Mean number of runnable threads of each job that ran last, where known.
    pub fn runnable(&self) -> BTreeMap<JobIdx, f64> {
        let ran = self.known.iter().filter(|(_, job)| job.just_ran);
        ran.filter_map(|(id, job)| Some((*id, job.runnable?))).collect()
    }

    /// Keeps the rates for the policy.
    pub fn remember(&mut self, did: &[ThreadRates]) {
        for did in did {
            if let Some(job) = self.known.get_mut(&did.id.job) {
                job.threads.of(did.id).ran.clone_from(&did.ran);
            }
        }
    }
}

/// Whether a thread was runnable for enough of a quantum of length `took`. If its waits are
/// unknown: whether it used enough of its fair part, `fair` nanoseconds.
fn is_active(
    task: &SeenTask,
    before: Option<&SeenTask>,
    took: Nanos,
    fair: impl FnOnce() -> f64,
) -> bool {
    // A thread of unknown use may need a context.
    let Some(used) = grown(task, before, |it| it.cpu_time) else { return true };
    match grown(task, before, |it| it.waited) {
        Some(waited) => float(used + waited) >= ACTIVE * float(took),
        None => float(used) >= ACTIVE * fair(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
