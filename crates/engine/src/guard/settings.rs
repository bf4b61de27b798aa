//! Settings of guards. None of them is published: all are chosen, and simulation measures their effect (docs/reference/guard.md).

use super::bet::Stakes;
use colocate_evidence::{Source, SourceSet};
use colocate_machine::Nanos;

/// Sources of progress; each is used where it is available.
pub const PROGRESS: SourceSet =
    SourceSet::of(&[Source::Counters, Source::RunStates, Source::Switches]);

/// Time between two decisions of a [`super::StandingGuard`]. Chosen: a server does some thousand requests in it, and placing
/// ten threads anew takes a thousandth of it.
pub const QUANTUM: Nanos = Nanos::from_millis(50);

/// Part of its planned length from which on a quantum is long enough for a comparison.
pub const CUT_SHORT: f64 = 0.5;

/// Settings of a guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarding {
    /// The part of the time that may be lost.
    pub allowed: f64,
    /// Quanta that may be lost at once.
    pub credit: f64,
    /// Mean number of quanta between two controls while the policy pays, at least 3. The number is random: half to one and a
    /// half times as many. Another kernel quantum precedes each control.
    pub control: u32,
    /// Greatest chance that a verdict is wrong.
    pub error: f64,
    /// Stakes of the bets that lead to a verdict.
    pub stakes: Stakes,
    /// Quanta of the first pause.
    pub pause: u32,
    /// Quanta until something may be lost again, from which on the policy is paused.
    pub patience: u32,
}

impl Guarding {
    /// For plans that stand until an event, where [`QUANTUM`] serves comparison only. Chosen: in the first minute no job loses
    /// more than 0.5 %. The credit is 0.15 s, as much as a job loses that does a third less in eight quanta. Stakes are bold,
    /// because tasks that wake each other often gain far more than bets count.
    pub const STANDING: Self = Self {
        allowed: 0.0025,
        credit: 3.0,
        control: 128,
        error: 0.05,
        stakes: Stakes::BOLD,
        pause: 200,
        patience: 40,
    };
}

impl Default for Guarding {
    /// For a policy that decides each quantum. Chosen: the budget limits the loss of a workload of some hundred quanta to half
    /// of 1 %; the other half is for losses that comparisons do not show.
    fn default() -> Self {
        Self {
            allowed: 0.005,
            credit: 0.3,
            control: 32,
            error: 0.05,
            stakes: Stakes::CAREFUL,
            pause: 50,
            patience: 50,
        }
    }
}
