//! How much tasks communicate, and what is read off it.
//!
//! Amounts have any unit: wake-ups a second, cache lines. After Cruz et al., "Dynamic thread mapping of shared memory
//! applications by exploiting cache coherence protocols", JPDC 2014, sections 4.1, 4.2 and 5.1.

use super::traffic::Two;
use crate::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Symmetric and sparse; a task does not communicate with itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix(BTreeMap<Two, f64>);

impl Matrix {
    /// Adds what two tasks communicate. Nothing if they are one, or if it is not above 0.
    pub fn add(&mut self, a: TaskId, b: TaskId, amount: f64) {
        if a != b && amount > 0.0 {
            *self.0.entry((a.min(b), a.max(b))).or_default() += amount;
        }
    }

    /// What two tasks communicate.
    #[must_use]
    pub fn between(&self, a: TaskId, b: TaskId) -> f64 {
        self.0.get(&(a.min(b), a.max(b))).copied().unwrap_or(0.0)
    }

    /// All pairs that communicate.
    pub fn pairs(&self) -> impl Iterator<Item = (Two, f64)> {
        self.0.iter().map(|(two, amount)| (*two, *amount))
    }

    /// The tasks that communicate.
    #[must_use]
    pub fn tasks(&self) -> BTreeSet<TaskId> {
        self.0.keys().flat_map(|(a, b)| [*a, *b]).collect()
    }

    /// What was known before, weighted by `1 + aging`, and `new` (equation 1).
    #[must_use]
    pub fn aged(&self, aging: f64, new: &Self) -> Self {
        let mut sum = new.clone();
        self.pairs().for_each(|((a, b), amount)| sum.add(a, b, (1.0 + aging) * amount));
        sum
    }

    /// Without the pairs of tasks that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(TaskId) -> bool) {
        self.0.retain(|(a, b), _| keep(*a) && keep(*b));
    }

    /// With whom each task communicates most: the one with the lowest ID among equals (equation 2).
    #[must_use]
    pub fn partners(&self) -> BTreeMap<TaskId, TaskId> {
        let mut most: BTreeMap<TaskId, (TaskId, f64)> = BTreeMap::new();
        for ((a, b), amount) in self.pairs() {
            for (task, other) in [(a, b), (b, a)] {
                let best = most.entry(task).or_insert((other, amount));
                if amount > best.1 {
                    *best = (other, amount);
                }
            }
        }
        most.into_iter().map(|(task, (other, _))| (task, other)).collect()
    }

    /// How unevenly the pairs of so many tasks communicate: the variance of amounts over the square of their mean, 0 if all
    /// are equal. The published one is over the mean itself (equation 5) and grows with the rate of counting, so that its
    /// limit of 250 means something for one detector only.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // tasks
    pub fn heterogeneity(&self, tasks: usize) -> f64 {
        let pairs = (tasks * tasks.saturating_sub(1) / 2) as f64;
        let sum: f64 = self.0.values().sum();
        let squares: f64 = self.0.values().map(|amount| amount * amount).sum();
        if sum > 0.0 { pairs * squares / (sum * sum) - 1.0 } else { 0.0 }
    }

    /// How much this differs from `before`: both scaled to a largest amount of 1, the sum of the fourth powers of the
    /// differences over both halves of the matrix (equation 9).
    #[must_use]
    pub fn dynamicity(&self, before: &Self) -> f64 {
        let scale = |of: &Self| of.0.values().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let (now_scale, before_scale) = (scale(self), scale(before));
        let differs = |two: &Two| {
            let of = |matrix: &Self, scale: f64| matrix.0.get(two).copied().unwrap_or(0.0) / scale;
            (of(self, now_scale) - of(before, before_scale)).powi(4)
        };
        let new = before.0.keys().filter(|two| !self.0.contains_key(two));
        2.0 * self.0.keys().chain(new).map(differs).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobIdx;
    use proptest::prelude::*;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    fn matrix(pairs: &[(u32, u32, f64)]) -> Matrix {
        let mut matrix = Matrix::default();
        pairs.iter().for_each(|(a, b, amount)| matrix.add(task(*a), task(*b), *amount));
        matrix
    }

    #[test]
    fn symmetric_without_itself() {
        let found = matrix(&[(0, 1, 2.0), (1, 0, 3.0), (1, 1, 9.0), (0, 2, -1.0)]);
        assert_eq!(found, matrix(&[(0, 1, 5.0)]));
        assert_eq!((found.between(task(1), task(0)), found.between(task(0), task(2))), (5.0, 0.0));
    }

    #[test]
    fn old_amounts_weigh_less() {
        let aged = matrix(&[(0, 1, 10.0), (1, 2, 10.0)]).aged(-0.1, &matrix(&[(0, 1, 1.0)]));
        assert_eq!(aged, matrix(&[(0, 1, 10.0), (1, 2, 9.0)]));
    }

    #[test]
    fn partners_communicate_most() {
        let found = matrix(&[(0, 1, 5.0), (0, 2, 5.0), (1, 2, 6.0), (2, 3, 1.0)]).partners();
        assert_eq!(found, [(0, 1), (1, 2), (2, 1), (3, 2)].map(|(a, b)| (task(a), task(b))).into());
    }

    /// Of four tasks: all alike 0; two pairs 2 of 6 pairs; one pair only 1 of 6.
    #[test]
    fn heterogeneity_by_hand() {
        let all: Vec<_> = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b, 7.0))).collect();
        assert!(matrix(&all).heterogeneity(4).abs() < 1e-9);
        assert!((matrix(&[(0, 1, 7.0), (2, 3, 7.0)]).heterogeneity(4) - 2.0).abs() < 1e-9);
        assert!((matrix(&[(0, 1, 7.0)]).heterogeneity(4) - 5.0).abs() < 1e-9);
        assert_eq!(Matrix::default().heterogeneity(4), 0.0);
    }

    /// Two pairs change partners: four pairs differ by 1, each twice in the matrix.
    #[test]
    fn dynamicity_by_hand() {
        let (before, now) =
            (matrix(&[(0, 1, 3.0), (2, 3, 3.0)]), matrix(&[(0, 2, 8.0), (1, 3, 8.0)]));
        assert!((now.dynamicity(&before) - 8.0).abs() < 1e-9);
        assert_eq!(now.dynamicity(&now), 0.0);
    }

    proptest! {
        /// The same as variance and mean of the whole matrix without its diagonal.
        #[test]
        fn heterogeneity_is_the_variance(amounts in proptest::collection::vec(0.0..9.0_f64, 10)) {
            let pairs: Vec<(u32, u32)> = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))).collect();
            let all: Vec<_> = pairs.iter().zip(&amounts).map(|((a, b), x)| (*a, *b, *x)).collect();
            let mean = amounts.iter().sum::<f64>() / 10.0;
            let variance = amounts.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 10.0;
            let found = matrix(&all).heterogeneity(5);
            prop_assert!((found - variance / (mean * mean)).abs() < 1e-6 * found.max(1.0));
        }

        /// Whatever it is counted in.
        #[test]
        fn scale_free(amounts in proptest::collection::vec(0.1..9.0_f64, 6), scale in 0.01..100.0_f64) {
            let pairs: Vec<(u32, u32)> = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b))).collect();
            let of = |by: f64| matrix(&pairs.iter().zip(&amounts).map(|((a, b), x)| (*a, *b, x * by)).collect::<Vec<_>>());
            prop_assert!((of(1.0).heterogeneity(4) - of(scale).heterogeneity(4)).abs() < 1e-9);
            prop_assert!(of(scale).dynamicity(&of(1.0)) < 1e-9);
        }
    }
}
