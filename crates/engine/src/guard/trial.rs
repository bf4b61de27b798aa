//! Order of quanta: which are the policy's, which are the kernel's, and the use of each for the comparison.
//!
//! A state machine without measured figures: verdicts, and whether the budget is overdrawn, are its inputs.
//!
//! # Properties
//! - **Random gaps**: one or two control quanta follow a round of a policy that is tried; while it is kept, half to one and a
//!   half times [`Guarding::control`] quanta lie between controls. -> tests `rounds_and_controls_alternate`,
//!   `controls_are_rare_while_the_policy_is_kept`
//! - **Baseline first**: after a change of the jobs a control comes before any trial. -> test `a_change_needs_a_new_baseline`

use super::settings::Guarding;
use super::verdict::Verdict;
use colocate_policy::rng::SplitMix64;

/// Seed of the random lengths. Any number would do.
const SEED: u64 = 1;
/// Quanta that a kept policy has after a change of the jobs until the next control. Chosen: jobs may change again and again.
const AFTER_CHANGE: u32 = 4;
/// Most doublings of a pause.
const DOUBLINGS: u32 = 5;

/// Owner of a quantum, by which threads are placed in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel.
    Kernel,
    /// The guarded policy.
    Policy,
}

/// Use of a quantum that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantumUse {
    /// No use: a control quantum ended early, or a quantum of the policy has no baseline.
    Unused,
    /// The kernel's first quantum after the policy's: charged to the policy.
    Settling,
    /// A quantum of the policy: charged and compared.
    Trial,
    /// A quantum of the policy that ended early: charged only.
    ShortTrial,
    /// A control quantum without a trial before it.
    Baseline,
    /// A control quantum that is compared; further trials complete the round.
    Control,
    /// A control quantum that completes a comparison.
    LastControl,
}

/// Stage of the trial, with the verdict that it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// No verdict yet, or the last one is too long ago.
    Trying,
    /// The policy has all quanta but the controls.
    Keeping(Verdict),
    /// The kernel has the next `left` quanta.
    Paused { verdict: Verdict, left: u32 },
}

/// Progress of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonProgress {
    /// No control quantum with these jobs yet.
    NoBaseline,
    /// Number of trial quanta so far.
    Trials(u32),
    /// Complete; another control quantum precedes the next trial.
    SecondControl,
}

/// Alternation of the policy and the kernel.
#[derive(Clone, Debug)]
pub struct Trial {
    control: u32,
    pause: u32,
    /// Quanta in which each job can have run once.
    round: u32,
    stage: Stage,
    pair: ComparisonProgress,
    rng: SplitMix64,
    /// Owner of the current quantum; `None` before the first.
    now: Option<Owner>,
    before: Option<Owner>,
    since_control: u32,
    /// Quanta from one control to the next while the policy is kept.
    next_control: u32,
    pauses: u32,
    quanta: u64,
    kernels: u64,
    throttled: u64,
}

impl Trial {
    /// A trial in which no quantum has begun.
    pub fn new(settings: &Guarding) -> Self {
        Self {
            control: settings.control,
            pause: settings.pause,
            round: 1,
            stage: Stage::Trying,
            pair: ComparisonProgress::NoBaseline,
            rng: SplitMix64::new(SEED),
            now: None,
            before: None,
            since_control: 0,
            next_control: settings.control,
            pauses: 0,
            quanta: 0,
            kernels: 0,
            throttled: 0,
        }
    }

    /// Owner of the current quantum, or of the last one before the next begins; `None` before the first.
    pub const fn owner(&self) -> Option<Owner> {
        self.now
    }

    /// Quanta so far, and how many of them were the kernel's.
    pub const fn quanta(&self) -> (u64, u64) {
        (self.quanta, self.kernels)
    }

    /// Quanta in which a CPU quota throttled the programs.
    pub const fn throttled(&self) -> u64 {
        self.throttled
    }

    /// Whether no verdict is in force.
    pub const fn is_trying(&self) -> bool {
        matches!(self.stage, Stage::Trying)
    }

    /// The verdict in force.
    pub fn verdict(&self) -> Verdict {
        match &self.stage {
            Stage::Trying => Verdict::Undecided,
            Stage::Keeping(verdict) | Stage::Paused { verdict, .. } => verdict.clone(),
        }
    }

    /// Quanta left of a pause; `None` outside one.
    pub const fn pause_left(&self) -> Option<u32> {
        if let Stage::Paused { left, .. } = self.stage { Some(left) } else { None }
    }

    /// Quanta of a round.
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Sets the quanta of a round, at least 1.
    pub const fn set_round(&mut self, round: u32) {
        self.round = round;
    }

    /// Owner of the next quantum. A policy that is tried gets up to `rounds` rounds in a row.
    pub fn next_owner(&self, rounds: u32, is_overdrawn: bool) -> Owner {
        let is_kernels = match (&self.stage, self.pair) {
            (Stage::Paused { .. }, _) => true,
            (Stage::Keeping(_), ComparisonProgress::NoBaseline) => {
                self.since_control >= AFTER_CHANGE
            }
            (Stage::Keeping(_), _) => self.quanta_to_control() == 0 || is_overdrawn,
            (Stage::Trying, ComparisonProgress::NoBaseline | ComparisonProgress::SecondControl) => {
                true
            }
            (Stage::Trying, ComparisonProgress::Trials(quanta)) => {
                // Rounds in a row last no longer than the mean time between controls of a kept policy.
                let most = (self.control / self.round).max(1);
                quanta >= self.round * rounds.clamp(1, most) || is_overdrawn
            }
        };
        if is_kernels { Owner::Kernel } else { Owner::Policy }
    }

