//! Who runs in the next quantum, and where: schedulers for more programs than hardware threads.
//!
//! A scheduler is a policy that is asked at the beginning of every quantum. It chooses jobs (*selection*; the others
//! wait) and gives each of their threads a PU (*allocation*). What it may know of a job is what the job did when
//! it last ran. All of Feliu's schedulers are of this kind; each file says where its algorithm was published.
//!
//! # Terms
//! - *Context*: a PU that may be used; a job needs as many as it has threads.
//! - *Queue*: jobs that have work left; who ran goes to its tail, so its *head* has waited longest.
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

use crate::plan::{JobIdx, TaskId};
use crate::source::{Source, SourceSet};
use crate::table::Row;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::stack::Parts;
use serde::{Deserialize, Serialize};
use std::fmt;

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

/// Evidence that policies want which look at rates.
pub(crate) const COUNTERS: SourceSet = SourceSet::of(&[Source::Counters]);

/// All jobs run, and the kernel places their threads.
#[must_use]
pub fn leave_to_kernel(queue: &[QueuedJob]) -> Vec<Choice> {
    let free = |job: &QueuedJob| Choice {
        job: job.job,
        selected: Selected::Room,
        places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
    };
    queue.iter().map(free).collect()
}

/// Levels of caches that rates are kept of.
pub const LEVELS: usize = 4;

/// What a thread asked of the memory hierarchy while it last ran, in transactions per microsecond.
///
/// `None` where nobody counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests to its cache of level 1, 2, …; those to the first are its loads and stores.
    pub caches: [Option<f64>; LEVELS],
    /// Requests to main memory: misses of its last cache.
    pub memory: Option<f64>,
}

impl Traffic {
    /// Requests to the caches of `level`, counted from 1; 0 if unknown.
    ///
    /// Unknown is 0 here because a job that has not run yet has no rate, and Feliu's schedulers then
    /// take them in the order of the queue, which equal rates bring about.
    #[must_use]
    pub fn at(&self, level: u8) -> f64 {
        let place = usize::from(level).checked_sub(1);
        place.and_then(|place| *self.caches.get(place)?).unwrap_or(0.0)
    }

    /// Requests to main memory; 0 if unknown, see [`Self::at`].
    #[must_use]
    pub fn to_memory(&self) -> f64 {
        self.memory.unwrap_or(0.0)
    }
}

/// What one thread did in the last quantum in which it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Instructions per cycle; `None` if nobody counts.
    pub ipc: Option<f64>,
    /// What it asked of the memory hierarchy.
    pub traffic: Traffic,
    /// Shares of its cycles by cause, in the order of `parts`; they sum to 1. `None` if nobody counts.
    pub stack: Option<Vec<f64>>,
    /// The names of the parts of `stack`; none where nobody counts.
    pub parts: Parts,
}

/// A thread that wants to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Which task.
    pub id: TaskId,
    /// What it last did; `None` if it never ran.
    pub ran: Option<Rates>,
    /// Where it last ran; `None` if it never did.
    pub pu: Option<PuIdx>,
    /// The share of the last quantum in which its job ran for which it was runnable: had a PU or waited for one, and
    /// did not only wait for others in a loop. `None` if nobody can say.
    pub runnable: Option<f64>,
    /// Whether its program chose the PUs that it may use, so that it runs on these wherever it is put.
    pub bound: bool,
}

impl Thread {
    /// What it asked of the memory hierarchy; all unknown if it never ran.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ran.as_ref().map(|ran| ran.traffic).unwrap_or_default()
    }
}

/// A job in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Which job.
    pub job: JobIdx,
    /// Its threads in the order of their creation. Never empty: a job always has its first thread.
    pub threads: Vec<Thread>,
    /// Mean number of its threads that were runnable in the last quantum in which it ran, also of those that hardly
    /// were and are not among `threads`; `None` if nobody can say.
    pub runnable: Option<f64>,
    /// Whether it ran in the quantum before this one, and that was one to learn from.
    pub just_ran: bool,
    /// Whether, when it last ran, no other job had a thread on any of its cores.
    pub had_own_cores: bool,
}

impl QueuedJob {
    /// Contexts that it takes: one a thread, but no more than there are.
    #[must_use]
    pub fn width(&self, contexts: usize) -> usize {
        self.threads.len().clamp(1, contexts.max(1))
    }

    /// Requests of all threads to main memory, in transactions per microsecond; unknown is 0.
    #[must_use]
    pub fn to_memory(&self) -> f64 {
        self.threads
            .iter()
            .map(|thread| thread.traffic().to_memory())
            .fold(0.0, |sum, each| sum + each)
    }
}

