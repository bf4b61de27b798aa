//! Which counter counts which blocks.

use colocate_isa::{Class, ClassSet};
use std::collections::HashMap;

/// Counters of one thread, 64 KiB of them. Measured: gzip needs 663, `openssl speed` 1,184, CPython
/// 2,244 and node, whose compiler makes code as it goes, 4,753.
pub const SLOTS: usize = 8192;

/// Kinds of things that a tally counts: instructions, the five classes, undecodable instructions.
pub const KINDS: usize = 7;

/// The first slots count one kind each, for blocks that come when all other slots are taken.
const SHARED: usize = KINDS;

/// How many instructions of each kind one block has: all, branch, float, int, load, store, and
/// those that could not be decoded.
pub type Tally = [u16; KINDS];

/// The tally `tally` with one more instruction, of `classes`, or `None` if it cannot be decoded.
pub fn with_instruction(mut tally: Tally, classes: Option<ClassSet>) -> Tally {
    tally[0] += 1;
    match classes {
        Some(set) => {
            for class in Class::ALL {
                tally[1 + class as usize] += u16::from(set.has(class));
            }
        }
        None => tally[KINDS - 1] += 1,
    }
    tally
}

/// What to add where when a block runs: to slot `slot`, `amount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Which counter.
    pub slot: usize,
    /// What to add to it.
    pub amount: u64,
}

/// The tally of each slot that is in use.
#[derive(Default)]
pub struct Slots {
    of: HashMap<Tally, usize>,
    tallies: Vec<Tally>,
}

impl Slots {
    /// What a block of this tally adds when it runs: one addition, or one for each kind that it
    /// has if there is no slot left.
    pub fn additions(&mut self, tally: Tally) -> Vec<Addition> {
        let next = SHARED + self.tallies.len();
        if let Some(&slot) = self.of.get(&tally) {
            return vec![Addition { slot, amount: 1 }];
        }
        if next < SLOTS {
            self.of.insert(tally, next);
            self.tallies.push(tally);
            return vec![Addition { slot: next, amount: 1 }];
        }
        let parts = tally.iter().enumerate().filter(|(_, amount)| **amount > 0);
        parts.map(|(slot, &amount)| Addition { slot, amount: u64::from(amount) }).collect()
    }

    /// What the counters `counts`, one for each slot, amount to, by kind.
    pub fn total(&self, counts: &[u64]) -> [u64; KINDS] {
        let mut total = [0_u64; KINDS];
        let (shared, own) = counts.split_at(SHARED.min(counts.len()));
        total[..shared.len()].copy_from_slice(shared);
        for (tally, &times) in self.tallies.iter().zip(own) {
            for (sum, &amount) in total.iter_mut().zip(tally) {
                *sum = sum.wrapping_add(times.wrapping_mul(u64::from(amount)));
            }
        }
        total
    }

    /// How many slots are in use, the shared ones included.
    pub fn used(&self) -> usize {
        SHARED + self.tallies.len()
    }
}
