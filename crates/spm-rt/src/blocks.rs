//! Extra cost of remote accesses, by block of memory and node of the accessing threads.
//!
//! A range is split into whole blocks of 64 KiB, and into pages where it begins or ends within a
//! block: the rest of such a block mostly belongs to another thread.
//!
//! The table has a fixed size and no locks: concurrent updates may be lost. Entries of blocks that
//! have not been accessed for some seconds are reused.

use crate::PAGE;
use crate::costs::MemoryCosts;
use crate::nodes::{MOST, NodeNr};
use crate::rule;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes of a whole block: a power of two.
pub const BLOCK: u64 = 1 << 16;
/// Entries of the table, for 4 GiB of whole blocks.
const BLOCKS: usize = 1 << 16;
/// Entries tried for a block. Chosen.
const TRIES: u64 = 8;
/// Seconds without an access after which an entry may be reused. Chosen.
const FORGOTTEN: u32 = 4;
/// Unknown home; a known home is stored as node + 1. An all-zero table is empty and takes no space
/// in a program's file.
const UNKNOWN: u8 = 0;

/// Entry for a whole block, or for a page.
#[derive(Debug)]
pub struct BlockEntry {
    /// Key of the [`BlockSpan`], never 0; 0: unused entry.
    key: AtomicU64,
    /// Second of the last halving.
    second: AtomicU32,
    home: AtomicU8,
    moves: AtomicU8,
    extra_ns: [AtomicU32; MOST],
}

static TABLE: [BlockEntry; BLOCKS] = [const {
    BlockEntry {
        key: AtomicU64::new(0),
        second: AtomicU32::new(0),
        home: AtomicU8::new(UNKNOWN),
        moves: AtomicU8::new(0),
        extra_ns: [const { AtomicU32::new(0) }; MOST],
    }
}; BLOCKS];

/// Part of a range: a whole block, or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpan {
    /// First address.
    pub first: u64,
    /// Address after the last.
    pub end: u64,
}

impl BlockSpan {
    /// Span at `address`, inside `range`.
    #[must_use]
    pub fn at(address: u64, range: (u64, u64)) -> Self {
        let block = Self::aligned(address, BLOCK);
        let is_inside = range.0 <= block.first && block.end <= range.1;
        if is_inside { block } else { Self::aligned(address, PAGE) }
    }

    const fn aligned(address: u64, size: u64) -> Self {
        let first = address & !(size - 1);
        Self { first, end: first + size }
    }

    /// All spans of a range, in order.
    pub fn all(range: (u64, u64)) -> impl Iterator<Item = Self> {
        let mut address = range.0;
        core::iter::from_fn(move || {
            let span = (address < range.1).then(|| Self::at(address, range))?;
            address = span.end;
            Some(span)
        })
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        (self.end - self.first) / PAGE
    }

    /// Share of the range's extra cost, by size.
    fn part_of(self, extra_ns: u64, range: (u64, u64)) -> u64 {
        // At most 2^37 ns times 2^16: no overflow.
        let inside = self.end.min(range.1) - self.first.max(range.0);
        extra_ns.min(1 << 37) * inside / (range.1 - range.0)
    }

    /// Key of the span: even for whole blocks, odd for pages. Neighbours have neighbouring keys.
    const fn key(self) -> u64 {
        // Added numbers, since the key 0 is an unused entry.
        if self.end - self.first == BLOCK {
            self.first / BLOCK * 2 + 2
        } else {
            self.first / PAGE * 2 + 1
        }
    }

    /// Entry of the span; `None` if unknown.
    #[must_use]
    pub fn get(self) -> Option<&'static BlockEntry> {
        self.places().find(|block| block.key.load(Relaxed) == self.key())
    }

    #[allow(clippy::cast_possible_truncation)] // below their number
    fn places(self) -> impl Iterator<Item = &'static BlockEntry> {
        // Sixteen neighbours share a group of entries, for cache locality. Each try is in another
        // group, since dense arrays fill whole regions of the table.
        let number = self.key() / 2;
        let kind = self.key() % 2;
        // Fibonacci hashing: the constant is 2^64 over the golden ratio.
        let hash = (number / 16 * 2 + kind).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..TRIES).map(move |at| {
            // An odd factor keeps all bits of the hash. The upper 16 bits are an index of the
            // table.
            let group = hash.wrapping_mul(2 * at + 1) >> 48 & !15;
            &TABLE[(group | (number % 16)) as usize % BLOCKS]
        })
    }

    /// Entry of the span, added if unknown; `None` if no entry is free.
    fn get_or_begin(self, second: u32) -> Option<&'static BlockEntry> {
        if let Some(block) = self.get() {
            return Some(block);
        }
        let block = self.places().find(|block| {
            let old = block.second.load(Relaxed).saturating_add(FORGOTTEN) < second;
            block.key.load(Relaxed) == 0 || old
        })?;
        let before = block.key.load(Relaxed);
        // The exchange fails for all but one of several threads that take the entry.
        block.key.compare_exchange(before, self.key(), Relaxed, Relaxed).ok()?;
        block.second.store(second, Relaxed);
        block.home.store(UNKNOWN, Relaxed);
        block.moves.store(0, Relaxed);
        block.extra_ns.iter().for_each(|extra| extra.store(0, Relaxed));
        Some(block)
    }
}

