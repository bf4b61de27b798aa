//! Exchange of members between groups until no exchange helps.

use colocate_model::UnitDemand;

/// Improves `groups`, lists of places in `demands`, by exchanging members of two groups as long as
/// the overlap within groups falls. Sizes stay.
///
/// The overlap within a group `G` is `(|Σ d|² − Σ |d|²) / 2`. So an exchange of `a ∈ G` with
/// `b ∈ H` changes the total by `(b − a) · (ΣG − a) + (a − b) · (ΣH − b)`, which is
/// `c · (ΣG − ΣH + c)` with `c = b − a`: sums suffice. A pass visits all pairs of members, `O(n²)`
/// at worst.
pub(crate) fn improve(demands: &[UnitDemand], groups: &mut [Vec<usize>]) {
    let mut sums: Vec<UnitDemand> = groups
        .iter()
        .map(|group| group.iter().fold(UnitDemand::NONE, |sum, &at| sum + demands[at]))
        .collect();
    // Two groups that are as they were in the pass before have nothing to exchange.
    let mut before = vec![true; groups.len()];
    for _ in 0..PASSES {
        if !before.contains(&true) {
            break;
        }
        let mut now = vec![false; groups.len()];
        for g in 0..groups.len() {
            for h in g + 1..groups.len() {
                let changed = before[g] || before[h] || now[g] || now[h];
                if changed && improve_two(demands, groups, &mut sums, g, h) {
                    now[g] = true;
                    now[h] = true;
                }
            }
        }
        before = now;
    }
}

/// Most passes. Chosen, not measured.
const PASSES: usize = 100;

/// Least fall of the overlap that counts, as a share of both groups' overlaps with themselves.
/// Below, rounding errors could exchange two members back and forth for ever.
const WORTH: f64 = 1e-12;

/// Exchanges members between groups `g` and `h`. True if an exchange lowered the overlap.
fn improve_two(
    demands: &[UnitDemand],
    groups: &mut [Vec<usize>],
    sums: &mut [UnitDemand],
    g: usize,
    h: usize,
) -> bool {
    let mut helped = false;
    let mut apart = sums[g] - sums[h];
    let least = WORTH * (sums[g].overlap(&sums[g]) + sums[h].overlap(&sums[h]));
    for i in 0..groups[g].len() {
        for j in 0..groups[h].len() {
            let change = demands[groups[h][j]] - demands[groups[g][i]];
            if change.overlap(&(apart + change)) < -least {
                let moved = groups[g][i];
                groups[g][i] = groups[h][j];
                groups[h][j] = moved;
                sums[g] += change;
                // Sums follow by the change, without a pass over the members.
                sums[h] = sums[h] - change;
                apart = sums[g] - sums[h];
                helped = true;
            }
        }
    }
    helped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use colocate_model::{Class, Mix, Share};
    use proptest::prelude::*;

    fn random_demand(rng: &mut SplitMix64) -> UnitDemand {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, Share::new(rng.unit()));
        }
        UnitDemand::of(&mix, 1.0, &mix)
    }

    /// Pair by pair, without the sums that the exchange relies on.
    fn overlap(demands: &[UnitDemand], groups: &[Vec<usize>]) -> f64 {
        let pairs = |group: &Vec<usize>| -> f64 {
            let beside = |at: usize| group[..at].iter().map(move |&other| (other, group[at]));
            let all = (0..group.len()).flat_map(beside);
            all.map(|(a, b)| demands[a].overlap(&demands[b])).sum()
        };
        groups.iter().map(pairs).sum()
    }

    proptest! {
        /// Nothing is lost, sizes stay, the overlap does not rise, and no exchange is left that
        /// helps.
        #[test]
        fn no_exchange_is_left(sizes in prop::collection::vec(0_usize..=5, 0..=4), seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let count = sizes.iter().sum();
            let demands: Vec<UnitDemand> = (0..count).map(|_| random_demand(&mut rng)).collect();
            let mut items = 0..count;
            let mut groups: Vec<Vec<usize>> =
                sizes.iter().map(|&size| items.by_ref().take(size).collect()).collect();
            let before = overlap(&demands, &groups);
            improve(&demands, &mut groups);
            let after = overlap(&demands, &groups);
            prop_assert!(after <= before + 1e-9);
            prop_assert_eq!(&groups.iter().map(Vec::len).collect::<Vec<_>>(), &sizes);
            let mut all = groups.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
            for (g, h) in (0..groups.len()).flat_map(|h| (0..h).map(move |g| (g, h))) {
                for (i, j) in (0..sizes[g]).flat_map(|i| (0..sizes[h]).map(move |j| (i, j))) {
                    let mut other = groups.clone();
                    (other[g][i], other[h][j]) = (groups[h][j], groups[g][i]);
                    prop_assert!(overlap(&demands, &other) >= after - 1e-9);
                }
            }
        }
    }
}
