//! Evidence: what a policy decides by.

use crate::plan::{Decision, DefaultPlacement, Place, Plan, Task, Why};
use crate::why::{Allocated, Selected};
use colocate_evidence::{JobIdx, PagesMoved, Reports, TaskId};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr, Shared};
use colocate_model::stack::Parts;
use std::fmt;
use std::sync::Arc;

/// Levels of caches that rates are kept of.
pub const LEVELS: usize = 4;

/// Requests of a thread to the memory hierarchy while it last ran, in transactions per microsecond.
///
/// `None` where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests to its cache of level 1, 2, …; those to the first are its loads and stores.
    pub caches: [Option<f64>; LEVELS],
    /// Requests to main memory: misses of its last cache.
    pub memory: Option<f64>,
}

impl Traffic {
    /// Requests to the caches of `level`, counted from 1.
    #[must_use]
    pub fn at(&self, level: u8) -> Option<f64> {
        *self.caches.get(usize::from(level).checked_sub(1)?)?
    }
}

/// What one thread did in the last quantum in which it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Instructions per cycle; `None` if not counted.
    pub ipc: Option<f64>,
    /// Its requests to the memory hierarchy.
    pub traffic: Traffic,
    /// Shares of its cycles by cause, in the order of `parts`; they sum to 1. `None` if not counted.
    pub stack: Option<Vec<f64>>,
    /// The names of the parts of `stack`; none where they are not counted.
    pub parts: Parts,
}

/// A thread of a queued job.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Which task.
    pub id: TaskId,
    /// What it last did; `None` if it never ran.
    pub ran: Option<Rates>,
    /// Where it last ran; `None` if it never did.
    pub pu: Option<PuIdx>,
    /// The share of the last quantum in which its job ran for which it was runnable: had a PU or waited for one, and
    /// did not only wait for others in a loop. `None` if unknown.
    pub runnable: Option<f64>,
    /// Whether its program chose the PUs that it may use, so that it runs on these wherever it is put.
    pub bound: bool,
}

impl Thread {
    /// Its requests to the memory hierarchy; all unknown if it never ran.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ran.as_ref().map(|ran| ran.traffic).unwrap_or_default()
    }
}

/// A job in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Which job.
    pub job: JobIdx,
    /// Its threads in the order of their creation. Never empty: a job always has its first thread.
    pub threads: Vec<Thread>,
    /// Mean number of its threads that were runnable in the last quantum in which it ran, also of those that hardly
    /// were and are not among `threads`; `None` if unknown.
    pub runnable: Option<f64>,
    /// Whether it ran in the quantum before this one, and that was one to learn from.
    pub just_ran: bool,
    /// Whether, when it last ran, no other job had a thread on any of its cores.
    pub had_own_cores: bool,
}

impl QueuedJob {
    /// Contexts that it takes: one a thread, but no more than there are.
    #[must_use]
    pub fn width(&self, contexts: usize) -> usize {
        self.threads.len().clamp(1, contexts.max(1))
    }

    /// Requests of all threads to main memory, in transactions per microsecond.
    #[must_use]
    pub fn to_memory(&self) -> Option<f64> {
        self.sum(|traffic| traffic.memory)
    }

    /// Requests of all threads to caches of `level`, in transactions per microsecond.
    #[must_use]
    pub fn to_caches(&self, level: u8) -> Option<f64> {
        self.sum(|traffic| traffic.at(level))
    }

    /// The rates of all threads that have run; `None` if one of them is not counted, or none has run.
    fn sum(&self, rate: impl Fn(&Traffic) -> Option<f64>) -> Option<f64> {
        let mut ran = self.threads.iter().filter_map(|thread| thread.ran.as_ref()).peekable();
        ran.peek()?;
        ran.map(|ran| rate(&ran.traffic)).try_fold(0.0, |sum, each| Some(sum + each?))
    }
}

/// What a scheduler decides by.
#[derive(Clone, Copy, Debug)]
pub struct Quantum<'a> {
    /// How many there were before.
    pub number: u64,
    /// The machine.
    pub machine: &'a Machine,
    /// The PUs that may be used, in logical order. Never empty.
    pub pus: &'a [PuIdx],
    /// Jobs that have work left, head first.
    pub queue: &'a [QueuedJob],
}

