//! Reasons for the selection of a job and the PU of a thread.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Reason for the selection of a job.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selected {
    /// Room for all jobs.
    Room,
    /// Head of the queue: the least recently run job.
    HeadOfQueue,
    /// Memory traffic nearest to the mean that the free contexts should have.
    Traffic {
        /// Target traffic, t/µs per context.
        wanted: f64,
        /// Traffic of the job, t/µs per context.
        has: f64,
    },
    /// Memory traffic unknown and taken for the mean.
    TrafficUnknown,
    /// Drawn at random.
    Drawn,
    /// Least progress of all jobs.
    LeastProgress {
        /// Progress in quanta of running alone.
        progress: f64,
    },
    /// Measurement of the job's speed on cores of its own.
    Estimated,
}

/// Reason of a thread's PU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Allocated {
    /// Next PU in an order without rates.
    Next,
    /// Balances requests between the caches of a level.
    Balanced {
        /// Lowest balanced level, counted from 1.
        level: u8,
    },
    /// Most level 1 traffic of the unplaced threads, beside a thread with least traffic, or the
    /// reverse.
    MostWithLeast {
        /// Level 1 traffic of the thread, t/µs.
        has: f64,
    },
    /// Cache traffic unknown and taken for the mean.
    TrafficUnknown,
    /// Least slowdown between the threads of a core.
    Symbiosis {
        /// Expected slowdown of the thread: time on the shared core over time alone.
        slowdown: f64,
    },
    /// Cores without a thread of another job.
    OwnCores,
    /// Fast core for a serial phase of the job.
    SerialPhase,
    /// Turn of the thread on a fast core that no serial phase needs.
    FastTurn,
    /// Slow core, since other threads have the fast cores.
    OffFast,
    /// Fast cores are filled first.
    FastFirst,
    /// Larger gain from a fast core than threads without a fast core.
    Gains {
        /// Speed on a fast core over speed on a slow core.
        factor: f64,
    },
    /// Measurement of the thread's gain from a fast core.
    Explored,
    /// Fast core with the largest utility for the job.
    Useful {
        /// CAMP's utility factor.
        utility: f64,
    },
    /// Not pinned.
    LeftToKernel,
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room => f.write_str("there is room for all"),
            Self::HeadOfQueue => f.write_str("is at the head of the queue"),
            Self::Traffic { wanted, has } => {
                write!(f, "memory traffic {has:.1} t/µs where {wanted:.1} are wanted")
            }
            Self::TrafficUnknown => f.write_str("memory traffic unknown, next in the queue"),
            Self::Drawn => f.write_str("drawn"),
            Self::LeastProgress { progress } => {
                write!(f, "has come least far, {progress:.1} quanta alone")
            }
            Self::Estimated => f.write_str("its speed on cores of its own is found out"),
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
            Self::TrafficUnknown => f.write_str("cache traffic unknown, taken for a mean one"),
            Self::Symbiosis { slowdown } => {
                write!(f, "expected {slowdown:.2} times slower than alone, beside good neighbours")
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
