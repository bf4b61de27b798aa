//! Stretches put together from samples.
//!
//! # Problem
//! Samples say where a thread is now and then, not how it goes on.
//! # Approach
//! [`flows`](crate::sample::rates::flows) says how often each block of a function runs and how often
//! each edge between blocks is followed. A walk begins at a block, as often as instructions of it run,
//! and follows edges, each as often as its share of what leaves the block: it takes the edge that is
//! furthest behind. Where the function is left, the walk goes on at its entry.
//! # Limits
//! What a function calls is a stretch of its own, in which nothing waits for the caller. Turns that
//! depend on each other are taken as if they did not.
//! # Properties
//! - **In proportion**: over a long walk, each edge has its share. -> test `edges_in_proportion`

use crate::sample::budget::Budget;
use crate::sample::flow::{BlockIdx, Graph};
use crate::sample::rates::Flows;
use std::collections::BTreeMap;

/// Steps for one way to go on: four look-ups in maps.
const STEPS_A_WAY: u64 = 200;

/// A walk along `flows`, until it has `length` instructions or cannot go on, which includes the end of `budget`.
pub fn walk(
    graph: &Graph,
    flows: &Flows,
    start: BlockIdx,
    length: u64,
    budget: &mut Budget,
) -> Vec<BlockIdx> {
    let mut behind: BTreeMap<(BlockIdx, BlockIdx), f64> = BTreeMap::new();
    let (mut walked, mut instructions, mut at) = (Vec::new(), 0, start);
    while instructions < length {
        walked.push(at);
        instructions += graph.blocks[at].counts.instructions;
        let ways = graph.blocks[at].next.len() + graph.entries.len();
        let paid = budget.spend_each(ways, STEPS_A_WAY);
        let next = paid.and_then(|()| turn(graph, flows, &mut behind, at));
        let Some(next) = next else { break };
        at = next;
    }
    walked
}

/// The block after `at`; `None` if no flow says.
fn turn(
    graph: &Graph,
    flows: &Flows,
    behind: &mut BTreeMap<(BlockIdx, BlockIdx), f64>,
    at: BlockIdx,
) -> Option<BlockIdx> {
    let rate = |next: BlockIdx| flows.edges.get(&(at, next)).copied().unwrap_or(0.0);
    let next = &graph.blocks[at].next;
    let on: f64 = next.iter().map(|next| rate(*next)).fold(0.0, |sum, rate| sum + rate);
    let entry =
        graph.entries.iter().copied().max_by(|a, b| flows.blocks[*a].total_cmp(&flows.blocks[*b]));
    let left = if graph.blocks[at].leaves { (flows.blocks[at] - on).max(0.0) } else { 0.0 };
    let leave = entry.filter(|_| left > 0.0).map(|entry| (entry, left));
    let ways: Vec<(BlockIdx, f64)> =
        next.iter().map(|next| (*next, rate(*next))).chain(leave).collect();
    let sum = on + leave.map_or(0.0, |(_, left)| left);
    for (to, rate) in &ways {
        *behind.entry((at, *to)).or_default() += rate / sum;
    }
    let of = |to: BlockIdx| behind.get(&(at, to)).copied().unwrap_or(0.0);
    let used = ways.into_iter().filter(|(_, rate)| *rate > 0.0).map(|(to, _)| to);
    let chosen = used.max_by(|a, b| of(*a).total_cmp(&of(*b)))?;
    *behind.entry((at, chosen)).or_default() -= 1.0;
    Some(chosen)
}

/// Which of `masses` are hit when `count` points are laid over them at equal distances.
pub fn spread(masses: &[f64], count: usize) -> Vec<usize> {
    let whole: f64 = masses.iter().fold(0.0, |sum, mass| sum + mass);
    #[allow(clippy::cast_precision_loss)] // dozens
    let point = |number: usize| whole * (number as f64 + 0.5) / count as f64;
    let (mut hit, mut sum) = (Vec::new(), 0.0);
    for (place, mass) in masses.iter().enumerate() {
        sum += mass;
        while hit.len() < count && point(hit.len()) < sum {
            hit.push(place);
        }
    }
    hit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::flow::tests::{PLENTY, graph};
    use crate::sample::rates::flows;

    #[test]
    #[allow(clippy::cast_precision_loss)] // thousands
    fn edges_in_proportion() {
        let graph = graph(". . c6 . c8 j7 . . c2 . c1 r");
        let hits: Vec<u64> =
            (0..graph.blocks.len() as u64).map(|place| 40 + 13 * place % 60).collect();
        let flows = flows(&graph, &hits, &mut Budget::of(PLENTY)).unwrap();
        let walked = walk(&graph, &flows, 1, 100_000, &mut Budget::of(PLENTY));
        let times = |place: usize| walked.iter().filter(|at| **at == place).count() as f64;
        let whole: f64 = flows.blocks.iter().sum();
        for (place, rate) in flows.blocks.iter().enumerate() {
            let (found, expected) = (times(place) / walked.len() as f64, rate / whole);
            assert!((found - expected).abs() < 0.01, "{place}: {found} {expected}");
        }
    }

    #[test]
    fn a_traversal_without_targets_ends() {
        let graph = graph(". . c0 r");
        let budget = &mut Budget::of(PLENTY);
        let none = Flows { blocks: vec![0.0; 2], ..Flows::default() };
        assert_eq!(walk(&graph, &none, 0, 10, budget), [0]);
        // A loop is gone around until the walk is long enough.
        let mut once = Flows { blocks: vec![1.0, 0.0], ..Flows::default() };
        once.edges.insert((0, 0), 1.0);
        assert_eq!(walk(&graph, &once, 0, 7, budget), [0, 0, 0]);
    }

    #[test]
    fn points_at_equal_distances() {
        assert_eq!(spread(&[1.0, 0.0, 3.0], 4), [0, 2, 2, 2]);
        assert_eq!(spread(&[0.1, 0.9], 2), [1, 1]);
        assert_eq!(spread(&[], 3), [0; 0]);
    }
}
