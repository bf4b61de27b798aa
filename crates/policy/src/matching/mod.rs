//! Minimum-weight perfect matching: the choice of tasks that share a core, cache or node.

pub mod blossom;
mod columns;
mod costs;
pub mod exchange;
#[cfg(test)]
mod oracle_tests;
mod partners;
mod prices;

pub use blossom::Matching;
pub use costs::{Costs, MAX_COST, in_steps};

use colocate_model::UnitDemand;

/// A perfect matching of all vertices of `costs`, proved to cost at most a share `enough` more than
/// the cheapest. From [`ENOUGH_OF_MANY`] on, a hundredth more is accepted. `None` if the number of
/// vertices is odd.
#[must_use]
pub fn minimum(costs: &Costs, enough: f64) -> Option<Matching> {
    columns::within(costs, None, enough)
}

/// Gap between a matching and the optimum that counts as 0 for predicted costs, as a share of the
/// total cost. Chosen: the inputs of the predictions are exact to a millionth at best.
pub const ENOUGH: f64 = 1e-6;

/// [`ENOUGH`] for more than [`OPTIMAL_UP_TO`] vertices. Chosen: costs are losses of speed, some
/// tenths of the whole, so the gap is about a tenth of the gain for which `symbiotic` moves a
/// thread. A smaller gap takes the search several times as long.
pub const ENOUGH_OF_MANY: f64 = 3e-3;

/// Most vertices for which groups by predicted costs are optimal but for [`ENOUGH`]. Chosen: 64
/// cores of two PUs.
pub(crate) const OPTIMAL_UP_TO: usize = 128;

/// Steps of the dearest pair where costs are predictions. Finer steps are below the accuracy of the
/// predictions. 2^22: single-precision numbers hold all multiples up to it without rounding.
const COARSE: f64 = 4_194_304.0;

/// A group of items and the sum of the items' demands.
#[derive(Clone)]
struct Group {
    members: Vec<usize>,
    demand: UnitDemand,
}

impl Group {
    /// Union of two groups.
    fn joined(&self, other: &Self) -> Self {
        let members = [&self.members[..], &other.members].concat();
        Self { members, demand: self.demand + other.demand }
    }
}

/// Partitions the items with these `demands` into `groups` groups of at most `width` items, so that
/// the overlap within groups is small; the least possible if `width` is 2. Pairs of items are
/// matched first, then pairs of pairs.
///
/// Group sizes differ by at most 1, so `width` only sets the number of matchings. No group is
/// larger than `width` if there are at most `groups * width` items.
pub(crate) fn in_groups(demands: &[UnitDemand], groups: usize, width: usize) -> Vec<Vec<usize>> {
    let items = demands.iter().enumerate();
    let mut parts: Vec<Group> =
        items.map(|(item, &demand)| Group { members: vec![item], demand }).collect();
    // Empty parts fill up to a number that halves to `groups`.
    let slots = groups * width.next_power_of_two();
    parts.resize(slots.max(parts.len()), Group { members: Vec::new(), demand: UnitDemand::NONE });
    while parts.len() > groups {
        let sizes: Vec<usize> = parts.iter().map(|part| part.members.len()).collect();
        // No overlap is larger than that of the most demanding item with itself (Cauchy, Schwarz).
        let most = parts.iter().map(|part| part.demand.overlap(&part.demand)).fold(0.0, f64::max);
        let steps = steps(most, sizes.len());
        let pairs = pairs(&sizes, steps, 0.0, |a, b| parts[a].demand.overlap(&parts[b].demand));
        parts = pairs.into_iter().map(|(a, b)| parts[a].joined(&parts[b])).collect();
    }
    parts.into_iter().map(|group| group.members).collect()
}

/// [`in_groups`] for any predicted cost of a group. `cost` takes the members, numbers below
/// `count`; the result is not negative, and 0 for an empty group. The total cost is the least
/// possible if `width` is 2, but for [`ENOUGH`], or [`ENOUGH_OF_MANY`] above [`OPTIMAL_UP_TO`]
/// places.
pub(crate) fn in_groups_by(
    count: usize,
    groups: usize,
    width: usize,
    cost: impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    in_groups_of_part(count, groups, width, 1, cost)
}

/// [`in_groups_by`] for one of `of_parts` parts of about the same size. The places of all parts
/// together select the gap, [`ENOUGH`] or [`ENOUGH_OF_MANY`].
pub(crate) fn in_groups_of_part(
    count: usize,
    groups: usize,
    width: usize,
    of_parts: usize,
    mut cost: impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = (0..count).map(|item| vec![item]).collect();
    parts.resize((groups * width.next_power_of_two()).max(count), Vec::new());
    while parts.len() > groups {
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
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
        let most = table.iter().copied().fold(0.0, f64::max);
        let steps = coarse_steps(most, n);
        let pairs =
            pairs(&sizes, steps, enough(n * of_parts), |a, b| table[a.min(b) * n + a.max(b)]);
        parts = pairs.into_iter().map(|(a, b)| [&parts[a][..], &parts[b]].concat()).collect();
    }
    parts
}

/// Predicted costs of all pairs of an even number of places.
pub struct Predicted {
    costs: Costs,
    /// Steps for a cost of 1, see [`COARSE`].
    steps: f64,
}

impl Predicted {
    /// Costs of all pairs of `slots` places. `cost(a, b)` for `a < b` is between 0 and `most`.
    #[must_use]
    pub fn new(slots: usize, most: f64, mut cost: impl FnMut(usize, usize) -> f64) -> Self {
        let steps = coarse_steps(most, slots);
        Self { costs: Costs::new(slots, |a, b| in_steps(cost(a, b), steps)), steps }
    }

