//! Which jobs run in the next quantum, and where: schedulers for more programs than hardware threads.
//!
//! A scheduler is a policy that is asked at the beginning of every quantum. It chooses jobs (*selection*; the others
//! wait) and gives each of their threads a PU (*allocation*). What it may know of a job is what the job did when
//! it last ran. All of Feliu's schedulers are of this kind; each file says where its algorithm was published.
//!
//! # Terms
//! - *Context*: a PU that may be used; a job needs as many as it has threads.
//! - *Queue*: jobs that have work left; one that ran goes to its tail, so its *head* has waited longest.
//! - *Transactions per microsecond* (t/µs): requests to one level of the memory hierarchy, over the time
//!   in which the job ran. A rate over time falls under contention, as misses per instruction do not: it
//!   says what the resource has to serve.

pub mod all_fast_first;
pub mod allocate;
pub mod asymmetric;
pub mod bas;
pub mod efficiency;
pub mod fair;
pub mod idas;
pub mod l1;
pub mod mhas;
pub mod mmas;
pub mod oracle;
pub mod parallelism_aware;
pub mod phases;
pub mod progress;
pub mod select;
pub(crate) mod sorted;
pub mod symbiotic;
pub mod symbiotic_numa;
#[cfg(test)]
pub(crate) mod testing;
pub mod utility;

use crate::row::Row;
use crate::source::{Source, SourceSet};

pub use crate::evidence::{
    Choice, JobUsage, LEVELS, Quantum, QuantumOutcome, QueuedJob, Rates, Thread, Traffic,
    leave_to_kernel,
};
pub use crate::why::{Allocated, Selected};

/// The policies that decide each quantum.
pub(crate) static ROWS: &[&Row] = &[
    &mmas::ROW,
    &mhas::ROW,
    &idas::ROW,
    &l1::STATIC,
    &l1::DYNAMIC,
    &bas::ROW,
    &fair::FAIR,
    &fair::PERF_FAIR,
    &symbiotic::ROW,
    &symbiotic::NUMA,
    &oracle::ROW,
    &parallelism_aware::ROW,
    &efficiency::ROW,
    &utility::ROW,
    &all_fast_first::ROW,
];

/// Evidence for policies that look at rates.
pub(crate) const COUNTERS: SourceSet = SourceSet::of(&[Source::Counters]);
