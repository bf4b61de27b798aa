//! Assignment of counters to blocks: totals do not depend on the assignment.

use crate::slots::{BlockTally, KINDS, SLOTS, Slots, with_instruction};
use colocate_isa::{Class, ClassSet};

/// A tally that is unique to `number`.
fn tally(number: u16) -> BlockTally {
    [512, number % 512, number / 512, 0, 7, 0, 1]
}

/// Totals of the counters after each of `tallies` blocks has run once.
fn total(tallies: &[BlockTally]) -> (Slots, [u64; KINDS]) {
    let mut slots = Slots::default();
    let mut counters = vec![0; SLOTS];
    for tally in tallies {
        for addition in slots.additions(*tally) {
            counters[addition.slot] += addition.amount;
        }
    }
    let total = slots.total(&counters);
    (slots, total)
}

fn sum(tallies: &[BlockTally]) -> [u64; KINDS] {
    let mut sum = [0; KINDS];
    for tally in tallies {
        for (sum, amount) in sum.iter_mut().zip(tally) {
            *sum += u64::from(*amount);
        }
    }
    sum
}

#[test]
fn equal_blocks_share_a_counter() {
    let (slots, found) = total(&[tally(1), tally(2), tally(1), tally(1)]);
    assert_eq!(found, sum(&[tally(1), tally(2), tally(1), tally(1)]));
    assert_eq!(slots.used(), KINDS + 2);
}

#[test]
fn more_blocks_than_counters_lose_nothing() {
    let many: Vec<BlockTally> = (0..u16::try_from(SLOTS).unwrap() + 1000).map(tally).collect();
    let twice = [many.clone(), many].concat();
    let (slots, found) = total(&twice);
    assert_eq!(found, sum(&twice));
    assert_eq!(slots.used(), SLOTS);
}

#[test]
fn a_tally_counts_every_class_of_an_instruction() {
    let both = ClassSet::NONE.with(Class::Load).with(Class::Store);
    let tally = with_instruction([0; KINDS], Some(both));
    assert_eq!(with_instruction(tally, None), [2, 0, 0, 0, 1, 1, 1]);
}
