//! What a thread has counted until a moment of its run.

use crate::distances::Counts;
use crate::slots::KINDS;
use colocate_isa::ClassCounts;
use colocate_isa::counts::{Branches, Misses, Part};

/// Size of a line: that of every x86 and of most other processors.
pub const LINE_BYTES: u64 = 64;

/// What a thread has counted since it began.
pub struct Snapshot {
    /// Instructions by kind, as a tally has them.
    pub total: [u64; KINDS],
    /// Distances of its accesses, if they are counted.
    pub distances: Option<Counts>,
    /// Its branches, if they are predicted.
    pub branches: Option<Branches>,
}

impl Snapshot {
    /// What was counted after `before`, or since the thread began.
    pub fn since(&self, before: Option<&Self>) -> Part {
        let zero = [0; KINDS];
        let before_total = before.map_or(&zero, |before| &before.total);
        let total: [u64; KINDS] =
            std::array::from_fn(|kind| self.total[kind].saturating_sub(before_total[kind]));
        let branches = self.branches.map(|now| {
            let before = before.and_then(|before| before.branches);
            let [predicted, mispredicted] =
                before.map_or([0; 2], |before| [before.predicted, before.mispredicted]);
            Branches {
                predicted: now.predicted.saturating_sub(predicted),
                mispredicted: now.mispredicted.saturating_sub(mispredicted),
            }
        });
        let misses = self.distances.as_ref().map(|now| {
            let before = before.and_then(|before| before.distances.as_ref());
            misses(&before.map_or_else(|| now.clone(), |before| now.since(before)))
        });
        Part { counts: class_counts(total), misses, branches }
    }
}

/// Counts by class of a total by kind.
pub fn class_counts(
    [instructions, branch, float, int, load, store, _]: [u64; KINDS],
) -> ClassCounts {
    ClassCounts { instructions, of: [branch, float, int, load, store] }
}

/// What distances amount to, as the file of counts has it.
pub fn misses(counts: &Counts) -> Misses {
    let found = counts.misses();
    let (by_lines, left, left_written) = (found.by_lines, found.left, found.left_written);
    Misses { line_b: LINE_BYTES, by_lines, left, left_written }
}
