//! Fit of coefficients to a training set by ordinary least squares, and its quality on other
//! samples.
//!
//! # Approach
//! For each component `C'(j) − C(j)` is fitted to `[1, C(j), S, C(j) · S]`, the fit of `C'(j)` with
//! β less by one. A column not determined by the training set can then be left out; the component
//! is taken as unchanged. Columns are made orthogonal one after the other, each twice (modified
//! Gram and Schmidt; Giraud et al., "The loss of orthogonality in the Gram–Schmidt process", 2005:
//! twice is enough), since the normal equations would square the near dependence of the product on
//! the other columns.
//! # Properties
//! - **Exact**: the coefficients behind a training set are found again. → `found_again`
//! - **Least**: no other coefficients have less squared error. → `no_other_coefficients_are_better`
//! - **No evidence, no change**. → `a_component_that_no_thread_has`

use super::{Coefficients, CoreCoefficients};
use serde::{Deserialize, Serialize};

/// Components of a thread alone and on a shared core, over the same instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct FitSample {
    /// Components alone, as shares of the thread's cycles alone.
    pub own: Vec<f64>,
    /// Sums of the components alone of the threads beside it, each as shares of that thread's
    /// cycles.
    pub others: Vec<f64>,
    /// Components on the shared core, in units of the thread's cycles alone.
    pub together: Vec<f64>,
}

/// Quality of predictions of a component, or of the slowdown (the sum), in units of the cycles
/// alone.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quality {
    /// Share of the variance explained; negative if the mean is a better prediction. `None` without
    /// variance.
    pub r2: Option<f64>,
    /// Mean absolute error.
    pub mean_error: f64,
    /// Largest absolute error.
    pub worst_error: f64,
}

/// Norm, relative to the original or the mean, below which a column counts as 0. Chosen: far above
/// rounding, far below the resolution of counters.
const DEPENDENT: f64 = 1e-8;

/// Fits the coefficients of all components.
///
/// `None` for fewer samples than coefficients, or samples with different numbers of components.
#[must_use]
pub fn fit(samples: &[FitSample]) -> Option<Vec<Coefficients>> {
    let components = samples.first()?.own.len();
    let alike =
        |s: &FitSample| [&s.own, &s.others, &s.together].iter().all(|of| of.len() == components);
    // Four coefficients need at least four samples.
    if samples.len() < 4 || !samples.iter().all(alike) {
        return None;
    }
    Some((0..components).map(|at| component(samples, at)).collect())
}