/// What a scheduler is asked with.
#[derive(Clone, Copy, Debug)]
pub struct Quantum<'a> {
    /// How many there were before.
    pub number: u64,
    /// The machine.
    pub machine: &'a Machine,
    /// The PUs that may be used, in logical order. Never empty.
    pub pus: &'a [PuIdx],
    /// Jobs that have work left, head first.
    pub queue: &'a [QueuedJob],
}

/// Why a job runs now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selected {
    /// There is room for all.
    Room,
    /// It has waited longest.
    HeadOfQueue,
    /// Its memory traffic comes nearest to what each context that is left should have.
    Traffic {
        /// What it should have, t/µs a context.
        wanted: f64,
        /// What it has, t/µs a context.
        has: f64,
    },
    /// It was drawn.
    Drawn,
    /// It has come least far.
    LeastProgress {
        /// How far: quanta's worth of running alone.
        progress: f64,
    },
    /// Its speed with cores of its own is found out.
    Estimated,
    /// Others are estimated, and it disturbs them little.
    BesideEstimate,
}

/// Why a thread is on its PU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Allocated {
    /// The next PU of an order that looks at no rates.
    Next,
    /// It balances the requests of the caches of a level.
    Balanced {
        /// The lowest level that was balanced, counted from 1.
        level: u8,
    },
    /// Of those without a place it asks most of the first cache, beside one that asks least, or the
    /// reverse.
    MostWithLeast {
        /// What it asks of the first cache, t/µs.
        has: f64,
    },
    /// Who shares a core slows each other down least.
    Symbiosis {
        /// How much slower it is expected to be there than alone.
        slowdown: f64,
    },
    /// No other job has a thread on its cores.
    OwnCores,
    /// Its job is in a serial phase, so it has a fast core.
    SerialPhase,
    /// It is its turn on a fast core that no serial phase needs.
    FastTurn,
    /// Others have the fast cores.
    OffFast,
    /// Fast cores are filled first.
    FastFirst,
    /// It gains more from a fast core than those that have none.
    Gains {
        /// How many times faster it is there.
        factor: f64,
    },
    /// What it gains from a fast core is found out.
    Explored,
    /// A fast core is of more use to its job there than elsewhere.
    Useful {
        /// CAMP's utility factor.
        utility: f64,
    },
    /// The kernel chooses.
    LeftToKernel,
}

/// A job that runs in the next quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The job.
    pub job: JobIdx,
    /// Why it and not another.
    pub selected: Selected,
    /// A PU for each of its threads, in their order, and why; `None` leaves it to the kernel.
    pub places: Vec<(Option<PuIdx>, Allocated)>,
}

/// What came of a quantum.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuantumOutcome<'a> {
    /// How long it took: less than was asked for if a job ended, and 0 if there is nothing to learn from it, as
    /// everything was stopped meanwhile.
    pub took: Nanos,
    /// Whose jobs' threads did something in it, in the order of the jobs; none if there is nothing to learn from it.
    pub did: &'a [JobUsage],
}

/// What the threads of a job did in a quantum, all together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobUsage {
    /// The job.
    pub job: JobIdx,
    /// CPU time; `None` if the host cannot say of all threads.
    pub cpu_time: Option<Nanos>,
    /// Instructions; `None` if they are not counted of all threads.
    pub instructions: Option<u64>,
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room => f.write_str("there is room for all"),
            Self::HeadOfQueue => f.write_str("has waited longest"),
            Self::Traffic { wanted, has } => {
                write!(f, "memory traffic {has:.1} t/µs where {wanted:.1} are wanted")
            }
            Self::Drawn => f.write_str("drawn"),
            Self::LeastProgress { progress } => {
                write!(f, "has come least far, {progress:.1} quanta alone")
            }
            Self::Estimated => f.write_str("its speed on cores of its own is found out"),
            Self::BesideEstimate => f.write_str("disturbs little who is estimated"),
        }
    }
}

impl fmt::Display for Allocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Next => f.write_str("next in order"),
            Self::Balanced { level } => write!(f, "balances caches down to level {level}"),
            Self::MostWithLeast { has } => {
                write!(f, "L1 traffic {has:.1} t/µs, most beside least")
            }
            Self::Symbiosis { slowdown } => {
                write!(f, "expected {slowdown:.2} times slower than alone, good company")
            }
            Self::OwnCores => f.write_str("cores of its own"),
            Self::SerialPhase => f.write_str("a fast core for the serial phase of its job"),
            Self::FastTurn => f.write_str("its turn on a fast core"),
            Self::OffFast => f.write_str("others have the fast cores"),
            Self::FastFirst => f.write_str("fast cores first"),
            Self::Gains { factor } => write!(f, "{factor:.2} times faster on a fast core"),
            Self::Explored => f.write_str("what a fast core is worth to it is found out"),
            Self::Useful { utility } => {
                write!(f, "a fast core is of most use, utility {utility:.2}")
            }
            Self::LeftToKernel => f.write_str("left to the kernel"),
        }
    }
}
