//! Minimum-weight perfect matching: the choice of tasks that share a core, cache or node.
//!
//! Exact up to [`EXACT_UP_TO`] vertices ([`blossom`]), by exchange of partners beyond
//! ([`exchange`]).

mod blossom;
mod costs;
pub(crate) mod exchange;

use blossom::TO_PROVE;
pub use costs::PairCosts;
use costs::{MAX_COST, in_steps};

/// Most vertices for which a matching is the cheapest. Chosen: 64 cores of two PUs, which take the
/// exact search about a millisecond; docs/results/benchmarks.md has figures.
pub const EXACT_UP_TO: usize = 128;

/// Partner of each vertex in a perfect matching of all vertices of `costs`: a cheapest one up to
/// [`EXACT_UP_TO`] vertices; beyond, one that no exchange of partners between two pairs improves.
/// `None` if the number of vertices is odd.
#[must_use]
pub fn minimum(costs: &PairCosts) -> Option<Vec<usize>> {
    if costs.vertices() <= EXACT_UP_TO { cheapest(costs) } else { by_exchange(costs) }
}

/// Partner of each vertex in a cheapest perfect matching; `None` for an odd number of vertices.
#[must_use]
pub fn cheapest(costs: &PairCosts) -> Option<Vec<usize>> {
    Some(blossom::cheapest(costs, &by_exchange(costs)?))
}

/// Pairs the vertex of the largest cost sum with the vertex of the smallest, and so on inwards, and
/// exchanges partners. `None` if the number of vertices is odd.
pub(crate) fn by_exchange(costs: &PairCosts) -> Option<Vec<usize>> {
    let n = costs.vertices();
    // The diagonal is no pair, so its cell is taken out of the sum.
    let mut order: Vec<(i64, usize)> =
        (0..n).map(|v| (costs.row(v).iter().sum::<i64>() - costs.of(v, v), v)).collect();
    order.sort_unstable();
    let mut mate = vec![0; n];
    // Each pair comes twice, from either end.
    for (&(_, cheap), &(_, dear)) in order.iter().zip(order.iter().rev()) {
        mate[cheap] = dear;
    }
    // With an odd number, the middle vertex would be its own partner.
    n.is_multiple_of(2).then(|| exchanged(costs, &mate))
}

/// The matching `mate` after exchanges of partners between two pairs, as long as one lowers the cost.
/// As [`exchange::improved`], without its lists: of two pairs there are two others.
fn exchanged(costs: &PairCosts, mate: &[usize]) -> Vec<usize> {
    let mut pairs = pairs_of(mate);
    let mut was_changed = vec![true; pairs.len()];
    for _ in 0..exchange::PASSES {
        let mut is_changed = vec![false; pairs.len()];
        for i in 0..pairs.len() {
            for j in i + 1..pairs.len() {
                // The same test of two unchanged pairs would fail again.
                let is_new = was_changed[i] || was_changed[j] || is_changed[i] || is_changed[j];
                if is_new && let Some([one, other]) = cheaper(costs, pairs[i], pairs[j]) {
                    (pairs[i], pairs[j]) = (one, other);
                    (is_changed[i], is_changed[j]) = (true, true);
                }
            }
        }
        was_changed = is_changed;
        if !was_changed.contains(&true) {
            break;
        }
    }
    let mut mate = mate.to_vec();
    for [a, b] in pairs {
        mate[a] = b;
        mate[b] = a;
    }
    mate
}

/// The cheapest pairs of these four vertices, if cheaper than these two.
fn cheaper(costs: &PairCosts, [a, b]: [usize; 2], [c, d]: [usize; 2]) -> Option<[[usize; 2]; 2]> {
    let [of_a, of_b] = [a, b].map(|v| costs.row(v));
    let now = of_a[b] + costs.of(c, d);
    let straight = of_a[c] + of_b[d];
    let crossed = of_a[d] + of_b[c];
    if straight.min(crossed) >= now {
        return None;
    }
    Some(if straight <= crossed { [[a, c], [b, d]] } else { [[a, d], [b, c]] })
}

/// The pairs of a matching, the lower vertex first.
fn pairs_of(mate: &[usize]) -> Vec<[usize; 2]> {
    mate.iter().enumerate().filter(|&(a, &b)| a < b).map(|(a, &b)| [a, b]).collect()
}

/// [`pairs_of`] as groups.
fn groups_of(mate: &[usize]) -> Vec<Vec<usize>> {
    pairs_of(mate).into_iter().map(Vec::from).collect()
}

/// Partitions the items, numbers below `count`, into `groups` groups of at most `width` items, so
/// that the total cost is small; as [`minimum`] if `width` is 2. Pairs of items are matched first,
/// then pairs of pairs. `cost` takes the members of a group; the result is not negative, and 0 for
/// an empty group.
///
/// Group sizes differ by at most 1, so `width` only sets the number of matchings. No group is
/// larger than `width` if there are at most `groups * width` items.
pub(crate) fn in_groups(
    count: usize,
    groups: usize,
    width: usize,
    cost: impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    in_groups_by(minimum, count, groups, width, cost)
}

