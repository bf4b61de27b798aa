//! Schedulers for more programs than hardware threads: they choose the jobs of each quantum and
//! their PUs.
//!
//! A scheduler is a policy that decides at the beginning of every quantum. It chooses jobs
//! (*selection*; the others wait) and gives each of their threads a PU (*allocation*). Its evidence
//! is the behaviour of each job in the last quantum in which the job ran. All of Feliu's schedulers
//! are of this kind. Each file names the publication of its algorithm.
//!
//! # Terms
//! - *Context*: a usable PU; a job needs one per thread.
//! - *Queue*: jobs with work left. A job that ran goes to the tail, so the *head* has waited
//!   longest.
//! - *Transactions per microsecond* (t/µs): requests to one level of the memory hierarchy over the
//!   time in which the job ran. A rate over time falls under contention, unlike misses per
//!   instruction: it is the load of the resource.

mod all_fast_first;
pub(crate) mod allocate;
mod asymmetric;
mod bandwidth;
mod efficiency;
pub mod fair;
mod fair_oracle;
mod oracle;
mod parallelism_aware;
pub mod phases;
pub mod progress;
pub(crate) mod select;
mod symbiotic;
mod symbiotic_numa;
#[cfg(test)]
pub(crate) mod testing;
mod utility;

use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::row::PolicyRow;
use colocate_evidence::{Source, SourceSet};

pub use crate::evidence::{
    JobUsage, LEVELS, Quantum, QuantumOutcome, QueuedJob, Rates, SelectedJob, Thread, Traffic,
    leave_to_kernel,
};
pub use crate::why::{Allocated, Selected};

/// The policies that decide each quantum.
pub(crate) static ROWS: &[&PolicyRow] = &[
    &bandwidth::MMAS,
    &bandwidth::MHAS,
    &bandwidth::IDAS,
    &bandwidth::L1_STATIC,
    &bandwidth::L1_DYNAMIC,
    &bandwidth::BAS,
    &fair::FAIR,
    &fair::PERF_FAIR,
    &fair_oracle::ROW,
    &symbiotic::ROW,
    &symbiotic::NUMA,
    &oracle::ROW,
    &parallelism_aware::ROW,
    &efficiency::ROW,
    &utility::ROW,
    &all_fast_first::ROW,
];

/// Evidence of policies that use rates.
const COUNTERS: SourceSet = SourceSet::of(&[Source::Counters]);

/// A policy that chooses among the jobs of the queue.
pub(crate) trait Scheduler {
    /// Evidence needed.
    const NEEDS: SourceSet = COUNTERS;

    /// Takes in the outcome of the last quantum.
    fn note(&mut self, _: &QuantumOutcome<'_>) {}

    /// Takes in the jobs' state at the start of a quantum placed by the kernel.
    fn learn(&mut self, _: &Quantum<'_>) {}

    /// Jobs that run in this quantum, with the PUs of their threads.
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob>;

    /// Adds state, messages and a length of the quantum to the plan.
    fn describe(&mut self, _: &mut Plan, _: &Evidence<'_>) {}
}

impl<S: Scheduler> Policy for S {
    fn needs(&self) -> SourceSet {
        S::NEEDS
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        if let Some(last) = &evidence.last {
            self.note(last);
        }
        // The kernel places the threads of a control quantum; the policy only learns from it.
        if evidence.is_control {
            self.learn(&evidence.now);
            return evidence.empty_plan();
        }
        let mut plan = evidence.plan(&self.choose(&evidence.now));
        self.describe(&mut plan, evidence);
        plan
    }
}
