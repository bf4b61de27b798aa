//! Which tasks should be together: minimum-weight perfect matching.

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

/// A perfect matching of all vertices of `costs` that is proved to cost no more than by `enough`, as a share, above the
/// cheapest; from [`ENOUGH_OF_MANY`] on at most a hundredth more. `None` if their number is odd.
#[must_use]
pub fn minimum(costs: &Costs, enough: f64) -> Option<Matching> {
    columns::within(costs, None, enough)
}

/// What counts as nothing where costs are predictions, as a share of all costs. Chosen: what they are predicted
/// from is known to a millionth at best.
pub const ENOUGH: f64 = 1e-6;

/// The same above [`OPTIMAL_UP_TO`] vertices.
/// Chosen: of what threads lose, which is some tenths of the whole, it is about a tenth of the gain for which
/// `symbiotic` moves a thread, and to do better takes the search several times as long.
pub const ENOUGH_OF_MANY: f64 = 3e-3;

/// Up to this many vertices groups by predictions are optimal, but for [`ENOUGH`]. Chosen: 64 cores of two.
pub(crate) const OPTIMAL_UP_TO: usize = 128;

/// Steps of the dearest pair where costs are predictions: finer ones say nothing that is known. So few that
/// numbers of single precision hold them without rounding.
const COARSE: f64 = 4_194_304.0;

/// Members of a group, and the sum of their demands.
#[derive(Clone)]
struct Group {
    members: Vec<usize>,
    demand: UnitDemand,
}

/// Puts items with these `demands` into `groups` groups of at most `width`, by matching pairs,
/// then pairs of pairs, so that the overlap within groups is small; least, if `width` is 2.
///
/// Group sizes differ by one at most, so `width` only says how often to match, and no group is
/// larger if `demands` is no longer than `groups * width`.
pub(crate) fn in_groups(demands: &[UnitDemand], groups: usize, width: usize) -> Vec<Vec<usize>> {
    let alone = |(item, &demand): (usize, &UnitDemand)| Group { members: vec![item], demand };
    let mut parts: Vec<Group> = demands.iter().enumerate().map(alone).collect();
    let slots = groups * width.next_power_of_two();
    parts.resize(slots.max(parts.len()), Group { members: Vec::new(), demand: UnitDemand::NONE });
    while parts.len() > groups {
        let sizes: Vec<usize> = parts.iter().map(|part| part.members.len()).collect();
        // No overlap is larger than that of the most demanding item with itself (Cauchy, Schwarz).
        let most = parts.iter().map(|part| part.demand.overlap(&part.demand)).fold(0.0, f64::max);
        let steps = steps(most, sizes.len());
        let overlap = |a: usize, b: usize| parts[a].demand.overlap(&parts[b].demand);
        let pairs = pairs(&sizes, steps, 0.0, overlap);
        let join = |(a, b): (usize, usize)| Group {
            members: [&parts[a].members[..], &parts[b].members].concat(),
            demand: parts[a].demand + parts[b].demand,
        };
        parts = pairs.into_iter().map(join).collect();
    }
    parts.into_iter().map(|group| group.members).collect()
}

/// As [`in_groups`], for any predicted cost of a group: `cost` of its members, places below `count`, not
/// negative; no members cost nothing. Least, if `width` is 2, but for [`ENOUGH`]; of more than [`OPTIMAL_UP_TO`]
/// places, but for [`ENOUGH_OF_MANY`].
pub(crate) fn in_groups_by(
    count: usize,
    groups: usize,
    width: usize,
    cost: impl FnMut(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    in_groups_of_part(count, groups, width, 1, cost)
}

/// The same for one of `of_parts` parts of a whole that are about as large: it is the whole's places that count.
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
        let join = |a: usize, b: usize| [&parts[a][..], &parts[b]].concat();
        let n = parts.len();
        let mut table = vec![0.0; n * n];
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
        parts = pairs.into_iter().map(|(a, b)| join(a, b)).collect();
    }
    parts
}

