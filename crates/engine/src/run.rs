//! The loop: decide, let run, see, and decide again.
//!
//! # Problem
//! A placement made once, a scheduler that chooses jobs each quantum, and a policy that follows
//! phases need different evidence and act differently, but all of them decide, act and observe.
//! # Approach
//! One loop. The differences are the end of a quantum ([`Until`]) and, with it, whether jobs may
//! wait:
//! - *Events*: the plan is in force until there is a reason for another plan ([`PlanCause`]). Known
//!   jobs are placed from the start. Unknown jobs are left to the kernel while they are watched, if
//!   the policy needs their mixes; then all are planned together. The mix of a task does not depend
//!   on its place, and a pin made blindly would be moved a moment later.
//! - *Time*: the policy decides each quantum. All jobs wait at first, so that it can choose among
//!   jobs that exist. Jobs that end before their target start again; the host restarts and stops
//!   them.
//! # Terms
//! - *Round*: one decision at most, and the quantum that follows.
//! - *Watch time*: one stretch of watching. Programs create threads late, so watching lasts for up
//!   to [`WATCHES`] stretches, and tasks without a place are planned at the end of each.
//! # Properties
//! - **Keeps**: without a reason no other plan is made. -> test `a_known_job_is_planned_once`
//! - **Neutral**: an unknown job is not placed before it was watched. -> test `an_unknown_job_is_watched_first`
//! - **Stops watching** after [`WATCHES`] at the latest. -> test `watching_ends`
//! - **Follows the machine**: a plan uses only PUs that are usable when it is made; a quantum for which the machine has
//!   changed meanwhile is over before it begins. -> tests `a_lost_pu_is_left`, `a_machine_that_shrinks_and_grows`
//! - **Work-conserving**: when a job ends, the next quantum begins at once. -> test `an_end_begins_a_quantum`
//! - **Initial places**: threads are where the plan has them at first, for no time, before the quantum begins.
//!   -> test `threads_are_put_somewhere_first`

use crate::estimate::{self, Estimate};
use crate::guard;
use crate::host::{Host, HostError, Request};
use crate::known::{KnownJob, is_worth_a_place, tasks_to_plan};
use crate::lookup;
use crate::queue::{JobQueue, Passed, placed};
use crate::rates::ThreadRates;
use colocate_evidence::{Grant, JobIdx, PagesMoved, SeenTask, Source, SourceSet, TaskId};
use colocate_evidence::{Observation, QuantumEnd};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};
use colocate_model::Mix;
use colocate_policy::evidence::Roster;
use colocate_policy::schedule::{JobUsage, Quantum, QuantumOutcome, QueuedJob};
use colocate_policy::{DefaultPlacement, Evidence, Plan, Policy, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most watch times of an unknown job.
///
/// Chosen, not measured: 20 s with the default watch time; threads that a program creates later are
/// taken for short-lived ones.
pub const WATCHES: u32 = 10;

/// End of a quantum, beside the end of a job and a change of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// No further end: the plan is in force until there is a reason for a new plan. All jobs run.
    Events,
    /// This time, above 0: the policy decides each quantum, and jobs may wait.
    Time(Nanos),
    /// This time, above 0, or an event: all jobs run, and a policy that compares decides in between
    /// ([`Evidence::has_event`]).
    TimeOrEvents(Nanos),
}

/// The jobs to run and the settings of the loop.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings<'a> {
    /// Knowledge of each job of the host, including jobs that are launched later.
    pub jobs: &'a [KnownJob],
    /// Name of the policy with its settings, for the plans; if empty, the plans keep theirs.
    pub policy: &'a str,
    /// End of a quantum.
    pub until: Until,
    /// Watch time of unknown jobs before their placement, if the policy needs mixes.
    pub watch: Nanos,
    /// Evidence requested beside the policy's needs, e.g. for a report.
    pub also: SourceSet,
    /// Evidence not requested although the policy needs it.
    pub without: SourceSet,
}

impl RunSettings<'_> {
    fn may_wait(&self) -> bool {
        matches!(self.until, Until::Time(_))
    }
}

/// Reason of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanCause {
    /// The jobs were about to start.
    Launch,
    /// Unknown jobs were watched for a while.
    Watched,
    /// The PUs that may be used changed.
    MachineChanged,
    /// A job ended and left room.
    JobEnded,
    /// Others crowd a PU that tasks share.
    Crowded,
    /// The quantum was over.
    Elapsed,
}

