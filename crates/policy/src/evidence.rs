//! Evidence: the input of a policy's decision.

use crate::plan::{Decision, Place, PlaceReason, Plan, Task};
use crate::why::{Allocated, Selected};
use colocate_evidence::{JobIdx, PagesMoved, SourceReports, TaskId};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr, SharedPart};
use colocate_model::stack::StackParts;
use std::fmt;
use std::sync::Arc;

/// Number of cache levels with request rates.
pub const LEVELS: usize = 4;

/// Memory requests of a thread in its last quantum on a PU, in t/µs; `None`: not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests to the cache of level 1, 2, …; level 1 counts loads and stores.
    pub caches: [Option<f64>; LEVELS],
    /// Requests to main memory: misses of the last-level cache.
    pub memory: Option<f64>,
}

impl Traffic {
    /// Requests to the caches of `level`, counted from 1; `None`: not counted, or no such level.
    #[must_use]
    pub fn at(&self, level: u8) -> Option<f64> {
        // There is no level 0.
        *self.caches.get(usize::from(level).checked_sub(1)?)?
    }
}

/// Counter rates of a thread, from the last quantum in which the thread ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Instructions per cycle; `None`: not counted.
    pub ipc: Option<f64>,
    /// Requests to each level of the memory hierarchy.
    pub traffic: Traffic,
    /// CPI stack: shares of cycles by cause, as `parts`, with sum 1; `None`: not counted.
    pub stack: Option<Vec<f64>>,
    /// Names of the parts of `stack`; empty where `stack` is `None`.
    pub parts: StackParts,
}

/// A thread of a queued job.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Task of the thread.
    pub id: TaskId,
    /// Rates of the last quantum; `None`: the thread never ran.
    pub ran: Option<Rates>,
    /// PU of the last run; `None`: the thread never ran.
    pub pu: Option<PuIdx>,
    /// Share of the job's last quantum in which the thread was runnable: on a PU or waiting for a
    /// PU, without time spent spinning. `None`: unknown.
    pub runnable: Option<f64>,
    /// The program set the thread's affinity mask. A plan cannot move the thread.
    pub bound: bool,
}

impl Thread {
    /// Requests to the memory hierarchy; all `None` if the thread never ran.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ran.as_ref().map(|ran| ran.traffic).unwrap_or_default()
    }
}

/// A job in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Index of the job.
    pub job: JobIdx,
    /// Threads in the order of creation. Never empty: a job always has its first thread.
    pub threads: Vec<Thread>,
    /// Mean number of runnable threads in the job's last quantum. Includes threads that are missing
    /// from `threads` because they were hardly runnable. `None`: unknown.
    pub runnable: Option<f64>,
    /// The job ran in the previous quantum, and its measurements of that quantum are valid.
    pub just_ran: bool,
    /// In its last quantum the job shared none of its cores with another job.
    pub had_own_cores: bool,
}

impl QueuedJob {
    /// Hardware contexts of the job: one per thread, at most `contexts`.
    #[must_use]
    pub fn width(&self, contexts: usize) -> usize {
        // `clamp` panics if its upper bound is below its lower bound.
        self.threads.len().clamp(1, contexts.max(1))
    }

    /// Requests of all threads to main memory, in transactions per microsecond; `None` if not
    /// counted for a thread that has run, or no thread has run.
    #[must_use]
    pub fn to_memory(&self) -> Option<f64> {
        self.sum(|traffic| traffic.memory)
    }

    /// Requests of all threads to caches of `level`, in t/µs; `None` as for [`Self::to_memory`].
    #[must_use]
    pub fn to_caches(&self, level: u8) -> Option<f64> {
        self.sum(|traffic| traffic.at(level))
    }

    /// Sum of a rate over the threads that have run; `None` as for [`Self::to_memory`].
    fn sum(&self, rate: impl Fn(&Traffic) -> Option<f64>) -> Option<f64> {
        let mut ran = self.threads.iter().filter_map(|thread| thread.ran.as_ref()).peekable();
        // An empty sum would be 0, not unknown.
        ran.peek()?;
        ran.map(|ran| rate(&ran.traffic)).try_fold(0.0, |sum, each| Some(sum + each?))
    }
}

/// Input of a scheduler's decision.
#[derive(Clone, Copy, Debug)]
pub struct Quantum<'a> {
    /// Number of earlier quanta.
    pub number: u64,
    /// The machine.
    pub machine: &'a Machine,
    /// Usable PUs in logical order. Never empty.
    pub pus: &'a [PuIdx],
    /// Unfinished jobs, head of the queue first.
    pub queue: &'a [QueuedJob],
}