/// Value of pages for the threads of a node; for a range the largest value of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// Less than the cost of a move.
    Little,
    /// More than the cost of a move, but the pages are on the node, or are used as much from their
    /// home.
    Having,
    /// A move to the node may pay.
    Moving,
}

/// Adds the extra cost of a thread's accesses from node `here` to a range, at a time in seconds.
/// Returns the range's value for `here`.
pub fn add(
    range: (u64, u64),
    extra_ns: u64,
    here: NodeNr,
    second: u32,
    costs: &MemoryCosts,
) -> Worth {
    let mut worth = Worth::Little;
    for span in BlockSpan::all(range) {
        let Some(block) = span.get_or_begin(second) else { continue };
        block.age(second);
        block.add(here, span.part_of(extra_ns, range));
        worth = worth.max(block.worth(here, span.pages(), costs));
    }
    worth
}

/// Subtracts an earlier [`add`] for `node`, since the thread has left the node.
pub fn take(range: (u64, u64), extra_ns: u64, node: NodeNr) {
    for span in BlockSpan::all(range) {
        let sum = span.get().and_then(|block| block.extra_ns.get(usize::from(node)));
        let less = u32::try_from(span.part_of(extra_ns, range)).unwrap_or(u32::MAX);
        if let Some(sum) = sum {
            sum.store(sum.load(Relaxed).saturating_sub(less), Relaxed);
        }
    }
}

impl BlockEntry {
    /// Halves the sums for each second passed, and forgets the home.
    fn age(&self, second: u32) {
        let passed = second.saturating_sub(self.second.load(Relaxed));
        if passed == 0 {
            return;
        }
        self.second.store(second, Relaxed);
        self.home.store(UNKNOWN, Relaxed);
        for extra in &self.extra_ns {
            // A shift of 32 bits or more leaves nothing.
            extra.store(extra.load(Relaxed).checked_shr(passed).unwrap_or(0), Relaxed);
        }
    }

    fn add(&self, node: NodeNr, extra_ns: u64) {
        let Some(sum) = self.extra_ns.get(usize::from(node)) else { return };
        let more = u32::try_from(extra_ns).unwrap_or(u32::MAX);
        sum.store(sum.load(Relaxed).saturating_add(more), Relaxed);
    }

    /// Sum of a node's extra cost, in ns.
    #[must_use]
    pub fn extra_ns(&self, node: NodeNr) -> u64 {
        self.extra_ns.get(usize::from(node)).map_or(0, |sum| sum.load(Relaxed).into())
    }

    /// Home node of the pages; `None`: unknown.
    #[must_use]
    pub fn home(&self) -> Option<NodeNr> {
        self.home.load(Relaxed).checked_sub(1)
    }

    /// Number of moves.
    #[must_use]
    pub fn moves(&self) -> u8 {
        self.moves.load(Relaxed)
    }

    /// Sets the home node.
    pub fn set_home(&self, home: NodeNr) {
        // From 1 on: 0 is an unknown home.
        self.home.store(home.saturating_add(1), Relaxed);
    }

    /// Sets the home node and counts a move.
    pub fn moved_to(&self, home: NodeNr) {
        self.set_home(home);
        self.moves.store(self.moves().saturating_add(1), Relaxed);
    }

    /// Value of the pages for a node; an unknown home counts as unused there.
    #[must_use]
    pub fn worth(&self, here: NodeNr, pages: u64, costs: &MemoryCosts) -> Worth {
        let extra = self.extra_ns(here);
        if !rule::is_worth_moving(extra, 0, pages, 0, costs) {
            return Worth::Little;
        }
        // For pages that are already here both sums are equal, so the answer is never `Moving`.
        let there = self.home().map_or(0, |home| self.extra_ns(home));
        let is_worth_it = rule::is_worth_moving(extra, there, pages, self.moves(), costs);
        if is_worth_it { Worth::Moving } else { Worth::Having }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COSTS: MemoryCosts = MemoryCosts { page_move_ns: 1_000, ..MemoryCosts::ASSUMED };
    /// Least extra cost of a whole block that moves.
    const DEAR: u64 = 16 * 1_000 + 1;

    /// Eight blocks that no other test has.
    fn range(test: u64) -> (u64, u64) {
        (test * 64 * BLOCK, (test * 64 + 8) * BLOCK)
    }

    fn blocks(range: (u64, u64)) -> impl Iterator<Item = &'static BlockEntry> {
        BlockSpan::all(range).filter_map(BlockSpan::get)
    }

    /// Model of `move_worthy` on a machine that moves every requested page.
    fn moves(range: (u64, u64), here: NodeNr) -> usize {
        let worthy = blocks(range).filter(|block| block.worth(here, 16, &COSTS) == Worth::Moving);
        worthy.inspect(|block| block.moved_to(here)).count()
    }

