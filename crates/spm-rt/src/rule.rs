//! Rule for moving pages.
//!
//! # Problem
//! A thread is about to access pages on another node. Leaving the pages costs time at each access
//! that the caches do not serve; moving the pages costs time once. Threads on further nodes may use
//! the pages, too.
//! # Approach
//! The extra cost of each node's accesses is summed as calls announce them, and halved each second.
//! Pages move to a node once its sum exceeds the sum of their home node by more than the cost of a
//! move. So a loop with much reuse moves its pages at once, a repeated loop in the end, and an
//! array that all nodes use alike stays. Each move makes the next move dearer.
//! # Terms
//! Extra cost: additional nanoseconds of accesses to pages on another node. Sums are kept per block
//! of 64 KiB ([`crate::blocks`]).
//! # Algorithm
//! `extra = lines × (remote − local)`, where lines are those from memory: the range once if it fits
//! the caches, else all that are accessed. Pages move if `sum(here) > sum(home) + pages × move ×
//! 2^moves`.
//! # Properties
//! - **No reuse, no move**: what is read once stays, whatever its size. -> test `read_once_stays`
//! - **At once or in the end**: the same accesses in one call or in many move the pages.
//!   -> test `in_one_call_or_in_many`
//! - **Shared stays**: pages that two nodes use alike move once at most.
//!   -> test `shared_pages_move_once`
//! - **Bounded**: whatever comes, a block moves so often at most that the cost of the next move
//!   exceeds all sums. -> test `moves_are_few`

use crate::costs::MemoryCosts;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Number of moves of a block that double the cost of its next move; later moves do not.
pub const MOST_DOUBLED: u8 = 16;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallOutcome {
    /// Pages were moved.
    Moved,
    /// The range is empty or invalid.
    Empty,
    /// The range is below a page.
    Small,
    /// The thread's node is unknown.
    NoNode,
    /// A move would cost more than it has saved so far.
    NotYet,
    /// All pages are here already.
    Here,
    /// The budget for moving is spent.
    Budget,
    /// The kernel moved no page: file pages, shared with other processes, or not mapped.
    Refused,
}

/// Number of outcomes.
pub const WHYS: usize = 8;

/// Extra cost of accesses to a range from another node, in nanoseconds.
#[must_use]
pub fn extra_ns(size: u64, bytes: u64, costs: &MemoryCosts) -> u64 {
    let from_memory = if size <= costs.cache_bytes { bytes.min(size) } else { bytes };
    (from_memory / LINE).saturating_mul(costs.remote_line_ps) / 1000
}

/// True if pages should move, by the sums of the thread's node (`here_ns`) and the home node
/// (`home_ns`), after `moves` earlier moves.
#[must_use]
pub fn is_worth_moving(
    here_ns: u64,
    home_ns: u64,
    pages: u64,
    moves: u8,
    costs: &MemoryCosts,
) -> bool {
    let doubled = 1 << moves.min(MOST_DOUBLED);
    let cost = pages.saturating_mul(costs.page_move_ns).saturating_mul(doubled);
    here_ns > home_ns.saturating_add(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> MemoryCosts {
        MemoryCosts {
            page_move_ns: 2_000,
            remote_line_ps: 4_000,
            cache_bytes: 1 << 20,
            ..MemoryCosts::ASSUMED
        }
    }

    #[test]
    fn read_once_stays() {
        for size in [1_u64 << 16, 1 << 20, 1 << 30] {
            let extra = extra_ns(size, size, &costs());
            // 64 lines of 4 ns a page, against 2 µs.
            assert_eq!(extra, size / 64 * 4);
            assert!(!is_worth_moving(extra, 0, size / 4096, 0, &costs()));
        }
    }

    #[test]
    fn small_ranges_stay_in_the_caches() {
        let size = 1 << 19;
        assert_eq!(extra_ns(size, 1_000 * size, &costs()), extra_ns(size, size, &costs()));
        assert!(
            extra_ns(1 << 21, 1_000 << 21, &costs()) > 900 * extra_ns(1 << 21, 1 << 21, &costs())
        );
    }
}
