//! Execution rates of a function's blocks, from the samples in them.
//!
//! # Problem
//! A block with many hits has run often, or is slow. A load that misses the cache, or the first
//! instruction after a mispredicted jump, is hit a hundred times as often as its neighbours. Hits
//! divided by instructions are wrong by that factor.
//! # Approach
//! Flow into a block equals flow out of it. Among all such flows the most likely is chosen, given
//! the hits, if every instruction were equally slow (hits are then Poisson distributed around rate
//! × instructions). Slow and fast blocks on the same path even each other out, and the outer parts
//! of a function anchor how often its loops are entered.
//! # Terms
//! *Hits*: samples in a block. *Rate*: runs of a block, in samples per instruction. *Way*: a path
//! from an entry to an exit, or once around a loop; every flow is a sum of ways, each with its own
//! rate. *Back edge*: an edge to an earlier block in the graph's order.
//! # Algorithm
//! Begin without ways. Find, by shortest paths, the way through the function and through each back
//! edge whose hits most exceed the prediction by its blocks' rates; add it. Multiply each way's
//! rate by (hits explained) / (hits predicted), which never makes the hits less likely (Richardson
//! 1972; Lucy 1974); repeat.
//! # Properties
//! - **Conserving**: what flows in flows out. -> test `conserving`
//! - **Equal on a line**: blocks that always run together have one rate, however the hits are
//!   spread among them. -> test `equal_on_a_line`
//! - **Not fooled by one slow block**: its neighbours' hits count as much.
//!   -> test `slow_blocks_do_not_run_more_often`
//! - **Complete**: predicted and observed hits are equal in sum. -> test `complete`
//! - **Edges add up**: what flows out of a block over its edges, and out of the function, is its
//!   rate.
//!   -> test `edges_add_up`

use super::budget::StepBudget;
use super::flow::{BlockIdx, Graph};
use std::collections::BTreeMap;

/// Rounds of the search for ways. Measured on samples of gzip, xz, sort and bash, 4 s each at 1,000
/// Hz: no class of the mix differs by more than 0.02 points between 24, 48, 96 and 192 rounds; with
/// 6 it differs by up to 1.8.
const ROUNDS: usize = 24;

/// Corrections of the rates per round.
const CORRECTIONS: usize = 8;

/// Limit of edges and blocks followed in a function before another round starts, some 10 ms of
/// optimised code. Large functions get fewer rounds.
const MOST_FOLLOWED: usize = 2_000_000;

/// Limit of blocks on all ways, 32 MiB. Chosen: as of 10^4 blocks in one loop of 400 cases.
const MOST_ALONG: usize = 1 << 22;

/// Budget per edge or block followed. Measured with [`MOST_FOLLOWED`].
const STEPS_EACH: u64 = 5;

/// Rate that counts as 0, in samples per instruction.
const LEAST_RATE: f64 = 1e-6;

/// Rates of blocks and edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// Rate of each block.
    pub blocks: Vec<f64>,
    /// Rate of each edge in use.
    pub edges: BTreeMap<(BlockIdx, BlockIdx), f64>,
}

/// Path through the function, or once around a loop.
#[derive(Debug)]
struct FlowPath {
    /// Blocks, from last to first.
    blocks: Vec<BlockIdx>,
    /// Whether the path is a loop, from its last block back to its first.
    around: bool,
    rate: f64,
}

/// Rate of each block of `graph` by its `hits`, 0 if unreachable; `None` if `budget` is spent.
#[must_use]
pub fn rates(graph: &Graph, hits: &[u64], budget: &mut StepBudget) -> Option<Vec<f64>> {
    ways(graph, hits, budget).map(|(_, rates)| rates)
}

/// As [`rates`], with the rates of edges.
#[must_use]
pub fn flows(graph: &Graph, hits: &[u64], budget: &mut StepBudget) -> Option<Flows> {
    let (ways, blocks) = ways(graph, hits, budget)?;
    let mut edges = BTreeMap::new();
    for way in &ways {
        // Blocks are listed from last to first.
        let before = way.blocks.iter().skip(1);
        let back = way.around.then(|| way.blocks.first()).flatten();
        for (to, from) in way.blocks.iter().zip(before.chain(back)) {
            *edges.entry((*from, *to)).or_default() += way.rate;
        }
    }
    Some(Flows { blocks, edges })
}

