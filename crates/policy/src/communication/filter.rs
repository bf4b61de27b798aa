//! Filter of the mapping: has communication changed enough to map tasks again; how fast old amounts
//! age.
//!
//! Cruz et al., JPDC 2014, sections 4.1 and 4.2. The paper does not state its step sizes; those
//! here are chosen.

use super::matrix::Matrix;
use super::traffic::Two;

/// Bounds of the threshold: share of tasks whose partner has changed (section 4.2).
const THRESHOLD: [f64; 2] = [0.1, 0.5];
/// Step of the threshold after each mapping. Chosen.
const STEP: f64 = 0.05;
/// Aging factor after a migration, its decrease per call without a migration, and its minimum
/// (section 4.1).
const AGING: [f64; 3] = [0.1, 0.02, -0.1];
/// Heterogeneity up to which all pairs communicate alike and every mapping is as good. A usable PU
/// without a task counts as a task without communication: a pair on eight PUs has 27, on two PUs 0.
/// Chosen: eight tasks on as many PUs with a single pair that communicates twice as much as each
/// other pair have 0.03, a ring of eight 2.5. Of recorded programs, SP and BT of NPB have 0.2 and gain 9 and 3 %, CG has
/// 0.01 and gains nothing (docs/results/communication.md).
const HETEROGENEOUS: f64 = 0.1;

/// Inactive task: communicates less than this part of the mean task. Inactive tasks are ignored:
/// besides eight equally communicating tasks, an inactive ninth raises the heterogeneity to 0.29.
/// Chosen.
const INACTIVE: f64 = 0.1;

/// Chance allowance: equal pairs differ by chance, and with `n` observations per pair the mean
/// heterogeneity is 1 / n. The limit is raised by this multiple of 1 / n. Chosen: for the 28 pairs
/// of eight tasks the standard deviation is 0.27 / n.
const CHANCE: f64 = 2.0;

/// Published limit, for the variance of counts over their mean (equation 5).
const PUBLISHED: f64 = 250.0;

/// Rules of the filter, and of the mapping after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Heterogeneity above 0.1 and an allowance for chance, whatever the rate of counting; mapped by
    /// growing and exchange.
    #[default]
    Ours,
    /// Published: variance of counts over their mean above 250, which grows with the rate of
    /// counting; mapped by matching.
    Published,
}

impl Rules {
    /// True if pairs communicate unevenly. `pus`: usable PUs; `piece`: amount of a single
    /// observation.
    fn are_uneven(self, matrix: &Matrix, tasks: usize, pus: usize, piece: f64) -> bool {
        match self {
            Self::Ours => {
                let active = matrix.without_inactive(INACTIVE);
                let seats = active.tasks().len().max(pus);
                // `piece / mean` is 1 / n for pairs with n observations on average.
                let chance = CHANCE * piece / active.mean(seats);
                active.heterogeneity(seats) > HETEROGENEOUS + chance
            }
            // Amounts are multiples of `piece`.
            Self::Published => matrix.variance_over_mean(tasks) / piece > PUBLISHED,
        }
    }
}

/// Decides whether to map tasks again; adapts to the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    rules: Rules,
    threshold: f64,
    aging: f64,
    /// Partner of each task when the filter last passed, sorted.
    partners: Vec<Two>,
}

impl Default for Filter {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl Filter {
    /// Filter in its initial state.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules, threshold: THRESHOLD[0], aging: 0.0, partners: Vec::new() }
    }

    /// Aging factor: the weight of old amounts minus 1.
    #[must_use]
    pub const fn aging(&self) -> f64 {
        self.aging
    }

    /// Rules of this filter.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// True if `tasks` tasks should be mapped again: their pairs communicate unevenly, and enough
    /// tasks have another partner than before (equations 2 to 5). `pus`: usable PUs; `piece`:
    /// amount of a single observation in `matrix`.
    pub fn passes(&mut self, matrix: &Matrix, tasks: usize, pus: usize, piece: f64) -> bool {
        let now = matrix.partners();
        let changed = now.iter().filter(|two| self.partners.binary_search(two).is_err());
        // Without tasks the share is 0, not 0 / 0.
        let share = changed.count() as f64 / tasks.max(1) as f64;
        let passes = share >= self.threshold && self.rules.are_uneven(matrix, tasks, pus, piece);
        // A slow drift adds up, and partners seen before pairs communicate unevenly stay new.
        if passes {
            self.partners = now;
        }
        passes
    }