/// A job that runs in the next quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The job.
    pub job: JobIdx,
    /// Why it and not another.
    pub selected: Selected,
    /// A PU for each of its threads, in their order, and why; `None` leaves it to the kernel.
    pub places: Vec<(Option<PuIdx>, Allocated)>,
}

/// What came of a quantum.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuantumOutcome<'a> {
    /// How long it took: less than was requested if a job ended, and 0 if there is nothing to learn from it, as
    /// everything was stopped meanwhile.
    pub took: Nanos,
    /// Whose jobs' threads did something in it, in the order of the jobs; none if there is nothing to learn from it.
    pub did: &'a [JobUsage],
    /// Whether a CPU quota throttled some of them meanwhile.
    pub throttled: bool,
}

/// What the threads of a job did in a quantum, all together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobUsage {
    /// The job.
    pub job: JobIdx,
    /// CPU time; `None` if the host cannot say of all threads.
    pub cpu_time: Option<Nanos>,
    /// Instructions; `None` if they are not counted of all threads.
    pub instructions: Option<u64>,
    /// How often its threads have waited of their own accord, or read or written by a system call, whichever is more of each
    /// thread; `None` if that is not known of all threads.
    pub switches: Option<u64>,
}

/// All jobs run, and the kernel places their threads.
#[must_use]
pub fn leave_to_kernel(queue: &[QueuedJob]) -> Vec<Choice> {
    let free = |job: &QueuedJob| Choice {
        job: job.job,
        selected: Selected::Room,
        places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
    };
    queue.iter().map(free).collect()
}

/// Jobs, whether they are in the queue or not.
#[derive(Clone, Copy, Default)]
pub struct Roster<'a> {
    /// Of each job that is not over its first living task; if none was seen yet, the one with number 0. In order.
    pub jobs: &'a [TaskId],
    /// The name of a task, for display.
    pub name: Option<&'a dyn Fn(TaskId) -> Arc<str>>,
}

/// What a policy decides by.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The host's clock.
    pub at: Nanos,
    /// The machine, its usable PUs and the jobs that have work left, with what their threads did when they last ran.
    pub now: Quantum<'a>,
    /// What came of the last quantum, if this policy planned it and has not seen it yet.
    pub last: Option<QuantumOutcome<'a>>,
    /// Whether jobs may wait. If not, all of them run all the time.
    pub may_wait: bool,
    /// Whether the kernel has the next quantum, so that the plan is not used. The policy can still learn from the evidence.
    pub is_control: bool,
    /// Whether something has happened that a plan may depend on, beside that the quantum is over.
    pub has_event: bool,
    /// What came of orders to move memory that have been carried out since the evidence before.
    pub moved: &'a [PagesMoved],
    /// Reports of sources on wake-ups, sharing and pages.
    pub reports: &'a Reports,
    /// Jobs, and the names of their tasks.
    pub roster: Roster<'a>,
    /// See [`Self::tasks`].
    pub expected: &'a dyn Fn() -> Vec<Task>,
}

