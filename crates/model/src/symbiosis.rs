//! Slowdown of threads that share a core, predicted from their CPI stacks alone.
//!
//! # Problem
//! The choice of threads to share a core requires the cost of sharing beforehand. Counters show
//! only a thread's cycles by cause while other threads are beside it.
//!
//! # Approach
//! Feliu, Eyerman, Sahuquillo and Petit ("Symbiotic job scheduling on the IBM POWER8", HPCA 2016).
//! Normalised CPI components are taken as probabilities. A component on a shared core is linear in
//! the same component alone, in that of the others, and in their product. The coefficients belong
//! to the component and to the number of threads on the core, not to programs, so they are
//! determined once ([`fit`]). The reverse, from stacks on a shared core to stacks alone, is
//! [`inverse`].
//!
//! # Terms
//! - `C(j)`: a component of thread `j` alone, as a share of its cycles alone; all of them sum to 1.
//! - `C'(j)`: the same component on the shared core, for the same instructions, in units of the
//!   cycles alone. `Σ C'(j)` is the thread's slowdown.
//! - `m(j)`: the same as a share of the thread's cycles on the shared core, as shown by counters:
//!   `C'(j) = s(j) · m(j)` with the slowdown `s(j)`.
//! - *Mode*: the number of threads on the core.
//!
//! # Equation
//! `C'(j) = α + β · C(j) + γ · S + δ · C(j) · S`, with `S = Σ over k ≠ j of C(k)`, for each
//! component.
//!
//! # Properties
//! - **Order**: the order of threads changes nothing. → `order_changes_nothing`
//! - **Exact**: the coefficients behind a training set are found again. → `fit::tests::found_again`
//! - **Inverted**: stacks alone are found again from those on the shared core, if coupling is weak.
//!   → `inverse::tests::exact_without_noise`

pub mod file;
pub mod fit;
pub mod inverse;

use serde::{Deserialize, Serialize};

pub use file::{Component, CpiModel, TrainedMode};
pub use fit::{FitSample, Quality};
pub use inverse::Conditioning;

/// Coefficients of one component in one mode.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Cost of the mode itself.
    pub alpha: f64,
    /// Factor on the thread's own component.
    pub beta: f64,
    /// Factor on the component of the others.
    pub gamma: f64,
    /// Factor on the product: the chance that both need the resource at once.
    pub delta: f64,
}

impl Coefficients {
    /// Coefficients of a component that the others do not change.
    pub const UNCHANGED: Self = Self { alpha: 0.0, beta: 1.0, gamma: 0.0, delta: 0.0 };

    /// Component on the shared core, in units of the cycles alone.
    #[must_use]
    pub fn together(&self, own: f64, others: f64) -> f64 {
        self.alpha + self.beta * own + self.gamma * others + self.delta * own * others
    }
}

/// Coefficients for a number of threads on a core.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreCoefficients {
    /// Threads on the core; 2 or more.
    pub threads: u32,
    /// Coefficients by component.
    pub coefficients: Vec<Coefficients>,
}

impl CoreCoefficients {
    /// Slowdown of a thread over running alone. `own` are its components, `others` the sums of
    /// those of the threads beside it. By the equation the slowdown may be below 1.
    #[must_use]
    pub fn slowdown(&self, own: &[f64], others: &[f64]) -> f64 {
        let each = self.coefficients.iter().zip(own.iter().zip(others));
        // `fold`, not `sum`: the sum of no components is −0.
        each.map(|(c, (&own, &others))| c.together(own, others)).fold(0.0, |sum, each| sum + each)
    }

    /// Slowdown of each of these threads when they share a core; 1 for a thread alone.
    #[must_use]
    pub fn slowdowns(&self, alone: &[&[f64]]) -> Vec<f64> {
        if alone.len() < 2 {
            return vec![1.0; alone.len()];
        }
        let mut others = vec![0.0; self.coefficients.len()];
        (0..alone.len())
            .map(|j| {
                sum_without(alone, j, &mut others);
                self.slowdown(alone[j], &others)
            })
            .collect()
    }

    /// Components of each thread on the shared core, in units of its cycles alone.
    #[must_use]
    pub fn together(&self, alone: &[&[f64]]) -> Vec<Vec<f64>> {
        let mut others = vec![0.0; self.coefficients.len()];
        (0..alone.len())
            .map(|j| {
                sum_without(alone, j, &mut others);
                let each = self.coefficients.iter().zip(alone[j].iter().zip(&others));
                each.map(|(c, (&own, &others))| c.together(own, others)).collect()
            })
            .collect()
    }
}

