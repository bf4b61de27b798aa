//! Prices of vertices that nearly prove a matching, and the resulting lower bound.
//!
//! # Problem
//! A lower bound of the cost of all perfect matchings spares the search where groups stay: no
//! better groups have to be found, if none can exist.
//! # Approach
//! The sum of feasible prices is such a bound. Prices are improved pair by pair from a good
//! matching, in single precision, which is fast. Only the last prices become integers and are
//! checked against all pairs, so that the proof is exact.
//! # Terms
//! *Price*, *feasible*, *room*: as in [`columns`](super::columns), in half steps of the costs.
//! # Algorithm
//! 1. Each vertex begins with the cost of its own pair, which is half of the pair's cost in half
//!    steps.
//! 2. *Sweep*: split each pair's cost between its two vertices so that both have as much room left.
//! 3. *Whole*: round so that each pair's prices are its cost, lower prices above their room, then
//!    raise all to their room.
//! # Properties
//! - **Allowed**: no two prices add up to more than twice the pair's cost.
//!   -> test `no_pair_forbids_them`
//! - **Never more than there is**: every proved bound is true. -> test `proves_no_more_than_is`
//! - **Proves** a matching that is cheapest by far. -> test `proves_what_stays`

use super::Costs;
use super::partners::exchange;

/// Cells of a row that are compared together; rows are padded to a multiple. Chosen: four registers
/// of four numbers each, available on every x86-64 and ARM processor.
const LANES: usize = 16;
/// Cost of a cell without a pair: the diagonal and the padding.
const NO_PAIR: f32 = f32::MAX / 4.0;

/// Total sweeps after which [`none_below`] checks the proof. Chosen: most proofs for unchanged
/// groups take two sweeps, and a check takes as long as some sweeps.
const LOOKS: [usize; 4] = [2, 5, 10, 20];

/// Approximate prices, improved by sweeps.
pub(super) struct Prices<'a> {
    costs: &'a Costs,
    mate: &'a [usize],
    /// Cells per padded row.
    stride: usize,
    /// Costs in half steps, row by row.
    doubled: Vec<f32>,
    /// By vertex, in half steps. Not feasible before [`Self::allowed`].
    prices: Vec<f32>,
}

impl<'a> Prices<'a> {
    /// Prices before the first sweep. `mate` is a perfect matching.
    pub(super) fn new(costs: &'a Costs, mate: &'a [usize]) -> Self {
        let n = costs.vertices();
        let stride = n.next_multiple_of(LANES);
        let mut doubled = vec![NO_PAIR; n * stride];
        for (v, row) in doubled.chunks_exact_mut(stride.max(1)).enumerate() {
            row.iter_mut().zip(costs.row(v)).for_each(|(to, &cost)| *to = (2 * cost) as f32);
            row[v] = NO_PAIR;
        }
        let mut prices = vec![0.0; stride];
        for (v, &m) in mate.iter().enumerate() {
            prices[v] = costs.of(v, m) as f32;
        }
        Self { costs, mate, stride, doubled, prices }
    }

    /// Splits the cost of each pair between the two vertices, `times` times.
    pub(super) fn sweep(&mut self, times: usize) {
        for _ in 0..times {
            for (a, &b) in self.mate.iter().enumerate().filter(|&(a, &b)| a < b) {
                let both = self.doubled[a * self.stride + b];
                let mine = (self.room(a) + both - self.room(b)) / 2.0;
                self.prices[a] = mine;
                self.prices[b] = both - mine;
            }
        }
    }

    /// Highest price of `v` allowed by its pairs, in half steps.
    fn room(&self, v: usize) -> f32 {
        let row = &self.doubled[v * self.stride..][..self.stride];
        let mut least = [NO_PAIR; LANES];
        for (costs, prices) in row.chunks_exact(LANES).zip(self.prices.chunks_exact(LANES)) {
            // A plain comparison: `f32::min` also handles NaN, which takes more instructions.
            for ((least, cost), price) in least.iter_mut().zip(costs).zip(prices) {
                let slack = cost - price;
                *least = if slack < *least { slack } else { *least };
            }
        }
        least.into_iter().fold(NO_PAIR, f32::min)
    }

    /// Feasible integer prices, in half steps.
    pub(super) fn whole(&self) -> Vec<i64> {
        let mut prices = self.allowed();
        self.raise(&mut prices);
        prices
    }

    /// Whether the feasible prices sum up to `halves` half steps or more.
    fn prove(&self, halves: i64) -> bool {
        let mut prices = self.allowed();
        // Raising is as slow as lowering, so it waits until it is needed.
        if prices.iter().sum::<i64>() >= halves {
            return true;
        }
        self.raise(&mut prices);
        prices.iter().sum::<i64>() >= halves
    }