/// [`in_groups`] by the given matching, one of this module.
pub(crate) fn in_groups_by(
    matching: fn(&PairCosts) -> Option<Vec<usize>>,
    count: usize,
    groups: usize,
    width: usize,
    mut cost: impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = (0..count).map(|item| vec![item]).collect();
    // Empty parts fill up to a number that halves to `groups`.
    parts.resize((groups * width.next_power_of_two()).max(count), Vec::new());
    while parts.len() > groups {
        let n = parts.len();
        let mut table = vec![0.0; n * n];
        // One buffer for all pairs: `cost` is called n² / 2 times.
        let mut both = Vec::with_capacity(2 * width);
        for a in 0..n {
            for b in a + 1..n {
                both.clear();
                both.extend_from_slice(&parts[a]);
                both.extend_from_slice(&parts[b]);
                table[a * n + b] = cost(&both);
            }
        }
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        let mate = matching(&even_costs(&sizes, &table)).expect("an even number of parts");
        let pairs = pairs_of(&mate).into_iter();
        parts = pairs.map(|pair| [&parts[pair[0]][..], &parts[pair[1]]].concat()).collect();
    }
    parts
}

/// Costs of joining parts of these sizes, by `table` for the lower part first. Sizes of parts differ
/// by at most 1, and so do sizes of pairs: two parts of the less frequent size are kept apart by a
/// penalty.
fn even_costs(sizes: &[usize], table: &[f64]) -> PairCosts {
    let n = sizes.len();
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let small = sizes.iter().filter(|&&size| size == smallest).count();
    let apart = if 2 * small <= n { smallest } else { smallest + 1 };
    let steps = steps(table.iter().copied().fold(0.0, f64::max), n);
    PairCosts::new(n, |a, b| {
        let both = sizes[a] == apart && sizes[b] == apart;
        // With parts of one size, none are kept apart.
        let penalty = if both && small < n { MAX_COST / 2 } else { 0 };
        penalty + in_steps(table[a * n + b], steps)
    })
}

/// Predicted costs of all pairs of an even number of places.
pub(crate) struct Predicted {
    costs: PairCosts,
    /// Steps for a cost of 1.
    steps: f64,
}

impl Predicted {
    /// Costs of all pairs of `slots` places. `cost(a, b)` for `a < b` is between 0 and `most`.
    pub(crate) fn new(slots: usize, most: f64, mut cost: impl FnMut(usize, usize) -> f64) -> Self {
        let steps = steps(most, slots);
        Self { costs: PairCosts::new(slots, |a, b| in_steps(cost(a, b), steps)), steps }
    }

    /// Whether every perfect matching costs at least `limit`: as prices prove up to [`EXACT_UP_TO`]
    /// places, and as far as exchange finds beyond. `mate` is a good matching to start from; exchange
    /// of partners improves `mate`. False means unknown.
    pub(crate) fn none_below(&self, mate: &mut Vec<usize>, limit: f64) -> bool {
        // Costs are rounded down, so a bound in whole steps holds for the costs too. The extra step
        // of `in_steps_up` covers rounding.
        let limit = in_steps_up(limit, self.steps);
        *mate = exchanged(&self.costs, mate);
        if limit <= 0 || self.costs.total(mate) < limit {
            return limit <= 0;
        }
        let is_exact = mate.len() <= EXACT_UP_TO;
        // Prices are in half steps.
        !is_exact || blossom::prices(&self.costs, mate, TO_PROVE).iter().sum::<i64>() >= 2 * limit
    }

    /// The cheapest pairs, as of [`minimum`], from the `mate` of [`Self::none_below`].
    pub(crate) fn pairs(&self, mate: &[usize]) -> Vec<Vec<usize>> {
        if mate.len() > EXACT_UP_TO {
            return groups_of(mate);
        }
        groups_of(&blossom::cheapest(&self.costs, mate))
    }
}

/// Steps for a cost of 1, so that the cost of a whole matching of `count` parts stays below the
/// penalty of a forbidden pair. `most` is the largest cost of a pair.
fn steps(most: f64, count: usize) -> f64 {
    // Costs may all be 0. The least positive number itself would give infinity.
    MAX_COST as f64 / 2.0 / (most.max(f64::MIN_POSITIVE.sqrt()) * count as f64)
}

