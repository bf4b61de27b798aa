//! How often each block of a function runs, from where samples hit it.
//!
//! # Problem
//! A block with many hits has run often, or is slow: a load that misses the cache, or the first
//! instruction after a jump that was guessed wrongly, is hit a hundred times as often as its
//! neighbours. Hits divided by instructions are therefore wrong by that much.
//! # Approach
//! Control that flows into a block flows out of it. Among all flows that obey this, take the one
//! under which the hits are most likely, if every instruction were as slow as any other (hits are
//! then Poisson distributed around rate × instructions). Slow and fast blocks on the same path even
//! each other out; the outer parts of a function anchor how often its loops are entered.
//! # Terms
//! *Hits*: samples in a block. *Rate*: runs of a block, in samples per instruction. *Way*: a path
//! from an entry to an exit, or once around a loop; every flow is a sum of ways, each with its own
//! rate. *Going back*: an edge to a block that comes earlier in the order of the walk.
//! # Algorithm
//! Begin without ways. Find, by shortest paths, the way through the function and through each edge
//! that goes back whose hits exceed most what its blocks' rates predict; add it; multiply each way's
//! rate by (hits explained) / (hits predicted), which never makes the hits less likely (Richardson
//! 1972; Lucy 1974); repeat.
//! # Properties
//! - **Conserving**: what flows in flows out. -> test `conserving`
//! - **Equal on a line**: blocks that always run together have one rate, however the hits are spread
//!   among them. -> test `equal_on_a_line`
//! - **Not fooled by one slow block**: its neighbours' hits count as much.
//!   -> test `slow_blocks_do_not_run_more_often`
//! - **Complete**: predicted and observed hits are equal in sum. -> test `complete`
//! - **Edges add up**: what flows out of a block over its edges, and out of the function, is its rate.
//!   -> test `edges_add_up`

use super::budget::Budget;
use super::flow::{BlockIdx, Graph};
use std::collections::BTreeMap;

/// How often ways are looked for. Measured on samples of gzip, xz, sort and bash, 4 s each at
/// 1,000 Hz: no class of the mix differs by more than 0.02 points between this many and 48, 96 or
/// 192; with 6 it differs by up to 1.8.
const ROUNDS: usize = 24;

/// How often rates are corrected between.
const CORRECTIONS: usize = 8;

/// Rounds are begun until so many edges and blocks were followed in a function, some 10 ms of optimised code: large
/// functions get fewer rounds.
const MOST_FOLLOWED: usize = 2_000_000;

/// Blocks on all ways together, at most, 32 MiB of them. Chosen: a function of 10^4 blocks in one loop of 400 cases has as many.
const MOST_ALONG: usize = 1 << 22;

/// Steps for an edge or a block that is followed. Measured with [`MOST_FOLLOWED`].
const STEPS_EACH: u64 = 5;

/// A rate that is as good as none, in samples per instruction.
const LEAST_RATE: f64 = 1e-6;

/// How often blocks run, and one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// The rate of each block.
    pub blocks: Vec<f64>,
    /// The rate of each edge that is used.
    pub edges: BTreeMap<(BlockIdx, BlockIdx), f64>,
}

/// A path through the function, or once around a loop.
#[derive(Debug)]
struct Way {
    /// From the last to the first.
    blocks: Vec<BlockIdx>,
    /// Whether the first block comes after the last.
    around: bool,
    rate: f64,
}

/// The rate of each block of `graph`, of which block `i` was hit `hits[i]` times; 0 for blocks that
/// cannot be reached. `None` if `budget` ends.
#[must_use]
pub fn rates(graph: &Graph, hits: &[u64], budget: &mut Budget) -> Option<Vec<f64>> {
    ways(graph, hits, budget).map(|(_, rates)| rates)
}

/// As [`rates`], and how often each edge is followed.
#[must_use]
pub fn flows(graph: &Graph, hits: &[u64], budget: &mut Budget) -> Option<Flows> {
    let (ways, blocks) = ways(graph, hits, budget)?;
    let mut edges = BTreeMap::new();
    for way in &ways {
        let before = way.blocks.iter().skip(1);
        let back = way.around.then(|| way.blocks.first()).flatten();
        for (to, from) in way.blocks.iter().zip(before.chain(back)) {
            *edges.entry((*from, *to)).or_default() += way.rate;
        }
    }
    Some(Flows { blocks, edges })
}

