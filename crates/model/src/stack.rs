//! Where cycles went, by the parts that a host distinguishes.
//!
//! Every host has parts of its own: a simulated one those of [`CpiStack`], a processor those that its
//! counters distinguish. So a stack carries the names of its parts, and stacks of different parts are never mixed.
//!
//! # Properties
//! - **Adds up**: what is added up and taken apart again is as before. -> test `differences_add_up`
//! - **Unknown stays unknown**: nothing is said of cycles that are not counted, nor of other parts. -> test
//!   `nothing_is_made_up`

use crate::symbiosis::file::{SIMULATED_PARTS, simulated_parts};
use crate::system::CpiStack;

/// Most parts that a host distinguishes.
pub const MOST_PARTS: usize = 8;

/// Names of the parts of a host's stacks, in its order.
pub type Parts = &'static [&'static str];

/// Cycles by part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stack {
    parts: Parts,
    cycles: [f64; MOST_PARTS],
    off: f64,
}

impl Stack {
    /// Of so many `cycles` each; `None` if they are not as many as the parts, more than [`MOST_PARTS`], or one
    /// of them is below 0 or no number.
    ///
    /// `off` says by which share of all cycles the parts missed them before they were scaled; 0 if they were
    /// not.
    #[must_use]
    pub fn new(parts: Parts, cycles: &[f64], off: f64) -> Option<Self> {
        let fits = parts.len() == cycles.len() && parts.len() <= MOST_PARTS;
        let good = cycles.iter().all(|each| each.is_finite() && *each >= 0.0);
        let mut stack = Self::empty(parts);
        stack.off = off;
        stack.cycles.iter_mut().zip(cycles).for_each(|(to, from)| *to = *from);
        (fits && good).then_some(stack)
    }

    /// No cycles yet.
    #[must_use]
    pub const fn empty(parts: Parts) -> Self {
        Self { parts, cycles: [0.0; MOST_PARTS], off: 0.0 }
    }

    /// The names of its parts.
    #[must_use]
    pub const fn parts(&self) -> Parts {
        self.parts
    }

    /// Cycles of each part, in their order.
    #[must_use]
    pub fn cycles(&self) -> &[f64] {
        &self.cycles[..self.parts.len().min(MOST_PARTS)]
    }

    /// By which share of the cycles the parts missed them at worst, before they were scaled to add up to them.
    #[must_use]
    pub const fn off(&self) -> f64 {
        self.off
    }

    /// All cycles.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.cycles().iter().fold(0.0, |sum, each| sum + each)
    }

    /// The cycles since an earlier look; `None` if that had other parts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut since = *self;
        since.cycles.iter_mut().zip(earlier.cycles).for_each(|(now, then)| {
            *now = (*now - then).max(0.0);
        });
        (self.parts == earlier.parts).then_some(since)
    }

    /// Both together; `None` if they have different parts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let mut both = *self;
        both.cycles.iter_mut().zip(other.cycles).for_each(|(sum, each)| *sum += each);
        both.off = self.off.max(other.off);
        (self.parts == other.parts).then_some(both)
    }

    /// The share of each part; `None` if there are no cycles.
    #[must_use]
    pub fn shares(&self) -> Option<Vec<f64>> {
        let all = self.total();
        (all > 0.0).then(|| self.cycles().iter().map(|each| each / all).collect())
    }
}

impl From<&CpiStack> for Stack {
    fn from(stack: &CpiStack) -> Self {
        let mut cycles = [0.0; MOST_PARTS];
        // Differences of nearly equal figures can be a rounding below 0.
        let parts = simulated_parts(stack);
        cycles.iter_mut().zip(parts).for_each(|(to, from)| *to = f64::max(from, 0.0));
        Self { parts: &SIMULATED_PARTS, cycles, off: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: Parts = &["busy", "stalled"];

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
