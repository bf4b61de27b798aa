//! The guard of a policy whose plans stand until an event, and under which all jobs run.
//!
//! Its quanta are for comparison only. They are short while differences are so large that short ones show them, and several
//! are one while there is nothing to decide.

use super::evaluation::{Evaluation, Passed};
use super::measure::EachJob;
use super::places::KernelPlaces;
use super::sample::UsageSample;
use super::settings::{CUT_SHORT, Guarding, QUANTUM};
use super::trial::Owner;
use super::verdict::Outcome;
use colocate_evidence::{SourceSet, TaskId};
use colocate_machine::{Nanos, PuIdx};
use colocate_policy::schedule::{Quantum, QuantumOutcome};
use colocate_policy::{Evidence, Plan, Policy, Task};

/// Length of a quantum while a tenth of [`QUANTUM`] shows the differences. Chosen: placing ten threads anew takes a
/// hundredth of it.
const SHORT_QUANTUM: Nanos = Nanos::from_millis(5);
/// Threads up to which there are short quanta. Chosen: placing more takes too large a part of one.
const FEW_THREADS: usize = 32;
/// Quanta in a row of which only the sum is seen, where there is nothing to decide. Chosen: so a plan that has paid is still
/// observed more than twice a second.
const TOGETHER: u32 = 8;
/// Quanta in a row of which only the sum is seen, where the policy places nothing and decides only after events. Chosen: to
/// look at 1,000 threads takes 2 ms (a virtual machine with 2 PUs).
const QUIET: u32 = 200;

/// Time for which a plan is in force: some quanta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlanDuration {
    quantum: Nanos,
    quanta: u32,
}

impl PlanDuration {
    const SHORT: Self = Self { quantum: SHORT_QUANTUM, quanta: 1 };

    /// So many of the usual quanta.
    const fn of(quanta: u32) -> Self {
        Self { quantum: QUANTUM, quanta }
    }

    fn time(self) -> Nanos {
        Nanos(self.quantum.0 * u64::from(self.quanta))
    }

    /// The quanta that have passed in so many seconds: fewer than planned if an event has ended them.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn passed(self, seconds: f64) -> u32 {
        ((seconds / self.quantum.as_secs_f64()).round() as u32).clamp(1, self.quanta)
    }

    /// Whether so many seconds are enough for a comparison.
    fn is_whole(self, seconds: f64) -> bool {
        seconds >= CUT_SHORT * self.quantum.as_secs_f64()
    }
}

/// The policy's last plan.
#[derive(Debug, Default)]
struct Standing {
    plan: Option<Plan>,
    /// Whether an event has come since it was made.
    has_event: bool,
    /// Time at which it was made, on the host's clock.
    at: Nanos,
}

impl Standing {
    /// The plan, unless an event has come since, or a task that it does not name. Tasks that have come while the plan was in
    /// force have its default placement.
    fn plan(&self, evidence: &Evidence<'_>, was_in_force: bool) -> Option<&Plan> {
        let plan = self.plan.as_ref().filter(|_| !self.has_event)?;
        (was_in_force || names_all(plan, &evidence.tasks())).then_some(plan)
    }
}

fn names_all(plan: &Plan, tasks: &[Task]) -> bool {
    tasks.iter().all(|task| plan.place_of(task.id).is_some())
}

/// A policy whose plans stand, under a guard.
pub struct StandingGuard {
    inner: Box<dyn Policy>,
    /// The policy's last state.
    state: Option<String>,
    standing: Standing,
    evaluation: Evaluation<EachJob>,
    kernel_places: KernelPlaces,
    /// Number of threads.
    threads: usize,
    /// Length of the current quantum, or of several that are one.
    length: PlanDuration,
}

impl StandingGuard {
    /// Guards `inner`, with its name in messages.
    pub fn new(inner: Box<dyn Policy>, name: &str, settings: Guarding) -> Self {
        let quantum = QUANTUM.as_secs_f64();
        Self {
            inner,
            state: None,
            standing: Standing::default(),
            evaluation: Evaluation::new(name, &settings, quantum, EachJob::default()),
            kernel_places: KernelPlaces::default(),
            // Unknown before the first quantum: no short quanta until then.
            threads: usize::MAX,
            length: PlanDuration::of(1),
        }
    }

    /// Quanta so far, and how many of them were the kernel's.
    pub const fn quanta(&self) -> (u64, u64) {
        self.evaluation.trial.quanta()
    }

    /// Verdict and comparisons so far.
    pub fn outcome(&self) -> Outcome {
        self.evaluation.outcome()
    }

    /// State of the policy and of the guard, in one line.
    pub fn state(&self) -> String {
        self.evaluation.state(self.state.as_deref())
    }

    /// Takes in the outcome of the last quantum.
    fn note(&mut self, done: &QuantumOutcome<'_>) {
        let measure = &self.evaluation.measure;
        let sample = UsageSample::of(done, |job| measure.counted_under(job));
        let Some(sample) = self.evaluation.known(sample) else { return };
        let passed = Passed {
            quanta: self.length.passed(sample.seconds),
            is_whole: self.length.is_whole(sample.seconds),
            is_throttled: done.throttled,
            next: self.next_length(),
            sample,
        };
        if let Some(finding) = self.evaluation.note(passed) {
            self.evaluation.conclude(finding);
        }
    }

