//! Slowdowns and costs of all pairs of threads, computed at once.
//!
//! The equation for two threads `a` and `b` is `S(a) = Σ α + Σ β·a + Σ γ·b + Σ δ·a·b` over the
//! components. All but the last sum belong to one thread, and the last is the same for both, so a
//! pair takes one product of two stacks and two divisions.
//!
//! # Properties
//! - **The equation's**: the same slowdowns and costs as [`CoreCoefficients::slowdown`] returns,
//!   pair by pair, to rounding. -> test `as_the_equation_says`

use super::Objective;
use colocate_model::symbiosis::CoreCoefficients;

/// Slowdowns and costs of all pairs of threads.
pub(super) struct PairSlowdowns {
    n: usize,
    aim: Objective,
    /// By thread: `Σ α + Σ β·a`, the part of its own stack in its slowdown.
    own: Vec<f64>,
    /// By thread: `Σ γ·b`, its part in the slowdown of another thread.
    adds: Vec<f64>,
    /// By thread and component: share of the thread's stack.
    shares: Vec<f64>,
    /// By thread and component: share times `δ`.
    weights: Vec<f64>,
    components: usize,
    /// Cost of both threads of a pair, row by row; only the cells with the row below the column.
    costs: Vec<f64>,
    /// Greatest cost of a pair; 0 without pairs.
    pub most: f64,
}

impl PairSlowdowns {
    /// All pairs of threads with these stacks alone.
    pub fn new(mode: &CoreCoefficients, aim: Objective, stacks: &[&[f64]]) -> Self {
        let n = stacks.len();
        let c = &mode.coefficients;
        let alpha = c.iter().fold(0.0, |sum, c| sum + c.alpha);
        let mut pairs = Self {
            n,
            aim,
            own: Vec::with_capacity(n),
            adds: Vec::with_capacity(n),
            shares: Vec::with_capacity(n * c.len()),
            weights: Vec::with_capacity(n * c.len()),
            components: c.len(),
            costs: vec![0.0; n * n],
            most: 0.0,
        };
        for stack in stacks {
            let mut own = 0.0;
            let mut adds = 0.0;
            for (at, c) in c.iter().enumerate() {
                // A component that the stack lacks is 0.
                let share = stack.get(at).copied().unwrap_or(0.0);
                own += c.beta * share;
                adds += c.gamma * share;
                pairs.shares.push(share);
                pairs.weights.push(c.delta * share);
            }
            pairs.own.push(own + alpha);
            pairs.adds.push(adds);
        }
        pairs.fill();
        pairs
    }

    /// Computes the costs of all pairs.
    fn fill(&mut self) {
        let n = self.n;
        let mut joint = vec![0.0; n];
        // By component, so that whole rows are added, several pairs at once.
        let by_component: Vec<Vec<f64>> = (0..self.components)
            .map(|at| self.shares.iter().skip(at).step_by(self.components).copied().collect())
            .collect();
        for a in 0..n {
            let joint = &mut joint[a + 1..];
            joint.fill(0.0);
            let weights = &self.weights[a * self.components..];
            for (weight, shares) in weights.iter().zip(&by_component) {
                joint.iter_mut().zip(&shares[a + 1..]).for_each(|(sum, b)| *sum += weight * b);
            }
            let own = self.own[a];
            let adds = self.adds[a];
            let aim = self.aim;
            let others = self.own[a + 1..].iter().zip(&self.adds[a + 1..]);
            let costs = &mut self.costs[a * n + a + 1..(a + 1) * n];
            for ((cost, joint), (own_b, adds_b)) in costs.iter_mut().zip(&*joint).zip(others) {
                *cost = aim.cost(own + adds_b + joint) + aim.cost(own_b + adds + joint);
            }
            self.most = costs.iter().copied().fold(self.most, f64::max);
        }
    }

    /// `Σ δ·a·b`, the same for both threads.
    fn joint(&self, a: usize, b: usize) -> f64 {
        // The lower thread's weights, as in `fill`: the rounding is the same.
        let low = a.min(b) * self.components;
        let high = a.max(b) * self.components;
        let weights = &self.weights[low..low + self.components];
        weights.iter().zip(&self.shares[high..]).fold(0.0, |sum, (weight, b)| sum + weight * b)
    }

    /// Slowdown of `a` beside `b`, as the equation says; may be below 1.
    pub fn slowdown(&self, a: usize, b: usize) -> f64 {
        self.own[a] + self.adds[b] + self.joint(a, b)
    }

    /// Cost of two different threads together.
    pub fn cost(&self, a: usize, b: usize) -> f64 {
        self.costs[a.min(b) * self.n + a.max(b)]
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
                let pairs = PairSlowdowns::new(&mode, aim, &stacks);
                for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                    let each = [mode.slowdown(stacks[a], stacks[b]), mode.slowdown(stacks[b], stacks[a])];
                    let cost = aim.cost(each[0]) + aim.cost(each[1]);
                    prop_assert!((pairs.slowdown(a, b) - each[0]).abs() < 1e-12);
                    prop_assert!(a == b || (pairs.cost(a, b) - cost).abs() < 1e-12);
                    prop_assert!(a == b || pairs.cost(a, b) <= pairs.most);
                }
            }
        }
    }
}
