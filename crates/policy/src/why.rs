//! Why a job runs, and why a thread of it is where it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a job runs now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selected {
    /// There is room for all.
    Room,
    /// Head of the queue: the job that has run least recently.
    HeadOfQueue,
    /// Its memory traffic comes nearest to what each context that is left should have.
    Traffic {
        /// What it should have, t/µs a context.
        wanted: f64,
        /// What it has, t/µs a context.
        has: f64,
    },
    /// Its memory traffic is unknown, so it is taken for a mean one.
    TrafficUnknown,
    /// It was drawn.
    Drawn,
    /// It has come least far.
    LeastProgress {
        /// How far: quanta's worth of running alone.
        progress: f64,
    },
    /// Its speed with cores of its own is found out.
    Estimated,
}

/// Why a thread is on its PU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Allocated {
    /// The next PU of an order that uses no rates.
    Next,
    /// It balances the requests of the caches of a level.
    Balanced {
        /// The lowest level that was balanced, counted from 1.
        level: u8,
    },
    /// Of those without a place it has most first-cache traffic, beside one that has least, or the
    /// reverse.
    MostWithLeast {
        /// Its first-cache traffic, t/µs.
        has: f64,
    },
    /// Its traffic to the caches is unknown, so it is taken for a mean one.
    TrafficUnknown,
    /// Threads that share a core slow each other down least.
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
