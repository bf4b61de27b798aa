//! Fast minimum-weight perfect matching on a complete graph, with a proved bound of its gap.
//!
//! # Problem
//! The exact search ([`blossom`]) considers every pair in every round. This takes seconds for a
//! thousand vertices; a plan must be made in a tenth of a second.
//! # Approach
//! Few pairs can be in a good matching. Find a good matching by exchange, and prices that nearly
//! prove it. By these prices select candidate pairs, and search among the candidates exactly. Then
//! check the final prices against *all* pairs. If they are feasible, the matching is optimal. If
//! not, lowered prices give a lower bound of the cost, and the missed pairs join the next round
//! (column generation: Applegate and Cook, "Solving large-scale matching problems", DIMACS 1993).
//! # Terms
//! *Price*, *slack*: as in [`blossom`], in half steps of the costs. *Feasible* prices: no slack is
//! negative. *Room* of a vertex: its highest feasible price, with the other prices unchanged.
//! *Gap*: greatest possible excess of the cost over the optimum, as a share of the optimum.
//! # Algorithm
//! 1. Sort by the sum of costs and pair from both ends; exchange partners between pairs as long as
//!    the cost falls.
//! 2. Find prices that nearly prove the matching. Their sum is a lower bound; stop if the gap is
//!    small enough. If it is above `HOPELESS`, search exactly among all pairs: prices this far off
//!    do not help. With at most `FEW` vertices do the same from these prices.
//! 3. For each vertex keep the partners of least slack, and its partner of step 1.
//! 4. Match exactly among these pairs, from these prices: first by bids, then by search.
//! 5. Check all pairs; stop if the gap is small enough; else add the missed pairs and go to 4 with
//!    the new prices. After `ROUNDS` rounds search exactly among all pairs.
//! # Properties
//! - **Bounded**: the cost is never above `bound · (1 + gap)`, and `bound` never above the optimum.
//!   -> test `bounded`
//! - **Exact when proved**: with a gap of 0 the cost is the optimum. -> test `exact_when_proved`

use super::Costs;
use super::blossom::{self, Matching, Search};
use super::partners::exchange;
use super::prices::Prices;

/// Sweeps over the prices. Chosen: on 1,024 random mixes, 10 sweeps leave the bound 1.1 % below the
/// matching of step 1; 20 sweeps leave 0.9 % and take 1.6 times as long.
const SWEEPS: usize = 20;
/// Partners kept for each vertex. Chosen, not measured.
const PARTNERS: usize = 12;
/// Most rounds of search and check. Chosen: overlaps needed at most three.
const ROUNDS: usize = 6;

/// Most vertices for which the exact search follows the prices at once: the kept candidates would
/// be most of all pairs.
const FEW: usize = 40;

/// Gap of steps 1 and 2 above which the exact search is faster than the rounds. Measured on inner
/// products of 256 vectors with more and more zeros, and on random weights. With a gap of 0.27 the
/// exact search takes twice as long as the rounds; with 1.2, two thirds; on 1,024 random weights,
/// where the gap is infinite, a fifth.
const HOPELESS: f64 = 1.0;

/// Largest accepted gap after all rounds if the requested gap is [`super::ENOUGH_OF_MANY`] or more.
const KEPT: f64 = 0.01;

/// A perfect matching of all vertices of `costs` with a gap of at most `enough`, or [`KEPT`] if
/// `enough` is at least [`super::ENOUGH_OF_MANY`]. `None` if the number of vertices is odd. `mate`,
/// a matching that no exchange improves, replaces step 1.
pub(super) fn within(costs: &Costs, mate: Option<Vec<usize>>, enough: f64) -> Option<Matching> {
    let (found, prices) = by_rounds(costs, mate, enough)?;
    let kept = if enough >= super::ENOUGH_OF_MANY { enough.max(KEPT) } else { enough };
    if found.gap() > kept { blossom::minimum_from(costs, Some(&prices)) } else { Some(found) }
}

/// [`within`] without the final exact search. Also returns feasible prices of the vertices, in half
/// steps.
fn by_rounds(costs: &Costs, mate: Option<Vec<usize>>, gap: f64) -> Option<(Matching, Vec<i64>)> {
    let n = costs.vertices();
    if n % 2 == 1 {
        return None;
    }
    let mate = mate.unwrap_or_else(|| {
        let mut mate = both_ends(costs);
        exchange(costs, &mut mate);
        mate
    });
    let prices = split(costs, &mate);
    let start = Matching { cost: costs.total(&mate), mate, bound_halves: prices.iter().sum() };
    if start.gap() <= gap {
        return Some((start, prices));
    }
    if n <= FEW {
        return blossom::minimum_from(costs, Some(&prices)).map(|found| (found, prices));
    }
    if start.gap() > HOPELESS {
        // Prices this far off do not help the search.
        return blossom::minimum(costs).map(|found| (found, prices));
    }
    Some(rounds(costs, start, prices, gap))
}

/// Steps 3 to 5, from the matching and the prices of steps 1 and 2.
fn rounds(costs: &Costs, start: Matching, mut prices: Vec<i64>, gap: f64) -> (Matching, Vec<i64>) {
    let mut among = cheapest_partners(costs, &prices, &start.mate);
    let mut best = start;
    for _ in 0..ROUNDS {
        let search = Search::solved(costs, Some(&prices), Some(&among));
        let (own, missed) = search.checked_prices();
        let found = Matching {
            cost: costs.total(search.mates()),
            mate: search.mates().to_vec(),
            bound_halves: search.bound(&own),
        };
        // The best matching and the best bound may come from different rounds.
        let bound_halves = best.bound_halves.max(found.bound_halves);
        let cheaper = if best.cost <= found.cost { best } else { found };
        best = Matching { bound_halves, ..cheaper };
        prices = own;
        if best.gap() <= gap {
            break;
        }
        for (u, v) in missed {
            among[u].push(index(v));
            among[v].push(index(u));
        }
    }
    (best, prices)
}