/// Sums all stacks but `without`, by component.
fn sum_without(stacks: &[&[f64]], without: usize, sums: &mut [f64]) {
    sums.fill(0.0);
    for (_, stack) in stacks.iter().enumerate().filter(|(k, _)| *k != without) {
        sums.iter_mut().zip(*stack).for_each(|(sum, each)| *sum += each);
    }
}

/// Stack as shares that sum to 1; `None` if no part is above 0 or the sum is not finite.
///
/// Multiplexed counters give stacks that sum to more or less than all cycles, and negative
/// remainders. Negative parts count as 0, and the rest is scaled.
#[must_use]
pub fn normalised(stack: &[f64]) -> Option<Vec<f64>> {
    let mut cut: Vec<f64> = stack.iter().map(|part| part.max(0.0)).collect();
    let all = cut.iter().fold(0.0, |sum, each| sum + each);
    // With a sum of 0 the quotients are NaN; the condition below refuses them.
    cut.iter_mut().for_each(|part| *part /= all);
    (all > 0.0 && all.is_finite()).then_some(cut)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Stack drawn uniformly from all with this number of components.
    pub(crate) fn random_stack(rng: &mut SplitMix64, components: usize) -> Vec<f64> {
        // Exponential parts, scaled to 1, are spread evenly over all stacks.
        let parts: Vec<f64> = (0..components).map(|_| -(1.0 - rng.unit()).ln()).collect();
        normalised(&parts).unwrap()
    }

    /// The ranges of weak coupling: α to 0.03, β from 0.8 to 1.2, γ to `gamma`, δ to `delta`.
    pub(crate) fn random_mode(
        rng: &mut SplitMix64,
        threads: u32,
        gamma: f64,
        delta: f64,
    ) -> CoreCoefficients {
        let mut one = || Coefficients {
            alpha: 0.03 * rng.unit(),
            beta: 0.8 + 0.4 * rng.unit(),
            gamma: gamma * rng.unit(),
            delta: delta * rng.unit(),
        };
        CoreCoefficients { threads, coefficients: (0..5).map(|_| one()).collect() }
    }

    /// Two components, (0.6, 0.4) beside (0.5, 0.5): 0.01 + 0.6 + 0.1 · 0.5 + 0.2 · 0.3 = 0.72, and the second
    /// as it is: 0.72 + 0.4.
    #[test]
    fn by_hand() {
        let first = Coefficients { alpha: 0.01, beta: 1.0, gamma: 0.1, delta: 0.2 };
        let mode =
            CoreCoefficients { threads: 2, coefficients: vec![first, Coefficients::UNCHANGED] };
        let found = mode.slowdowns(&[&[0.6, 0.4], &[0.5, 0.5]]);
        assert!((found[0] - 1.12).abs() < 1e-12, "{found:?}");
        // 0.01 + 0.5 + 0.1 · 0.6 + 0.2 · 0.3 + 0.5
        assert!((found[1] - 1.13).abs() < 1e-12, "{found:?}");
        assert!((mode.slowdowns(&[&[0.6, 0.4]])[0] - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn order_changes_nothing() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..100 {
            let mode = random_mode(&mut rng, 4, 0.25, 0.8);
            let stacks: Vec<Vec<f64>> = (0..4).map(|_| random_stack(&mut rng, 5)).collect();
            let mut order: Vec<usize> = (0..4).collect();
            rng.shuffle(&mut order);
            let refs = |order: &[usize]| -> Vec<f64> {
                let stacks: Vec<&[f64]> = order.iter().map(|&j| &stacks[j][..]).collect();
                mode.slowdowns(&stacks)
            };
            let (plain, other) = (refs(&[0, 1, 2, 3]), refs(&order));
            for (place, &j) in order.iter().enumerate() {
                assert!((plain[j] - other[place]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn what_together_says_adds_up_to_the_slowdown() {
        let mut rng = SplitMix64::new(2);
        let mode = random_mode(&mut rng, 2, 0.25, 0.8);
        let stacks = [random_stack(&mut rng, 5), random_stack(&mut rng, 5)];
        let refs = [&stacks[0][..], &stacks[1][..]];
        for (parts, slowdown) in mode.together(&refs).iter().zip(mode.slowdowns(&refs)) {
            assert!((parts.iter().sum::<f64>() - slowdown).abs() < 1e-12);
        }
    }

    #[test]
    fn multiplexed_stacks_are_scaled() {
        assert_eq!(normalised(&[1.0, -0.1, 3.0]), Some(vec![0.25, 0.0, 0.75]));
        assert_eq!(normalised(&[0.0, -1.0]), None);
        assert_eq!(normalised(&[f64::NAN, 0.0]), None);
    }
}
