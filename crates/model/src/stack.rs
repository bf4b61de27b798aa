//! Cycles of a task by cause.
//!
//! Each host has its own causes (parts): a simulated host those of [`CpiStack`], a processor those
//! that its counters distinguish. A stack therefore carries the names of its parts, and stacks of
//! different parts are never mixed.
//!
//! # Properties
//! - **Adds up**: a sum less one of its terms is the other term. -> test `differences_add_up`
//! - **Unknown stays unknown**: cycles not counted, and other parts, yield `None`.
//!   -> test `nothing_is_made_up`

use crate::symbiosis::file::{SIMULATED_PARTS, simulated_parts};
use crate::system::CpiStack;

/// Most parts of a host's stacks.
pub const MOST_PARTS: usize = 8;

/// Names of the parts of a host's stacks, in the host's order.
pub type StackParts = &'static [&'static str];

/// Cycles by part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stack {
    parts: StackParts,
    cycles: [f64; MOST_PARTS],
    off: f64,
}

impl Stack {
    /// Stack of `cycles` by part. `None` if the numbers of cycles and parts differ, there are more
    /// than [`MOST_PARTS`], or any cycles are negative or not finite.
    ///
    /// `off`: relative difference between the sum of the parts and all cycles, before the parts
    /// were scaled; 0 if they were not.
    #[must_use]
    pub fn new(parts: StackParts, cycles: &[f64], off: f64) -> Option<Self> {
        let fits = parts.len() == cycles.len() && parts.len() <= MOST_PARTS;
        let good = cycles.iter().all(|each| each.is_finite() && *each >= 0.0);
        let mut stack = Self::empty(parts);
        stack.off = off;
        stack.cycles.iter_mut().zip(cycles).for_each(|(to, from)| *to = *from);
        (fits && good).then_some(stack)
    }

    /// Stack without cycles.
    #[must_use]
    pub const fn empty(parts: StackParts) -> Self {
        Self { parts, cycles: [0.0; MOST_PARTS], off: 0.0 }
    }

    /// Names of the parts.
    #[must_use]
    pub const fn parts(&self) -> StackParts {
        self.parts
    }

    /// Cycles of each part, in the order of the names.
    #[must_use]
    pub fn cycles(&self) -> &[f64] {
        // `empty` takes any number of names.
        &self.cycles[..self.parts.len().min(MOST_PARTS)]
    }

    /// Largest relative difference between the sum of the parts and all cycles, before scaling.
    #[must_use]
    pub const fn off(&self) -> f64 {
        self.off
    }

    /// Sum of all cycles.
    #[must_use]
    pub fn total(&self) -> f64 {
        // `fold`, not `sum`: the sum of no parts is −0.
        self.cycles().iter().fold(0.0, |sum, each| sum + each)
    }

    /// Cycles since the earlier sample; `None` if its parts differ.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut since = *self;
        since.cycles.iter_mut().zip(earlier.cycles).for_each(|(now, then)| {
            // A scaled part can be less than before.
            *now = (*now - then).max(0.0);
        });
        (self.parts == earlier.parts).then_some(since)
    }

    /// Sum of both; `None` if the parts differ.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let mut both = *self;
        both.cycles.iter_mut().zip(other.cycles).for_each(|(sum, each)| *sum += each);
        // The worse of both holds for the sum.
        both.off = self.off.max(other.off);
        (self.parts == other.parts).then_some(both)
    }

    /// Share of each part; `None` without cycles.
    #[must_use]
    pub fn shares(&self) -> Option<Vec<f64>> {
        let all = self.total();
        (all > 0.0).then(|| self.cycles().iter().map(|each| each / all).collect())
    }
}

impl From<&CpiStack> for Stack {
    fn from(stack: &CpiStack) -> Self {
        let mut cycles = [0.0; MOST_PARTS];
        // Differences of nearly equal figures can be below 0 by rounding.
        let parts = simulated_parts(stack);
        cycles.iter_mut().zip(parts).for_each(|(to, from)| *to = f64::max(from, 0.0));
        Self { parts: &SIMULATED_PARTS, cycles, off: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: StackParts = &["busy", "stalled"];

    #[test]
    fn by_part() {
        let stack = Stack::new(TWO, &[30.0, 10.0], 0.02).unwrap();
        assert_eq!((stack.cycles(), stack.total(), stack.off()), (&[30.0, 10.0][..], 40.0, 0.02));
        assert_eq!(stack.shares(), Some(vec![0.75, 0.25]));
        let model = CpiStack { core: 1.0, communication: 3.0, ..CpiStack::default() };
        let model = Stack::from(&model);
        assert_eq!((model.parts()[6], model.cycles()[6]), ("communication", 3.0));
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(Stack::new(TWO, &[1.0], 0.0), None);
        assert_eq!(Stack::new(TWO, &[1.0, -0.1], 0.0), None);
        assert_eq!(Stack::new(TWO, &[1.0, f64::NAN], 0.0), None);
        assert_eq!(Stack::new(&["x"; 9], &[1.0; 9], 0.0), None);
        let stack = Stack::new(TWO, &[1.0, 2.0], 0.0).unwrap();
        let other = Stack::new(&["busy", "waiting"], &[1.0, 2.0], 0.0).unwrap();
        assert_eq!((stack.since(&other), stack.plus(&other)), (None, None));
        assert_eq!(stack.since(&stack).unwrap().shares(), None, "it has not run since");
    }

    proptest! {
        #[test]
        fn differences_add_up(a in prop::array::uniform2(0_u32..1000), b in prop::array::uniform2(0_u32..1000)) {
            let stack = |cycles: [u32; 2]| Stack::new(TWO, &cycles.map(f64::from), 0.0).unwrap();
            let (a, b) = (stack(a), stack(b));
            let both = a.plus(&b).unwrap();
            prop_assert_eq!(both.total(), a.total() + b.total());
            prop_assert_eq!(both.since(&a), Some(b));
            prop_assert!(both.shares().is_none_or(|all| (all.iter().sum::<f64>() - 1.0).abs() < 1e-9));
        }
    }
}
