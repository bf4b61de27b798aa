//! Communication matrix and its measures.
//!
//! Amounts have any unit, e.g. wake-ups per second or cache lines. After Cruz et al., "Dynamic
//! thread mapping of shared memory applications by exploiting cache coherence protocols", JPDC
//! 2014, sections 4.1, 4.2 and 5.1.

use super::traffic::Two;
use colocate_evidence::TaskId;
use std::collections::BTreeMap;

/// Sparse symmetric communication matrix without a diagonal, sorted by pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix(Vec<(Two, f64)>);

impl Matrix {
    /// Sums amounts by pair. Drops amounts within a task, and amounts not above 0.
    #[must_use]
    pub fn of(amounts: impl IntoIterator<Item = (TaskId, TaskId, f64)>) -> Self {
        let amounts = amounts.into_iter().filter(|(a, b, amount)| a != b && *amount > 0.0);
        let mut pairs: Vec<(Two, f64)> =
            amounts.map(|(a, b, amount)| ((a.min(b), a.max(b)), amount)).collect();
        // Stable, so that the sums do not depend on how it sorts.
        pairs.sort_by_key(|(two, _)| *two);
        pairs.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            sum.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        Self(pairs)
    }

    /// Amount between two tasks; 0 for an unknown pair.
    #[must_use]
    pub fn between(&self, a: TaskId, b: TaskId) -> f64 {
        let at = self.0.binary_search_by_key(&(a.min(b), a.max(b)), |(two, _)| *two);
        at.map_or(0.0, |at| self.0[at].1)
    }

