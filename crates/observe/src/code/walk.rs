//! Stretches synthesised from samples.
//!
//! # Problem
//! Samples give positions of a thread, not the path between them.
//! # Approach
//! [`flows`](crate::sample::rates::flows) gives the rate of each block of a function, and of each
//! edge between blocks. Walks start at blocks in proportion to their executed instructions, and
//! follow edges in proportion to their rates: at each block, the edge that is furthest behind.
//! Where the function returns, the walk continues at its entry.
//! # Limits
//! A called function is a stretch of its own, without dependencies on its caller. Correlated
//! branches are taken as independent.
//! # Properties
//! - **In proportion**: over a long walk, each edge has its share. -> test `edges_in_proportion`

use crate::sample::budget::StepBudget;
use crate::sample::flow::{BlockIdx, Graph};
use crate::sample::rates::Flows;
use std::collections::BTreeMap;

/// Budget per outgoing edge: four look-ups in maps.
const STEPS_A_WAY: u64 = 200;

/// Walks along `flows` up to `length` instructions, until no edge continues or `budget` is spent.
pub fn walk(
    graph: &Graph,
    flows: &Flows,
    start: BlockIdx,
    length: u64,
    budget: &mut StepBudget,
) -> Vec<BlockIdx> {
    let mut behind: BTreeMap<(BlockIdx, BlockIdx), f64> = BTreeMap::new();
    let mut walked = Vec::new();
    let mut instructions = 0;
    let mut at = start;
    while instructions < length {
        walked.push(at);
        instructions += graph.blocks[at].counts.instructions;
        let ways = graph.blocks[at].next.len() + graph.entries.len();
        let paid = budget.spend_each(ways, STEPS_A_WAY);
        let next = paid.and_then(|()| next_block(graph, flows, &mut behind, at));
        let Some(next) = next else { break };
        at = next;
    }
    walked
}

/// Block after `at`; `None` if no outgoing edge has a rate.
fn next_block(
    graph: &Graph,
    flows: &Flows,
    behind: &mut BTreeMap<(BlockIdx, BlockIdx), f64>,
    at: BlockIdx,
) -> Option<BlockIdx> {
    let next = &graph.blocks[at].next;
    let on = next.iter().fold(0.0, |sum, next| sum + rate_of(flows, at, *next));
    let entry =
        graph.entries.iter().copied().max_by(|a, b| flows.blocks[*a].total_cmp(&flows.blocks[*b]));
    let left = if graph.blocks[at].leaves { (flows.blocks[at] - on).max(0.0) } else { 0.0 };
    let leave = entry.filter(|_| left > 0.0).map(|entry| (entry, left));
    let edges = next.iter().map(|next| (*next, rate_of(flows, at, *next)));
    let ways: Vec<(BlockIdx, f64)> = edges.chain(leave).collect();
    let sum = on + leave.map_or(0.0, |(_, left)| left);
    for (to, rate) in &ways {
        *behind.entry((at, *to)).or_default() += rate / sum;
    }
    let used = ways.into_iter().filter(|(_, rate)| *rate > 0.0);
    let debts = used.map(|(to, _)| (to, behind[&(at, to)]));
    let (chosen, _) = debts.max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Debts of the block's edges sum to 0, so shares hold over a long walk.
    *behind.entry((at, chosen)).or_default() -= 1.0;
    Some(chosen)
}

fn rate_of(flows: &Flows, from: BlockIdx, to: BlockIdx) -> f64 {
    flows.edges.get(&(from, to)).copied().unwrap_or(0.0)
}
/// Indices of `masses` hit by `count` points laid over them at equal distances.
pub fn spread(masses: &[f64], count: usize) -> Vec<usize> {
    let whole: f64 = masses.iter().fold(0.0, |sum, mass| sum + mass);
    let mut hit = Vec::new();
    let mut sum = 0.0;
    for (place, mass) in masses.iter().enumerate() {
        sum += mass;
        // Points are in the middle of `count` equal parts.
        while hit.len() < count && whole * (hit.len() as f64 + 0.5) / (count as f64) < sum {
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
    fn edges_in_proportion() {
        let graph = graph(". . c6 . c8 j7 . . c2 . c1 r");
        let hits: Vec<u64> =
            (0..graph.blocks.len() as u64).map(|place| 40 + 13 * place % 60).collect();
        let flows = flows(&graph, &hits, &mut StepBudget::of(PLENTY)).unwrap();
        let walked = walk(&graph, &flows, 1, 100_000, &mut StepBudget::of(PLENTY));
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
        let budget = &mut StepBudget::of(PLENTY);
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
