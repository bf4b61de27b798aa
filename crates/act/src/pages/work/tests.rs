//! What becomes of pages, traced by hand and for any memory.

use super::super::testing::{BLOCK, PAGE_B, Pretended, TestPage};
use super::*;
use proptest::prelude::*;

const NODE_1: PageTarget = PageTarget::Node(NodeNr(1));

/// Moves all pages of `memory` that are present, and says what happened.
fn moved(memory: &mut Pretended, target: PageTarget) -> OngoingMove {
    let mut work = OngoingMove::new(PAGE_B, target, false, u64::MAX);
    let pieces = memory.pieces();
    assert_eq!(work.carry_out(&pieces, memory, &mut || false).ok(), Some(true));
    work
}

#[test]
fn pieces_are_cut_at_blocks() {
    // Blocks of 4 pages; pages 2 to 13 are in memory: 2-3 small, 4-11 two blocks, 12-13 small.
    let at = |page: u64| Addr(page * 4096);
    let piece = |start, pages, whole| PageRange { start: at(start), pages, grain_b: 16384, whole };
    assert_eq!(
        pieces(at(2), 12, 4096, Some(16384)),
        [piece(2, 2, false), piece(4, 8, true), piece(12, 2, false)]
    );
    assert_eq!(pieces(at(5), 2, 4096, Some(16384)), [piece(5, 2, false)]);
    assert_eq!(pieces(at(3), 3, 4096, Some(16384)), [piece(3, 1, false), piece(4, 2, false)]);
    let whole = PageRange { start: at(5), pages: 2, grain_b: 4096, whole: false };
    assert_eq!(pieces(at(5), 2, 4096, None), [whole]);
}

/// `0` and `1`: pages on that node. `s`: shared, `b`: busy for ever, `x`: not movable. The calls
/// for the five pages on node 0 meet the shared page second: they give up there once, having
/// moved the first, and are repeated for what is behind it.
#[test]
fn each_reason_is_reported() {
    let mut memory = Pretended::drawn("0s10bx0");
    let work = moved(&mut memory, NODE_1);
    let expected = PageCounts {
        moved: 3,
        already_there: 1,
        shared: 1,
        busy: 1,
        unmovable: 1,
        ..PageCounts::default()
    };
    assert_eq!(work.counts, expected);
    assert_eq!(memory.picture(), "1s11bx1");
}

/// The first call moves the other page, and as it got further it is repeated; the second gets no
/// further, so the page waits for the next round, and moves then.
#[test]
fn what_is_busy_for_a_moment_is_moved() {
    let mut memory = Pretended::drawn("00");
    memory.pages[0] = TestPage::Held { on: 0, tries: 2 };
    assert_eq!(moved(&mut memory, NODE_1).counts.moved, 2);
    assert_eq!((memory.puts, memory.pauses), (3, 1));
}

/// While the kernel moves a page for reasons of its own, it is not found; it is looked for again, and
/// was moved.
#[test]
fn a_page_that_is_nowhere_for_a_moment_is_moved() {
    let mut memory = Pretended::drawn("0f1");
    let counts = moved(&mut memory, NODE_1).counts;
    assert_eq!((counts.moved, counts.already_there), (2, 1));
}

/// Node 1 has room for three pages. Of the first five, two stay; none is tried after that.
#[test]
fn a_full_node_is_left_alone() {
    let mut memory = Pretended::drawn(&"0".repeat(1000));
    memory.room = BTreeMap::from([(1, 3)]);
    let counts = moved(&mut memory, NODE_1).counts;
    assert_eq!((counts.moved, counts.no_memory), (3, 997));
    assert_eq!(memory.puts, 1);
}

/// Two huge pages of four: `[0000]`. One address each; a huge page on the node is left alone.
#[test]
fn a_huge_page_takes_one_address() {
    let mut memory = Pretended::drawn("[0000][1111][0000]");
    let work = moved(&mut memory, NODE_1);
    assert_eq!((work.counts.moved, work.counts.already_there), (8, 4));
    assert_eq!(memory.picture(), "[1111][1111][1111]");
    assert_eq!(memory.asked_to_move, 2);
}