    /// All communicating pairs, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (Two, f64)> {
        self.0.iter().copied()
    }

    /// All communicating tasks, in order.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = self.0.iter().flat_map(|((a, b), _)| [*a, *b]).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    /// Old amounts weighted by `1 + aging`, plus `new` (equation 1).
    #[must_use]
    pub fn aged(&self, aging: f64, new: &Self) -> Self {
        let old = self.pairs().map(|((a, b), amount)| (a, b, (1.0 + aging) * amount));
        Self::of(new.pairs().map(|((a, b), amount)| (a, b, amount)).chain(old))
    }

    /// Removes all pairs of tasks for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(TaskId) -> bool) {
        self.0.retain(|((a, b), _)| keep(*a) && keep(*b));
    }

    /// Copy without tasks that communicate less than `part` of the mean task.
    #[must_use]
    pub fn without_inactive(&self, part: f64) -> Self {
        let mut sums: BTreeMap<TaskId, f64> = BTreeMap::new();
        for ((a, b), amount) in self.pairs() {
            *sums.entry(a).or_default() += amount;
            *sums.entry(b).or_default() += amount;
        }
        // Only communicating tasks count for the mean.
        // Of an empty matrix 0 / 1, not 0 / 0.
        let least = part * sums.values().sum::<f64>() / sums.len().max(1) as f64;
        let mut active = self.clone();
        active.retain(|task| sums.get(&task).is_some_and(|sum| *sum >= least));
        active
    }

    /// (task, partner) for each task, in task order (equation 2); the lowest ID among equal
    /// partners.
    #[must_use]
    pub fn partners(&self) -> Vec<Two> {
        let mut all: Vec<(TaskId, f64, TaskId)> =
            self.pairs().flat_map(|((a, b), amount)| [(a, amount, b), (b, amount, a)]).collect();
        // The largest amount first: `dedup_by_key` keeps the first entry of a task.
        all.sort_unstable_by(|x, y| x.0.cmp(&y.0).then(y.1.total_cmp(&x.1)).then(x.2.cmp(&y.2)));
        all.dedup_by_key(|(task, ..)| *task);
        all.into_iter().map(|(task, _, partner)| (task, partner)).collect()
    }

    /// Mean amount of a pair among `tasks` tasks.
    #[must_use]
    pub fn mean(&self, tasks: usize) -> f64 {
        // A mean over no pair is 0, not 0 / 0.
        let pairs = (tasks * tasks.saturating_sub(1) / 2).max(1) as f64;
        self.0.iter().map(|(_, amount)| amount).sum::<f64>() / pairs
    }

    /// Heterogeneity of the pairs among `tasks` tasks: variance of amounts over their squared mean,
    /// 0 if all are equal.
    #[must_use]
    pub fn heterogeneity(&self, tasks: usize) -> f64 {
        // Variance over squared mean is E[x²] / E[x]² − 1; silent pairs add 0 to both sums.
        let pairs = (tasks * tasks.saturating_sub(1) / 2) as f64;
        let sum: f64 = self.0.iter().map(|(_, amount)| amount).sum();
        let squares: f64 = self.0.iter().map(|(_, amount)| amount * amount).sum();
        if sum > 0.0 { pairs * squares / (sum * sum) - 1.0 } else { 0.0 }
    }

    /// Published measure of uneven communication among `tasks` tasks (equation 4): variance of all
    /// fields of the matrix, with both halves and the diagonal, over their mean. Grows with the
    /// rate of counting. In the unit of the amounts.
    #[must_use]
    pub fn variance_over_mean(&self, tasks: usize) -> f64 {
        let fields = (tasks * tasks) as f64;
        let sum: f64 = self.0.iter().map(|(_, amount)| 2.0 * amount).sum();
        let squares: f64 = self.0.iter().map(|(_, amount)| 2.0 * amount * amount).sum();
        // E[x²] / E[x] − E[x].
        if sum > 0.0 { squares / sum - sum / fields } else { 0.0 }
    }

    /// Largest amount; the least positive number for an empty matrix.
    fn largest(&self) -> f64 {
        self.0.iter().map(|(_, amount)| *amount).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Dynamicity against `before`: both matrices scaled to a largest amount of 1, then the sum of
    /// the fourth powers of the differences over both halves of the matrix (equation 9).
    #[must_use]
    pub fn dynamicity(&self, before: &Self) -> f64 {
        let now_scale = self.largest();
        let before_scale = before.largest();
        let both = self.0.iter().map(|(two, _)| two).chain(before.0.iter().map(|(two, _)| two));
        let mut pairs: Vec<Two> = both.copied().collect();
        pairs.sort_unstable();
        pairs.dedup();
        let differences = pairs
            .into_iter()
            .map(|(a, b)| self.between(a, b) / now_scale - before.between(a, b) / before_scale);
        // `pairs` has each pair once, the matrix has each pair twice.
        2.0 * differences.map(|difference| difference.powi(4)).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;
    use proptest::prelude::*;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    fn matrix(pairs: &[(u32, u32, f64)]) -> Matrix {
        Matrix::of(pairs.iter().map(|(a, b, amount)| (task(*a), task(*b), *amount)))
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
        assert_eq!(found, [(0, 1), (1, 2), (2, 1), (3, 2)].map(|(a, b)| (task(a), task(b))));
    }

    /// Four tasks: all pairs equal give 0; two communicating pairs are 2 of 6 pairs; one is 1 of 6.
    #[test]
    fn heterogeneity_by_hand() {
        let all: Vec<_> = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b, 7.0))).collect();
        assert!(matrix(&all).heterogeneity(4).abs() < 1e-9);
        assert!((matrix(&[(0, 1, 7.0), (2, 3, 7.0)]).heterogeneity(4) - 2.0).abs() < 1e-9);
        assert!((matrix(&[(0, 1, 7.0)]).heterogeneity(4) - 5.0).abs() < 1e-9);
        assert_eq!(Matrix::default().heterogeneity(4), 0.0);
    }

    /// Task 4 communicates 1 of 14 that tasks do on average.
    #[test]
    fn inactive_tasks() {
        let all = matrix(&[(0, 1, 9.0), (1, 2, 9.0), (0, 2, 9.0), (0, 4, 1.0)]);
        assert_eq!(all.without_inactive(0.05), all);
        assert_eq!(all.without_inactive(0.1).tasks(), [0, 1, 2].map(task));
        assert_eq!(Matrix::default().without_inactive(0.1), Matrix::default());
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

        /// Independent of the unit.
        #[test]
        fn scale_free(amounts in proptest::collection::vec(0.1..9.0_f64, 6), scale in 0.01..100.0_f64) {
            let pairs: Vec<(u32, u32)> = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b))).collect();
            let of = |by: f64| matrix(&pairs.iter().zip(&amounts).map(|((a, b), x)| (*a, *b, x * by)).collect::<Vec<_>>());
            prop_assert!((of(1.0).heterogeneity(4) - of(scale).heterogeneity(4)).abs() < 1e-9);
            prop_assert!(of(scale).dynamicity(&of(1.0)) < 1e-9);
        }
    }
}