    #[test]
    fn in_one_call_or_in_many() {
        assert_eq!(add(range(1), 8 * DEAR, 3, 0, &COSTS), Worth::Moving);
        let calls = (1..).find(|_| add(range(2), 8 * DEAR / 10, 3, 0, &COSTS) == Worth::Moving);
        assert_eq!(calls, Some(11), "rounded down");
        assert_eq!((moves(range(1), 3), moves(range(2), 3)), (8, 8));
        assert_eq!(add(range(1), 8 * DEAR, 3, 0, &COSTS), Worth::Having, "they are there");
    }

    #[test]
    fn shared_pages_move_once() {
        for round in 0..20 {
            for node in [1, 2, 3, 4] {
                let may = add(range(3), 80 * DEAR, node, 0, &COSTS) == Worth::Moving;
                assert_eq!(
                    may && moves(range(3), node) > 0,
                    round == 0 && node == 1,
                    "{round} {node}"
                );
            }
        }
    }

    #[test]
    fn a_new_user_gets_them_in_the_end() {
        add(range(4), 80 * DEAR, 1, 10, &COSTS);
        assert_eq!(moves(range(4), 1), 8);
        let at = (11..20).find(|second| {
            add(range(4), 30 * DEAR, 2, *second, &COSTS) == Worth::Moving && {
                // What the kernel would say.
                blocks(range(4)).for_each(|block| block.set_home(1));
                moves(range(4), 2) == 8
            }
        });
        // 15 against 40 tenths of 16 µs a block then, and 30 against 10 a second later, doubled cost included.
        assert_eq!(at, Some(12));
    }

    #[test]
    fn spans_by_hand() {
        let spans = |first, end| -> Vec<(u64, u64)> {
            BlockSpan::all((first, end)).map(|span| (span.first, span.end)).collect()
        };
        assert_eq!(spans(0, 2 * BLOCK), [(0, BLOCK), (BLOCK, 2 * BLOCK)]);
        // The last page but one, the last page, a block, and a part of a page.
        let expected = [
            (BLOCK - 2 * PAGE, BLOCK - PAGE),
            (BLOCK - PAGE, BLOCK),
            (BLOCK, 2 * BLOCK),
            (2 * BLOCK, 2 * BLOCK + PAGE),
        ];
        assert_eq!(spans(BLOCK - PAGE - 1, 2 * BLOCK + 1), expected);
        assert_eq!(spans(5, 5), []);
    }

    /// As if the thread had been on the other node before: what it leaves behind keeps no page.
    #[test]
    fn a_thread_that_leaves_takes_its_sums_along() {
        let part = (range(6).0 + PAGE, range(6).1);
        assert_eq!(add(part, 8 * DEAR, 1, 0, &COSTS), Worth::Moving);
        BlockSpan::all(part).filter_map(BlockSpan::get).for_each(|block| block.set_home(1));
        take(part, 8 * DEAR, 1);
        assert!(BlockSpan::all(part).all(|span| span.get().unwrap().extra_ns(1) == 0));
        assert_eq!(add(part, 8 * DEAR, 2, 0, &COSTS), Worth::Moving);
    }

    /// Arrays one after the other, none of which begins with a block: of each block and page something is known.
    #[test]
    fn dense_arrays_have_their_places() {
        for array in 0..96 {
            let first = (1 << 36) + array * 129 * PAGE + 64;
            let part = (first, first + 128 * PAGE);
            add(part, 128 * DEAR, 1, 0, &COSTS);
            assert!(BlockSpan::all(part).all(|span| span.get().is_some()), "{array}");
        }
    }

    /// Two threads, whose parts meet in the middle of a block.
    #[test]
    fn neighbours_have_their_own() {
        let (first, end) = range(5);
        let middle = (first + end) / 2 + BLOCK / 2;
        for (node, part) in [(1, (first, middle)), (2, (middle, end))] {
            assert_eq!(add(part, 80 * DEAR, node, 0, &COSTS), Worth::Moving);
            assert!(BlockSpan::all(part).all(|span| span.get().unwrap().extra_ns(3 - node) == 0));
        }
    }

    proptest! {
        /// For any calls, each move of a block costs twice its last move, and sums are bounded by
        /// the added costs.
        #[test]
        fn moves_are_few(calls in prop::collection::vec((0..4_u8, 0..400_u64), 1..200), test in 100..500_u64) {
            let range = range(test);
            let before: u64 = blocks(range).map(|block| u64::from(block.moves())).sum();
            prop_assume!(before == 0);
            let mut total = 0;
            for (node, times) in calls {
                total += times * DEAR;
                add(range, 8 * times * DEAR, node, 0, &COSTS);
                moves(range, node);
            }
            for block in blocks(range) {
                // Node 0 to 3: the dearest move that was worth it cost less than all that was added.
                let moves = u32::from(block.moves());
                prop_assert!(moves == 0 || 16_000 << (moves - 1) < total, "{moves} {total}");
            }
        }
    }
}
