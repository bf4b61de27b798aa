//! A machine's caches, kept coherent, and the detector of communication in them.
//!
//! # Problem
//! Threads that share data do not wake each other: that they communicate shows only in the caches. Cruz et al. (JPDC 2014) add
//! counters to the coherence protocol. No processor has them, so they are simulated, with the caches that they are in: which
//! accesses hit, what is invalidated and transferred, and how long it takes under which mapping.
//! # Approach
//! Caches of any described machine form a tree; a directory says for each line which of them have it. A hit in the nearest
//! cache looks at nothing else, as one bit says that a line may be written silently.
//! # Terms
//! - *Path* of a PU: the caches that its accesses pass, nearest first.
//! - *Owner* of a line: the cache that has to write it back, states M and O. *Unique*: no cache outside of this one's path has
//!   it, states M and E.
//! - *Invalidation*: a copy that is lost since another PU writes, one for each cache.
//! # Algorithm
//! A read that the nearest cache does not serve:
//! 1. The first cache of the path with the line serves it, unless a cache beside the path owns it: then that one does. Else it
//!    comes from a cache that shares one of the path, the nearest such, else from memory.
//! 2. A line that was unique elsewhere is not any more. Under MESI its owner writes it back, to the nearest cache that it shares with the
//!    reader, else to memory; caches that the data passes have it, too. Under MOESI it stays its owner.
//! 3. The caches of the path up to the one that served are filled; an exclusive one does not, and drops it.
//!
//! A write that is not to a unique line gets the line in the same way, and invalidates it in all caches beside the path.
//!
//! A cache that evicts a line writes it to the next one of the path if it owns it, or if that is exclusive. An inclusive cache
//! evicts it from all nearer caches, too.
//! # Properties
//! - **Protocol**: MESI and MOESI, step by step. -> tests `mesi_by_hand`, `moesi_by_hand`
//! - **One writer**: no cache beside the path of the last writer has an older copy. -> test `as_the_plain_model`
//! - **As the plain model**: hits, transfers, invalidations and vectors are those of a model without directory. -> same test
//! - **Detector**: the examples of the paper's sections 3.2 and 3.3.2. -> tests `example_of_3_2`, `example_of_3_3_2`
//! # Limits
//! Accesses take place one after the other, and each takes its whole time: no store buffer, no prefetch, no bandwidth, no address
//! translation. Memory is as far from all PUs. Instruction fetches are not there.

mod cache;
mod detector;
mod directory;
mod geometry;
pub mod patterns;
mod protocol;
pub mod replay;
#[cfg(test)]
mod tests;
pub mod traced;

pub use detector::DetectAt;
pub use geometry::{CacheShape, Geometry, MOST, MOST_LINES, Transfers};
pub use protocol::{Coherent, Counts, Protocol, Served};

use colocate_machine::PuIdx;
use thiserror::Error;

/// Why a machine cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// More caches or PUs than [`MOST`].
    #[error("expected at most {MOST} caches and PUs, found {caches} and {pus}")]
    TooMany {
        /// Caches.
        caches: usize,
        /// PUs.
        pus: usize,
    },
    /// More PUs that share a nearest cache than there are bits for.
    #[error("expected at most 8 PUs that share a nearest cache, found {0}")]
    TooManySiblings(usize),
    /// Nothing is known of its memory.
    #[error("expected how fast the machine is, found no memory in its description")]
    NoMemory,
    /// A cache whose size is not known.
    #[error("expected the size of each cache, found none for L{level}")]
    UnknownSize {
        /// Its level.
        level: u8,
    },
    /// A cache whose speed is not known.
    #[error("expected the latency of each cache, found none for L{level}")]
    UnknownSpeed {
        /// Its level.
        level: u8,
    },
    /// A cache with too few lines.
    #[error(
        "expected caches of 8 lines and more with a power of two of sets, found L{level} with {lines} lines"
    )]
    TooSmall {
        /// Its level.
        level: u8,
        /// Its lines.
        lines: u64,
    },
    /// Caches with more lines than are simulated.
    #[error(
        "expected caches of at most {MOST_LINES} lines together (4 GiB with lines of 64 bytes), found L{level} with {lines} lines"
    )]
    TooLarge {
        /// The level with which they are too many.
        level: u8,
        /// Lines of one cache of that level.
        lines: u64,
    },
    /// The size of a line.
    #[error("expected lines of a power of two of bytes, found {0}")]
    Line(u32),
    /// A PU without a cache.
    #[error("expected a cache for each PU, found none for PU {}", .0.0)]
    NoCache(PuIdx),
    /// PUs that share a cache, but not all caches beyond it.
    #[error(
        "expected caches that form a tree: PUs that share an L{level} do not share all caches beyond it"
    )]
    NoTree {
        /// The level of the nearer one.
        level: u8,
    },
}