    /// Integer prices, in half steps, lowered until feasible.
    #[allow(clippy::cast_possible_truncation)] // costs are below 2^41 half steps
    fn allowed(&self) -> Vec<i64> {
        let n = self.costs.vertices();
        let mut prices: Vec<i64> = self.prices[..n].iter().map(|price| *price as i64).collect();
        // The pair's prices add up to its cost again, which rounding may have changed.
        for (a, &b) in self.mate.iter().enumerate().filter(|&(a, &b)| a < b) {
            prices[b] = 2 * self.costs.of(a, b) - prices[a];
        }
        for v in 0..n {
            prices[v] = prices[v].min(room(self.costs, &prices, v));
        }
        prices
    }

    /// Raises each price to the highest feasible value.
    fn raise(&self, prices: &mut [i64]) {
        for v in 0..prices.len() {
            prices[v] = room(self.costs, prices, v);
        }
    }
}

/// Highest price of `v` allowed by its pairs, in half steps.
fn room(costs: &Costs, prices: &[i64], v: usize) -> i64 {
    // Two slices without the diagonal: no comparison of places in the inner loop.
    let (before, after) = costs.row(v).split_at(v);
    let sides = [least_slack(before, &prices[..v]), least_slack(&after[1..], &prices[v + 1..])];
    sides.into_iter().flatten().min().unwrap_or(0)
}

/// Least `2 · cost − price`, in half steps. `None` without costs.
fn least_slack(costs: &[i64], prices: &[i64]) -> Option<i64> {
    costs.iter().zip(prices).map(|(cost, price)| 2 * cost - price).min()
}

/// Whether every perfect matching is proved to cost at least `limit` steps. `mate` is a perfect
/// matching to start from; exchange of partners improves `mate`. False means unknown.
pub(super) fn none_below(costs: &Costs, mate: &mut [usize], limit: i64) -> bool {
    if limit <= 0 {
        return true;
    }
    exchange(costs, mate);
    if costs.total(mate) < limit {
        return false;
    }
    let mut prices = Prices::new(costs, mate);
    let mut done = 0;
    LOOKS.into_iter().any(|sweeps| {
        prices.sweep(sweeps - done);
        done = sweeps;
        prices.prove(2 * limit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::oracle_tests as oracle;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    fn costs(half: usize, below: usize, seed: u64) -> Costs {
        let mut rng = SplitMix64::new(seed);
        Costs::new(2 * half, |_, _| i64::try_from(rng.below(below)).unwrap())
    }

    /// 0 with 1, 2 with 3, and so on.
    fn in_order(costs: &Costs) -> Vec<usize> {
        (0..costs.vertices()).map(|v| v ^ 1).collect()
    }

    proptest! {
        #[test]
        fn no_pair_forbids_them(half in 0_usize..=20, below in 1_usize..1 << 40, sweeps in 0_usize..5, seed: u64) {
            let costs = costs(half, below, seed);
            let mate = in_order(&costs);
            let mut prices = Prices::new(&costs, &mate);
            prices.sweep(sweeps);
            let prices = prices.whole();
            for (v, u) in (0..2 * half).flat_map(|v| (0..v).map(move |u| (v, u))) {
                prop_assert!(prices[v] + prices[u] <= 2 * costs.of(v, u));
            }
        }

        #[test]
        fn proves_no_more_than_is(half in 0_usize..=5, below in 1_usize..1000, seed: u64, part in 0.0..1.2) {
            let costs = costs(half, below, seed);
            let least = oracle::minimum(&costs);
            #[allow(clippy::cast_possible_truncation)]
            let limit = (costs.total(&in_order(&costs)) as f64 * part) as i64;
            prop_assert!(!none_below(&costs, &mut in_order(&costs), limit) || least >= limit);
        }
    }

    /// Pairs of 0 with 1, 2 with 3 cost 10, all others 11 to 30: nothing is below 10 a pair, and
    /// that is proved.
    #[test]
    fn proves_what_stays() {
        let mut rng = SplitMix64::new(4);
        let mut dear =
            |_: usize, _: usize| 1_000_000 * (11 + i64::try_from(rng.below(20)).unwrap());
        let costs = Costs::new(40, |a, b| if a ^ 1 == b { 10_000_000 } else { dear(a, b) });
        let mut mate = in_order(&costs);
        assert!(none_below(&costs, &mut mate, 199_000_000));
        assert!(!none_below(&costs, &mut mate, 200_000_001));
        assert!(none_below(&costs, &mut mate, 0));
    }
}