impl PlanCause {
    /// The cause's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Watched => "watched",
            Self::MachineChanged => "machine-changed",
            Self::JobEnded => "job-ended",
            Self::Crowded => "crowded",
            Self::Elapsed => "elapsed",
        }
    }
}

/// One round of the loop, for observers.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Number of rounds before.
    pub number: u64,
    /// Answers of the host to the requests for evidence, from before the launch.
    pub grants: &'a [Grant],
    /// Reason of the plan; `None` if the previous round's plan is still in force.
    pub cause: Option<PlanCause>,
    /// Begin of the round, on the host's clock.
    pub began: Nanos,
    /// The plan in force.
    pub plan: &'a Plan,
    /// Jobs that ran, of those present at the begin.
    pub ran: &'a BTreeSet<JobIdx>,
    /// Observation at the end.
    pub seen: &'a Observation,
    /// Activity of the threads of the jobs that ran, in the order of their IDs.
    pub did: &'a [ThreadRates],
    /// Usage of each job, also of waiting jobs that filled idle PUs.
    pub all: &'a [JobUsage],
    /// Mean number of runnable threads of each job that ran: with a PU or waiting for a PU, without
    /// spin time. Jobs without a report by the host are missing.
    pub runnable: &'a BTreeMap<JobIdx, f64>,
}

/// A plan with its cause.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedPlan {
    /// Time of the decision, on the host's clock.
    pub at: Nanos,
    /// Reason of the decision.
    pub cause: PlanCause,
    /// The plan.
    pub plan: Plan,
}

impl IssuedPlan {
    /// The plan of a round, if made in this round.
    pub fn of(round: &Round<'_>) -> Option<Self> {
        Some(Self { at: round.began, cause: round.cause?, plan: round.plan.clone() })
    }
}

/// The first plan of [`run`], if only events end a quantum.
///
/// Unknown threads are missing; a policy that needs no mixes places each job's first thread.
pub fn first_plan(
    machine: &Machine,
    usable: &[PuNr],
    policy: &mut dyn Policy,
    workload: &RunSettings<'_>,
) -> Plan {
    let seen = Observation::empty();
    let needs_mixes = policy.needs().has(Source::Mix);
    let unplaced = unknown_jobs(needs_mixes, workload.jobs);
    let pus = indices(machine, usable);
    let situation = RoundFacts {
        workload,
        needs_mixes,
        unplaced: &unplaced,
        seen: &seen,
        now: Quantum { number: 0, machine, pus: &pus, queue: &[] },
        last: None,
        has_event: true,
        moved: &[],
    };
    situation.decide(policy)
}

/// Runs the jobs of `host` to their ends under `policy`. `estimate` provides rates that the host
/// does not count. `observer` gets every round.
///
/// # Errors
/// [`HostError`] as soon as the host returns one; the programs go on running, and the host leaves
/// none stopped.
pub fn run(
    host: &mut impl Host,
    policy: &mut dyn Policy,
    workload: &RunSettings<'_>,
    mut estimate: Option<&mut dyn Estimate>,
    observer: &mut dyn FnMut(&Round<'_>),
) -> Result<Observation, HostError> {
    let mut state = Loop::launch(host, policy.needs(), workload)?;
    for number in 0.. {
        if state.seen.end == QuantumEnd::AllJobsEnded {
            break;
        }
        let begun = state.begin(host, policy, number);
        let Some(quantum) = state.put_at_initial_places(host, &begun)? else { break };
        let after = host.run_quantum(&state.plan, quantum)?;
        state.is_throttled = host.is_throttled();
        state.has_watched = state.watch.pass(host, after.at);
        state.end(begun, after, estimate.as_deref_mut(), observer);
    }
    Ok(state.seen)
}

/// State of the loop between rounds.
struct Loop<'w> {
    workload: &'w RunSettings<'w>,
    grants: Vec<Grant>,
    /// Whether the policy needs the tasks' mixes.
    needs_mixes: bool,
    watch: MixWatch,
    queue: JobQueue,
    /// The machine at the begin of the round: decisions use its PU indexes, even if it changes
    /// meanwhile.
    machine: Machine,
    seen: Observation,
    /// The plan in force; valid if `has_plan`.
    plan: Plan,
    has_plan: bool,
    /// Whether a watch time ended with the last quantum.
    has_watched: bool,
    /// Whether a CPU quota throttled the jobs in the last quantum.
    is_throttled: bool,
    /// Outcome of the last quantum, if the policy planned it.
    last: Option<(Nanos, Vec<JobUsage>)>,
    /// Results of page moves since the last decision.
    moved: Vec<PagesMoved>,
}