    fn note_jobs(&mut self, now: &Quantum<'_>) {
        if self.evaluation.measure.set_jobs(now.queue.iter().map(|job| job.job).collect()) {
            self.evaluation.forget_samples();
        }
        self.threads = now.queue.iter().map(|job| job.threads.len()).sum();
    }

    fn note_partners(&mut self, evidence: &Evidence<'_>) {
        let Some(wake_ups) = evidence.reports.wake_ups.as_deref() else { return };
        if self.evaluation.measure.note_wake_ups(evidence.at, wake_ups) {
            self.evaluation.forget_all();
        }
    }

    fn note_event(&mut self, evidence: &Evidence<'_>) {
        let period = self.inner.period();
        let is_due = period.is_some_and(|period| evidence.at >= self.standing.at + period);
        self.standing.has_event |= evidence.has_event || is_due;
    }

    /// In a quantum of the kernel: the policy learns that others crowd a PU, which is no longer
    /// reported when the policy next decides.
    fn learn_crowded(&mut self, evidence: &Evidence<'_>) {
        let shared = evidence.reports.shared_pus.as_deref().unwrap_or_default();
        if evidence.has_event && !shared.is_empty() {
            self.inner.decide(&Evidence { is_control: true, ..*evidence });
        }
    }

    /// Whether short quanta show the differences.
    fn is_clear(&self) -> bool {
        self.evaluation.comparison.is_clear() && self.threads <= FEW_THREADS
    }

    /// Length of the policy's next quantum, in seconds.
    fn next_length(&self) -> f64 {
        let is_short = self.evaluation.trial.is_trying() && self.is_clear();
        let next = if is_short { SHORT_QUANTUM } else { QUANTUM };
        next.as_secs_f64()
    }

    /// The plan for a quantum of the policy: the last one, if it still stands.
    fn policy_plan(&mut self, evidence: &Evidence<'_>) -> Plan {
        let was_in_force = self.evaluation.trial.owner() == Some(Owner::Policy);
        if let Some(plan) = self.standing.plan(evidence, was_in_force) {
            return plan.clone();
        }
        let plan = self.inner.decide(evidence);
        self.state.clone_from(&plan.state);
        // Messages and orders to move pages are given once.
        let stays = Plan { pages: Vec::new(), messages: Vec::new(), ..plan.clone() };
        self.standing = Standing { plan: Some(stays), has_event: false, at: evidence.at };
        plan
    }

    /// Time for which the plan of the quantum that begins is in force.
    fn next_plan_length(&self, places_none: bool) -> PlanDuration {
        if places_none {
            return self.left_alone();
        }
        let quanta = self.quanta_together();
        let trial = &self.evaluation.trial;
        // While a policy is kept, only the kernel's quanta are for comparison. Of several jobs some may gain nothing, which
        // short quanta do not show.
        let is_compared = trial.is_trying()
            || trial.owner() == Some(Owner::Kernel) && self.evaluation.measure.is_one();
        if quanta == 1 && is_compared && self.is_clear() {
            PlanDuration::SHORT
        } else {
            PlanDuration::of(quanta)
        }
    }

    /// Quanta for which there is nothing to decide in the quantum that begins.
    fn quanta_together(&self) -> u32 {
        let overdrawn = self.evaluation.quanta_overdrawn(self.next_length());
        self.evaluation.trial.quanta_ahead(overdrawn).clamp(1, TOGETHER)
    }

    /// Time for which a plan stands that places no task: there is nothing to compare until the policy decides again.
    fn left_alone(&self) -> PlanDuration {
        let Some(period) = self.inner.period() else { return PlanDuration::of(QUIET) };
        let quanta = u32::try_from(period.0 / QUANTUM.0).unwrap_or(u32::MAX).clamp(1, TOGETHER);
        PlanDuration { quantum: period.clamp(SHORT_QUANTUM, QUANTUM), quanta }
    }
}

/// The plan of a quantum that is the kernel's.
fn kernel_plan(evidence: &Evidence<'_>, initial: &[(TaskId, PuIdx)]) -> Plan {
    Plan { initial: evidence.initial(initial), ..evidence.empty_plan() }
}

impl Policy for StandingGuard {
    fn needs(&self) -> SourceSet {
        self.inner.needs()
    }

    fn period(&self) -> Option<Nanos> {
        self.inner.period()
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let last_owner = self.evaluation.trial.owner();
        if let Some(last) = evidence.last.as_ref().filter(|_| last_owner.is_some()) {
            self.note(last);
        }
        self.note_jobs(&evidence.now);
        self.note_partners(evidence);
        self.note_event(evidence);
        let next_owner = self.evaluation.next_owner(1, self.next_length());
        let plan = (next_owner == Owner::Policy).then(|| self.policy_plan(evidence));
        if plan.is_none() {
            self.learn_crowded(evidence);
        }
        // A plan without any placement leaves all to the kernel, so the quantum is the kernel's.
        let owner = match &plan {
            Some(plan) if plan.places_any() => Owner::Policy,
            Some(_) | None => Owner::Kernel,
        };
        let initial = self.kernel_places.pass(&evidence.now, last_owner, owner);
        self.evaluation.trial.begin(owner);
        self.length = self.next_plan_length(owner != next_owner);
        let mut plan = plan.unwrap_or_else(|| kernel_plan(evidence, &initial));
        plan.messages.splice(0..0, self.evaluation.take_messages());
        let (quanta, kernels) = self.quanta();
        let state = if quanta > kernels { Some(self.state()) } else { plan.state };
        Plan { state, lasts: Some(self.length.time()), ..plan }
    }
}
