//! When moving pages is worth it.
//!
//! # Problem
//! A thread is about to access pages that are on another node. To leave them there costs something at each access that the caches
//! do not serve; to move them costs something once. Threads of other nodes may use them, too.
//! # Approach
//! What the accesses of each node's threads cost more from afar is added up as calls announce it, and halved each second. Pages move
//! to a node once its sum exceeds that of the node where they are by more than moving costs. So a loop with much reuse moves its
//! pages at once, one that comes again and again in the end, and an array that all nodes use alike stays where it is. Each move
//! makes the next one dearer.
//! # Terms
//! Extra cost: nanoseconds that accesses take longer since the pages are on another node. Sums are of blocks of 64 KiB
//! ([`crate::blocks`]).
//! # Algorithm
//! `extra = lines × (remote − local)`, where lines are those from memory: the range once if it fits the caches, else all that are
//! accessed. Pages move if `sum(here) > sum(home) + pages × move × 2^moves`.
//! # Properties
//! - **No reuse, no move**: what is read once stays, whatever its size. -> test `read_once_stays`
//! - **At once or in the end**: the same accesses in one call or in many move the pages. -> test `in_one_call_or_in_many`
//! - **Shared stays**: pages that two nodes use alike move once at most. -> test `shared_pages_move_once`
//! - **Bounded**: whatever comes, a block moves so often at most that the cost of the next move exceeds all sums. -> test
//!   `moves_are_few`

use crate::costs::Costs;

/// A line of a cache, in bytes.
const LINE: u64 = 64;
/// So often a block's move doubles the cost of the next one.
pub const MOST_DOUBLED: u8 = 16;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// Pages were moved.
    Moved,
    /// The range is empty, or no range.
    Empty,
    /// It has no whole page.
    Small,
    /// The kernel did not say on which node the thread runs.
    NoNode,
    /// Moving would cost more than it has saved so far.
    NotYet,
    /// All pages are here already.
    Here,
    /// Moving has taken too much time lately.
    Budget,
    /// The kernel moved none: they are of files, shared with other processes, or not there.
    Refused,
}

/// How many there are.
pub const WHYS: usize = 8;

/// What the accesses to a range cost more from another node, in nanoseconds.
#[must_use]
pub fn extra_ns(size: u64, bytes: u64, costs: &Costs) -> u64 {
    let from_memory = if size <= costs.cache_bytes { bytes.min(size) } else { bytes };
    (from_memory / LINE).saturating_mul(costs.remote_line_ps) / 1000
}

/// Whether pages whose sums are these are to move here, after so many moves.
#[must_use]
pub fn is_worth_moving(here_ns: u64, home_ns: u64, pages: u64, moves: u8, costs: &Costs) -> bool {
    let doubled = 1 << moves.min(MOST_DOUBLED);
    let cost = pages.saturating_mul(costs.page_move_ns).saturating_mul(doubled);
    here_ns > home_ns.saturating_add(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs { page_move_ns: 2_000, remote_line_ps: 4_000, cache_bytes: 1 << 20, ..Costs::ASSUMED }
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