#[allow(clippy::cast_precision_loss)] // samples and instructions are far below 2^52
fn ways(graph: &Graph, hits: &[u64], budget: &mut Budget) -> Option<(Vec<Way>, Vec<f64>)> {
    let hits: Vec<f64> = hits.iter().map(|hits| *hits as f64).collect();
    let lengths: Vec<f64> = graph.blocks.iter().map(|b| b.counts.instructions as f64).collect();
    let search = Search::of(graph);
    let mut followed = search.edges();
    let mut ways: Vec<Way> = Vec::new();
    let mut rates = vec![0.0_f64; graph.blocks.len()];
    for _ in 0..ROUNDS {
        let surplus: Vec<f64> =
            (0..rates.len()).map(|b| lengths[b] - hits[b] / rates[b].max(LEAST_RATE)).collect();
        budget.spend_each(search.cost, STEPS_EACH)?;
        let mut along: usize = ways.iter().map(|way| way.blocks.len()).sum();
        for (blocks, around) in search.cheapest(&surplus, MOST_ALONG.saturating_sub(along))? {
            let sum = |of: &[f64]| blocks.iter().map(|b| of[*b]).sum::<f64>();
            // A newcomer begins with a part of its hits; the corrections do the rest.
            let rate = sum(&hits) / sum(&lengths) / 8.0;
            if rate > 0.0 {
                ways.push(Way { blocks, around, rate });
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

fn add_up(ways: &[Way], rates: &mut [f64]) {
    rates.fill(0.0);
    for way in ways {
        for block in &way.blocks {
            rates[*block] += way.rate;
        }
    }
}

fn correct(ways: &mut [Way], rates: &[f64], hits: &[f64], lengths: &[f64]) {
    for way in ways {
        let explained: f64 = way.blocks.iter().map(|b| hits[*b] / rates[*b].max(LEAST_RATE)).sum();
        let predicted: f64 = way.blocks.iter().map(|b| lengths[*b]).sum();
        way.rate *= explained / predicted;
    }
}

/// Looks for cheap ways.
struct Search<'a> {
    graph: &'a Graph,
    /// Place of each block in the graph's order.
    place: Vec<usize>,
    /// Blocks that edges go back to, each with those that they come from, in the graph's order.
    back: BTreeMap<BlockIdx, Vec<BlockIdx>>,
    /// Blocks and edges that one search follows: with many jumps through registers far more than [`Search::edges`] says.
    cost: usize,
}

impl<'a> Search<'a> {
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
        let span = |(to, from): (&BlockIdx, &Vec<BlockIdx>)| {
            sums[self.last_of(from) + 1] - sums[self.place[*to]] + from.len()
        };
        sums[sums.len() - 1] + self.back.iter().map(span).sum::<usize>()
    }

    /// About how many edges one search follows.
    fn edges(&self) -> usize {
        let span = |(to, from): (&BlockIdx, &Vec<BlockIdx>)| self.last_of(from) - self.place[*to];
        self.graph.order.len() + self.back.iter().map(|edges| span(edges) + 1).sum::<usize>()
    }

    /// The place of the last of some blocks that are in the graph's order.
    fn last_of(&self, blocks: &[BlockIdx]) -> usize {
        blocks.last().map_or(0, |last| self.place[*last])
    }

    /// The cheapest way through the function and the cheapest around each edge that goes back, as
    /// far as their blocks cost less than nothing; with each, whether it is one around. `None` if they have more blocks
    /// together than `most`.
    fn cheapest(&self, costs: &[f64], mut most: usize) -> Option<Vec<(Vec<BlockIdx>, bool)>> {
        let mut found = Vec::new();
        let last = self.graph.order.len().saturating_sub(1);
        let through = self.paths(&self.graph.entries, last, costs);
        let leaves = |b: &&BlockIdx| self.graph.blocks[**b].leaves;
        let exit = self
            .graph
            .order
            .iter()
            .filter(leaves)
            .min_by(|a, b| through[self.place[**a]].0.total_cmp(&through[self.place[**b]].0));
        let way = exit.and_then(|exit| self.walk(&through, 0, *exit));
        most = most.checked_sub(way.as_ref().map_or(0, Vec::len))?;
        found.extend(way.map(|way| (way, false)));
        // A switch in a loop has as many edges that go back as cases, so one search serves all.
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

    /// Least cost from one of `starts` to each block up to place `last`, and the block before; from
    /// the first start's place on. Edges that go back are not followed.
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

    /// The path to `end` in what [`Search::paths`] found from place `first` on, if it costs less
    /// than nothing.
    fn walk(
        &self,
        paths: &[(f64, Option<BlockIdx>)],
        first: usize,
        end: BlockIdx,
    ) -> Option<Vec<BlockIdx>> {
        let at = |block: BlockIdx| paths.get(self.place[block].checked_sub(first)?);
        if at(end)?.0 >= 0.0 {
            return None;
        }
        let mut blocks = vec![end];
        while let Some(before) = at(*blocks.last()?)?.1 {
            blocks.push(before);
        }
        Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{PLENTY, graph};
    use super::*;

    fn rates(graph: &Graph, hits: &[u64]) -> Vec<f64> {
        super::rates(graph, hits, &mut Budget::of(PLENTY)).unwrap()
    }

    fn flows(graph: &Graph, hits: &[u64]) -> Flows {
        super::flows(graph, hits, &mut Budget::of(PLENTY)).unwrap()
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
        let found = super::rates(&two_halves, &[90, 10, 0], &mut Budget::of(PLENTY)).unwrap();
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
    #[allow(clippy::cast_precision_loss)] // small numbers
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
        let mut budget = Budget::of(500_000_000);
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
        let mut budget = Budget::of(PLENTY);
        assert_eq!(super::rates(&graph, &hits, &mut budget), None);
        assert!(PLENTY - budget.left() < 1_000_000, "nothing but one search was paid for");
    }

    #[test]
    fn no_hits_no_rates() {
        let graph = graph(NESTED);
        assert!(rates(&graph, &vec![0; graph.blocks.len()]).iter().all(|rate| *rate == 0.0));
    }
}
