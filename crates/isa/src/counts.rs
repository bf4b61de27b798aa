//! The file of counts that the emulator's plugin leaves for one process, as JSON: written by `tracer`, read by `observe`.
//!
//! Times are in ns of `CLOCK_MONOTONIC`. A file that ends before its JSON does is of a process that was killed.

use crate::ClassCounts;
use serde::{Deserialize, Serialize};

/// The version of the format.
pub const VERSION: u32 = 5;

/// All that is said about a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// [`VERSION`].
    pub version: u32,
    /// The architecture that was emulated, as QEMU names it.
    pub target: String,
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its threads, in the order of their creation.
    pub threads: Vec<Thread>,
    /// Instructions that it ran and that QEMU does not have.
    pub unsupported: Vec<Unsupported>,
    /// Blocks that stretches have.
    pub blocks: Vec<Block>,
    /// Stretches of instructions, if they were taken.
    pub stretches: Vec<Stretch>,
    /// How often a signal handler returned.
    pub handlers: u64,
    /// How many threads have begun: as many as there are in `threads`, unless the count of one was lost.
    pub begun: u64,
}

/// A thread that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// When it was created.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its instructions, by class.
    pub counts: ClassCounts,
    /// How many of them could not be decoded.
    pub undecoded: u64,
    /// Its name when it ended, as bytes without meaning.
    pub name: Vec<u8>,
    /// How often caches of any size would have missed, if that was counted.
    pub misses: Option<Misses>,
    /// How its branches were predicted, if that was counted.
    pub branches: Option<Branches>,
}

/// What a thread's accesses miss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misses {
    /// Bytes of a cache line.
    pub line_b: u64,
    /// Numbers of lines, rising from 0, and how many accesses miss a cache of so many; the last is what no cache helps.
    pub by_lines: Vec<(u64, u64)>,
    /// Lines that a cache of 4,112 lines evicted.
    pub left: u64,
    /// Those of them that it had to write back.
    pub left_written: u64,
}

/// How a simulated predictor predicted a thread's branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branches {
    /// Those that had to be predicted: that are taken or not, or lead to where a register says.
    pub predicted: u64,
    /// Those that were predicted wrongly.
    pub mispredicted: u64,
}

/// An instruction that QEMU does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsupported {
    /// Its address in the process.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Instructions that run one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The address of the first.
    pub address: u64,
    /// The bytes of each.
    pub instructions: Vec<Vec<u8>>,
}

/// What a thread ran in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// The thread's number.
    pub tid: i32,
    /// Places in [`Process::blocks`].
    pub blocks: Vec<usize>,
    /// What the thread ran since the stretch before it in the file, or since its beginning; `None` where that is not
    /// known.
    pub ran: Option<Part>,
}

/// What a thread did in a part of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its instructions, by class.
    pub counts: ClassCounts,
    /// How often caches of any size would have missed, if that was counted.
    pub misses: Option<Misses>,
    /// How its branches were predicted, if that was counted.
    pub branches: Option<Branches>,
}
