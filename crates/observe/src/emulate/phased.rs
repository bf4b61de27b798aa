//! Phases of a run: groups of similar intervals.
//!
//! # Problem
//! A program's demand changes while it runs. The mean over a whole run may be true at no time.
//! # Approach
//! The plugin records the counts of a thread between two stretches of its code; there are 64 to 128
//! stretches over the run. Similar intervals become one phase, by hierarchical clustering.
//! # Terms
//! - *Interval*: the instructions between two stretches of a thread.
//! - *Cycles* of an interval, per instruction on average: its counts times [`PRICES`]. They compare
//!   intervals and predict nothing.
//! - *Error* of a merge: cycles that the mean of two phases puts into the wrong one, as a share of
//!   the run's cycles.
//! # Algorithm
//! 1. Each interval of the thread that executed most instructions is a phase.
//! 2. The two phases whose merge has the least error are merged, until there are as few as
//!    requested and every further merge has an error of [`LEAST`] or more.
//! 3. Phases are numbered in the order in which they first ran.
//! # Properties
//! - **A steady run is one phase** -> test `a_steady_run_is_one_phase`
//! - **Phases that alternate are found again** -> test `phases_that_alternate`
//! - **No more phases than requested** -> test `no_more_than_requested`

use super::trace::{self, Branches, ExecutionCounts, Trace};
use super::{in_order, phases};
use crate::code::{Stretch, of_one};
use colocate_isa::ClassCounts;
use colocate_model::mix::Mix;
use colocate_model::profile::ThreadProfile;
use colocate_model::{MissCounts, Phase, Profile};

/// Merges with this error or more are left out, once there are few enough phases. Chosen.
const LEAST: f64 = 0.02;

/// Cycles per event for comparing intervals. Chosen in the order of magnitude of processors of 2010
/// to 2020: a quarter for an instruction of each class, a misprediction, and misses of caches of 32
/// KiB, 1 MiB and 8 MiB.
const PRICES: [f64; 9] = [0.25, 0.25, 0.25, 0.25, 0.25, 17.0, 10.0, 40.0, 200.0];
/// Sizes of these caches, in lines of 64 bytes.
const LINES: [u64; 3] = [512, 16_384, 131_072];

/// Phases of one thread's run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phased {
    /// Thread, by its order in the profile.
    thread: usize,
    merged: Vec<Merged>,
    /// Stretches of code, with the phase as the thread.
    pub stretches: Vec<Stretch>,
    /// Phase indices in the order of execution, and the instructions of each period.
    pub course: Vec<(u32, u64)>,
}

/// Intervals merged into a phase.
#[derive(Clone, Debug, PartialEq)]
struct Merged {
    counts: ClassCounts,
    misses: MissCounts,
    branches: Branches,
    /// Indices of the intervals.
    of: Vec<usize>,
    /// Cycles of each kind of [`PRICES`], per instruction on average.
    cycles: [f64; PRICES.len()],
}

/// At most `most` phases of the thread with most instructions; `None` without counted intervals.
pub(super) fn of(traces: &[Trace], most: usize) -> Option<Phased> {
    let order = in_order(traces);
    let (thread, &(process, at)) = order
        .iter()
        .enumerate()
        .max_by_key(|(_, (process, at))| traces[*process].threads[*at].counts.instructions)?;
    let trace = &traces[process];
    let tid = trace.threads[at].tid;
    let own = trace.stretches.iter().filter(|stretch| stretch.tid == tid);
    let (known, parts): (Vec<&trace::BlockSequence>, Vec<&ExecutionCounts>) =
        own.filter_map(|stretch| Some((stretch, stretch.ran.as_ref()?))).unzip();
    let intervals = parts.iter().enumerate().map(|(place, part)| Merged::of(place, part));
    let merged = merge(intervals.collect::<Option<Vec<_>>>()?, most);
    let mut course: Vec<(u32, u64)> = Vec::new();
    let mut stretches = Vec::new();
    for (place, (stretch, part)) in known.into_iter().zip(&parts).enumerate() {
        let phase = merged.iter().position(|phase| phase.of.contains(&place))?;
        let phase = u32::try_from(phase).ok()?;
        let ran = part.counts.instructions;
        match course.last_mut() {
            Some((last, instructions)) if *last == phase => *instructions += ran,
            _ => course.push((phase, ran)),
        }
        stretches.extend(of_one(trace, stretch, phase, ran as f64));
    }
    (!merged.is_empty()).then_some(Phased { thread, merged, stretches, course })
}

impl Phased {
    /// Demand of each phase; `profile` is the profile of the whole run.
    #[must_use]
    pub fn phases(&self, profile: &Profile) -> Vec<Phase> {
        let Some(whole) = profile.threads.get(self.thread) else { return Vec::new() };
        let threads = self.merged.iter().zip(0..).map(|(merged, order)| ThreadProfile {
            order,
            instructions: Some(merged.counts.instructions),
            mix: Mix::from_counts(merged.counts.instructions, merged.counts.of),
            ..whole.clone()
        });
        let threads = threads.collect();
        let misses: Vec<_> = self.merged.iter().map(|phase| Some(phase.misses.clone())).collect();
        let branches: Vec<_> = self.merged.iter().map(|phase| Some(phase.branches)).collect();
        phases(&Profile { threads, ..profile.clone() }, &misses, &branches)
    }
}

