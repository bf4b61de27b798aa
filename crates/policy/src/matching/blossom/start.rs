//! Initial prices and pairs of the search, found without a tree.

use super::{BlossomSearch, NONE};
use crate::matching::PairCosts;

/// Sweeps before a search, each of which splits every pair's cost anew. With half as many a
/// decision that searches among 32 vertices takes 1.3 times as long.
pub(super) const TO_SEARCH: usize = 10;
/// Sweeps for a proof alone. With twice as many a decision without a search takes a seventh longer.
pub(in crate::matching) const TO_PROVE: usize = 5;

/// Feasible prices of the vertices, in half steps, that nearly prove that `mate`, a perfect
/// matching, is the cheapest: no two add up to more than twice the pair's cost. Their sum is a lower
/// bound of the cost of all perfect matchings. `sweeps`: more give higher prices, and take longer.
pub(in crate::matching) fn prices(costs: &PairCosts, mate: &[usize], sweeps: usize) -> Vec<i64> {
    let mut prices: Vec<i64> = mate.iter().enumerate().map(|(v, &m)| costs.of(v, m)).collect();
    for _ in 0..sweeps {
        // Both vertices of a pair get as much room.
        for (a, &b) in mate.iter().enumerate().filter(|&(a, &b)| a < b) {
            let both = 2 * costs.of(a, b);
            prices[a] = (room(costs, &prices, a) + both - room(costs, &prices, b)) / 2;
            prices[b] = both - prices[a];
        }
    }
    // Lowered one after the other to what the pairs allow: now all are feasible.
    for v in 0..prices.len() {
        prices[v] = prices[v].min(room(costs, &prices, v));
    }
    // Raised as far as the pairs allow: the bound rises with the sum.
    for v in 0..prices.len() {
        prices[v] = room(costs, &prices, v);
    }
    prices
}

/// Highest price of `v` allowed by its pairs, in half steps.
fn room(costs: &PairCosts, prices: &[i64], v: usize) -> i64 {
    // Two slices without the diagonal: no comparison of places in the inner loop.
    let (before, after) = costs.row(v).split_at(v);
    let sides = [least_slack(before, &prices[..v]), least_slack(&after[1..], &prices[v + 1..])];
    sides.into_iter().flatten().min().unwrap_or(0)
}

/// Least `2 · cost − price`, in half steps. `None` without costs.
fn least_slack(costs: &[i64], prices: &[i64]) -> Option<i64> {
    costs.iter().zip(prices).map(|(cost, price)| 2 * cost - price).min()
}

impl BlossomSearch<'_> {
    /// Matches the tight pairs of `near`. Then raises the price of each unmatched vertex as far as
    /// its pairs allow, and matches the vertex if a tight pair has an unmatched other end.
    pub(super) fn match_tight_pairs(&mut self, near: &[usize]) {
        for (v, &m) in near.iter().enumerate() {
            if self.slack(v, m) == 0 {
                self.nodes.mate[v] = m;
            }
        }
        for v in 0..self.nodes.n {
            if self.nodes.mate[v] != NONE {
                continue;
            }
            self.price[v] = room(self.costs, &self.price, v);
            let partner = (0..self.nodes.n)
                .find(|&u| u != v && self.nodes.mate[u] == NONE && self.slack(u, v) == 0);
            if let Some(u) = partner {
                self.nodes.mate[u] = v;
                self.nodes.mate[v] = u;
            }
        }
    }
}
