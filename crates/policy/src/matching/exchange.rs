//! Exchange of members between groups until no exchange helps.

/// Most passes over all pairs of groups. Chosen, not measured.
pub(super) const PASSES: usize = 100;
/// Least fall of the cost that counts. Below, rounding errors could exchange members for ever.
const WORTH: f64 = 1e-9;

/// Improves the groups by exchanges of two members, and by moves to groups with room, as long as
/// the cost falls. `cost` is the cost of the members at a group's place, equal for places of one
/// class; `rooms` and `classes` are by place.
pub(crate) fn improved(
    groups: Vec<Vec<usize>>,
    rooms: &[usize],
    classes: &[usize],
    cost: impl Fn(usize, &[usize]) -> f64,
) -> Vec<Vec<usize>> {
    let mut search = ExchangeSearch {
        before: vec![true; groups.len()],
        now: vec![false; groups.len()],
        rooms,
        costs: groups.iter().enumerate().map(|(place, group)| cost(place, group)).collect(),
        groups,
        classes,
        cost,
    };
    for _ in 0..PASSES {
        if !search.pass() {
            break;
        }
    }
    search.groups
}

/// State of the improvement.
struct ExchangeSearch<'a, C> {
    /// By place: greatest number of members.
    rooms: &'a [usize],
    groups: Vec<Vec<usize>>,
    /// By place: whether its group changed in the last pass. Unchanged pairs are not tried again.
    before: Vec<bool>,
    /// By place: whether its group has changed in this pass.
    now: Vec<bool>,
    /// By place: cost of its group.
    costs: Vec<f64>,
    classes: &'a [usize],
    cost: C,
}

impl<C: Fn(usize, &[usize]) -> f64> ExchangeSearch<'_, C> {
    /// One pass over all pairs of groups. True if the cost fell.
    fn pass(&mut self) -> bool {
        self.now.fill(false);
        for a in 0..self.groups.len() {
            for b in a + 1..self.groups.len() {
                // The same test of two unchanged groups would fail again.
                let is_new = self.before[a] || self.before[b] || self.now[a] || self.now[b];
                // `|`, not `||`: all three are tried.
                if is_new && (self.exchange(a, b) | self.moved(a, b) | self.moved(b, a)) {
                    self.now[a] = true;
                    self.now[b] = true;
                }
            }
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.before.contains(&true)
    }

    /// Exchanges members of two groups. True if the cost fell.
    fn exchange(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        let are_pairs = self.groups[a].len() == 2 && self.groups[b].len() == 2;
        let is_same = are_pairs && self.classes[a] == self.classes[b];
        for i in 0..self.groups[a].len() {
            // The exchanges of the second member give the same two pairs, with their places
            // exchanged.
            if i == 1 && is_same && !helped {
                break;
            }
            let others = self.groups[b].len();
            for j in 0..others {
                // Of equally good pairs those of first members with first members.
                let j = if is_same { others - 1 - j } else { j };
                self.change_places(a, i, b, j);
                if self.is_better(a, b) {
                    helped = true;
                } else {
                    // The same exchange again undoes it.
                    self.change_places(a, i, b, j);
                }
            }
        }
        helped
    }

    /// Exchanges two members, without regard to costs.
    fn change_places(&mut self, a: usize, i: usize, b: usize, j: usize) {
        let one = self.groups[a][i];
        self.groups[a][i] = std::mem::replace(&mut self.groups[b][j], one);
    }

    /// Moves members from group `a` to group `b` while there is room. True if the cost fell.
    fn moved(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        let mut i = 0;
        while i < self.groups[a].len() && self.groups[b].len() < self.rooms[b] {
            let one = self.groups[a].remove(i);
            self.groups[b].push(one);
            if self.is_better(a, b) {
                helped = true;
            } else {
                self.groups[b].pop();
                // At its old place, so that a test without success changes nothing.
                self.groups[a].insert(i, one);
                i += 1;
            }
        }
        helped
    }

    /// Whether two groups cost less than before; if so, stores the new costs.
    fn is_better(&mut self, a: usize, b: usize) -> bool {
        let cost_a = (self.cost)(a, &self.groups[a]);
        let cost_b = (self.cost)(b, &self.groups[b]);
        let better = cost_a + cost_b < self.costs[a] + self.costs[b] - WORTH;
        if better {
            self.costs[a] = cost_a;
            self.costs[b] = cost_b;
        }
        better
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::PairCosts;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    #[allow(clippy::cast_precision_loss)] // costs are below 1,000
    fn of_group(costs: &PairCosts, group: &[usize]) -> f64 {
        let pairs = (0..group.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        pairs.map(|(a, b)| costs.of(group[a], group[b]) as f64).sum()
    }

    fn total(costs: &PairCosts, groups: &[Vec<usize>]) -> f64 {
        groups.iter().map(|group| of_group(costs, group)).sum()
    }

    proptest! {
        /// Nothing is lost, sizes stay without room, the cost does not rise, and no exchange is
        /// left that helps.
        #[test]
        fn no_exchange_is_left(sizes in prop::collection::vec(0_usize..=5, 0..=4), seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let count = sizes.iter().sum();
            let costs = PairCosts::new(count, |_, _| i64::try_from(rng.below(1_000)).unwrap());
            let mut items = 0..count;
            let groups: Vec<Vec<usize>> =
                sizes.iter().map(|&size| items.by_ref().take(size).collect()).collect();
            let before = total(&costs, &groups);
            let classes = vec![0; sizes.len()];
            let groups = improved(groups, &sizes, &classes, |_, group| of_group(&costs, group));
            let after = total(&costs, &groups);
            prop_assert!(after <= before);
            prop_assert_eq!(&groups.iter().map(Vec::len).collect::<Vec<_>>(), &sizes);
            let mut all = groups.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
            for (g, h) in (0..groups.len()).flat_map(|h| (0..h).map(move |g| (g, h))) {
                for (i, j) in (0..sizes[g]).flat_map(|i| (0..sizes[h]).map(move |j| (i, j))) {
                    let mut other = groups.clone();
                    other[g][i] = groups[h][j];
                    other[h][j] = groups[g][i];
                    prop_assert!(total(&costs, &other) >= after);
                }
            }
        }
    }
}