/// A job that runs in the next quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedJob {
    /// The job.
    pub job: JobIdx,
    /// Reason of the selection.
    pub selected: Selected,
    /// PU and reason for each thread, in the order of threads; `None`: not pinned.
    pub places: Vec<(Option<PuIdx>, Allocated)>,
}

/// Outcome of a quantum.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuantumOutcome<'a> {
    /// Duration: shorter than requested if a job ended. 0 if the quantum is no valid measurement,
    /// because all jobs were stopped meanwhile.
    pub took: Nanos,
    /// Usage of the active jobs, in their order; empty if the quantum is no valid measurement.
    pub did: &'a [JobUsage],
    /// A CPU quota throttled at least one job in the quantum.
    pub throttled: bool,
}

/// Resource usage of a job in a quantum, summed over its threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobUsage {
    /// The job.
    pub job: JobIdx,
    /// CPU time; `None` if unknown for any thread.
    pub cpu_time: Option<Nanos>,
    /// Instructions; `None` if not counted for any thread.
    pub instructions: Option<u64>,
    /// Sum over threads of the larger of two counts: voluntary context switches, and system calls
    /// that read or write. `None` if unknown for any thread.
    pub switches: Option<u64>,
}

/// Choices under which all jobs run and the kernel places their threads.
#[must_use]
pub fn leave_to_kernel(queue: &[QueuedJob]) -> Vec<SelectedJob> {
    let all = queue.iter().map(|job| SelectedJob {
        job: job.job,
        selected: Selected::Room,
        places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
    });
    all.collect()
}

/// All unfinished jobs, in the queue or not.
#[derive(Clone, Copy, Default)]
pub struct Roster<'a> {
    /// First living task of each unfinished job, in order; task 0 of a job without a known task.
    pub jobs: &'a [TaskId],
    /// The name of a task, for display; `None`: names are unknown.
    pub name: Option<&'a dyn Fn(TaskId) -> Arc<str>>,
}

/// Input of a policy's decision.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// Time of the decision on the host's clock.
    pub at: Nanos,
    /// Machine, usable PUs, and unfinished jobs with the rates of their threads.
    pub now: Quantum<'a>,
    /// Outcome of the last quantum; `None` if this policy did not plan the quantum or has read the
    /// outcome already.
    pub last: Option<QuantumOutcome<'a>>,
    /// Jobs may wait. If false, all jobs run all the time.
    pub may_wait: bool,
    /// Control quantum: the kernel places all threads and the plan is not applied. The policy can
    /// still learn from the evidence.
    pub is_control: bool,
    /// An event besides the end of the quantum may invalidate the plan.
    pub has_event: bool,
    /// Results of the page moves completed since the previous evidence.
    pub moved: &'a [PagesMoved],
    /// Reports of sources on wake-ups, sharing and pages.
    pub reports: &'a SourceReports,
    /// Unfinished jobs, and the names of their tasks.
    pub roster: Roster<'a>,
    /// Source of [`Self::tasks`].
    pub expected: &'a dyn Fn() -> Vec<Task>,
}