/// Merges intervals, given in the order of execution.
fn merge(mut phases: Vec<Merged>, most: usize) -> Vec<Merged> {
    let whole: f64 = phases.iter().map(|phase| phase.instructions() * phase.all_cycles()).sum();
    while let Some((error, [a, b])) = least_error(&phases) {
        if phases.len() <= most.max(1) && error >= LEAST * whole {
            break;
        }
        // `b` is the larger index, so `a` stays in its place.
        let other = phases.remove(b);
        let Some(merged) = phases[a].with(&other) else { break };
        phases[a] = merged;
    }
    phases
}

/// Pair of phases with the least error when merged, and that error in cycles; `None` without two.
fn least_error(phases: &[Merged]) -> Option<(f64, [usize; 2])> {
    let pairs = (0..phases.len()).flat_map(|a| (a + 1..phases.len()).map(move |b| [a, b]));
    let errors = pairs.map(|[a, b]| (phases[a].error_with(&phases[b]), [a, b]));
    errors.min_by(|one, other| one.0.total_cmp(&other.0))
}

impl Merged {
    /// Phase of one interval; `None` if a count is missing.
    fn of(place: usize, part: &ExecutionCounts) -> Option<Self> {
        let misses = trace::miss_counts(part.misses.as_ref()?)?;
        Some(Self::new(part.counts, misses, part.branches?, vec![place]))
    }

    fn new(counts: ClassCounts, misses: MissCounts, branches: Branches, of: Vec<usize>) -> Self {
        let [branch, float, int, load, store] = counts.of;
        let all =
            [branch, float, int, load, store, branches.mispredicted].map(|count| count as f64);
        let all: Vec<f64> = all.into_iter().chain(LINES.map(|lines| misses.at(lines))).collect();
        let each = 1.0 / counts.instructions.max(1) as f64;
        let cycles = std::array::from_fn(|kind| all[kind] * PRICES[kind] * each);
        Self { counts, misses, branches, of, cycles }
    }

    /// Merge of both; `None` if their cache lines differ in size.
    fn with(&self, other: &Self) -> Option<Self> {
        let mut counts = self.counts;
        counts += other.counts;
        let misses = MissCounts::together(&[&self.misses, &other.misses])?;
        let branches = Branches {
            predicted: self.branches.predicted + other.branches.predicted,
            mispredicted: self.branches.mispredicted + other.branches.mispredicted,
        };
        let of = self.of.iter().chain(&other.of).copied().collect();
        Some(Self::new(counts, misses, branches, of))
    }

    fn instructions(&self) -> f64 {
        self.counts.instructions as f64
    }

    fn all_cycles(&self) -> f64 {
        self.cycles.iter().sum()
    }

    /// Cycles put into the wrong phase by the mean of both: each phase is off by the other's part
    /// of the difference.
    fn error_with(&self, other: &Self) -> f64 {
        let apart: f64 = self.cycles.iter().zip(other.cycles).map(|(a, b)| (a - b).abs()).sum();
        let own = self.instructions();
        let others = other.instructions();
        apart * own * others / (own + others).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Bytes;

    /// A million instructions, so many of which miss every cache.
    fn interval(place: usize, misses: u64) -> Merged {
        let counts = ClassCounts { instructions: 1_000_000, of: [100_000, 0, 400_000, 300_000, 0] };
        let misses = MissCounts::new(Bytes(64), vec![(0, 300_000), (1, misses)], 0, 0).unwrap();
        Merged::new(counts, misses, Branches { predicted: 100_000, mispredicted: 0 }, vec![place])
    }

    fn merged(misses: &[u64], most: usize) -> Vec<Vec<usize>> {
        let intervals = misses.iter().enumerate().map(|(place, &misses)| interval(place, misses));
        let mut found: Vec<_> =
            merge(intervals.collect(), most).into_iter().map(|it| it.of).collect();
        found.iter_mut().for_each(|of| of.sort_unstable());
        found
    }

    /// 0.2 cycles an instruction for its classes and 0.25 for misses, more or less 1 %.
    #[test]
    fn a_steady_run_is_one_phase() {
        assert_eq!(merged(&[1000, 1010, 990, 1000, 1005], 4), [[0, 1, 2, 3, 4]]);
    }

    #[test]
    fn phases_that_alternate() {
        assert_eq!(merged(&[1000, 9000, 1010, 9100, 990], 4), [vec![0, 2, 4], vec![1, 3]]);
    }

    /// The two that are least apart become one.
    #[test]
    fn no_more_than_requested() {
        assert_eq!(merged(&[0, 20_000, 40_000, 50_000], 4).len(), 4);
        assert_eq!(merged(&[0, 20_000, 40_000, 50_000], 3), [vec![0], vec![1], vec![2, 3]]);
        assert_eq!(merged(&[0, 20_000, 40_000, 50_000], 1).len(), 1);
        assert_eq!(merged(&[], 2), Vec::<Vec<usize>>::new());
    }
}