/// A block of small pages in a mapping with huge ones: its first page moves by the block's
/// address, the other three as small ones.
#[test]
fn a_block_of_small_pages_moves_as_such() {
    let mut memory = Pretended::drawn("[0000]0000");
    let work = moved(&mut memory, NODE_1);
    assert_eq!(work.counts.moved, 8);
    assert_eq!(memory.picture(), "[1111]1111");
    assert_eq!(memory.asked_to_move, 5);
}

/// Small pages take turns; blocks take turns as a whole.
#[test]
fn interleaving_goes_by_address() {
    let both = || PageTarget::Interleave(vec![NodeNr(0), NodeNr(1)]);
    let mut memory = Pretended::drawn("00000");
    moved(&mut memory, both());
    assert_eq!(memory.picture(), "01010");
    let mut memory = Pretended::drawn("[0000][0000]1111");
    moved(&mut memory, both());
    assert_eq!(memory.picture(), "[0000][1111]0000");
}

#[test]
fn stopped_in_the_middle_it_says_how_far_it_came() {
    let mut memory = Pretended::drawn(&"0".repeat(1000));
    let mut work = OngoingMove::new(PAGE_B, NODE_1, false, u64::MAX);
    let mut batches = 0;
    let mut stop = || {
        batches += 1;
        batches > 2
    };
    assert_eq!(work.carry_out(&memory.pieces(), &mut memory, &mut stop).ok(), Some(false));
    // The pretended time does not pass, so the second batch is twice the first: 64 + 128.
    let counts = work.counts;
    assert_eq!((counts.moved, counts.not_reached), (192, 808));
    assert_eq!(work.reached, Some(Addr(192 * PAGE_B)));
    assert_eq!(memory.picture().matches('1').count(), 192);
}

/// Pages that are there are queried 64, then 128, 256, 512 at a time; of the next 1,024 the 996
/// behind page 988 are elsewhere, and go 64, 128, 256, 512, 36 at a time.
#[test]
fn what_is_there_is_passed_quickly_and_what_is_not_at_the_usual_pace() {
    let mut memory = Pretended::drawn(&("1".repeat(988) + &"0".repeat(996)));
    let work = moved(&mut memory, NODE_1);
    assert_eq!((work.counts.moved, work.counts.already_there), (996, 988));
    let looked: Vec<u64> = work.batches.iter().map(|batch| batch.pages).collect();
    assert_eq!(looked, [64, 128, 256, 512, 1024, 128, 256, 512, 36]);
}

/// Behind pages that are held for ever, all others are still tried.
#[test]
fn held_pages_hide_no_others() {
    let mut memory = Pretended::drawn(&("1".repeat(4000) + &"b".repeat(70) + &"0".repeat(70)));
    let work = moved(&mut memory, NODE_1);
    assert_eq!((work.counts.moved, work.counts.busy), (70, 70));
}

#[test]
fn a_dry_run_moves_nothing() {
    let mut memory = Pretended::drawn("0s10bx0");
    let mut work = OngoingMove::new(PAGE_B, NODE_1, true, u64::MAX);
    assert_eq!(work.carry_out(&memory.pieces(), &mut memory, &mut || false).ok(), Some(true));
    let expected = PageCounts { moved: 5, already_there: 1, unmovable: 1, ..PageCounts::default() };
    assert_eq!((work.counts, memory.puts), (expected, 0));
    assert_eq!(memory.picture(), "0s10bx0");
}

#[test]
fn a_process_that_ends_in_the_middle_is_an_error() {
    let mut memory = Pretended::drawn(&"0".repeat(1000));
    memory.ends_after = Some(3);
    let mut work = OngoingMove::new(PAGE_B, NODE_1, false, u64::MAX);
    let error = work.carry_out(&memory.pieces(), &mut memory, &mut || false).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ESRCH));
    assert_eq!(work.counts.total(), 1000);
    assert_eq!((work.counts.moved, work.counts.not_reached), (64, 936));
    assert_eq!(work.reached, Some(Addr(64 * PAGE_B)));
}