/// [`in_steps`] rounded up, plus one step, without the cut to [`MAX_COST`].
#[allow(clippy::cast_possible_truncation)] // saturates
fn in_steps_up(limit: f64, steps: f64) -> i64 {
    ((limit * steps).ceil() as i64).saturating_add(1).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{demands, within};
    use crate::rng::SplitMix64;
    use crate::testing::random_tasks;
    use colocate_model::UnitDemand;
    use proptest::prelude::*;

    /// Random demands, some of which are nothing and some of which are the same.
    fn random_demands(count: usize, seed: u64) -> Vec<UnitDemand> {
        let mut rng = SplitMix64::new(seed);
        let tasks = random_tasks(&mut rng, count);
        let mut demands = demands(&tasks.iter().collect::<Vec<_>>());
        for at in 0..count {
            match rng.below(8) {
                0 => demands[at] = UnitDemand::NONE,
                1 => demands[at] = demands[rng.below(count)],
                _ => {}
            }
        }
        demands
    }

    fn check_groups(groups: usize, width: usize, count: usize, seed: u64) {
        let demands = random_demands(count, seed);
        let made =
            in_groups(count, groups, width, |group| within(group.iter().map(|&at| demands[at])));
        let sizes = made.iter().map(Vec::len);
        let least = sizes.clone().min().unwrap();
        let most = sizes.max().unwrap();
        assert_eq!(made.len(), groups);
        assert!(most <= width && most - least <= 1, "sizes {least} to {most}, width {width}");
        let mut all = made.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count));
    }

    proptest! {
        /// Every item once, in groups that differ by one at most.
        #[test]
        fn groups_are_even(groups in 1_usize..=7, width in 1_usize..=8, idle in 0_usize..=20, seed: u64) {
            check_groups(groups, width, (groups * width).saturating_sub(idle), seed);
        }
    }

    #[test]
    fn large_groups_are_even() {
        check_groups(150, 2, 299, 1);
        check_groups(80, 4, 250, 2);
    }

    fn overlaps(count: usize, seed: u64) -> PairCosts {
        let demands = random_demands(count, seed);
        let most = demands.iter().map(|d| d.overlap(d)).fold(0.0, f64::max);
        PairCosts::of_overlaps(&demands, steps(most, count))
    }

    /// Exact to [`EXACT_UP_TO`]; beyond within a tenth of the cheapest.
    #[test]
    fn exact_or_near() {
        for (count, seed) in [(40, 1), (96, 2), (EXACT_UP_TO, 3), (EXACT_UP_TO, 4)] {
            let costs = overlaps(count, seed);
            let exact = costs.total(&minimum(&costs).unwrap());
            assert_eq!(exact, costs.total(&cheapest(&costs).unwrap()));
            assert!(exact <= costs.total(&by_exchange(&costs).unwrap()));
        }
        for seed in 5..8 {
            let costs = overlaps(200, seed);
            let exact = costs.total(&cheapest(&costs).unwrap());
            let found = costs.total(&minimum(&costs).unwrap());
            assert!((exact..=exact + exact / 10).contains(&found), "{found}, least {exact}");
        }
    }

    #[test]
    fn odd_numbers_have_no_perfect_matching() {
        assert_eq!(minimum(&PairCosts::new(0, |_, _| 1)), Some(vec![]));
        assert_eq!(minimum(&PairCosts::new(2, |_, _| 7)), Some(vec![1, 0]));
        assert_eq!(minimum(&PairCosts::new(3, |_, _| 7)), None);
        assert_eq!(minimum(&PairCosts::new(EXACT_UP_TO + 1, |_, _| 7)), None);
    }

    proptest! {
        /// No exchange between two pairs is left that lowers the cost, and the cost has not risen.
        #[test]
        fn no_exchange_of_partners_is_left(half in 1_usize..=12, seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let costs = PairCosts::new(2 * half, |_, _| i64::try_from(rng.below(100)).unwrap());
            let before: Vec<usize> = (0..2 * half).map(|v| v ^ 1).collect();
            let mate = exchanged(&costs, &before);
            prop_assert!(costs.total(&mate) <= costs.total(&before));
            prop_assert!((0..2 * half).all(|v| mate[v] != v && mate[mate[v]] == v));
            for (a, c) in (0..2 * half).flat_map(|a| (0..2 * half).map(move |c| (a, c))) {
                if a != c && mate[a] != c {
                    let now = costs.of(a, mate[a]) + costs.of(c, mate[c]);
                    prop_assert!(costs.of(a, c) + costs.of(mate[a], mate[c]) >= now);
                }
            }
        }

        /// A bound that is said to be proved is true.
        #[test]
        fn proves_no_more_than_is(half in 1_usize..=8, seed: u64, part in 0.0..1.2) {
            let mut rng = SplitMix64::new(seed);
            let costs: Vec<f64> = (0..4 * half * half).map(|_| rng.unit()).collect();
            let predicted = Predicted::new(2 * half, 1.0, |a, b| costs[2 * half * a + b]);
            let least: f64 =
                predicted.pairs(&cheapest(&predicted.costs).unwrap()).iter().map(|p| costs[2 * half * p[0] + p[1]]).sum();
            let mut mate: Vec<usize> = (0..2 * half).map(|v| v ^ 1).collect();
            let is_proved = predicted.none_below(&mut mate, least * part);
            prop_assert!(!is_proved || part <= 1.0 + 1e-9);
            prop_assert!(part > 0.0 || is_proved);
        }
    }
}
