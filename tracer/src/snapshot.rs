//! Counts of a thread at a time of its run.

use crate::distances::{self, DistanceHistogram};
use crate::slots::KINDS;
use colocate_isa::ClassCounts;
use colocate_isa::counts::{Branches, ExecutionCounts, Misses};

/// Size of a cache line of all x86 and most other processors, in bytes.
pub const LINE_BYTES: u64 = 64;

/// Counts of a thread since its beginning.
pub struct Snapshot {
    /// Instructions by kind, in the order of a tally.
    pub total: [u64; KINDS],
    /// Distances between accesses; `None` if not counted.
    pub distances: Option<DistanceHistogram>,
    /// Branches; `None` if not predicted.
    pub branches: Option<Branches>,
}

impl Snapshot {
    /// Counts after `before`, or since the thread's beginning.
    pub fn since(&self, before: Option<&Self>) -> ExecutionCounts {
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
        ExecutionCounts { counts: class_counts(total), misses, branches }
    }
}

/// Counts by class, from a total by kind.
pub fn class_counts(
    [instructions, branch, float, int, load, store, _]: [u64; KINDS],
) -> ClassCounts {
    ClassCounts { instructions, of: [branch, float, int, load, store] }
}

/// Misses by cache size, from distances, as in the file of counts.
pub fn misses(counts: &DistanceHistogram) -> Misses {
    let distances::Misses { by_lines, left, left_written } = counts.misses();
    Misses { line_b: LINE_BYTES, by_lines, left, left_written }
}