/// What all pairs of an even number of places cost, as predicted, in steps that say what is known and no more.
pub struct Predicted {
    costs: Costs,
    steps: f64,
}

impl Predicted {
    /// Of `slots` places: `cost` of two, the first below the second, is not negative and at most `most`.
    #[must_use]
    pub fn new(slots: usize, most: f64, mut cost: impl FnMut(usize, usize) -> f64) -> Self {
        let steps = coarse_steps(most, slots);
        Self { costs: Costs::new(slots, |a, b| in_steps(cost(a, b), steps)), steps }
    }

    /// Whether it is proved that no pairs cost less than `limit` in all; `mate` are pairs that are thought good, and
    /// are bettered by exchange. False says nothing.
    pub(crate) fn none_below(&self, mate: &mut [usize], limit: f64) -> bool {
        // Costs were rounded down, so what they prove of whole steps is true of the costs; one more is for rounding.
        prices::none_below(&self.costs, mate, in_steps_up(limit, self.steps))
    }

    /// The pairs that cost least, as [`in_groups_by`] makes them of as many items as there are places. `mate` are those
    /// that [`Self::none_below`] has bettered: up to [`OPTIMAL_UP_TO`] places it is searched from them on. With more,
    /// where what is found depends on where the search begins, it begins as that of all others does.
    #[must_use]
    pub fn pairs(&self, mate: Vec<usize>) -> Vec<Vec<usize>> {
        let places = self.costs.vertices();
        let mate = Some(mate).filter(|_| places <= OPTIMAL_UP_TO);
        let pairs = matched(&self.costs, mate, enough(places));
        pairs.into_iter().map(|(a, b)| vec![a, b]).collect()
    }
}

/// What counts as nothing for so many places, where costs are predictions.
const fn enough(places: usize) -> f64 {
    if places <= OPTIMAL_UP_TO { ENOUGH } else { ENOUGH_OF_MANY }
}

/// Pairs of all parts, which are an even number and have these sizes, with the least `cost` in so many `steps`
/// for a cost of one, where a gap of `enough` is none.
///
/// Sizes of the parts differ by one at most, and those of the pairs again: two of the size that the
/// minority has are never joined.
fn pairs(
    sizes: &[usize],
    steps: f64,
    enough: f64,
    mut cost: impl FnMut(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let small = sizes.iter().filter(|&&size| size == smallest).count();
    let apart = if 2 * small <= sizes.len() { smallest } else { smallest + 1 };
    let costs = Costs::new(sizes.len(), |a, b| {
        let both = sizes[a] == apart && sizes[b] == apart;
        let penalty = if both && small < sizes.len() { MAX_COST / 2 } else { 0 };
        penalty + in_steps(cost(a, b), steps)
    });
    matched(&costs, None, enough)
}

/// The cheapest pairs, but for `enough`.
fn matched(costs: &Costs, mate: Option<Vec<usize>>, enough: f64) -> Vec<(usize, usize)> {
    let found = columns::within(costs, mate, enough).expect("an even number of parts");
    found.mate.into_iter().enumerate().filter(|&(a, b)| a < b).collect()
}

/// Steps that a cost of one has, so that the costs of all pairs of a matching of `count` parts together
/// stay below what is added to a pair that must not be.
#[allow(clippy::cast_precision_loss)] // fewer than 2^53 vertices, MAX_COST is a power of two
fn steps(most: f64, count: usize) -> f64 {
    MAX_COST as f64 / 2.0 / (most.max(f64::MIN_POSITIVE.sqrt()) * count as f64)
}

/// The same where costs are predictions.
fn coarse_steps(most: f64, count: usize) -> f64 {
    steps(most, count).min(COARSE / most.max(f64::MIN_POSITIVE.sqrt()))
}

/// As [`in_steps`], rounded up and not cut.
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

    /// Pairs of the parts of a whole of more than [`OPTIMAL_UP_TO`] places may cost more than the cheapest, but no more
    /// than by [`ENOUGH_OF_MANY`]. Costs are products, as of stacks; 0.007 % are lost on average here and 0.15 % at most.
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
