//! Assignment of counters to blocks, by tally.

use colocate_isa::{Class, ClassSet};
use std::collections::HashMap;

/// Counters of a thread, 64 KiB. Measured: gzip needs 663, `openssl speed` 1,184, CPython 2,244 and
/// node, with a JIT compiler, 4,753.
pub const SLOTS: usize = 8192;

/// Kinds in a tally: instructions, the five classes, undecodable instructions.
pub const KINDS: usize = 7;

/// First slots, one per kind, for blocks translated after all other slots were taken.
const SHARED: usize = KINDS;

/// Instructions of a block by kind: all, branch, float, int, load, store, undecodable.
pub type BlockTally = [u16; KINDS];

/// `tally` plus an instruction of `classes`; `None` for an undecodable instruction.
pub fn with_instruction(mut tally: BlockTally, classes: Option<ClassSet>) -> BlockTally {
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

/// Addition to a counter when a block runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Index of the counter.
    pub slot: usize,
    /// Amount per run of the block.
    pub amount: u64,
}

/// Tallies of the slots in use.
#[derive(Default)]
pub struct Slots {
    of: HashMap<BlockTally, usize>,
    tallies: Vec<BlockTally>,
}

impl Slots {
    /// Additions of a block with this tally: one, or one per kind if no slot is left.
    pub fn additions(&mut self, tally: BlockTally) -> Vec<Addition> {
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

    /// Sums by kind of the counters `counts`, which are in the order of slots.
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

    /// Number of slots in use, including the shared slots.
    pub fn used(&self) -> usize {
        SHARED + self.tallies.len()
    }
}
