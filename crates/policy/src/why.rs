//! Reasons for the selection of a job and the PU of a thread. `Error` derives their words.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reason for the selection of a job.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Error)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selected {
    /// Room for all jobs.
    #[error("there is room for all")]
    Room,
    /// Head of the queue: the least recently run job.
    #[error("is at the head of the queue")]
    HeadOfQueue,
    /// Memory traffic nearest to the mean that the free contexts should have.
    #[error("memory traffic {has:.1} t/µs where {wanted:.1} are wanted")]
    Traffic {
        /// Target traffic, t/µs per context.
        wanted: f64,
        /// Traffic of the job, t/µs per context.
        has: f64,
    },
    /// Memory traffic unknown and taken for the mean.
    #[error("memory traffic unknown, next in the queue")]
    TrafficUnknown,
    /// Drawn at random.
    #[error("drawn")]
    Drawn,
    /// Least progress of all jobs.
    #[error("has come least far, {progress:.1} quanta alone")]
    LeastProgress {
        /// Progress in quanta of running alone.
        progress: f64,
    },
    /// Measurement of the job's speed on cores of its own.
    #[error("its speed on cores of its own is found out")]
    Estimated,
}

/// Reason of a thread's PU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Error)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Allocated {
    /// Next PU in an order without rates.
    #[error("next in order")]
    Next,
    /// Balances requests between the caches of a level.
    #[error("balances caches down to level {level}")]
    Balanced {
        /// Lowest balanced level, counted from 1.
        level: u8,
    },
    /// Most level 1 traffic of unplaced threads, beside a thread with least, or the reverse.
    #[error("L1 traffic {has:.1} t/µs, most beside least")]
    MostWithLeast {
        /// Level 1 traffic of the thread, t/µs.
        has: f64,
    },
    /// Cache traffic unknown and taken for the mean.
    #[error("cache traffic unknown, taken for a mean one")]
    TrafficUnknown,
    /// Least slowdown between the threads of a core.
    #[error("expected {slowdown:.2} times slower than alone, beside good neighbours")]
    Symbiosis {
        /// Expected slowdown of the thread: time on the shared core over time alone.
        slowdown: f64,
    },
    /// Cores without a thread of another job.
    #[error("cores of its own")]
    OwnCores,
    /// Fast core for a serial phase of the job.
    #[error("a fast core for the serial phase of its job")]
    SerialPhase,
    /// Turn of the thread on a fast core that no serial phase needs.
    #[error("its turn on a fast core")]
    FastTurn,
    /// Slow core, since other threads have the fast cores.
    #[error("others have the fast cores")]
    OffFast,
    /// Fast cores are filled first.
    #[error("fast cores first")]
    FastFirst,
    /// Larger gain from a fast core than threads without a fast core.
    #[error("{factor:.2} times faster on a fast core")]
    Gains {
        /// Speed on a fast core over speed on a slow core.
        factor: f64,
    },
    /// Measurement of the thread's gain from a fast core.
    #[error("what a fast core is worth to it is found out")]
    Explored,
    /// Fast core with the largest utility for the job.
    #[error("a fast core is of most use, utility {utility:.2}")]
    Useful {
        /// CAMP's utility factor.
        utility: f64,
    },
    /// Not pinned.
    #[error("left to the kernel")]
    LeftToKernel,
}
