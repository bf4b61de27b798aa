//! The loop: plan, let run, see, and plan again when there is a reason to.
//!
//! # Problem
//! Plans rest on what tasks do. Of a program that was seen before this is known at its launch; of a
//! new one it is not, and a user's command is never run twice just to find out.
//!
//! # Approach
//! Known jobs are placed from the start. Unknown ones are left to the kernel while they are
//! watched, then all are planned together. Leaving them to the kernel is the one neutral placement
//! that cannot cost more than not having been asked: what a task does per instruction does not
//! depend on where it runs, and a pin made blindly would be moved a moment later.
//!
//! # Terms
//! - *watch time*: one stretch of watching, a quantum. Programs create threads late, so watching
//!   goes on for up to [`WATCHES`] of them, and tasks that nobody planned for are planned at the end
//!   of each.
//!
//! # Properties
//! - **Keeps**: without news the plan is not made again.   -> test `a_known_job_is_planned_once`
//! - **Neutral**: an unknown job is not placed before it was watched.  -> test `an_unknown_job_is_watched_first`
//! - **Stops watching**: after `WATCHES` at the latest.    -> test `watching_ends`
//! - **Follows the machine**: every plan uses only PUs that are usable then.  -> test `a_lost_pu_is_left`

use crate::host::{Host, HostError, QuantumEnd, Snapshot};
use crate::known::{Known, is_worth_a_place, tasks_to_plan};
use crate::planner::Planner;
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};
use colocate_model::Mix;
use colocate_policy::{JobIdx, Newborn, Plan, Task, TaskId};

/// How many watch times an unknown job is watched for at most.
///
/// Chosen, not measured: with the default watch time it makes 20 s, after which threads that a
/// program still creates are taken for short-lived ones.
pub const WATCHES: u32 = 10;

/// How the loop is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long unknown jobs are watched before they are placed.
    pub watch: Nanos,
}

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The jobs were about to start.
    Launch,
    /// Unknown jobs were watched for a while.
    Watched,
    /// The PUs that may be used changed.
    MachineChanged,
    /// A job ended and left room.
    JobEnded,
}

impl Cause {
    /// The cause's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Watched => "watched",
            Self::MachineChanged => "machine-changed",
            Self::JobEnded => "job-ended",
        }
    }
}

/// A plan with its occasion.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// When, on the host's clock.
    pub at: Nanos,
    /// Why.
    pub cause: Cause,
    /// What was decided.
    pub plan: Plan,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Every plan, in order; the first is the launch's.
    pub plans: Vec<Planned>,
    /// How everything stood at the end.
    pub last: Snapshot,
}

/// The plan that [`run`] would start with.
///
/// Threads that are not known yet are not in it; a static policy places each job's first thread.
#[must_use]
pub fn first_plan(
    machine: &Machine,
    usable: &[PuNr],
    planner: &dyn Planner,
    jobs: &[Known],
) -> Plan {
    let mut plan = decide(machine, usable, planner, &first_tasks(planner, jobs));
    if !unknown_jobs(planner, jobs).is_empty() {
        plan.newborn = Newborn::LeaveToKernel;
    }
    plan
}

/// Runs the jobs of `host` to their end.
///
/// # Errors
/// [`HostError`] as soon as the host has one; the programs go on running.
pub fn run(
    host: &mut impl Host,
    planner: &dyn Planner,
    jobs: &[Known],
    settings: &Settings,
) -> Result<Outcome, HostError> {
    let mut watch = Watch::start(host, unknown_jobs(planner, jobs), settings.watch);
    let first = Planned {
        at: Nanos::ZERO,
        cause: Cause::Launch,
        plan: first_plan(host.machine(), host.usable(), planner, jobs),
    };
    let mut plans = vec![first];
    let mut at = Nanos::ZERO;
    loop {
        let plan = &plans[plans.len() - 1].plan;
        let seen = host.run_quantum(plan, watch.quantum(at))?;
        at = seen.at;
        let watched = watch.pass(host, at);
        if seen.end == QuantumEnd::AllJobsEnded {
            return Ok(Outcome { plans, last: seen });
        }
        let tasks = to_plan(jobs, &seen, watch.unplaced());
        let has_news = watched && tasks.iter().any(|task| plan.place_of(task.id).is_none());
        let Some(cause) = cause(seen.end, planner, has_news) else { continue };
        let mut plan = decide(host.machine(), host.usable(), planner, &tasks);
        if !watch.unplaced().is_empty() {
            plan.newborn = Newborn::LeaveToKernel;
        }
        plans.push(Planned { at, cause, plan });
    }
}