fn ways(graph: &Graph, hits: &[u64], budget: &mut StepBudget) -> Option<(Vec<FlowPath>, Vec<f64>)> {
    let hits: Vec<f64> = hits.iter().map(|hits| *hits as f64).collect();
    let lengths: Vec<f64> = graph.blocks.iter().map(|b| b.counts.instructions as f64).collect();
    let search = PathSearch::of(graph);
    let mut followed = search.edges();
    let mut ways: Vec<FlowPath> = Vec::new();
    let mut rates = vec![0.0_f64; graph.blocks.len()];
    for _ in 0..ROUNDS {
        // Gradient of the negative log-likelihood: below 0 where hits exceed the prediction.
        let surplus: Vec<f64> =
            (0..rates.len()).map(|b| lengths[b] - hits[b] / rates[b].max(LEAST_RATE)).collect();
        budget.spend_each(search.cost, STEPS_EACH)?;
        let mut along: usize = ways.iter().map(|way| way.blocks.len()).sum();
        for (blocks, around) in search.cheapest(&surplus, MOST_ALONG.saturating_sub(along))? {
            // A new way starts with a part of its hits; the corrections do the rest.
            let rate = sum_over(&blocks, &hits) / sum_over(&blocks, &lengths) / 8.0;
            if rate > 0.0 {
                ways.push(FlowPath { blocks, around, rate });
            }
        }
        along = ways.iter().map(|way| way.blocks.len()).sum();
        budget.spend_each(2 * CORRECTIONS * along, STEPS_EACH)?;
        for _ in 0..CORRECTIONS {
            add_up(&ways, &mut rates);
            correct(&mut ways, &rates, &hits, &lengths);
        }
        ways.retain(|way| way.rate > LEAST_RATE);
        add_up(&ways, &mut rates);
        along = ways.iter().map(|way| way.blocks.len()).sum();
        followed += search.edges() + 2 * CORRECTIONS * along;
        if followed > MOST_FOLLOWED {
            break;
        }
    }
    Some((ways, rates))
}

fn sum_over(blocks: &[BlockIdx], of: &[f64]) -> f64 {
    blocks.iter().map(|block| of[*block]).sum()
}
fn add_up(ways: &[FlowPath], rates: &mut [f64]) {
    rates.fill(0.0);
    for way in ways {
        for block in &way.blocks {
            rates[*block] += way.rate;
        }
    }
}

fn correct(ways: &mut [FlowPath], rates: &[f64], hits: &[f64], lengths: &[f64]) {
    for way in ways {
        let explained: f64 = way.blocks.iter().map(|b| hits[*b] / rates[*b].max(LEAST_RATE)).sum();
        let predicted: f64 = way.blocks.iter().map(|b| lengths[*b]).sum();
        way.rate *= explained / predicted;
    }
}

/// Search for cheap ways.
struct PathSearch<'a> {
    graph: &'a Graph,
    /// Index of each block in the graph's order.
    place: Vec<usize>,
    /// Targets of back edges, each with its sources in the graph's order.
    back: BTreeMap<BlockIdx, Vec<BlockIdx>>,
    /// Steps of one search; with many indirect jumps far more than [`PathSearch::edges`].
    cost: usize,
}

impl<'a> PathSearch<'a> {
    fn of(graph: &'a Graph) -> Self {
        let mut place = vec![usize::MAX; graph.blocks.len()];
        for (at, block) in graph.order.iter().enumerate() {
            place[*block] = at;
        }
        let edges = graph.order.iter().flat_map(|b| graph.blocks[*b].next.iter().map(|n| (*b, *n)));
        let mut back: BTreeMap<BlockIdx, Vec<BlockIdx>> = BTreeMap::new();
        for (from, to) in edges.filter(|(from, to)| place[*to] <= place[*from]) {
            back.entry(to).or_default().push(from);
        }
        let mut search = Self { graph, place, back, cost: 0 };
        search.cost = search.cost();
        search
    }

    fn cost(&self) -> usize {
        let mut sums = vec![0];
        for block in &self.graph.order {
            sums.push(sums[sums.len() - 1] + 1 + self.graph.blocks[*block].next.len());
        }
        let mut cost = sums[sums.len() - 1];
        for (to, from) in &self.back {
            cost += sums[self.last_of(from) + 1] - sums[self.place[*to]] + from.len();
        }
        cost
    }

    /// Approximate number of edges that one search follows.
    fn edges(&self) -> usize {
        let spans = self.back.iter().map(|(to, from)| self.last_of(from) - self.place[*to] + 1);
        self.graph.order.len() + spans.sum::<usize>()
    }

    /// Index of the last of `blocks`, which are in the graph's order.
    fn last_of(&self, blocks: &[BlockIdx]) -> usize {
        blocks.last().map_or(0, |last| self.place[*last])
    }