impl fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> Evidence<'a> {
    /// Evidence of a queue alone, all else unknown: for tests, and for a policy without a host.
    #[must_use]
    pub fn of_queue(now: Quantum<'a>) -> Self {
        Self {
            at: Nanos::ZERO,
            now,
            last: None,
            may_wait: true,
            is_control: false,
            has_event: true,
            moved: &[],
            reports: &SourceReports::NONE,
            roster: Roster::default(),
            expected: &Vec::new,
        }
    }

    /// Tasks to place, from profiles and observation, in the order of IDs. Includes tasks that do
    /// not exist yet. Excludes tasks of jobs that have not been watched long enough.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        (self.expected)()
    }

    /// Plan of `choices`: threads of chosen jobs get their PUs; all remaining jobs wait, also jobs
    /// that were not seen yet. A waiting job is named by its first task, since a job waits as a
    /// whole. Tasks left to the kernel because they sleep or their job is over are not named: a
    /// program may have tens of thousands.
    #[must_use]
    pub fn plan(&self, choices: &[SelectedJob]) -> Plan {
        // Sorted lists: sets and maps of this size are slower to search.
        let mut chosen: Vec<JobIdx> = choices.iter().map(|choice| choice.job).collect();
        chosen.sort_unstable();
        let in_queue = self.now.queue.iter().map(|job| job.threads[0].id);
        let known = self.roster.jobs;
        let jobs = if known.is_empty() { in_queue.collect() } else { known.to_vec() };
        // The roster also has jobs that are not in the queue yet.
        let waiting = jobs.into_iter().filter(|task| chosen.binary_search(&task.job).is_err());
        let waiting = waiting.map(|task| (task, Place::Waiting, PlaceReason::NotSelected));
        let mut places: Vec<_> = self.places(choices).into_iter().chain(waiting).collect();
        places.sort_by_key(|place| place.0);
        let decisions = places.into_iter().map(|place| self.decision(place)).collect();
        Plan { decisions, ..self.empty_plan() }
    }

    fn decision(&self, (task, place, why): (TaskId, Place, PlaceReason)) -> Decision {
        let name = self.roster.name.map_or_else(|| "".into(), |name| name(task));
        Decision { task, name, place, why }
    }

    /// Place and reason of each thread of the chosen jobs.
    fn places(&self, choices: &[SelectedJob]) -> Vec<(TaskId, Place, PlaceReason)> {
        let mut by_job: Vec<&QueuedJob> = self.now.queue.iter().collect();
        by_job.sort_unstable_by_key(|job| job.job);
        let mut places = Vec::with_capacity(choices.len());
        for choice in choices {
            let found = by_job.binary_search_by_key(&choice.job, |job| job.job);
            let Some(job) = found.ok().map(|at| by_job[at]) else { continue };
            for (thread, (pu, allocated)) in job.threads.iter().zip(&choice.places) {
                let (selected, allocated) = (choice.selected.clone(), allocated.clone());
                let why = PlaceReason::Chosen { selected, allocated };
                places.push((thread.id, Place::from(pu.map(|pu| self.number(pu))), why));
            }
        }
        places
    }

    /// Plan under which all jobs run and no thread is pinned.
    #[must_use]
    pub fn leave_to_kernel(&self) -> Plan {
        self.plan(&leave_to_kernel(self.now.queue))
    }

    /// Plan with the given places. All other tasks, also later ones, are left to the kernel.
    #[must_use]
    pub fn plan_of_some(&self, places: impl Iterator<Item = (TaskId, Place, PlaceReason)>) -> Plan {
        let mut decisions: Vec<Decision> = places.map(|place| self.decision(place)).collect();
        // Sorted lists: sets of this size are slower to search.
        let mut named: Vec<TaskId> = decisions.iter().map(|decision| decision.task).collect();
        named.sort_unstable();
        let left = self.tasks().into_iter();
        let left = left.filter(|task| named.binary_search(&task.id).is_err());
        decisions.extend(left.map(|task| {
            let why = PlaceReason::LeftToKernel;
            Decision { task: task.id, name: task.name.into(), place: Place::LeftToKernel, why }
        }));
        decisions.sort_by_key(|decision| decision.task);
        let mut pus = self.now.pus.to_vec();
        pus.sort_unstable();
        pus.dedup();
        let pus = pus.into_iter().map(|pu| self.number(pu)).collect();
        Plan { pus, decisions, ..self.empty_plan() }
    }

    /// Plan without a decision: all tasks are left to the kernel.
    #[must_use]
    pub fn empty_plan(&self) -> Plan {
        let machine = self.now.machine;
        Plan {
            machine: machine.name.clone(),
            pus: self.now.pus.iter().map(|&pu| self.number(pu)).collect(),
            ..Plan::default()
        }
    }

    /// Initial places by kernel PU number.
    #[must_use]
    pub fn initial(&self, places: &[(TaskId, PuIdx)]) -> Vec<(TaskId, PuNr)> {
        places.iter().map(|&(task, pu)| (task, self.number(pu))).collect()
    }

    /// Place on `pu`.
    #[must_use]
    pub fn on(&self, pu: PuIdx) -> Place {
        Place::Pu(self.number(pu))
    }

    /// Place on all PUs that share `shared` with `pu`.
    #[must_use]
    pub fn sharing(&self, shared: SharedPart, pu: PuIdx) -> Place {
        Place::Sharing(shared, self.number(pu))
    }

    pub(crate) fn number(&self, pu: PuIdx) -> PuNr {
        self.now.machine.pus[pu.idx()].os
    }
}