/// Jobs that have to be watched before they can be placed.
fn unknown_jobs(planner: &dyn Planner, jobs: &[Known]) -> Vec<JobIdx> {
    if !planner.wants_mixes() {
        return Vec::new();
    }
    let unknown = jobs.iter().enumerate().filter(|(_, job)| job.profile.is_none());
    unknown.map(|(index, _)| JobIdx(u32::try_from(index).unwrap_or(u32::MAX))).collect()
}

/// The tasks that can be planned for before the launch. Every job has a first thread, so a policy
/// that does not ask what tasks do can place that too.
fn first_tasks(planner: &dyn Planner, jobs: &[Known]) -> Vec<Task> {
    let mut tasks = tasks_to_plan(jobs, &[], Nanos::ZERO);
    tasks.retain(is_worth_a_place);
    if !planner.wants_mixes() {
        for (index, job) in jobs.iter().enumerate().filter(|(_, job)| job.profile.is_none()) {
            let job_idx = JobIdx(u32::try_from(index).unwrap_or(u32::MAX));
            tasks.push(Task {
                id: TaskId { job: job_idx, order: 0 },
                name: job.name.clone(),
                mix: Mix::default(),
                busy: None,
                ipc: None,
                phase: None,
            });
        }
        tasks.sort_by_key(|task| task.id);
    }
    tasks
}

/// The tasks to plan for now, without those of jobs that have not been watched long enough.
fn to_plan(jobs: &[Known], seen: &Snapshot, unplaced: &[JobIdx]) -> Vec<Task> {
    let mut tasks = tasks_to_plan(jobs, &seen.tasks, seen.at);
    tasks.retain(is_worth_a_place);
    let over = |job: JobIdx| seen.ended.iter().any(|end| end.job == job);
    let place = |id: TaskId| seen.tasks.binary_search_by_key(&id, |task| task.id).ok();
    let alive = |id: TaskId| place(id).is_some_and(|place| seen.tasks[place].alive());
    tasks.retain(|task| !unplaced.contains(&task.id.job));
    // What a job that is over would have created is not coming any more.
    tasks.retain(|task| !over(task.id.job) || alive(task.id));
    tasks
}

/// Why to plan again, if there is a reason. `has_news`: a task is worth a place, and the plan has
/// none for it.
fn cause(end: QuantumEnd, planner: &dyn Planner, has_news: bool) -> Option<Cause> {
    match end {
        QuantumEnd::MachineChanged => Some(Cause::MachineChanged),
        QuantumEnd::JobEnded if planner.wants_mixes() => Some(Cause::JobEnded),
        _ if has_news => Some(Cause::Watched),
        _ => None,
    }
}

fn decide(machine: &Machine, usable: &[PuNr], planner: &dyn Planner, tasks: &[Task]) -> Plan {
    let pus: Vec<PuIdx> = usable.iter().filter_map(|&pu| machine.pu_by_os(pu)).collect();
    planner.plan(machine, &pus, tasks)
}

/// Which jobs are being watched, and until when.
struct Watch {
    jobs: Vec<JobIdx>,
    time: Nanos,
    next: Nanos,
    done: u32,
}

impl Watch {
    fn start(host: &mut impl Host, jobs: Vec<JobIdx>, time: Nanos) -> Self {
        if !jobs.is_empty() {
            host.watch(&jobs);
        }
        Self { jobs, time, next: time, done: 0 }
    }

    /// Time until the next look; for ever if nothing is watched.
    fn quantum(&self, at: Nanos) -> Nanos {
        if self.jobs.is_empty() { Nanos(u64::MAX) } else { self.next.saturating_sub(at) }
    }

    /// Notes that it is `at`; whether a watch time is over. Ends the watching after the last.
    fn pass(&mut self, host: &mut impl Host, at: Nanos) -> bool {
        if self.jobs.is_empty() || at < self.next {
            return false;
        }
        self.done += 1;
        self.next = at + self.time;
        if self.done == WATCHES {
            self.jobs.clear();
            host.watch(&[]);
        }
        true
    }

    /// Jobs that have not been watched long enough to be placed.
    fn unplaced(&self) -> &[JobIdx] {
        if self.done == 0 { &self.jobs } else { &[] }
    }
}
