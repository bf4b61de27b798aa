//! The best placement where there are too many to try: branch and bound.
//!
//! # Problem
//! Twelve threads on six cores of two PUs can be put in thousands of ways, sixteen in millions.
//! # Approach
//! Put one thread after the other onto a core, the most sensitive first, and leave a beginning as
//! soon as nothing that can come of it is better than the best that is known.
//! # Terms
//! - *Bound* of a beginning: the STP of the threads that have a place, as if there were no others,
//!   and for each other thread the most that it can have: its rate beside the one thread that
//!   disturbs it least, or its rate alone for as many as can be alone on a core. Another thread
//!   makes no thread faster in the model, so no placement that goes on from there has more.
//! # Algorithm
//! Depth first, the core with the greatest bound first, of empty cores that are alike only the
//! first; beginnings are left whose bound is not above the best by more than [`TOLERANCE`]. After
//! [`NODES`] beginnings the search stops: then the greatest bound of those that were left untried
//! says how far the best may be from the optimum.
//! # Properties
//! - **Best**: as good as the best of all placements, and what it says of the gap is true if it
//!   stops. -> test `as_good_as_all` of [`super`]

use super::Whole;
use std::collections::BTreeSet;

/// Beginnings that are judged at most. Chosen: each takes a tenth of a millisecond to a whole one.
pub(super) const NODES: usize = 2_000;
/// What counts as no better: what the model's search may be off, as a share.
pub(super) const TOLERANCE: f64 = 1e-4;

/// What was found.
pub(super) struct Found {
    pub groups: Vec<Vec<usize>>,
    /// By which share the STP of the best placement may be greater, at most.
    pub gap: f64,
}

/// The best placement of all threads that `nodes` beginnings show, no worse than `start`.
pub(super) fn best(judge: &Whole<'_>, start: Vec<Vec<usize>>, nodes: usize) -> Found {
    let threads = judge.demands.len();
    let beside = most_beside_one(judge);
    let mut order: Vec<usize> = (0..threads).collect();
    order.sort_by(|&a, &b| beside[a].total_cmp(&beside[b]));
    let known = judge.stp(&start);
    let lone = lone(judge, threads);
    let mut search =
        Branch { judge, order, beside, lone, best: start, known, open: 0.0, left: nodes };
    let mut groups = vec![Vec::new(); judge.places.cores.len()];
    search.descend(0, &mut groups);
    let gap = (search.open / search.known - 1.0).max(TOLERANCE);
    Found { groups: search.best, gap }
}

struct Branch<'a> {
    judge: &'a Whole<'a>,
    order: Vec<usize>,
    /// By thread: its rate over that alone beside the thread that disturbs it least.
    beside: Vec<f64>,
    /// How many threads can be alone on their cores.
    lone: usize,
    best: Vec<Vec<usize>>,
    /// Its STP.
    known: f64,
    /// The greatest bound of what was left untried for want of time.
    open: f64,
    left: usize,
}

impl Branch<'_> {
    /// The most that the threads from `depth` on can have. They are sorted, so the first gain most
    /// by being alone.
    fn rest(&self, depth: usize) -> f64 {
        let most = |(at, &thread): (usize, &usize)| {
            let beside = self.beside[thread];
            if at < self.lone { beside.max(1.0) } else { beside }
        };
        self.order[depth..].iter().enumerate().map(most).fold(0.0, |sum, each| sum + each)
    }

    fn descend(&mut self, depth: usize, groups: &mut Vec<Vec<usize>>) {
        let Some(&thread) = self.order.get(depth) else { return };
        for (bound, core) in self.children(depth, thread, groups) {
            if bound <= self.known * (1.0 + TOLERANCE) {
                return;
            }
            groups[core].push(thread);
            if depth + 1 == self.order.len() {
                (self.known, self.best) = (bound, groups.clone());
            } else if self.left == 0 {
                self.open = self.open.max(bound);
            } else {
                self.descend(depth + 1, groups);
            }
            groups[core].pop();
        }
    }

    /// The cores that the thread can go to, with the bound of each, the greatest first.
    fn children(
        &mut self,
        depth: usize,
        thread: usize,
        groups: &mut [Vec<usize>],
    ) -> Vec<(f64, usize)> {
        let mut seen = BTreeSet::new();
        let mut children = Vec::new();
        let rest = self.rest(depth + 1);
        for core in 0..groups.len() {
            let is_full = groups[core].len() >= self.judge.places.cores[core].pus.len();
            if is_full
                || groups[core].is_empty() && !seen.insert(self.judge.surroundings(core, groups))
            {
                continue;
            }
            self.left = self.left.saturating_sub(1);
            groups[core].push(thread);
            children.push((self.judge.stp(groups) + rest, core));
            groups[core].pop();
        }
        children.sort_by(|a, b| b.0.total_cmp(&a.0));
        children
    }
}

/// By thread: its rate over that alone beside the one other thread that disturbs it least, on the
/// best core for that; 1 where there is no other.
fn most_beside_one(judge: &Whole<'_>) -> Vec<f64> {
    let threads = judge.demands.len();
    let mut most = vec![if threads < 2 { 1.0 } else { 0.0_f64 }; threads];
    let cores = &judge.places.cores;
    let mut kinds = BTreeSet::new();
    for (core, usable) in cores.iter().enumerate() {
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

/// How many of so many threads can be alone on their cores: the others fit on those that are left.
fn lone(judge: &Whole<'_>, threads: usize) -> usize {
    let mut rooms: Vec<usize> = judge.places.cores.iter().map(|core| core.pus.len()).collect();
    rooms.sort_unstable();
    let fits = |&alone: &usize| rooms[alone..].iter().sum::<usize>() >= threads - alone;
    (0..=threads.min(rooms.len())).rev().find(fits).unwrap_or(0)
}
