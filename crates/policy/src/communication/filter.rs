//! Whether what is communicated has changed enough to map tasks anew, and how fast old amounts age.
//!
//! Cruz et al., JPDC 2014, sections 4.1 and 4.2. Their steps are not stated, and chosen here.

use super::matrix::Matrix;
use super::traffic::Two;

/// The least and the most part of the tasks that must have changed partners (section 4.2).
const THRESHOLD: [f64; 2] = [0.1, 0.5];
/// By so much the threshold changes with each answer. Chosen.
const STEP: f64 = 0.05;
/// The aging factor after a migration, by how much it falls where there was none, and its least value (section 4.1).
const AGING: [f64; 3] = [0.1, 0.02, -0.1];
/// Up to this all pairs communicate alike, and no mapping is better than another. Chosen: eight tasks of which one pair
/// communicates twice as much as each other pair have 0.03, a ring of eight 2.5. Of recorded programs SP and BT of NPB have 0.2 and
/// gain 9 and 3 %, CG has 0.01 and gains nothing (docs/results/communication.md).
const HETEROGENEOUS: f64 = 0.1;

/// Tasks that communicate less than this part of what tasks do on average do not count: one that hardly does beside eight that all
/// communicate alike makes 0.29 of it. Chosen.
const INACTIVE: f64 = 0.1;

/// Pairs that are alike differ by chance: with `n` observations of each the measure is 1 / n in the mean. The limit is higher by so many
/// times that. Chosen: of the 28 pairs of eight tasks the standard deviation is 0.27 / n.
const CHANCE: f64 = 2.0;

/// The published limit for the same, of another measure: the variance of counts over their mean.
const PUBLISHED: f64 = 250.0;

/// By which measure pairs communicate unevenly (equation 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uneven {
    /// By [`Matrix::heterogeneity`], above 0.1 and what chance makes of it, whatever the unit of amounts.
    #[default]
    ScaleFree,
    /// As published: the variance of counts over their mean, above 250. It grows with the rate of counting.
    Published,
}

impl Uneven {
    /// Whether tasks that communicate in pieces of `piece` do so unevenly.
    fn is_met(self, matrix: &Matrix, tasks: usize, piece: f64) -> bool {
        match self {
            Self::ScaleFree => {
                let active = matrix.without_inactive(INACTIVE);
                let tasks = active.tasks().len();
                let chance = CHANCE * piece / active.mean(tasks);
                active.heterogeneity(tasks) > HETEROGENEOUS + chance
            }
            Self::Published => matrix.heterogeneity(tasks) * matrix.mean(tasks) / piece > PUBLISHED,
        }
    }
}

/// Decides whether to map, and learns from what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    uneven: Uneven,
    threshold: f64,
    aging: f64,
    /// In order.
    partners: Vec<Two>,
}

impl Default for Filter {
    fn default() -> Self {
        Self::new(Uneven::default())
    }
}

impl Filter {
    /// Of which nothing came yet, with this measure.
    #[must_use]
    pub const fn new(uneven: Uneven) -> Self {
        Self { uneven, threshold: THRESHOLD[0], aging: 0.0, partners: Vec::new() }
    }

    /// The weight of old amounts, less 1.
    #[must_use]
    pub const fn aging(&self) -> f64 {
        self.aging
    }

    /// Whether so many tasks are to be mapped by `matrix`, of which one observation is `piece`: their pairs communicate unevenly, and
    /// enough of them most with
    /// another task than when this was last asked (equations 3 to 5).
    #[allow(clippy::cast_precision_loss)] // tasks
    pub fn passes(&mut self, matrix: &Matrix, tasks: usize, piece: f64) -> bool {
        let now = matrix.partners();
        let before = std::mem::replace(&mut self.partners, now);
        let changed = self.partners.iter().filter(|two| before.binary_search(two).is_err());
        let share = changed.count() as f64 / tasks.max(1) as f64;
        share >= self.threshold && self.uneven.is_met(matrix, tasks, piece)
    }

    /// Takes in whether tasks were moved: then what was known before counts more, and the next change is believed sooner.
    /// `was_mapped`: whether it was tried at all.
    pub fn learn(&mut self, was_mapped: bool, has_moved: bool) {
        let [moved, falls, least] = AGING;
        self.aging = if has_moved { moved } else { (self.aging - falls).max(least) };
        if was_mapped {
            let step = if has_moved { -STEP } else { STEP };
            self.threshold = (self.threshold + step).clamp(THRESHOLD[0], THRESHOLD[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::{JobIdx, TaskId};

    fn pairs(of: &[(u32, u32)]) -> Matrix {
        let task = |order| TaskId { job: JobIdx(0), order };
        Matrix::of(of.iter().map(|(a, b)| (task(*a), task(*b), 1.0)))
    }

    const FIRST: &[(u32, u32)] = &[(0, 1), (2, 3), (4, 5), (6, 7)];
    const SECOND: &[(u32, u32)] = &[(0, 2), (1, 3), (4, 5), (6, 7)];

    #[test]
    fn passes_what_has_changed() {
        let mut filter = Filter::default();
        assert!(filter.passes(&pairs(FIRST), 8, 1e-3));
        assert!(!filter.passes(&pairs(FIRST), 8, 1e-3));
        assert!(filter.passes(&pairs(SECOND), 8, 1e-3));
    }

    #[test]
    fn all_alike_is_not_mapped() {
        let all: Vec<_> = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b))).collect();
        assert!(!Filter::default().passes(&pairs(&all), 8, 1e-3));
        // Nor if a ninth thread has hardly anything to do with them.
        let (all, ninth) = (pairs(&all), pairs(&[(0, 8)]));
        let inactive = ninth.pairs().map(|((a, b), amount)| (a, b, 0.1 * amount));
        let both = all.pairs().map(|((a, b), amount)| (a, b, amount)).chain(inactive);
        assert!(!Filter::default().passes(&Matrix::of(both.collect::<Vec<_>>()), 9, 1e-3));
    }

    /// Pairs of eight tasks: 24 of 28 pairs have 0, so the variance over the mean of four counts of n is 6 n / 7.
    #[test]
    fn the_published_measure_counts() {
        let passes = |amount: f64, piece| {
            let pairs = pairs(FIRST).pairs().map(|((a, b), _)| (a, b, amount)).collect::<Vec<_>>();
            Filter::new(Uneven::Published).passes(&Matrix::of(pairs), 8, piece)
        };
        assert!(passes(292.0, 1.0) && !passes(291.0, 1.0));
        assert!(passes(0.00292, 1e-5) && !passes(0.00291, 1e-5));
    }

    /// The same pairs have 6; with less than a third of an observation a pair that may be chance.
    #[test]
    fn few_observations_prove_nothing() {
        let passes = |piece| Filter::default().passes(&pairs(FIRST), 8, piece);
        assert!(passes(0.1) && passes(0.4));
        assert!(!passes(0.5));
    }

    /// After many answers in vain the threshold is a half, which half of the tasks just reach.
    #[test]
    fn what_was_in_vain_is_believed_later() {
        let mut filter = Filter::default();
        for _ in 0..20 {
            filter.learn(true, false);
        }
        filter.passes(&pairs(FIRST), 8, 1e-3);
        assert!(filter.passes(&pairs(SECOND), 8, 1e-3), "half of them have other partners");
        assert!(!filter.passes(&pairs(FIRST), 9, 1e-3), "four of nine");
        assert_eq!(filter.aging(), -0.1);
        filter.learn(true, true);
        assert_eq!(filter.aging(), 0.1);
        filter.learn(false, false);
        assert!((filter.aging() - 0.08).abs() < 1e-9);
    }
}