/// A round that has begun.
struct Begun {
    number: u64,
    cause: Option<PlanCause>,
    pus: Vec<PuIdx>,
    queued: Vec<QueuedJob>,
    /// Whether there are jobs and PUs to choose from.
    can_decide: bool,
    /// Requested length of its quantum.
    asked: Nanos,
}

impl<'w> Loop<'w> {
    /// Launches the jobs. If jobs may wait, all wait at first, to find the existing jobs.
    fn launch(
        host: &mut impl Host,
        needs: SourceSet,
        workload: &'w RunSettings<'w>,
    ) -> Result<Self, HostError> {
        let needs_mixes = needs.has(Source::Mix);
        let watch = MixWatch::new(needs.and(workload.also).without(workload.without), workload);
        let mut state = Self {
            workload,
            grants: host.request(&watch.requests()),
            needs_mixes,
            watch,
            queue: JobQueue::default(),
            machine: host.machine().clone(),
            seen: Observation::empty(),
            plan: Plan::default(),
            has_plan: false,
            has_watched: false,
            is_throttled: false,
            last: None,
            moved: Vec::new(),
        };
        if workload.may_wait() {
            let nothing = state.situation(0, &[], &[]).nothing_chosen();
            state.seen = host.run_quantum(&nothing, Nanos::ZERO)?;
        }
        Ok(state)
    }