    /// Cheapest way through the function, and cheapest way around each back edge, if of negative
    /// cost; with a flag for ways around. `None` if they have more than `most` blocks together.
    fn cheapest(&self, costs: &[f64], mut most: usize) -> Option<Vec<(Vec<BlockIdx>, bool)>> {
        let mut found = Vec::new();
        let last = self.graph.order.len().saturating_sub(1);
        let through = self.paths(&self.graph.entries, last, costs);
        let exits = self.graph.order.iter().filter(|block| self.graph.blocks[**block].leaves);
        let exit =
            exits.min_by(|a, b| through[self.place[**a]].0.total_cmp(&through[self.place[**b]].0));
        let way = exit.and_then(|exit| self.walk(&through, 0, *exit));
        most = most.checked_sub(way.as_ref().map_or(0, Vec::len))?;
        found.extend(way.map(|way| (way, false)));
        // A switch in a loop has a back edge per case to the same head, so one search serves all.
        for (to, from) in &self.back {
            let around = self.paths(&[*to], self.last_of(from), costs);
            for from in from {
                let Some(way) = self.walk(&around, self.place[*to], *from) else { continue };
                most = most.checked_sub(way.len())?;
                found.push((way, true));
            }
        }
        Some(found)
    }

    /// Least cost from one of `starts` to each block, and the block before; from the first start's
    /// index to index `last`. Back edges are not followed.
    fn paths(
        &self,
        starts: &[BlockIdx],
        last: usize,
        costs: &[f64],
    ) -> Vec<(f64, Option<BlockIdx>)> {
        let Some(first) = starts.iter().map(|start| self.place[*start]).min() else {
            return Vec::new();
        };
        let mut best = vec![(f64::INFINITY, None); last + 1 - first];
        for start in starts {
            best[self.place[*start] - first].0 = costs[*start];
        }
        for at in first..=last {
            let cost = best[at - first].0;
            if cost == f64::INFINITY {
                continue;
            }
            let block = self.graph.order[at];
            for next in &self.graph.blocks[block].next {
                let to = self.place[*next];
                if to > at && to <= last && cost + costs[*next] < best[to - first].0 {
                    best[to - first] = (cost + costs[*next], Some(block));
                }
            }
        }
        best
    }

    /// Path to `end` in [`PathSearch::paths`] from index `first` on, if of negative cost.
    fn walk(
        &self,
        paths: &[(f64, Option<BlockIdx>)],
        first: usize,
        end: BlockIdx,
    ) -> Option<Vec<BlockIdx>> {
        if self.reached(paths, first, end)?.0 >= 0.0 {
            return None;
        }
        let mut blocks = vec![end];
        while let Some(before) = self.reached(paths, first, *blocks.last()?)?.1 {
            blocks.push(before);
        }
        Some(blocks)
    }

