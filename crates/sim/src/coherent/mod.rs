//! A machine's caches, kept coherent, and the detector of communication in them.
//!
//! # Problem
//! Threads that share data do not wake each other: their communication shows only in the caches.
//! Cruz et al. (JPDC 2014) add counters to the coherence protocol. No processor has them, so the
//! caches and the counters are simulated: hits, invalidations, transfers, and the time under each
//! mapping.
//! # Approach
//! Caches of any described machine form a tree; a directory has for each line the caches with a
//! copy. A hit in the nearest cache needs no lookup elsewhere, as one bit marks lines that may be
//! written silently. The nearest cache evicts silently if another cache of its path has the
//! line: the directory removes the holder at its next use of the entry.
//! # Terms
//! - *Path* of a PU: the caches that its accesses pass, nearest first.
//! - *Owner* of a line: the cache that has to write it back, states M and O. *Unique*: no cache
//!   outside of this cache's path has it, states M and E.
//! - *Invalidation*: a copy that is lost since another PU writes, one for each cache.
//! # Algorithm
//! A read that the nearest cache does not serve:
//! 1. The owner serves the line if it is beside the path. Else the first cache of the path with the
//!    line serves it, else the nearest cache that shares a cache of the path, else memory.
//! 2. A line that was unique elsewhere becomes shared. Under MESI its owner writes it back, to the
//!    nearest cache that it shares with the reader, else to memory; caches that the data passes get
//!    a copy, too. Under MOESI the owner stays.
//! 3. The caches of the path up to the serving one are filled; an exclusive cache is not, and drops
//!    the line.
//!
//! A write to a line that is not unique gets the line in the same way, and invalidates it in all
//! caches beside the path.
//!
//! A cache that evicts a line writes it to the next cache of the path if it owns the line, or if
//! the next cache is exclusive. An inclusive cache evicts the line from all nearer caches, too.
//! # Properties
//! - **Protocol**: MESI and MOESI, step by step. -> tests `mesi_by_hand`, `moesi_by_hand`
//! - **One writer**: no cache beside the path of the last writer has an older copy. -> test
//!   `as_the_plain_model`
//! - **As the plain model**: hits, transfers, invalidations and vectors are those of a model
//!   without directory. -> same test
//! - **Detector**: the examples of the paper's sections 3.2 and 3.3.2. -> tests `example_of_3_2`,
//!   `example_of_3_3_2`
//! # Limits
//! Accesses take place one after the other, and each takes its whole time: no store buffer, no
//! prefetch, no bandwidth, no address translation. Memory is as far from all PUs. Instruction
//! fetches are left out.

mod cache;
mod detector;
mod directory;
mod geometry;
pub mod patterns;
mod protocol;
pub mod replay;
mod sets;
#[cfg(test)]
mod tests;
pub mod traced;
mod widths;

pub use detector::DetectAt;
pub use geometry::{CacheShape, Geometry, MOST, MOST_LINES, Transfers};
pub use protocol::{CoherenceCounts, Protocol, Served};
pub use widths::Coherent;

use thiserror::Error;

/// Why a machine cannot be simulated, in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct GeometryError(String);
