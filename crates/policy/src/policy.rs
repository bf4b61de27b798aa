//! A policy: evidence in, plan out.

use crate::plan::{Decision, JobIdx, Place, Plan, Task, TaskId, Why};
use crate::schedule::{Choice, Quantum, QuantumOutcome, QueuedJob};
use crate::source::SourceSet;
use colocate_machine::{PuIdx, PuNr};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Decides where tasks run. Pure: the same evidence in the same order gives the same plans, and it never learns which host
/// it faces.
pub trait Policy: fmt::Debug {
    /// Evidence that it needs. What a host cannot provide is unknown.
    fn needs(&self) -> SourceSet;

    /// The plan for the time until the next decision.
    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan;
}

/// Living tasks and jobs, whether they are in the queue or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roster<'a> {
    /// Every living task with its name, in the order of the IDs.
    pub living: &'a [(TaskId, Arc<str>)],
    /// Jobs that are over. Tasks of theirs may live on.
    pub over: Option<&'a BTreeSet<JobIdx>>,
    /// Jobs of which no task was seen yet.
    pub unseen: &'a [JobIdx],
}

/// What a policy decides by.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The machine, its usable PUs and the jobs that have work left, with what their threads did when they last ran.
    pub now: Quantum<'a>,
    /// What came of the last quantum, if this policy planned it and has not seen it yet.
    pub last: Option<QuantumOutcome<'a>>,
    /// Whether jobs may wait. If not, all of them run all the time.
    pub may_wait: bool,
    /// Whether the kernel has the next quantum, so that the plan is not used. The policy can still learn from the evidence.
    pub is_control: bool,
    /// Living tasks and jobs.
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
    /// Of a queue alone, where nothing else is known: for tests, and to ask a policy without a host.
    #[must_use]
    pub fn of_queue(now: Quantum<'a>) -> Self {
        Self {
            now,
            last: None,
            may_wait: true,
            is_control: false,
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

    /// The plan that says what was chosen: threads of chosen jobs get their PUs; their other threads, and what jobs that are
    /// over have left behind, are left to the kernel; all other jobs wait, also those that were not seen yet.
    #[must_use]
    pub fn plan(&self, choices: &[Choice]) -> Plan {
        let mut chosen: Vec<JobIdx> = choices.iter().map(|choice| choice.job).collect();
        chosen.sort_unstable();
        let nameless: Arc<str> = "".into();
        let mut places = self.places(choices).into_iter().peekable();
        let mut decide = |task: TaskId, name: &Arc<str>| {
            while places.peek().is_some_and(|place| place.0 < task) {
                places.next();
            }
            let (place, why) = match places.next_if(|place| place.0 == task) {
                Some((_, place, why)) => (place, why),
                None if self.runs(task.job, &chosen) => (Place::LeftToKernel, Why::LeftToKernel),
                None => (Place::Waiting, Why::NotSelected),
            };
            Decision { task, name: name.clone(), place, why }
        };
        let mut tasks: Vec<(TaskId, &Arc<str>)> =
            self.roster.living.iter().map(|(task, name)| (*task, name)).collect();
        if tasks.is_empty() {
            tasks.extend(threads(self.now.queue).map(|task| (task, &nameless)));
        }
        let unseen = self.roster.unseen.iter().map(|&job| TaskId { job, order: 0 });
        tasks.extend(unseen.map(|task| (task, &nameless)));
        tasks.sort_unstable_by_key(|(task, _)| *task);
        let decisions = tasks.into_iter().map(|(task, name)| decide(task, name)).collect();
        Plan { decisions, ..self.empty_plan() }
    }

    /// The places of the chosen jobs' threads, and why, in the order of the IDs.
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
        places.sort_by_key(|place| place.0);
        places
    }

    /// Whether a job runs, or is over and has left tasks behind.
    fn runs(&self, job: JobIdx, chosen: &[JobIdx]) -> bool {
        let is_over = || self.roster.over.is_some_and(|over| over.contains(&job));
        chosen.binary_search(&job).is_ok() || is_over()
    }

    /// The plan that lets all jobs run and leaves every thread to the kernel.
    #[must_use]
    pub fn leave_to_kernel(&self) -> Plan {
        self.plan(&crate::schedule::leave_to_kernel(self.now.queue))
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

    fn place(&self, pu: Option<PuIdx>) -> Place {
        Place::from(pu.map(|pu| self.number(pu)))
    }

    fn number(&self, pu: PuIdx) -> PuNr {
        self.now.machine.pus[pu.idx()].os
    }
}

fn threads(queue: &[QueuedJob]) -> impl Iterator<Item = TaskId> {
    queue.iter().flat_map(|job| &job.threads).map(|thread| thread.id)
}
