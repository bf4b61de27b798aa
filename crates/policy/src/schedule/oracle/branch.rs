//! The best placement where all are too many to try: branch and bound.
//!
//! # Problem
//! Twelve threads on six cores of two PUs have thousands of placements, sixteen have millions.
//! # Approach
//! Put one thread after the other onto a core, the most sensitive first. Drop a partial placement
//! as soon as no completion can be better than the best known placement.
//! # Terms
//! - *Bound* of a partial placement: the STP of the placed threads, as if there were no others,
//!   plus for each other thread an upper bound: its rate beside the least disturbing thread, or its
//!   rate alone for as many as can be alone on a core. In the model no thread makes another faster,
//!   so no completion has more.
//! # Algorithm
//! Depth first, the core with the greatest bound first; of empty, alike cores only the first.
//! Partial placements whose bound exceeds the best by less than [`TOLERANCE`] are dropped. After
//! [`NODES`] partial placements the search stops. The greatest bound of the untried ones then
//! limits the distance from the optimum.
//! # Properties
//! - **Best**: as good as the best of all placements, and what it says of the gap is true if it
//!   stops. -> test `as_good_as_all` of [`super`]

use super::{CoreGroups, Whole};
use std::collections::BTreeSet;

/// Most partial placements judged. Chosen: each takes 0.1 to 1 ms.
pub(super) const NODES: usize = 2_000;
/// Least gain that counts, as a share: the error of the model's search.
pub(super) const TOLERANCE: f64 = 1e-4;

/// The best placement of all threads within `nodes` partial placements, no worse than `start`, and
/// the share by which the STP of the best of all may be greater, at most.
pub(super) fn best(judge: &Whole<'_>, start: CoreGroups, nodes: usize) -> (CoreGroups, f64) {
    let threads = judge.demands.len();
    let beside = most_beside_one(judge);
    let mut order: Vec<usize> = (0..threads).collect();
    // A low rate beside others shows a sensitive thread.
    order.sort_by(|&a, &b| beside[a].total_cmp(&beside[b]));
    let known = judge.stp(&start);
    let lone = lone(judge, threads);
    let mut search =
        Branch { judge, order, beside, lone, best: start, known, open: 0.0, left: nodes };
    let mut groups = vec![Vec::new(); judge.places.cores.len()];
    search.descend(0, &mut groups);
    // `TOLERANCE` at least: branches within it were dropped.
    // Where nothing was left untried `open` is 0.
    let gap = (search.open / search.known - 1.0).max(TOLERANCE);
    (search.best, gap)
}

/// State of the search.
struct Branch<'a> {
    judge: &'a Whole<'a>,
    /// Threads in the order of placement, most sensitive first.
    order: Vec<usize>,
    /// By thread: rate beside the least disturbing thread over the rate alone.
    beside: Vec<f64>,
    /// Number of threads that can be alone on their cores.
    lone: usize,
    best: Vec<Vec<usize>>,
    /// STP of `best`.
    known: f64,
    /// Greatest bound of a partial placement that was left untried for lack of time.
    open: f64,
    /// Partial placements that may still be judged.
    left: usize,
}

impl Branch<'_> {
    /// Upper bound of the STP of the threads from `depth` on.
    fn rest(&self, depth: usize) -> f64 {
        // Sorted by sensitivity, so the first threads gain most by being alone.
        let threads = self.order[depth..].iter().enumerate();
        let most = threads.map(|(at, &thread)| {
            let beside = self.beside[thread];
            if at < self.lone { beside.max(1.0) } else { beside }
        });
        most.fold(0.0, |sum, each| sum + each)
    }

    /// Tries all placements of the threads from `depth` on that may be better than the best.
    fn descend(&mut self, depth: usize, groups: &mut Vec<Vec<usize>>) {
        let Some(&thread) = self.order.get(depth) else { return };
        for (bound, core) in self.children(depth, thread, groups) {
            // Bounds are descending, so no later core is better.
            if bound <= self.known * (1.0 + TOLERANCE) {
                return;
            }
            groups[core].push(thread);
            if depth + 1 == self.order.len() {
                self.known = bound;
                self.best.clone_from(groups);
            } else if self.left == 0 {
                self.open = self.open.max(bound);
            } else {
                self.descend(depth + 1, groups);
            }
            groups[core].pop();
        }
    }

    /// Cores for the thread with the bound of each, greatest first. Of empty, alike cores only one.
    fn children(
        &mut self,
        depth: usize,
        thread: usize,
        groups: &mut [Vec<usize>],
    ) -> Vec<(f64, usize)> {
        let mut children = Vec::new();
        let rest = self.rest(depth + 1);
        for core in self.judge.free(groups) {
            // The children of a node are all judged, even beyond the limit.
            self.left = self.left.saturating_sub(1);
            groups[core].push(thread);
            children.push((self.judge.stp(groups) + rest, core));
            groups[core].pop();
        }
        children.sort_by(|a, b| b.0.total_cmp(&a.0));
        children
    }
}

/// By thread: greatest rate beside one other thread over the rate alone, on the best core for the
/// two; 1 without another thread.
fn most_beside_one(judge: &Whole<'_>) -> Vec<f64> {
    let threads = judge.demands.len();
    let mut most = vec![if threads < 2 { 1.0 } else { 0.0_f64 }; threads];
    let cores = &judge.places.cores;
    let mut kinds = BTreeSet::new();
    for (core, usable) in cores.iter().enumerate() {
        // One core of each kind stands for all.
        if usable.pus.len() < 2 || !kinds.insert(usable.kind) {
            continue;
        }
        for (a, b) in (0..threads).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let mut groups = vec![Vec::new(); cores.len()];
            groups[core] = vec![a, b];
            for (thread, ratio) in judge.ratios(&groups) {
                most[thread] = most[thread].max(ratio);
            }
        }
    }
    most
}

/// Greatest number of the threads that can be alone on cores while the others fit on the rest.
fn lone(judge: &Whole<'_>, threads: usize) -> usize {
    let mut rooms: Vec<usize> = judge.places.cores.iter().map(|core| core.pus.len()).collect();
    rooms.sort_unstable();
    let most = threads.min(rooms.len());
    // The smallest cores go to lone threads.
    let mut counts = (0..=most).rev();
    // If not even the last count fits, no thread is sure to be alone.
    counts.find(|&alone| rooms[alone..].iter().sum::<usize>() >= threads - alone).unwrap_or(0)
}
