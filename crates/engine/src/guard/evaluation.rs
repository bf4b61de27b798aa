//! Evaluation of a policy: its trial, comparison, budget and measure, and the messages on them.

use super::budget::LossBudget;
use super::compare::Comparison;
use super::measure::Measure;
use super::sample::UsageSample;
use super::settings::Guarding;
use super::trial::{Owner, QuantumUse, Trial};
use super::verdict::{Basis, Finding, MissingEvidence, Outcome, Verdict};

/// Quanta of which something is known, since the decision before.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Usage of the jobs.
    pub sample: UsageSample,
    /// Number of quanta.
    pub quanta: u32,
    /// Whether they lasted long enough to be compared.
    pub is_whole: bool,
    /// Whether a CPU quota throttled some job.
    pub is_throttled: bool,
    /// Length of another quantum of the policy, in seconds.
    pub next: f64,
}

/// Evaluation of one policy by one measure.
#[derive(Clone, Debug)]
pub struct Evaluation<M> {
    /// Order of quanta.
    pub trial: Trial,
    /// Comparison with the kernel.
    pub comparison: Comparison,
    /// Limit of losses.
    pub budget: LossBudget,
    /// Measure of progress and losses.
    pub measure: M,
    /// The policy's name in messages.
    name: String,
    patience: u32,
    /// The lack of evidence that was reported.
    missing: Option<MissingEvidence>,
    messages: Vec<String>,
}

impl<M: Measure> Evaluation<M> {
    /// Before the first quantum, of which the length is given in seconds.
    pub fn new(name: &str, settings: &Guarding, quantum: f64, measure: M) -> Self {
        Self {
            trial: Trial::new(settings),
            comparison: Comparison::new(settings.error, settings.stakes),
            budget: LossBudget::new(settings, quantum),
            measure,
            name: name.to_owned(),
            patience: settings.patience,
            missing: None,
            messages: Vec::new(),
        }
    }

    /// Owner of the next quantum. The policy gets up to `rounds` rounds in a row, of quanta of `next` seconds.
    pub fn next_owner(&self, rounds: u32, next: f64) -> Owner {
        self.trial.next_owner(rounds, self.budget.overdrawn(self.harm(), next) > 0.0)
    }

    /// Quanta of the kernel until the budget allows one of the policy, `next` seconds long.
    pub fn quanta_overdrawn(&self, next: f64) -> u32 {
        self.budget.quanta_overdrawn(self.harm(), next)
    }

    /// The sample of a quantum that has passed, if something can be learned from it. If not, the quantum is counted only.
    pub fn known(&mut self, sample: Option<UsageSample>) -> Option<UsageSample> {
        if sample.is_none() {
            self.report_missing(MissingEvidence::CpuTime);
        }
        let known = sample.filter(|sample| sample.seconds > 0.0);
        if known.is_none() {
            self.trial.note_unknown();
        }
        known
    }

    /// Takes in quanta of the current owner. Returns what a comparison has found, if one has come to a verdict.
    pub fn note(&mut self, passed: Passed) -> Option<Finding> {
        let Passed { sample, quanta, is_whole, is_throttled, next } = passed;
        self.budget.pass(sample.seconds);
        if is_throttled {
            self.trial.note_throttled(quanta);
            self.comparison.forget_samples();
            return None;
        }
        self.measure.learn(&sample);
        let used = self.trial.note(quanta, is_whole);
        match used {
            QuantumUse::Unused => {}
            QuantumUse::Settling => {
                self.charge(&sample);
            }
            QuantumUse::Trial | QuantumUse::ShortTrial => {
                self.note_trial(&sample, used == QuantumUse::Trial, next)
            }
            QuantumUse::Baseline => self.comparison.remember(sample),
            QuantumUse::Control | QuantumUse::LastControl => {
                self.comparison.add_control(&sample);
                self.comparison.remember(sample);
            }
        }
        (used == QuantumUse::LastControl).then(|| self.compare()).flatten()
    }

    /// Acts on a verdict, and reports it if it is a new one.
    pub fn conclude(&mut self, finding: Finding) {
        if finding.verdict != self.trial.verdict() {
            self.report(&finding);
        }
        // The old bets would lead to the same verdict again at once.
        self.comparison.restart();
        if finding.verdict.keeps() {
            self.trial.keep(finding.verdict);
        } else {
            self.trial.pause(finding.verdict, 0);
        }
    }

    /// The jobs are others: samples are no measure for them.
    pub fn forget_samples(&mut self) {
        self.trial.forget();
        self.comparison.forget_samples();
    }

    /// Jobs are measured as one from now on: samples and bets are no measure for them.
    pub fn forget_all(&mut self) {
        self.trial.forget();
        self.comparison.forget_all();
    }

    /// Reports once that evidence is missing.
    pub fn report_missing(&mut self, missing: MissingEvidence) {
        if self.missing.is_none() {
            self.missing = Some(missing);
            self.messages.push(format!("guard: {missing}"));
        }
    }

    /// Messages since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Verdict and comparisons so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            verdict: self.trial.verdict(),
            compared: self.comparison.compared(),
            throttled: self.trial.throttled(),
        }
    }

    /// The policy's state, if it has one, and the guard's, in one line.
    pub fn state(&self, policy: Option<&str>) -> String {
        let (quanta, kernels) = self.trial.quanta();
        let pause = self.trial.pause_left();
        let pause = pause.map_or(String::new(), |left| format!(", paused for {left} quanta"));
        let policy = policy.map_or(String::new(), |policy| format!("{policy}; "));
        format!(
            "{policy}guard: {} {}{pause}, {kernels} of {quanta} quanta the kernel's, lost {:.2} s",
            self.name,
            self.trial.verdict(),
            self.lost()
        )
    }

    /// While jobs have their quanta one after the other, the next ones are behind by nearly a quantum.
    fn harm(&self) -> f64 {
        let slack = self.budget.quantum * (1.0 - 1.0 / f64::from(self.trial.round()));
        self.measure.harm(slack)
    }

    /// Seconds lost so far; 0 where more was gained than lost.
    fn lost(&self) -> f64 {
        self.harm().max(0.0)
    }

    fn charge(&mut self, sample: &UsageSample) -> Option<f64> {
        self.measure.charge(sample, &self.comparison.kernel(), self.budget.bank())
    }

    fn note_trial(&mut self, sample: &UsageSample, is_whole: bool, next: f64) {
        if let Some(lost) = self.charge(sample) {
            self.budget.learn(lost);
        }
        if is_whole {
            self.comparison.add_trial(sample);
        }
        self.check_budget(next);
    }

    /// Pauses the policy where it takes long until the budget allows another quantum.
    fn check_budget(&mut self, next: f64) {
        let quanta = self.quanta_overdrawn(next);
        if quanta >= self.patience {
            let basis = Basis::Budget { lost: self.lost(), elapsed: self.budget.elapsed() };
            self.report(&Finding { verdict: Verdict::OverBudget, basis });
            // No shorter than the budget needs to recover.
            self.trial.pause(Verdict::OverBudget, quanta);
            self.comparison.restart();
        }
    }

    /// Compares the complete pair.
    fn compare(&mut self) -> Option<Finding> {
        let (policy, kernel) = self.comparison.take_pair();
        self.comparison.take(&self.measure.differences(&policy, &kernel));
        self.comparison.finding(|job| self.measure.names(job))
    }

    fn report(&mut self, Finding { verdict, basis }: &Finding) {
        self.messages.push(format!("guard: {} {verdict}: {basis}", self.name));
    }
}