impl fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> Evidence<'a> {
    /// Of a queue alone, where nothing else is known: for tests, and for a policy without a host.
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
            reports: &Reports::NONE,
            roster: Roster::default(),
            expected: &Vec::new,
        }
    }

    /// Tasks worth a place, whether they exist yet or not, by profiles and by what was seen of them. In the order of their
    /// IDs. Without those of jobs that have not been watched long enough.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        (self.expected)()
    }

    /// The plan that says what was chosen: threads of chosen jobs get their PUs; all other jobs wait, also those that were
    /// not seen yet. It names the first task of a job that waits, as a job waits with all its tasks, and none of those that
    /// are left to the kernel because they sleep or their job is over: a program may have tens of thousands.
    #[must_use]
    pub fn plan(&self, choices: &[Choice]) -> Plan {
        let mut chosen: Vec<JobIdx> = choices.iter().map(|choice| choice.job).collect();
        chosen.sort_unstable();
        let in_queue = || self.now.queue.iter().map(|job| job.threads[0].id).collect();
        let jobs = if self.roster.jobs.is_empty() { in_queue() } else { self.roster.jobs.to_vec() };
        let waiting = jobs.into_iter().filter(|task| chosen.binary_search(&task.job).is_err());
        let waiting = waiting.map(|task| (task, Place::Waiting, Why::NotSelected));
        let mut places: Vec<_> = self.places(choices).into_iter().chain(waiting).collect();
        places.sort_by_key(|place| place.0);
        let name = |task| self.roster.name.map_or_else(|| "".into(), |name| name(task));
        let decision = |(task, place, why)| Decision { task, name: name(task), place, why };
        Plan { decisions: places.into_iter().map(decision).collect(), ..self.empty_plan() }
    }

    /// The places of the chosen jobs' threads, and why.
    fn places(&self, choices: &[Choice]) -> Vec<(TaskId, Place, Why)> {
        let mut by_job: Vec<&QueuedJob> = self.now.queue.iter().collect();
        by_job.sort_unstable_by_key(|job| job.job);
        let mut places = Vec::with_capacity(choices.len());
        for choice in choices {
            let Ok(at) = by_job.binary_search_by_key(&choice.job, |job| job.job) else { continue };
            for (thread, (pu, allocated)) in by_job[at].threads.iter().zip(&choice.places) {
                let (selected, allocated) = (choice.selected.clone(), allocated.clone());
                let why = Why::Chosen { selected, allocated };
                places.push((thread.id, self.place(*pu), why));
            }
        }
        places
    }

    /// The plan that lets all jobs run and leaves every thread to the kernel.
    #[must_use]
    pub fn leave_to_kernel(&self) -> Plan {
        self.plan(&leave_to_kernel(self.now.queue))
    }

    /// The plan that puts some tasks somewhere and leaves all others to the kernel, also those that come.
    #[must_use]
    pub fn plan_of_some(&self, places: impl Iterator<Item = (TaskId, Place, Why)>) -> Plan {
        let name = |task| self.roster.name.map_or_else(|| "".into(), |name| name(task));
        let put = |(task, place, why)| Decision { task, name: name(task), place, why };
        let mut decisions: Vec<Decision> = places.map(put).collect();
        let by_task = |decision: &Decision| decision.task;
        decisions.sort_by_key(by_task);
        let named = decisions.len();
        for task in self.tasks() {
            if decisions[..named].binary_search_by_key(&task.id, by_task).is_err() {
                let (name, place, why) =
                    (task.name.as_str().into(), Place::LeftToKernel, Why::LeftToKernel);
                decisions.push(Decision { task: task.id, name, place, why });
            }
        }
        decisions.sort_by_key(by_task);
        let mut pus = self.now.pus.to_vec();
        pus.sort_unstable();
        pus.dedup();
        Plan {
            pus: pus.into_iter().map(|pu| self.number(pu)).collect(),
            decisions,
            default_placement: DefaultPlacement::LeaveToKernel,
            ..self.empty_plan()
        }
    }

    /// A plan without a decision: tasks that it does not name are left to the kernel.
    #[must_use]
    pub fn empty_plan(&self) -> Plan {
        let machine = self.now.machine;
        Plan {
            machine: machine.name.clone(),
            pus: self.now.pus.iter().map(|&pu| self.number(pu)).collect(),
            ..Plan::default()
        }
    }

    /// Initial places, by the kernel's numbers.
    #[must_use]
    pub fn initial(&self, places: &[(TaskId, PuIdx)]) -> Vec<(TaskId, PuNr)> {
        places.iter().map(|&(task, pu)| (task, self.number(pu))).collect()
    }

    /// On a PU.
    #[must_use]
    pub fn on(&self, pu: PuIdx) -> Place {
        Place::Pu(self.number(pu))
    }

    /// On the PUs that share a part of the machine with a PU.
    #[must_use]
    pub fn sharing(&self, shared: Shared, pu: PuIdx) -> Place {
        Place::Sharing(shared, self.number(pu))
    }

    fn place(&self, pu: Option<PuIdx>) -> Place {
        Place::from(pu.map(|pu| self.number(pu)))
    }

    fn number(&self, pu: PuIdx) -> PuNr {
        self.now.machine.pus[pu.idx()].os
    }
}