prop_compose! {
    /// Up to 60 blocks, each huge or of small pages of any kind, and up to three nodes, some
    /// with little room.
    fn any_memory()(
        blocks in prop::collection::vec(
            prop_oneof![
                2 => (0_u32..3).prop_map(|node| format!("[{0}{0}{0}{0}]", node)),
                3 => "[012sbxhf]{4}",
                1 => "[0-]{4}",
            ], 1..60),
        room in prop::collection::btree_map(0_u32..3, 0_u64..80, 0..3),
        cost in 0_u64..10_000_000,
    ) -> Pretended {
        let mut memory = Pretended::drawn(&blocks.concat());
        memory.room = room;
        memory.cost = Nanos(cost);
        memory
    }
}

fn any_target() -> impl Strategy<Value = PageTarget> {
    prop_oneof![
        (0_u32..3).prop_map(|node| PageTarget::Node(NodeNr(node))),
        Just(PageTarget::Interleave((0..3).map(NodeNr).collect())),
        Just(PageTarget::Interleave(vec![NodeNr(0), NodeNr(2)])),
    ]
}

proptest! {
    #[test]
    fn every_page_has_one_fate(mut memory in any_memory(), target in any_target()) {
        let given: u64 = memory.pieces().iter().map(|piece| piece.pages).sum();
        prop_assert_eq!(moved(&mut memory, target).counts.total(), given);
    }

    #[test]
    fn moved_means_there(mut memory in any_memory(), target in any_target()) {
        // Before: when all huge pages were split for want of room, none tells of blocks any more.
        let (before, grain_b) = (memory.places(), memory.grain_b());
        let work = moved(&mut memory, target.clone());
        let after = memory.places();
        let there = |(page, node): (&Addr, &u32)| {
            before[page] != *node && *node == target.of(*page, grain_b).0
        };
        let found = after.iter().filter(|place| there(*place)).count() as u64;
        prop_assert_eq!(work.counts.moved, found);
        for (page, node) in work.sample.pages() {
            prop_assert_eq!(after[page], node.0);
        }
    }

    #[test]
    fn nothing_else_moves(mut memory in any_memory(), target in any_target()) {
        let (all, before) = (memory.pieces(), memory.places());
        // Every second piece is given.
        let given: Vec<PageRange> = all.iter().step_by(2).copied().collect();
        let mut work = OngoingMove::new(PAGE_B, target, false, u64::MAX);
        work.carry_out(&given, &mut memory, &mut || false).unwrap();
        for (page, node) in memory.places() {
            let is_given = given.iter().any(|piece| {
                (piece.start.0..piece.start.0 + piece.pages * PAGE_B).contains(&page.0)
            });
            prop_assert!(is_given || before[&page] == node, "{page}");
        }
    }

    #[test]
    fn within_the_budget(mut memory in any_memory(), target in any_target(), most in 0_u64..100) {
        let given = memory.pieces();
        let (before, pages) = (memory.places(), given.iter().map(|piece| piece.pages).sum::<u64>());
        let mut work = OngoingMove::new(PAGE_B, target, false, most);
        let done = work.carry_out(&given, &mut memory, &mut || false).unwrap();
        prop_assert_eq!(work.counts.total(), pages);
        prop_assert!(done || work.called >= most);
        let elsewhere = memory.places().iter().filter(|(page, node)| before[*page] != **node).count();
        // Less than a huge page more.
        let bound = if most > 0 { most + BLOCK as u64 - 1 } else { 0 };
        prop_assert!(elsewhere as u64 <= bound, "{} of {}", elsewhere, most);
    }

    #[test]
    fn huge_pages_stay_whole(mut memory in any_memory(), target in any_target()) {
        memory.room.clear();
        let before = memory.picture().matches('[').count();
        moved(&mut memory, target);
        prop_assert_eq!(memory.picture().matches('[').count(), before);
        prop_assert!(memory.is_sound());
    }
}
