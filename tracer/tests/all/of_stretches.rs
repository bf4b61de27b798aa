//! Kept stretches are complete, spread over the run, and at most [`MOST`](crate::stretches::MOST).

use crate::snapshot::Snapshot;
use crate::stretches::{MOST, STRIKES, Stretches};
use colocate_isa::counts::{BlockSequence, Branches, CodeBlock, ExecutionCounts};

fn code(address: u64) -> CodeBlock {
    CodeBlock { address, instructions: vec![vec![0x90], vec![0x31, 0xc0]] }
}

#[test]
fn a_stretch_names_its_blocks_in_their_order() {
    let mut taken = Stretches::new(6);
    let places = [0x30, 0x10, 0x20].map(|address| taken.block(code(address)));
    assert_eq!(taken.block(code(0x10)), places[1]);
    assert_eq!(taken.note(0, 7, places[2]), None);
    assert_eq!(taken.note(1, 8, places[0]), None);
    assert_eq!(taken.note(0, 7, places[1]), None);
    assert!(taken.note(0, 7, places[2]).is_some_and(|clock| clock < STRIKES));
    // What CPU 1 has begun is not whole, so its block is not named.
    let stretch = BlockSequence { tid: 7, blocks: vec![1, 0, 1], ran: None };
    assert_eq!(taken.taken(), (vec![code(0x10), code(0x20)], vec![stretch]));
    taken.clear();
    assert_eq!(taken.taken(), (vec![], vec![]));
}

#[test]
fn what_a_cpu_began_before_it_ended_is_dropped() {
    let mut taken = Stretches::new(4);
    let place = taken.block(code(0x10));
    assert_eq!(taken.note(0, 7, place), None);
    taken.drop_open(0);
    assert_eq!(taken.note(0, 9, place), None);
    assert!(taken.note(0, 9, place).is_some());
    assert_eq!(taken.taken().1, [BlockSequence { tid: 9, blocks: vec![0, 0], ran: None }]);
}

/// After many stretches of one block each, at least half of the limit and at most the limit are kept,
/// from all tenths of the run.
#[test]
fn bounded_and_spread() {
    let mut taken = Stretches::new(1);
    let (mut now, end) = (0, 2_000_000_000_u64);
    let mut clock = taken.wound_up();
    while now < end {
        assert!(clock < STRIKES && STRIKES - clock < 1 << 40);
        now += STRIKES - clock;
        let place = taken.block(code(now));
        clock = taken.note(0, 1, place).unwrap();
    }
    let times: Vec<u64> = taken.taken().0.iter().map(|block| block.address).collect();
    assert!((MOST / 2..MOST).contains(&times.len()), "{}", times.len());
    for tenth in 0..10 {
        let inside = |time: &&u64| (end / 10 * tenth..end / 10 * (tenth + 1)).contains(*time);
        let count = times.iter().filter(inside).count();
        assert!(count >= times.len() / 40, "{count} of {} in {tenth}", times.len());
    }
}

/// Each kept stretch has its thread's counts since the kept stretch before, so the parts add up to
/// the counts at the last stretch.
#[test]
fn parts_add_up() {
    let mut taken = Stretches::new(1);
    let place = taken.block(code(0x10));
    for end in 1..=3 * MOST as u64 {
        assert!(taken.note(0, 7, place).is_some());
        let branches = Some(Branches { predicted: 20 * end, mispredicted: 3 * end });
        taken.counted(7, Snapshot { total: [100 * end; 7], distances: None, branches });
    }
    let stretches = taken.taken().1;
    assert!((MOST / 2..MOST).contains(&stretches.len()));
    let parts: Vec<&ExecutionCounts> =
        stretches.iter().map(|stretch| stretch.ran.as_ref().unwrap()).collect();
    let sum = |of: fn(&ExecutionCounts) -> u64| parts.iter().map(|part| of(part)).sum::<u64>();
    let end = sum(|part| part.counts.instructions) / 100;
    assert_eq!(end, 3 * MOST as u64);
    assert_eq!(sum(|part| part.branches.unwrap().mispredicted), 3 * end);
    assert!(parts.iter().all(|part| part.counts.instructions > 0 && part.misses.is_none()));
}
