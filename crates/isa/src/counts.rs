//! Counts of one process, a JSON file: written by `tracer`, the emulator's plugin, and read by
//! `observe`.
//!
//! Times are in ns of `CLOCK_MONOTONIC`. A truncated file comes from a process that was killed.

use crate::ClassCounts;
use serde::{Deserialize, Serialize};

/// Version of the format.
pub const VERSION: u32 = 5;

/// Counts of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCounts {
    /// Version of the format, [`VERSION`].
    pub version: u32,
    /// Emulated architecture, as named by QEMU.
    pub target: String,
    /// Process ID.
    pub pid: i32,
    /// Process ID of the parent.
    pub parent: i32,
    /// Start of the process, on `CLOCK_MONOTONIC`, in ns.
    pub start_ns: u64,
    /// End of the process, on `CLOCK_MONOTONIC`, in ns.
    pub end_ns: u64,
    /// Threads, in the order of creation.
    pub threads: Vec<ThreadCounts>,
    /// Instructions executed that QEMU does not implement.
    pub unsupported: Vec<Unsupported>,
    /// Blocks that stretches refer to.
    pub blocks: Vec<CodeBlock>,
    /// Sampled stretches of instructions; empty if not sampled.
    pub stretches: Vec<BlockSequence>,
    /// Returns from signal handlers.
    pub handlers: u64,
    /// Threads begun. More than the length of `threads` if a thread's counts were lost.
    pub begun: u64,
}

/// A thread that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadCounts {
    /// Thread ID.
    pub tid: i32,
    /// Creation of the thread, on `CLOCK_MONOTONIC`, in ns.
    pub start_ns: u64,
    /// End of the thread, on `CLOCK_MONOTONIC`, in ns.
    pub end_ns: u64,
    /// Instructions executed, by class.
    pub counts: ClassCounts,
    /// Instructions that could not be decoded.
    pub undecoded: u64,
    /// Name of the thread at its end, as raw bytes.
    pub name: Vec<u8>,
    /// Misses of simulated caches, or `None` if not simulated.
    pub misses: Option<Misses>,
    /// Predictions of branches, or `None` if not simulated.
    pub branches: Option<Branches>,
}

/// Misses of a thread's accesses, by size of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misses {
    /// Size of a cache line, in bytes.
    pub line_b: u64,
    /// Sizes of caches in lines, ascending from 0, and the accesses that miss each. The last entry
    /// is the number of misses in a cache of unlimited size.
    pub by_lines: Vec<(u64, u64)>,
    /// Lines evicted by a cache of 4,112 lines.
    pub left: u64,
    /// Evicted lines that were dirty, so were written back.
    pub left_written: u64,
}

/// Results of a simulated branch predictor for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branches {
    /// Branches predicted: conditional or indirect.
    pub predicted: u64,
    /// Branches predicted wrongly.
    pub mispredicted: u64,
}

/// An instruction that QEMU does not implement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsupported {
    /// Address in the process.
    pub address: u64,
    /// Encoding of the instruction.
    pub bytes: Vec<u8>,
}

/// Consecutive instructions without a branch between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeBlock {
    /// Address of the first instruction.
    pub address: u64,
    /// Encoding of each instruction.
    pub instructions: Vec<Vec<u8>>,
}

/// A stretch of blocks that a thread executed consecutively.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSequence {
    /// Thread ID.
    pub tid: i32,
    /// Indices into [`ProcessCounts::blocks`].
    pub blocks: Vec<usize>,
    /// Execution since the previous stretch in the file, or since the thread's start; `None` if
    /// unknown.
    pub ran: Option<ExecutionCounts>,
}

/// Counts of a part of a thread's execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionCounts {
    /// Instructions executed, by class.
    pub counts: ClassCounts,
    /// Misses of simulated caches, or `None` if not simulated.
    pub misses: Option<Misses>,
    /// Predictions of branches, or `None` if not simulated.
    pub branches: Option<Branches>,
}