    /// Cost of a block and the block before it.
    fn reached<'p>(
        &self,
        paths: &'p [(f64, Option<BlockIdx>)],
        first: usize,
        block: BlockIdx,
    ) -> Option<&'p (f64, Option<BlockIdx>)> {
        paths.get(self.place[block].checked_sub(first)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{PLENTY, graph};
    use super::*;

    fn rates(graph: &Graph, hits: &[u64]) -> Vec<f64> {
        super::rates(graph, hits, &mut StepBudget::of(PLENTY)).unwrap()
    }

    fn flows(graph: &Graph, hits: &[u64]) -> Flows {
        super::flows(graph, hits, &mut StepBudget::of(PLENTY)).unwrap()
    }

    /// A loop with two ways through it and an early exit, inside of another loop.
    const NESTED: &str = ". . c6 . c8 j7 . . c2 . c1 r";

    fn hits(graph: &Graph, seed: u64) -> Vec<u64> {
        let mut state = seed;
        let mut next = || {
            // Knuth's MMIX generator: any spread of hits will do.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 56
        };
        graph.blocks.iter().map(|_| next()).collect()
    }

    #[test]
    fn equal_on_a_line() {
        // Four instructions, then a loop of three: the first of them waits for memory.
        let graph = graph(". . . c4 . . c4 r");
        // Blocks 0 ..= 3, then 4 ..= 6, then 7.
        let rates = rates(&graph, &[0, 300, 0]);
        assert!((rates[1] - 100.0).abs() < 1.0, "{rates:?}");
        let two_halves = graph_of_halves();
        let found = super::rates(&two_halves, &[90, 10, 0], &mut StepBudget::of(PLENTY)).unwrap();
        assert!((found[0] - found[1]).abs() < 1e-6, "{found:?}");
    }

    /// Two blocks that always run one after the other, because a third one leads to the second.
    fn graph_of_halves() -> Graph {
        graph(". j2 . r . j2")
    }

    #[test]
    fn conserving() {
        let graph = graph(NESTED);
        for seed in 0..20 {
            let rates = rates(&graph, &hits(&graph, seed));
            for (place, block) in graph.blocks.iter().enumerate() {
                // What leads only here and is left only for here cannot differ.
                if let [only] = block.next[..]
                    && !block.leaves
                    && graph.blocks[only].before == [place]
                {
                    assert!((rates[place] - rates[only]).abs() < 1e-6, "{seed}: {rates:?}");
                }
                // No block runs more often than all that lead to it together.
                let inflow: f64 = block.before.iter().map(|before| rates[*before]).sum();
                let entered = graph.entries.contains(&place);
                assert!(entered || rates[place] <= inflow + 1e-6, "{seed} {place}: {rates:?}");
            }
        }
    }

    #[test]
    fn complete() {
        let graph = graph(NESTED);
        for seed in 0..20 {
            let hits = hits(&graph, seed);
            let rates = rates(&graph, &hits);
            let lengths = graph.blocks.iter().map(|block| block.counts.instructions as f64);
            let predicted: f64 =
                rates.iter().zip(lengths).map(|(rate, length)| rate * length).sum();
            let observed: u64 = hits.iter().sum();
            assert!(
                (predicted / observed as f64 - 1.0).abs() < 0.02,
                "{seed}: {predicted} {observed}"
            );
        }
    }

    #[test]
    fn edges_add_up() {
        let graph = graph(NESTED);
        for seed in 0..20 {
            let flows = flows(&graph, &hits(&graph, seed));
            for (place, block) in graph.blocks.iter().enumerate() {
                let sum = |edges: &mut dyn Iterator<Item = (BlockIdx, BlockIdx)>| -> f64 {
                    edges.filter_map(|edge| flows.edges.get(&edge)).sum()
                };
                let out = sum(&mut block.next.iter().map(|next| (place, *next)));
                let come = sum(&mut block.before.iter().map(|before| (*before, place)));
                let rate = flows.blocks[place];
                assert!(block.leaves && out <= rate + 1e-6 || (out - rate).abs() < 1e-6, "{seed}");
                let entry = graph.entries.contains(&place);
                assert!(entry && come <= rate + 1e-6 || (come - rate).abs() < 1e-6, "{seed}");
            }
        }
    }

    #[test]
    fn slow_blocks_do_not_run_more_often() {
        // gzip's search for a match: the head of the loop waits for memory and has 456 hits, its
        // tail of three instructions 6; the eleven instructions around the loop have 6 each. Both
        // parts of the loop run equally often, but for the one time that it is left.
        //                 0 1 2 3 4 5 6 7 8   9 . 11 12  14
        let graph = graph(". . . . . . . . c12 . . c8 . . r");
        // Blocks: 0 ..= 7, 8, 9 ..= 11, 12 ..= 14.
        let rates = rates(&graph, &[48, 456, 6, 18]);
        assert!((rates[1] - rates[2] - rates[0]).abs() < 1e-6, "{rates:?}");
        // Evenly spread, the 462 hits of the loop's four instructions would be 115.5 each.
        assert!((100.0..=120.0).contains(&rates[2]), "{rates:?}");
        assert!((5.0..=15.0).contains(&rates[0]), "{rates:?}");
    }

    /// 25,000 loops, each inside the last: one round of searches alone would follow 10^9 edges, and their ways would hold
    /// as many blocks. It is refused before that is begun.
    #[test]
    fn loops_without_end_are_over_budget() {
        let depth = 25_000;
        let down = (0..depth).map(|_| ".".to_owned());
        let back = (0..depth).map(|at| format!("c{}", depth - 1 - at));
        let words: Vec<String> = down.chain(back).collect();
        // Each instruction on the way down begins a block, as a jump leads to it.
        let graph = graph(&words.join(" "));
        assert_eq!(graph.loops.len(), depth);
        let hits = vec![1; graph.blocks.len()];
        let mut budget = StepBudget::of(500_000_000);
        assert_eq!(super::rates(&graph, &hits, &mut budget), None);
        assert_eq!(budget.left(), 0);
    }

    /// A switch of 2,000 cases in a loop of 4,000 blocks in a row: all its ways together are too long to be kept.
    #[test]
    fn ways_that_are_too_long_together_are_over_budget() {
        let (row, cases) = (4_000, 2_000);
        let first = (0..row).map(|at| format!("c{}", at + 1));
        let all = first.chain(["*".to_owned()]).chain((0..cases).map(|_| "j0".to_owned()));
        let graph = graph(&all.collect::<Vec<_>>().join(" "));
        let hits = vec![1; graph.blocks.len()];
        let mut budget = StepBudget::of(PLENTY);
        assert_eq!(super::rates(&graph, &hits, &mut budget), None);
        assert!(PLENTY - budget.left() < 1_000_000, "nothing but one search was paid for");
    }

    #[test]
    fn no_hits_no_rates() {
        let graph = graph(NESTED);
        assert!(rates(&graph, &vec![0; graph.blocks.len()]).iter().all(|rate| *rate == 0.0));
    }
}