    /// Begins a quantum.
    pub const fn begin(&mut self, owner: Owner) {
        self.before = self.now.replace(owner);
    }

    /// Quanta for which there is nothing to decide, with this owner; `overdrawn` is the number until the budget allows a trial.
    pub fn quanta_ahead(&self, overdrawn: u32) -> u32 {
        match (&self.stage, self.now, self.pair) {
            // The first quantum after a change of owner differs from the next ones.
            _ if self.before != self.now => 1,
            (Stage::Paused { left, .. }, Some(Owner::Kernel), _) => *left,
            (
                Stage::Keeping(_),
                Some(Owner::Policy),
                ComparisonProgress::Trials(_) | ComparisonProgress::SecondControl,
            ) => self.quanta_to_control(),
            // A control quantum after trials is compared at its end.
            (_, Some(Owner::Kernel), ComparisonProgress::Trials(1..)) => 1,
            (_, Some(Owner::Kernel), _) => overdrawn,
            _ => 1,
        }
    }

    /// Counts a quantum of which nothing is known.
    pub fn note_unknown(&mut self) {
        self.quanta += 1;
        self.kernels += u64::from(self.now == Some(Owner::Kernel));
    }

    /// Counts quanta in which a CPU quota throttled the programs, and needs a new baseline: they may have waited unseen before.
    pub fn note_throttled(&mut self, quanta: u32) {
        self.quanta += u64::from(quanta);
        self.throttled += u64::from(quanta);
        self.forget();
        match self.now {
            Some(Owner::Kernel) => self.count_kernels(quanta),
            Some(Owner::Policy) => self.since_control = self.since_control.saturating_add(quanta),
            None => {}
        }
    }

    /// Counts quanta of the current owner. The last one is whole unless an event has cut it short.
    pub fn note(&mut self, quanta: u32, is_whole: bool) -> QuantumUse {
        self.quanta += u64::from(quanta);
        match self.now {
            Some(Owner::Kernel) => self.note_kernel_quanta(quanta, is_whole),
            Some(Owner::Policy) => self.note_policy_quanta(quanta, is_whole),
            None => QuantumUse::Unused,
        }
    }

    /// Needs a new baseline: what was measured is no measure any more.
    pub const fn forget(&mut self) {
        self.pair = ComparisonProgress::NoBaseline;
    }

    /// The policy keeps its quanta.
    pub fn keep(&mut self, verdict: Verdict) {
        self.stage = Stage::Keeping(verdict);
    }

    /// The kernel has the next quanta: twice as many each time, and not fewer than `least`.
    pub fn pause(&mut self, verdict: Verdict, least: u32) {
        let quanta = self.pause.saturating_mul(1 << self.pauses.min(DOUBLINGS));
        self.pauses += 1;
        self.stage = Stage::Paused { verdict, left: quanta.max(least) };
        // Trials from before the pause are too old for a comparison after it.
        if matches!(self.pair, ComparisonProgress::Trials(_)) {
            self.pair = ComparisonProgress::Trials(0);
        }
    }

    fn note_kernel_quanta(&mut self, quanta: u32, is_whole: bool) -> QuantumUse {
        self.count_kernels(quanta);
        if self.before != Some(Owner::Kernel) {
            return QuantumUse::Settling;
        }
        self.since_control = 0;
        self.next_control = self.draw_next_control();
        match self.pair {
            _ if !is_whole => QuantumUse::Unused,
            ComparisonProgress::Trials(trials) if trials >= self.round => {
                // At random, so that no regular event meets one side only.
                self.pair = if self.rng.below(2) == 1 {
                    ComparisonProgress::SecondControl
                } else {
                    ComparisonProgress::Trials(0)
                };
                QuantumUse::LastControl
            }
            ComparisonProgress::Trials(1..) => QuantumUse::Control,
            ComparisonProgress::NoBaseline
            | ComparisonProgress::SecondControl
            | ComparisonProgress::Trials(0) => {
                self.pair = ComparisonProgress::Trials(0);
                QuantumUse::Baseline
            }
        }
    }

    fn note_policy_quanta(&mut self, quanta: u32, is_whole: bool) -> QuantumUse {
        self.since_control = self.since_control.saturating_add(quanta);
        match self.pair {
            ComparisonProgress::NoBaseline => QuantumUse::Unused,
            _ if !is_whole => QuantumUse::ShortTrial,
            ComparisonProgress::Trials(trials) => self.count_trials(trials + 1),
            ComparisonProgress::SecondControl => self.count_trials(1),
        }
    }

    const fn count_trials(&mut self, trials: u32) -> QuantumUse {
        self.pair = ComparisonProgress::Trials(trials);
        QuantumUse::Trial
    }

    /// Counts quanta of the kernel. After the last one of a pause the policy is tried again.
    fn count_kernels(&mut self, quanta: u32) {
        self.kernels += u64::from(quanta);
        let Stage::Paused { left, .. } = &mut self.stage else { return };
        *left = left.saturating_sub(quanta);
        if *left == 0 {
            self.stage = Stage::Trying;
        }
    }

    /// Quanta of a kept policy before the kernel's next one.
    const fn quanta_to_control(&self) -> u32 {
        self.next_control.saturating_sub(self.since_control.saturating_add(1))
    }

    /// Half to one and a half times the default number of quanta.
    fn draw_next_control(&mut self) -> u32 {
        let more = self.rng.below(usize::try_from(self.control).unwrap_or(usize::MAX));
        self.control.div_ceil(2) + u32::try_from(more).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
