//! The guard: a policy around a policy, which leaves the machine to the kernel where the inner policy does not pay.
//!
//! # Problem
//! A policy that is good for most workloads is bad for some, and it is not known beforehand for which. No program should be
//! worse off with the policy than without it.
//! # Approach
//! The kernel is the default. The policy has to earn its quanta, under two rules:
//! - *Budget* ([`budget`]): the cost of its quanta so far, compared with the kernel's, stays below a small part of the time that
//!   has passed. So it begins with single quanta; more follow while they cost nothing, and after an expensive quantum the next
//!   one comes late. These are conservative bandits (Wu, Shariff, Lattimore and Szepesvári, ICML 2016), with measured instead
//!   of worst-case losses.
//! - *Verdict* ([`compare`]): its quanta are compared with the nearest control quanta by a test that may be evaluated at any
//!   time ([`bet`]). If the policy is worse, the kernel gets everything for a while, each time for longer. If it is better, it
//!   gets all quanta but one in [`Guarding::control`].
//!
//! The number of control quanta in a row, and of quanta between them, is random ([`trial`]). An event at regular times, such as
//! a scan of NUMA balancing or a program's timer, would otherwise meet the same side again and again (docs/reference/guard.md).
//!
//! When the kernel gets a quantum after the policy's, threads begin where the kernel last had them ([`places`]). In simulations
//! without that, twice as many workloads lost more than 1 % (docs/reference/guard.md).
//!
//! An [`evaluation`] has these parts in common. Two policies use it: [`QuantumGuard`] for policies that decide each quantum,
//! [`StandingGuard`] for plans that stand until an event. They differ in the [`measure`] of progress and in the length of quanta.
//! # Terms
//! - *Control quantum*: everything runs and the kernel chooses, and the quantum before was the kernel's, too. The first one after
//!   the policy's is not representative: threads are not where the kernel would have them. Its loss is charged to the policy.
//! - *Progress* of a quantum: instructions of each job over its own mean speed, summed, in seconds: so a job with many
//!   instructions a cycle counts no more than others. Where instructions are not counted, CPU time: then idle PUs are seen, and
//!   contention is not.
//! - *Round*: as many quanta as it takes until every job can have run once. Only whole rounds are compared.
//! - *Set*: the current jobs. Only quanta with the same set are compared; when it changes, a control quantum comes first.
//! - *Harm*: seconds by which the last job ends later, see [`measure::Measure::harm`]. It counts jobs that are left behind, too:
//!   total progress does not show that one job will be alone in the end.
//! # Algorithm
//! Stages: *trying*, *keeping*, *paused*. Each has the [`Verdict`] that it rests on, and a message says when that changes.
//! 1. Trying: a control quantum; then a round of the policy, or several where it seems to gain, and one control quantum or two,
//!    at random, and so again, as far as the budget goes: `harm + risk ≤ credit + allowed · time`, with `risk` the mean loss of
//!    recent quanta. Other quanta are control quanta.
//! 2. After each comparison, `x = 2(p − c)/(p + c)` with the rates of progress `p` of the policy and `c` of the
//!    control quanta: two bets, that `x` is on average below and above 0. The one that wins ends the stage.
//! 3. Before a quantum of the kernel that follows one of the policy, threads are put where they last were under the kernel.
//! 4. Keeping: as trying, with fewer control quanta. A bet that is won for "worse" ends it.
//!    Where plans stand, quanta while trying are short ones, a fifth, as long as comparisons show at least half of
//!    [`bet::MOST`] on average.
//! 5. Paused: control quanta only. For 50 quanta, twice as many each time; also when the budget is so far
//!    overdrawn that it takes that long until the next try. Then trying again: programs change.
//! # Properties
//! - **Gives up**: a policy that is worse is given up, and loses little until then. -> test `gives_up_what_is_worse`
//! - **Keeps**: a better policy gets nearly all quanta. -> test `keeps_what_is_better`
//! - **Learns**: the policy gets the outcome of each of its quanta, and of no other one. -> test
//!   `the_scheduler_learns_from_each_of_its_quanta`
//! - **Same jobs**: no comparison across a change of the set. -> test `compares_the_same_jobs_only`
//! - **No job is left behind** -> test `sees_a_job_that_is_left_behind`
//! - **Out of step**: no regular event meets one side only. -> test `nothing_regular_meets_one_side_only`
//! - **At once**: a great gain or loss is known in half a second. -> test `much_is_seen_at_once`
//! - **One word**: state and messages name the same verdict. -> test `the_state_has_the_word_of_the_last_message`
//! - **Throttled quanta are none**: time that a CPU quota takes is not the policy's loss. -> test `what_a_quota_takes_is_no_loss`
//! - **Restored**: the kernel continues with the places that it had chosen. -> test `puts_threads_back`
//! - **Blind is said**: a message names the evidence that is missing. -> test `says_what_it_cannot_see`

mod bet;
mod budget;
mod compare;
mod evaluation;
mod measure;
mod partners;
mod places;
mod quanta;
mod sample;
mod settings;
mod standing;
mod trial;
pub(crate) mod usage;
mod verdict;

pub use quanta::QuantumGuard;
pub use settings::{Guarding, PROGRESS, QUANTUM};
pub use standing::StandingGuard;
pub use verdict::{Compared, Outcome, Verdict};

use colocate_evidence::SourceSet;
use colocate_machine::Nanos;
use colocate_policy::{Evidence, Plan, Policy};

/// A policy, under a guard or without one.
pub enum Guarded {
    /// Decides each quantum, under a guard.
    EachQuantum(Box<QuantumGuard>),
    /// Has plans that stand, under a guard.
    Standing(Box<StandingGuard>),
    /// Without a guard.
    Without(Box<dyn Policy>),
}

impl Guarded {
    /// A policy that decides each quantum, with its name in messages.
    #[must_use]
    pub fn each_quantum(policy: Box<dyn Policy>, name: &str) -> Self {
        Self::EachQuantum(Box::new(QuantumGuard::new(policy, name, Guarding::default())))
    }

    /// A policy whose plans stand until an event, with its name in messages.
    #[must_use]
    pub fn standing(policy: Box<dyn Policy>, name: &str) -> Self {
        Self::Standing(Box::new(StandingGuard::new(policy, name, Guarding::STANDING)))
    }

    /// Verdict and comparisons so far; `None` without a guard.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::EachQuantum(guard) => Some(guard.outcome()),
            Self::Standing(guard) => Some(guard.outcome()),
            Self::Without(_) => None,
        }
    }

    fn policy(&self) -> &dyn Policy {
        match self {
            Self::EachQuantum(guard) => &**guard,
            Self::Standing(guard) => &**guard,
            Self::Without(policy) => &**policy,
        }
    }

    fn policy_mut(&mut self) -> &mut dyn Policy {
        match self {
            Self::EachQuantum(guard) => &mut **guard,
            Self::Standing(guard) => &mut **guard,
            Self::Without(policy) => &mut **policy,
        }
    }
}

impl Policy for Guarded {
    fn needs(&self) -> SourceSet {
        self.policy().needs()
    }

    fn period(&self) -> Option<Nanos> {
        self.policy().period()
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        self.policy_mut().decide(evidence)
    }
}