    fn situation<'a>(
        &'a self,
        number: u64,
        pus: &'a [PuIdx],
        queue: &'a [QueuedJob],
    ) -> RoundFacts<'a> {
        RoundFacts {
            workload: self.workload,
            needs_mixes: self.needs_mixes,
            unplaced: if self.needs_mixes { self.watch.unplaced() } else { &[] },
            seen: &self.seen,
            now: Quantum { number, machine: &self.machine, pus, queue },
            last: self.last.as_ref().map(|(took, did)| QuantumOutcome {
                took: *took,
                did,
                throttled: self.is_throttled,
            }),
            has_event: true,
            moved: &self.moved,
        }
    }

    /// Begins a round; calls the policy if there is a reason for a decision.
    fn begin(&mut self, host: &impl Host, policy: &mut dyn Policy, number: u64) -> Begun {
        if *host.machine() != self.machine {
            // PU indexes are valid for one machine only.
            self.queue.renumber(&self.machine, host.machine());
            self.machine = host.machine().clone();
        }
        self.queue.note_jobs(&self.seen);
        let pus = indices(&self.machine, host.usable());
        let queued = self.queue.queued(&self.seen);
        let mut situation = self.situation(number, &pus, &queued);
        let cause = situation.cause(self.has_plan.then_some(&self.plan), self.has_watched);
        situation.has_event = cause != Some(PlanCause::Elapsed);
        let can_decide = situation.can_decide();
        let made = cause.map(|_| match can_decide {
            true => situation.decide(policy),
            // The policy's state stays valid while it does not decide.
            false => Plan { state: self.plan.state.clone(), ..situation.nothing_chosen() },
        });
        if let Some(made) = made {
            self.plan = made;
            self.has_plan = true;
            self.moved.clear();
        }
        let asked = match self.workload.until {
            Until::Events => self.watch.quantum(self.seen.at),
            Until::Time(quantum) => self.plan.lasts.map_or(quantum, |lasts| lasts.min(quantum)),
            Until::TimeOrEvents(quantum) => {
                self.plan.lasts.unwrap_or(quantum).min(self.watch.quantum(self.seen.at))
            }
        };
        Begun { number, cause, pus, queued, can_decide, asked }
    }

    /// Puts threads at the initial places of a new plan, for no time. Returns the length of the
    /// quantum that follows; `None` if all jobs have ended.
    fn put_at_initial_places(
        &mut self,
        host: &mut impl Host,
        begun: &Begun,
    ) -> Result<Option<Nanos>, HostError> {
        if begun.cause.is_none() || self.plan.initial.is_empty() {
            return Ok(Some(begun.asked));
        }
        let moment = host.run_quantum(&self.plan.initially(), Nanos::ZERO)?;
        self.moved.extend(moment.moved.iter().cloned());
        Ok(match moment.end {
            QuantumEnd::AllJobsEnded => {
                self.seen = moment;
                None
            }
            // The length was chosen for other PUs, so the quantum ends before it begins.
            QuantumEnd::MachineChanged => Some(Nanos::ZERO),
            QuantumEnd::Elapsed | QuantumEnd::JobEnded | QuantumEnd::Crowded => Some(begun.asked),
        })
    }

    /// Ends a round: updates the state from the observation and calls the observer.
    fn end(
        &mut self,
        begun: Begun,
        after: Observation,
        estimate: Option<&mut (dyn Estimate + '_)>,
        observer: &mut dyn FnMut(&Round<'_>),
    ) {
        let placed = placed(&self.plan, &begun.queued, &self.machine);
        let passed = Passed {
            placed: &placed,
            machine: &self.machine,
            pus: begun.pus.len(),
            asked: begun.asked,
            throttled: self.is_throttled,
            before: &self.seen,
            after: &after,
        };
        let mut did = self.queue.note(&passed);
        if let Some(estimate) = estimate {
            estimate::fill(&mut did, estimate);
        }
        self.queue.remember(&did);
        let all = guard::usage::job_usage(&self.seen, &after);
        let done = passed.outcome(&all);
        self.last = begun.can_decide.then(|| (done.took, done.did.to_vec()));
        observer(&Round {
            number: begun.number,
            grants: &self.grants,
            cause: begun.cause,
            began: self.seen.at,
            plan: &self.plan,
            seen: &after,
            did: &did,
            all: &all,
            runnable: &self.queue.runnable(),
            ran: &placed.into_keys().collect(),
        });
        // An order to move pages is given once.
        self.plan.pages.clear();
        self.moved.extend(after.moved.iter().cloned());
        self.seen = after;
    }
}

/// Facts known when a round begins.
struct RoundFacts<'a> {
    workload: &'a RunSettings<'a>,
    /// Whether the policy needs the tasks' mixes.
    needs_mixes: bool,
    /// Jobs that were not watched long enough to be placed.
    unplaced: &'a [JobIdx],
    seen: &'a Observation,
    now: Quantum<'a>,
    last: Option<QuantumOutcome<'a>>,
    has_event: bool,
    moved: &'a [PagesMoved],
}