    /// Whether every perfect matching is proved to cost at least `limit`. `mate` is a good matching
    /// to start from; exchange of partners improves `mate`. False means unknown.
    pub(crate) fn none_below(&self, mate: &mut [usize], limit: f64) -> bool {
        // Costs are rounded down, so a bound in whole steps holds for the costs too. The extra step
        // of `in_steps_up` covers rounding.
        prices::none_below(&self.costs, mate, in_steps_up(limit, self.steps))
    }

    /// The cheapest pairs, equal to the result of [`in_groups_by`] for as many items as places.
    /// `mate` comes from [`Self::none_below`]. Up to [`OPTIMAL_UP_TO`] places the search starts
    /// from `mate`.
    #[must_use]
    pub fn pairs(&self, mate: Vec<usize>) -> Vec<Vec<usize>> {
        let places = self.costs.vertices();
        // Above `OPTIMAL_UP_TO` the result depends on the start, so the start is that of all
        // others.
        let mate = Some(mate).filter(|_| places <= OPTIMAL_UP_TO);
        let pairs = matched(&self.costs, mate, enough(places));
        pairs.into_iter().map(|(a, b)| vec![a, b]).collect()
    }
}

/// Gap accepted for predicted costs of this many places, as a share.
const fn enough(places: usize) -> f64 {
    if places <= OPTIMAL_UP_TO { ENOUGH } else { ENOUGH_OF_MANY }
}

/// Pairs of all parts with the least `cost`, at `steps` steps for a cost of 1 and up to a gap of
/// `enough`. The number of parts is even.
///
/// Sizes of parts differ by at most 1, and so do sizes of pairs: two parts of the less frequent
/// size are never joined.
fn pairs(
    sizes: &[usize],
    steps: f64,
    enough: f64,
    mut cost: impl FnMut(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let small = sizes.iter().filter(|&&size| size == smallest).count();
    // The size of the minority: two such parts are kept apart by a penalty.
    let apart = if 2 * small <= sizes.len() { smallest } else { smallest + 1 };
    let costs = Costs::new(sizes.len(), |a, b| {
        let both = sizes[a] == apart && sizes[b] == apart;
        let penalty = if both && small < sizes.len() { MAX_COST / 2 } else { 0 };
        penalty + in_steps(cost(a, b), steps)
    });
    matched(&costs, None, enough)
}

/// The pairs `(a, b)`, `a < b`, of the cheapest matching, up to a gap of `enough`.
fn matched(costs: &Costs, mate: Option<Vec<usize>>, enough: f64) -> Vec<(usize, usize)> {
    let found = columns::within(costs, mate, enough).expect("an even number of parts");
    found.mate.into_iter().enumerate().filter(|&(a, b)| a < b).collect()
}

/// Steps for a cost of 1, so that the cost of a whole matching of `count` parts stays below the
/// penalty of a forbidden pair. `most` is the largest cost of a pair.
fn steps(most: f64, count: usize) -> f64 {
    MAX_COST as f64 / 2.0 / (most.max(f64::MIN_POSITIVE.sqrt()) * count as f64)
}

/// [`steps`] for predicted costs: no finer than [`COARSE`].
fn coarse_steps(most: f64, count: usize) -> f64 {
    steps(most, count).min(COARSE / most.max(f64::MIN_POSITIVE.sqrt()))
}

/// [`in_steps`] rounded up, plus one step, without the cut to [`MAX_COST`].
#[allow(clippy::cast_possible_truncation)] // saturates
fn in_steps_up(limit: f64, steps: f64) -> i64 {
    ((limit * steps).ceil() as i64).saturating_add(1).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::demands;
    use crate::rng::SplitMix64;
    use crate::testing::random_tasks;
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
        let made = in_groups(&random_demands(count, seed), groups, width);
        let sizes = made.iter().map(Vec::len);
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
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

    /// Pairs of the parts of a whole of more than [`OPTIMAL_UP_TO`] places may cost more than the
    /// cheapest, but no more than by [`ENOUGH_OF_MANY`]. Costs are products, as of stacks; 0.007 %
    /// are lost on average here and 0.15 % at most.
    #[test]
    fn parts_of_many_lose_little() {
        let lost = |seed: u64| {
            let mut rng = SplitMix64::new(seed);
            let asked: Vec<[f64; 3]> =
                (0..96).map(|_| std::array::from_fn(|_| rng.unit())).collect();
            let cost = |group: &[usize]| match *group {
                [a, b] => asked[a].iter().zip(&asked[b]).map(|(x, y)| x * y).sum(),
                _ => 0.0,
            };
            let total = |parts| -> f64 {
                in_groups_of_part(96, 48, 2, parts, cost).iter().map(|pair| cost(pair)).sum()
            };
            total(2) / total(1) - 1.0
        };
        let lost: Vec<f64> = (0..20).map(lost).collect();
        let most = lost.iter().copied().fold(0.0, f64::max);
        assert!(lost.iter().all(|lost| (-ENOUGH..=ENOUGH_OF_MANY).contains(lost)), "{lost:?}");
        assert!(most > ENOUGH, "one part alone is matched as exactly as two");
    }

    #[test]
    fn large_ones_too() {
        check_groups(150, 2, 299, 1);
        check_groups(80, 4, 250, 2);
        let demands = random_demands(260, 3);
        let most = demands.iter().map(|d| d.overlap(d)).fold(0.0, f64::max);
        let costs = Costs::of_overlaps(&demands, steps(most, demands.len()));
        let optimum = blossom::minimum(&costs).unwrap().cost;
        assert_eq!(minimum(&costs, 0.0).unwrap().cost, optimum);
        let found = minimum(&costs, ENOUGH_OF_MANY).unwrap();
        assert!(found.gap() <= 0.01 && found.cost <= optimum + optimum / 100, "{found:?}");
    }
}
