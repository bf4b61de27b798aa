//! The guard of a policy that decides each quantum, and under which jobs may wait.

use super::evaluation::{Evaluation, Passed};
use super::measure::AllJobs;
use super::places::KernelPlaces;
use super::sample::UsageSample;
use super::settings::{CUT_SHORT, Guarding};
use super::trial::Owner;
use super::verdict::{MissingEvidence, Outcome, Verdict};
use colocate_evidence::{JobIdx, SourceSet, TaskId};
use colocate_machine::{Nanos, PuIdx};
use colocate_policy::schedule::{Quantum, QuantumOutcome, QueuedJob};
use colocate_policy::{Evidence, Plan, Policy};
use std::collections::BTreeMap;

/// Most quanta of a round that is compared.
const LONGEST_ROUND: u32 = 8;
/// Part that is left of the longest quantum after each shorter one: one that took far too long is not the measure for ever.
const FORGETS: f64 = 0.9;

/// A policy that decides each quantum, under a guard.
pub struct QuantumGuard {
    inner: Box<dyn Policy>,
    /// The policy's last state.
    state: Option<String>,
    evaluation: Evaluation<AllJobs>,
    kernel_places: KernelPlaces,
}

impl QuantumGuard {
    /// Guards `inner`, with its name in messages.
    pub fn new(inner: Box<dyn Policy>, name: &str, settings: Guarding) -> Self {
        Self {
            inner,
            state: None,
            evaluation: Evaluation::new(name, &settings, 0.0, AllJobs::default()),
            kernel_places: KernelPlaces::default(),
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
        let sample = UsageSample::of(done, |job| job);
        if sample.as_ref().is_some_and(|sample| !sample.is_counted()) {
            self.evaluation.report_missing(MissingEvidence::Instructions);
        }
        let Some(sample) = self.evaluation.known(sample) else { return };
        let quantum = sample.seconds.max(FORGETS * self.evaluation.budget.quantum);
        self.evaluation.budget.quantum = quantum;
        let is_whole = sample.seconds >= CUT_SHORT * quantum;
        let is_throttled = done.throttled;
        let passed = Passed { sample, quanta: 1, is_whole, is_throttled, next: quantum };
        let Some(finding) = self.evaluation.note(passed) else { return };
        if finding.verdict == Verdict::NoDifference && self.evaluation.trial.is_trying() {
            self.evaluation.comparison.restart();
        } else {
            self.evaluation.conclude(finding);
        }
    }

    /// Takes in the jobs. A round is as many quanta as it takes until each can have run once.
    fn note_jobs(&mut self, now: &Quantum<'_>) {
        let widths = now.queue.iter().map(|job| (job.job, f64::from(width(job, now))));
        if self.evaluation.measure.set_jobs(widths.collect::<BTreeMap<JobIdx, f64>>()) {
            self.evaluation.forget_samples();
        }
        let all = now.queue.iter().map(|job| width(job, now)).fold(0, u32::saturating_add);
        let contexts = u32::try_from(now.pus.len()).unwrap_or(u32::MAX).max(1);
        self.evaluation.trial.set_round(all.div_ceil(contexts).clamp(1, LONGEST_ROUND));
    }

    /// The plan of a quantum that is the kernel's. After a quantum of the policy, the policy learns its outcome.
    fn kernel_plan(
        &mut self,
        evidence: &Evidence<'_>,
        last_owner: Option<Owner>,
        initial: &[(TaskId, PuIdx)],
    ) -> Plan {
        let mut messages = Vec::new();
        if last_owner == Some(Owner::Policy) {
            let learns = self.inner.decide(&Evidence { is_control: true, ..*evidence });
            self.state = learns.state.or(self.state.take());
            messages = learns.messages;
        }
        let initial = evidence.initial(initial);
        Plan { initial, messages, ..evidence.leave_to_kernel() }
    }

    /// The plan of a quantum that is the policy's. After a quantum of the kernel, the policy draws no conclusions from it.
    fn policy_plan(&mut self, evidence: &Evidence<'_>, last_owner: Option<Owner>) -> Plan {
        let plan = if last_owner == Some(Owner::Kernel) {
            let queue: Vec<QueuedJob> = evidence.now.queue.iter().map(without_past).collect();
            let now = Quantum { queue: &queue, ..evidence.now };
            self.inner.decide(&Evidence { now, last: None, ..*evidence })
        } else {
            self.inner.decide(evidence)
        };
        self.state.clone_from(&plan.state);
        plan
    }
}

fn width(job: &QueuedJob, now: &Quantum<'_>) -> u32 {
    u32::try_from(job.width(now.pus.len())).unwrap_or(u32::MAX)
}

fn without_past(job: &QueuedJob) -> QueuedJob {
    QueuedJob { just_ran: false, had_own_cores: false, ..job.clone() }
}

impl Policy for QuantumGuard {
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
        let rounds = self.evaluation.comparison.rounds_earned();
        let owner = self.evaluation.next_owner(rounds, self.evaluation.budget.quantum);
        let initial = self.kernel_places.pass(&evidence.now, last_owner, owner);
        self.evaluation.trial.begin(owner);
        let mut plan = match owner {
            Owner::Kernel => self.kernel_plan(evidence, last_owner, &initial),
            Owner::Policy => self.policy_plan(evidence, last_owner),
        };
        plan.messages.splice(0..0, self.evaluation.take_messages());
        Plan { state: Some(self.state()), ..plan }
    }
}