impl RoundFacts<'_> {
    /// Reason for a decision, if any.
    fn cause(&self, plan: Option<&Plan>, has_watched: bool) -> Option<PlanCause> {
        let Some(plan) = plan else { return Some(PlanCause::Launch) };
        let has_new_tasks = || self.tasks().iter().any(|task| plan.place_of(task.id).is_none());
        match self.seen.end {
            QuantumEnd::MachineChanged => Some(PlanCause::MachineChanged),
            QuantumEnd::JobEnded if self.workload.may_wait() || self.needs_mixes => {
                Some(PlanCause::JobEnded)
            }
            _ if self.workload.may_wait() => Some(PlanCause::Elapsed),
            _ if has_watched && has_new_tasks() => Some(PlanCause::Watched),
            QuantumEnd::Crowded if self.workload.until != Until::Events => Some(PlanCause::Crowded),
            _ => (self.workload.until != Until::Events).then_some(PlanCause::Elapsed),
        }
    }

    /// Whether there are jobs and PUs to choose from.
    fn can_decide(&self) -> bool {
        !self.workload.may_wait() || !self.now.queue.is_empty() && !self.now.pus.is_empty()
    }

    fn decide(&self, policy: &mut dyn Policy) -> Plan {
        let mut plan = self.with_evidence(|evidence| policy.decide(evidence));
        if !self.unplaced.is_empty() {
            // Later threads may belong to a job that is still watched.
            plan.default_placement = DefaultPlacement::LeaveToKernel;
        }
        self.labelled(plan)
    }

    /// A plan without a choice: all jobs that have not ended wait.
    fn nothing_chosen(&self) -> Plan {
        self.labelled(self.with_evidence(|evidence| evidence.plan(&[])))
    }

    fn labelled(&self, plan: Plan) -> Plan {
        let policy = self.workload.policy;
        if policy.is_empty() { plan } else { Plan { policy: policy.to_owned(), ..plan } }
    }

    fn with_evidence(&self, ask: impl FnOnce(&Evidence<'_>) -> Plan) -> Plan {
        let over = self.seen.over();
        let all = (0..).map(JobIdx).take(self.workload.jobs.len());
        let jobs = all.filter(|job| !over.contains(job)).filter_map(|job| self.first_task(job));
        ask(&Evidence {
            at: self.seen.at,
            now: self.now,
            last: self.last,
            may_wait: self.workload.may_wait(),
            is_control: false,
            has_event: self.has_event,
            moved: self.moved,
            reports: &self.seen.reports,
            roster: Roster { jobs: &jobs.collect::<Vec<_>>(), name: Some(&|task| self.name(task)) },
            expected: &|| self.tasks(),
        })
    }

    /// First living task of a job, or its very first if none was seen yet; `None` if all seen tasks
    /// have ended.
    fn first_task(&self, job: JobIdx) -> Option<TaskId> {
        match lookup::of_job(&self.seen.tasks, job) {
            [] => Some(TaskId { job, order: 0 }),
            seen => seen.iter().find(|task| task.alive()).map(|task| task.id),
        }
    }

    /// The task as last seen; `None` if it was not.
    fn seen_task(&self, id: TaskId) -> Option<&SeenTask> {
        let place = self.seen.tasks.binary_search_by_key(&id, |task| task.id).ok()?;
        Some(&self.seen.tasks[place])
    }

    fn has_ended(&self, job: JobIdx) -> bool {
        self.seen.ended.iter().any(|end| end.job == job)
    }

    fn name(&self, task: TaskId) -> Arc<str> {
        self.seen_task(task).map_or_else(|| "".into(), |seen| seen.name.clone())
    }

    /// Tasks to plan for, without tasks of jobs that need more watching.
    fn tasks(&self) -> Vec<Task> {
        let jobs = self.workload.jobs;
        let mut tasks = tasks_to_plan(jobs, &self.seen.tasks, self.seen.at);
        tasks.retain(is_worth_a_place);
        if self.seen.tasks.is_empty() && !self.needs_mixes {
            tasks.extend(first_tasks(jobs));
            tasks.sort_by_key(|task| task.id);
        }

        tasks.retain(|task| !self.unplaced.contains(&task.id.job));
        // Tasks that an ended job would have created never come.
        tasks.retain(|task| {
            !self.has_ended(task.id.job) || self.seen_task(task.id).is_some_and(SeenTask::alive)
        });
        tasks
    }
}

fn indices(machine: &Machine, usable: &[PuNr]) -> Vec<PuIdx> {
    usable.iter().filter_map(|&pu| machine.pu_by_os(pu)).collect()
}

/// Jobs to watch before their placement.
fn unknown_jobs(needs_mixes: bool, jobs: &[KnownJob]) -> Vec<JobIdx> {
    let unknown = (0..).zip(jobs).filter(|(_, job)| needs_mixes && job.profile.is_none());
    unknown.map(|(index, _)| JobIdx(index)).collect()
}

/// First threads of unknown jobs. Every job has a first thread, placed before the launch if the
/// policy needs no mixes.
fn first_tasks(jobs: &[KnownJob]) -> impl Iterator<Item = Task> {
    let unknown = (0..).zip(jobs).filter(|(_, job)| job.profile.is_none());
    unknown.map(|(index, job)| Task {
        id: TaskId { job: JobIdx(index), order: 0 },
        name: job.name.clone(),
        mix: Mix::default(),
        busy: None,
        ipc: None,
        instructions: None,
        phase: None,
    })
}

/// Requests to the host, and the jobs that are watched for their mixes.
struct MixWatch {
    sources: SourceSet,
    all: Vec<JobIdx>,
    jobs: Vec<JobIdx>,
    time: Nanos,
    next: Nanos,
    done: u32,
}

