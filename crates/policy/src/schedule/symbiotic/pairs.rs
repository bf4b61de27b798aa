//! What every two threads make of each other, all at once.
//!
//! The equation for two threads `a` and `b` is `S(a) = Σ α + Σ β·a + Σ γ·b + Σ δ·a·b` over the
//! components. All but the last sum belong to one thread, and the last is the same for both, so a
//! pair takes one product of two stacks and two divisions.
//!
//! # Properties
//! - **The equation's**: the same slowdowns and costs as [`Mode::slowdown`] returns, pair by pair,
//!   to rounding. -> test `as_the_equation_says`

use super::Objective;
use colocate_model::symbiosis::Mode;

/// Slowdowns and costs of all pairs.
pub(super) struct Pairs {
    n: usize,
    aim: Objective,
    /// Per thread: what its slowdown has of its own, and what it adds to another's.
    own: Vec<f64>,
    adds: Vec<f64>,
    /// Per thread, by component: how much of it the thread has, and the same times what two that
    /// have it make.
    shares: Vec<f64>,
    weights: Vec<f64>,
    components: usize,
    /// What both cost, row by row, the first below the second.
    costs: Vec<f64>,
    /// The greatest of them; 0 if there are none.
    most: f64,
}

impl Pairs {
    /// Of threads with these stacks alone.
    pub fn new(mode: &Mode, aim: Objective, stacks: &[&[f64]]) -> Self {
        let n = stacks.len();
        let c = &mode.coefficients;
        let alpha = c.iter().fold(0.0, |sum, c| sum + c.alpha);
        let sum = |of: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
            let thread = |stack: &&[f64]| {
                let parts = stack.iter().take(c.len()).enumerate();
                parts.fold(0.0, |sum, (at, part)| sum + of(at, *part))
            };
            stacks.iter().map(thread).collect()
        };
        let mut own = sum(&|at, part| c[at].beta * part);
        own.iter_mut().for_each(|own| *own += alpha);
        let share = |stack: &&[f64], at: usize| stack.get(at).copied().unwrap_or(0.0);
        let row = |stack| (0..c.len()).map(move |at| (at, share(stack, at)));
        let mut pairs = Self {
            n,
            aim,
            own,
            adds: sum(&|at, part| c[at].gamma * part),
            shares: stacks.iter().flat_map(row).map(|(_, share)| share).collect(),
            weights: stacks.iter().flat_map(row).map(|(at, share)| c[at].delta * share).collect(),
            components: c.len(),
            costs: vec![0.0; n * n],
            most: 0.0,
        };
        pairs.fill();
        pairs
    }

    fn fill(&mut self) {
        let n = self.n;
        let mut joint = vec![0.0; n];
        // By component, so that rows are added up and many pairs are done at once.
        let column = |at: usize| self.shares.iter().skip(at).step_by(self.components).copied();
        let by_component: Vec<Vec<f64>> =
            (0..self.components).map(|at| column(at).collect()).collect();
        for a in 0..n {
            let joint = &mut joint[a + 1..];
            joint.fill(0.0);
            let weights = &self.weights[a * self.components..];
            for (weight, shares) in weights.iter().zip(&by_component) {
                joint.iter_mut().zip(&shares[a + 1..]).for_each(|(sum, b)| *sum += weight * b);
            }
            let (own, adds, aim) = (self.own[a], self.adds[a], self.aim);
            let others = self.own[a + 1..].iter().zip(&self.adds[a + 1..]);
            let costs = &mut self.costs[a * n + a + 1..(a + 1) * n];
            for ((cost, joint), (own_b, adds_b)) in costs.iter_mut().zip(&*joint).zip(others) {
                *cost = aim.cost(own + adds_b + joint) + aim.cost(own_b + adds + joint);
            }
            self.most = costs.iter().copied().fold(self.most, f64::max);
        }
    }

    /// What both together make.
    fn joint(&self, a: usize, b: usize) -> f64 {
        let (a, b) = (a.min(b) * self.components, a.max(b) * self.components);
        let weights = &self.weights[a..a + self.components];
        weights.iter().zip(&self.shares[b..]).fold(0.0, |sum, (weight, b)| sum + weight * b)
    }

    /// The slowdown of `a` beside `b`; as the equation says, which may be below 1.
    pub fn slowdown(&self, a: usize, b: usize) -> f64 {
        self.own[a] + self.adds[b] + self.joint(a, b)
    }

    /// What two different threads cost.
    pub fn cost(&self, a: usize, b: usize) -> f64 {
        self.costs[a.min(b) * self.n + a.max(b)]
    }

    /// The most that two cost.
    pub fn most(&self) -> f64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{model, stacks};
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_the_equation_says(count in 0_usize..20, seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let (model, stacks) = (model(&mut rng), stacks(&mut rng, count));
            let stacks: Vec<&[f64]> = stacks.iter().map(Vec::as_slice).collect();
            for (threads, aim) in [(2, Objective::Stp), (4, Objective::Antt)] {
                let mode = model.mode(threads);
                let pairs = Pairs::new(&mode, aim, &stacks);
                for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                    let each = [mode.slowdown(stacks[a], stacks[b]), mode.slowdown(stacks[b], stacks[a])];
                    let cost = aim.cost(each[0]) + aim.cost(each[1]);
                    prop_assert!((pairs.slowdown(a, b) - each[0]).abs() < 1e-12);
                    prop_assert!(a == b || (pairs.cost(a, b) - cost).abs() < 1e-12);
                    prop_assert!(a == b || pairs.cost(a, b) <= pairs.most());
                }
            }
        }
    }
}