    /// Adapts aging and threshold. After a migration old amounts weigh more and the threshold
    /// falls. `was_mapped`: a mapping was computed at all.
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
        assert!(filter.passes(&pairs(FIRST), 8, 8, 1e-3));
        assert!(!filter.passes(&pairs(FIRST), 8, 8, 1e-3));
        assert!(filter.passes(&pairs(SECOND), 8, 8, 1e-3));
    }

    #[test]
    fn all_alike_is_not_mapped() {
        let all: Vec<_> = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b))).collect();
        assert!(!Filter::default().passes(&pairs(&all), 8, 8, 1e-3));
        // Nor if a ninth thread has hardly anything to do with them.
        let (all, ninth) = (pairs(&all), pairs(&[(0, 8)]));
        let inactive = ninth.pairs().map(|((a, b), amount)| (a, b, 0.1 * amount));
        let both = all.pairs().map(|((a, b), amount)| (a, b, amount)).chain(inactive);
        assert!(!Filter::default().passes(&Matrix::of(both.collect::<Vec<_>>()), 9, 8, 1e-3));
    }

    /// Matrix of eight tasks: 8 of 64 fields have n, so the variance over the mean is 7 n / 8.
    #[test]
    fn the_published_measure_counts() {
        let passes = |amount: f64, piece| {
            let pairs = pairs(FIRST).pairs().map(|((a, b), _)| (a, b, amount)).collect::<Vec<_>>();
            Filter::new(Rules::Published).passes(&Matrix::of(pairs), 8, 8, piece)
        };
        assert!(passes(286.0, 1.0) && !passes(285.0, 1.0));
        assert!(passes(0.00286, 1e-5) && !passes(0.00285, 1e-5));
    }

    /// A lone pair gains by its places only where PUs are free; published, two fields of four have n.
    #[test]
    fn a_lone_pair_is_mapped_where_pus_are_free() {
        let lone = pairs(&[(0, 1)]);
        assert!(Filter::default().passes(&lone, 2, 8, 1e-3));
        assert!(!Filter::default().passes(&lone, 2, 2, 1e-3));
        // One message of a pair among eight PUs may be chance.
        assert!(!Filter::default().passes(&lone, 2, 8, 1.0));
        let published = |piece| Filter::new(Rules::Published).passes(&lone, 2, 8, piece);
        assert!(published(1.0 / 501.0) && !published(1.0 / 500.0));
    }

    /// Four pairs that begin slowly, with the same partners once they communicate much.
    #[test]
    fn partners_count_as_new_until_they_are_mapped() {
        let mut filter = Filter::default();
        assert!(!filter.passes(&pairs(FIRST), 8, 8, 1.0), "four messages");
        assert!(filter.passes(&pairs(FIRST), 8, 8, 1e-5));
    }

    /// At a threshold of a half, four of nine tasks have another partner at each step: too few, after two steps
    /// enough.
    #[test]
    fn a_slow_drift_passes() {
        let mut filter = Filter::default();
        for _ in 0..20 {
            filter.learn(true, false);
        }
        let steps: [&[(u32, u32)]; 3] =
            [FIRST, &[(0, 2), (1, 3), (4, 5), (6, 7)], &[(0, 2), (1, 3), (4, 6), (5, 7)]];
        let drift = steps.map(|step| filter.passes(&pairs(step), 9, 8, 1e-3));
        assert_eq!(drift, [true, false, true]);
    }

    /// The same pairs have 6; with less than a third of an observation a pair that may be chance.
    #[test]
    fn few_observations_prove_nothing() {
        let passes = |piece| Filter::default().passes(&pairs(FIRST), 8, 8, piece);
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
        filter.passes(&pairs(FIRST), 8, 8, 1e-3);
        assert!(filter.passes(&pairs(SECOND), 8, 8, 1e-3), "half of them have other partners");
        assert!(!filter.passes(&pairs(FIRST), 9, 8, 1e-3), "four of nine");
        assert_eq!(filter.aging(), -0.1);
        filter.learn(true, true);
        assert_eq!(filter.aging(), 0.1);
        filter.learn(false, false);
        assert!((filter.aging() - 0.08).abs() < 1e-9);
    }
}