impl MixWatch {
    fn new(sources: SourceSet, workload: &RunSettings<'_>) -> Self {
        let all = (0..).zip(workload.jobs).map(|(job, _)| JobIdx(job)).collect();
        let jobs = unknown_jobs(sources.has(Source::Mix), workload.jobs);
        Self { sources, all, jobs, time: workload.watch, next: workload.watch, done: 0 }
    }

    /// Requests for all sources. Mixes are requested only of jobs without a profile.
    fn requests(&self) -> Vec<Request<'_>> {
        let jobs = |source| if source == Source::Mix { &self.jobs[..] } else { &self.all[..] };
        let requests = self.sources.iter().map(|source| Request { source, jobs: jobs(source) });
        requests.filter(|request| !request.jobs.is_empty()).collect()
    }

    /// Time until the end of the watch time; the longest time if nothing is watched.
    fn quantum(&self, at: Nanos) -> Nanos {
        if self.jobs.is_empty() { Nanos(u64::MAX) } else { self.next.saturating_sub(at) }
    }

    /// Updates the watch at time `at`; returns whether a watch time has ended. Ends the watch after
    /// the last.
    fn pass(&mut self, host: &mut impl Host, at: Nanos) -> bool {
        if self.jobs.is_empty() || at < self.next {
            return false;
        }
        self.done += 1;
        // Counted from now: after a late end, the next watch time is still whole.
        self.next = at + self.time;
        if self.done == WATCHES {
            // Without jobs, the next request leaves mixes out, which ends their source.
            self.jobs.clear();
            host.request(&self.requests());
        }
        true
    }

    /// Jobs that were not watched long enough to be placed.
    fn unplaced(&self) -> &[JobIdx] {
        if self.done == 0 { &self.jobs } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::Scripted;
    use colocate_evidence::JobEnd;
    use colocate_policy::Place;

    fn workload(jobs: &[KnownJob]) -> RunSettings<'_> {
        RunSettings {
            jobs,
            policy: "",
            until: Until::Time(Nanos(1)),
            watch: Nanos(1),
            also: SourceSet::NONE,
            without: SourceSet::NONE,
        }
    }

    fn known(jobs: usize) -> Vec<KnownJob> {
        vec![KnownJob { name: "job".into(), profile: None, phases: Vec::new() }; jobs]
    }

    /// Says something of itself.
    #[derive(Debug)]
    struct Says;

    impl Policy for Says {
        fn needs(&self) -> SourceSet {
            SourceSet::NONE
        }

        fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
            Plan { state: Some("says".into()), ..evidence.leave_to_kernel() }
        }
    }

    /// The last thread of a job has ended, and its end was not reported yet: there is nothing to choose from.
    #[test]
    fn what_a_policy_says_stays() {
        let (mut host, jobs) = (Scripted::new(1), known(1));
        let workload = workload(&jobs);
        let mut state = Loop::launch(&mut host, SourceSet::NONE, &workload).unwrap();
        assert!(state.begin(&host, &mut Says, 0).can_decide);
        state.seen.tasks.clear();
        assert!(!state.begin(&host, &mut Says, 1).can_decide);
        assert_eq!(state.plan.state.as_deref(), Some("says"));
    }

    /// Job 0 is over and has left a task behind, job 1 was not chosen, job 2 was not seen yet.
    #[test]
    fn what_a_job_leaves_behind_does_not_wait() {
        let host = Scripted::new(2);
        let end = JobEnd { job: JobIdx(0), at: Nanos::ZERO, status: 0, cpu_time: None };
        let seen = Observation { ended: vec![end], ..host.observation(&[0, 1]) };
        let jobs = known(3);
        let situation = RoundFacts {
            workload: &workload(&jobs),
            needs_mixes: false,
            unplaced: &[],
            seen: &seen,
            now: Quantum { number: 0, machine: host.machine(), pus: &[], queue: &[] },
            last: None,
            has_event: true,
            moved: &[],
        };
        let plan = situation.nothing_chosen();
        assert_eq!(plan.waiting().unwrap(), [JobIdx(1), JobIdx(2)]);
        let place = |job, order| plan.place_of(TaskId { job: JobIdx(job), order });
        assert_eq!(place(0, 0), None, "the kernel has it");
        assert_eq!(place(1, 7), Some(Place::Waiting), "a job waits with all its tasks");
        assert_eq!(place(2, 0), Some(Place::Waiting));
    }
}