fn component(samples: &[FitSample], at: usize) -> Coefficients {
    let mut columns = [const { Vec::new() }; 4];
    for s in samples {
        let row = [1.0, s.own[at], s.others[at], s.own[at] * s.others[at]];
        columns.iter_mut().zip(row).for_each(|(column, each)| column.push(each));
    }
    let more = samples.iter().map(|s| s.together[at] - s.own[at]).collect();
    let [alpha, beta, gamma, delta] = least_squares(&columns, more);
    // The fit is of `C'(j) − C(j)`, so β is one less there.
    Coefficients { alpha, beta: 1.0 + beta, gamma, delta }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// Subtracts a multiple of a vector.
fn take(from: &mut [f64], times: f64, what: &[f64]) {
    from.iter_mut().zip(what).for_each(|(from, what)| *from -= times * what);
}

/// Factors of the columns that minimise the squared distance to `wanted`; 0 for columns that depend
/// on earlier columns.
fn least_squares<const N: usize>(columns: &[Vec<f64>; N], mut wanted: Vec<f64>) -> [f64; N] {
    let mut upright: [Option<Vec<f64>>; N] = [const { None }; N];
    let mut upper = [[0.0; N]; N];
    let mut along = [0.0; N];
    let rows = wanted.len() as f64;
    // A column gives way to those before it: the product of both components is left out first.
    for k in 0..N {
        let mut column = columns[k].clone();
        let before = dot(&column, &column).sqrt();
        // Twice is enough; see the head of the file.
        for _ in 0..2 {
            for (i, other) in upright.iter().enumerate().take(k) {
                let Some(other) = other else { continue };
                let shared = dot(other, &column);
                upper[i][k] += shared;
                take(&mut column, shared, other);
            }
        }
        let left = dot(&column, &column).sqrt();
        // The column depends on earlier columns: its factor stays 0.
        // `rows.sqrt()` is the norm of the column of ones: a component near 0 everywhere counts as
        // 0.
        if left <= DEPENDENT * before.max(rows.sqrt()) {
            continue;
        }
        upper[k][k] = left;
        column.iter_mut().for_each(|each| *each /= left);
        along[k] = dot(&column, &wanted);
        take(&mut wanted, along[k], &column);
        upright[k] = Some(column);
    }
    let mut factors = [0.0; N];
    // Back substitution in the upper triangle.
    for k in (0..N).rev().filter(|&k| upright[k].is_some()) {
        let known = (k + 1..N).fold(0.0, |sum, j| sum + upper[k][j] * factors[j]);
        factors[k] = (along[k] - known) / upper[k][k];
    }
    factors
}

/// Quality of a mode's predictions of these samples: by component, and of the slowdown last.
#[must_use]
pub fn quality(mode: &CoreCoefficients, samples: &[FitSample]) -> Vec<Quality> {
    let mut found = Vec::new();
    for (at, c) in mode.coefficients.iter().enumerate() {
        let pairs = samples.iter().map(|s| (s.together[at], c.together(s.own[at], s.others[at])));
        found.push(of(pairs));
    }
    let slowdowns = samples.iter().map(|s| {
        let measured = s.together.iter().fold(0.0, |sum, each| sum + each);
        (measured, mode.slowdown(&s.own, &s.others))
    });
    found.push(of(slowdowns));
    found
}

/// Fit quality over (measured, predicted) pairs.
fn of(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Quality {
    // Without pairs the sums are 0, and 0 / 0 would be NaN.
    let count = pairs.clone().count().max(1) as f64;
    let mean = pairs.clone().fold(0.0, |sum, (was, _)| sum + was) / count;
    let errors = pairs.clone().map(|(was, predicted)| (predicted - was).abs());
    let squares = errors.clone().fold(0.0, |sum, error| sum + error * error);
    let variance = pairs.fold(0.0, |sum, (was, _)| sum + (was - mean) * (was - mean));
    // A variance within rounding would make any error look large.
    let varies = variance > count * DEPENDENT * DEPENDENT;
    Quality {
        r2: varies.then(|| 1.0 - squares / variance),
        mean_error: errors.clone().fold(0.0, |sum, error| sum + error) / count,
        worst_error: errors.fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{random_mode, random_stack};
    use super::*;
    use crate::rng::SplitMix64;

    fn samples(
        mode: &CoreCoefficients,
        rng: &mut SplitMix64,
        count: usize,
        noise: f64,
    ) -> Vec<FitSample> {
        let mut sample = |_| {
            let (own, others) = (random_stack(rng, 5), random_stack(rng, 5));
            let mut together = mode.together(&[&own, &others]).swap_remove(0);
            together.iter_mut().for_each(|c| *c += noise * (rng.unit() - 0.5));
            FitSample { own, others, together }
        };
        (0..count).map(&mut sample).collect()
    }

    fn each(c: &Coefficients) -> [f64; 4] {
        [c.alpha, c.beta, c.gamma, c.delta]
    }

    #[test]
    fn found_again() {
        let mut rng = SplitMix64::new(1);
        let mode = random_mode(&mut rng, 2, 0.25, 0.8);
        let found = fit(&samples(&mode, &mut rng, 60, 0.0)).unwrap();
        for (found, truth) in found.iter().zip(&mode.coefficients) {
            for (found, truth) in each(found).into_iter().zip(each(truth)) {
                assert!((found - truth).abs() < 1e-10, "{found} where {truth} was");
            }
        }
        let mode = CoreCoefficients { threads: 2, coefficients: found };
        let judged = quality(&mode, &samples(&mode, &mut rng, 60, 0.0));
        assert_eq!(judged.len(), 6);
        assert!(judged.iter().all(|q| q.r2.unwrap() > 1.0 - 1e-9 && q.worst_error < 1e-9));
    }

    /// Errors of the best fit are at right angles to every column, and any other coefficients have more.
    #[test]
    fn no_other_coefficients_are_better() {
        let mut rng = SplitMix64::new(2);
        let truth = random_mode(&mut rng, 2, 0.25, 0.8);
        let samples = samples(&truth, &mut rng, 40, 0.1);
        let best = fit(&samples).unwrap()[0];
        let squares = |c: &Coefficients| -> f64 {
            let off = |s: &FitSample| c.together(s.own[0], s.others[0]) - s.together[0];
            samples.iter().map(|s| off(s).powi(2)).sum()
        };
        for way in 0..4 {
            for by in [-1e-3, 1e-3] {
                let mut other = best;
                let Coefficients { alpha, beta, gamma, delta } = &mut other;
                *[alpha, beta, gamma, delta][way] += by;
                assert!(squares(&other) > squares(&best));
            }
        }
    }

    /// y = 1 + 2x over x = 0, 1, 2 with 1, 3, 6: slope 2.5, intercept 5/6; the third column is twice the second.
    #[test]
    fn by_hand_and_without_what_depends() {
        let columns = [vec![1.0; 3], vec![0.0, 1.0, 2.0], vec![0.0, 2.0, 4.0]];
        let [intercept, slope, twice] = least_squares(&columns, vec![1.0, 3.0, 6.0]);
        assert!((slope - 2.5).abs() < 1e-12 && (intercept - 5.0 / 6.0).abs() < 1e-12);
        assert!(twice.abs() < f64::EPSILON);
    }

    #[test]
    fn a_component_that_no_thread_has() {
        let sample = |x: f64| FitSample {
            own: vec![x, 1.0 - x, 0.0],
            others: vec![x * x, 1.0 - x * x, 0.0],
            together: vec![1.1 * x, 1.2 - x, 0.0],
        };
        let found = fit(&(1..20).map(|n| sample(f64::from(n) / 20.0)).collect::<Vec<_>>()).unwrap();
        assert_eq!(found[2], Coefficients::UNCHANGED);
        let mode = CoreCoefficients { threads: 2, coefficients: found };
        assert_eq!(quality(&mode, &[sample(0.3), sample(0.4)])[2].r2, None);
    }

    #[test]
    fn too_few_samples_are_no_training_set() {
        let one = FitSample { own: vec![1.0], others: vec![1.0], together: vec![1.0] };
        assert_eq!(fit(&vec![one.clone(); 3]), None);
        let odd = FitSample { own: vec![0.5, 0.5], ..one.clone() };
        assert_eq!(fit(&[one.clone(), one.clone(), one, odd]), None);
        assert_eq!(fit(&[]), None);
    }
}