fn index(vertex: usize) -> u32 {
    u32::try_from(vertex).expect("a table of 2^64 costs does not exist")
}

/// Pairs the vertex of the largest cost sum with the vertex of the smallest, and so on inwards.
fn both_ends(costs: &Costs) -> Vec<usize> {
    let n = costs.vertices();
    // The diagonal is no pair, so its cell is taken out of the sum.
    let mut order: Vec<(i64, usize)> =
        (0..n).map(|v| (costs.row(v).iter().sum::<i64>() - costs.of(v, v), v)).collect();
    order.sort_unstable();
    let mut mate = vec![0; n];
    for (&(_, cheap), &(_, dear)) in order.iter().zip(order.iter().rev()) {
        mate[cheap] = dear;
    }
    mate
}

/// Feasible prices, in half steps, with little slack in the pairs of `mate`.
fn split(costs: &Costs, mate: &[usize]) -> Vec<i64> {
    let mut prices = Prices::new(costs, mate);
    prices.sweep(SWEEPS);
    prices.whole()
}

/// For each vertex its partners of least slack and its partner in `mate`. Symmetric, sorted.
fn cheapest_partners(costs: &Costs, prices: &[i64], mate: &[usize]) -> Vec<Vec<u32>> {
    let n = costs.vertices();
    let mut among: Vec<Vec<u32>> = vec![Vec::with_capacity(2 * PARTNERS); n];
    for v in 0..n {
        for u in least_slack(costs, prices, v).into_iter().chain([mate[v]]) {
            among[v].push(index(u));
            among[u].push(index(v));
        }
    }
    for partners in &mut among {
        partners.sort_unstable();
        partners.dedup();
    }
    among
}

/// The [`PARTNERS`] vertices of least slack with `v`; fewer if the graph is smaller.
fn least_slack(costs: &Costs, prices: &[i64], v: usize) -> Vec<usize> {
    let mut least: Vec<(i64, usize)> = Vec::with_capacity(PARTNERS + 1);
    let mut most = i64::MAX;
    for (u, (cost, price)) in costs.row(v).iter().zip(prices).enumerate() {
        let slack = 2 * cost - price;
        // `most` spares the search of the place for all but few vertices.
        if slack < most && u != v {
            let place = least.partition_point(|&(kept, _)| kept <= slack);
            least.insert(place, (slack, u));
            least.truncate(PARTNERS);
            if least.len() == PARTNERS {
                most = least[PARTNERS - 1].0;
            }
        }
    }
    least.into_iter().map(|(_, u)| u).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::in_steps;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    /// Inner products of vectors of five numbers, some of them 0: what overlaps look like.
    fn overlaps(n: usize, zeros: f64, rng: &mut SplitMix64) -> Costs {
        let mut number = || if rng.unit() < zeros { 0.0 } else { rng.unit() };
        let asked: Vec<[f64; 5]> = (0..n).map(|_| std::array::from_fn(|_| number())).collect();
        let inner =
            |a: usize, b: usize| asked[a].iter().zip(&asked[b]).map(|(x, y)| x * y).sum::<f64>();
        Costs::new(n, |a, b| in_steps(inner(a, b), 1e6))
    }

    fn any_costs() -> impl Strategy<Value = Costs> {
        (0_usize..=40, 0.0..0.9, 1_usize..100, any::<u64>()).prop_map(
            |(half, zeros, below, seed)| {
                let mut rng = SplitMix64::new(seed);
                if seed % 4 == 0 {
                    Costs::new(2 * half, |_, _| i64::try_from(rng.below(below)).unwrap())
                } else {
                    overlaps(2 * half, zeros, &mut rng)
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn bounded(costs in any_costs(), gap in 0.0..0.1) {
            let found = within(&costs, None, gap).unwrap();
            let optimum = blossom::minimum(&costs).unwrap().cost;
            prop_assert!(found.bound_halves <= 2 * optimum);
            prop_assert!(optimum <= found.cost);
            prop_assert_eq!(costs.total(&found.mate), found.cost);
            prop_assert!(found.mate.iter().enumerate().all(|(v, &m)| m != v && found.mate[m] == v));
        }

        #[test]
        fn exact_when_proved(costs in any_costs()) {
            let (found, _) = by_rounds(&costs, None, 0.0).unwrap();
            let optimum = blossom::minimum(&costs).unwrap().cost;
            prop_assert!(found.gap() > 0.0 || found.cost == optimum);
            prop_assert_eq!(within(&costs, None, 0.0).unwrap().cost, optimum);
        }
    }

    /// Weights without structure go to the exact search, so they are proved, whatever gap would do.
    #[test]
    fn hopeless_is_exact() {
        let mut rng = SplitMix64::new(3);
        let costs = Costs::new(256, |_, _| i64::try_from(rng.below(100_000_000)).unwrap());
        assert!(within(&costs, None, f64::INFINITY).unwrap().gap() > HOPELESS);
        let found = within(&costs, None, HOPELESS).unwrap();
        assert_eq!((found.gap(), found.cost), (0.0, blossom::minimum(&costs).unwrap().cost));
    }

    #[test]
    fn usually_proved() {
        let mut rng = SplitMix64::new(1);
        let proved = (0..20)
            .filter(|_| by_rounds(&overlaps(60, 0.2, &mut rng), None, 0.0).unwrap().0.gap() == 0.0);
        assert!(proved.count() >= 18);
    }
}
