//! Competition of two threads for the same execution units, computed from instruction mixes.
//!
//! The terms, with their units:
//!
//! - `s(t, c)`: share of class `c` in thread `t`'s instructions, 0 ..= 1 ([`Share`](crate::Share)).
//! - `b(t)`: how busy thread `t` is, CPU time over life time, 0 ..= 1.
//! - `u(c)`: execution units that can do work of class `c`, a count ([`UNITS`]).
//! - `d(t, c) = b(t) · s(t, c) / √u(c)`: demand, no unit of its own ([`UnitDemand`]).
//! - `w(a, b) = Σ_c d(a, c) · d(b, c) = Σ_c b(a) · b(b) · s(a, c) · s(b, c) / u(c)`: overlap, in
//!   *unit clashes per pair of instructions* ([`UnitDemand::overlap`]).
//!
//! Meaning of the overlap: draw one instruction of each thread, with each thread running for its
//! busy share of the time, and let each instruction use a random unit of its class. Then `w` is the
//! mean number of times that both need the same unit. The overlap ranks pairings and is no
//! slowdown: out-of-order cores hide many clashes, how many depends on the machine.

use crate::mix::{Class, Mix};
use std::ops::{Add, AddAssign, Sub};

/// Execution units for each class, indexed by `Class as usize`: branch, float, int, load, store.
///
/// AMD family 17h, the processor of Serpa et al.'s machine. Four integer units, two of which also
/// resolve branches. Four floating-point pipes, two of which add and two multiply, so two for a
/// given operation. Two address units, for two loads, or one load and one store, a cycle. (Port
/// groups of `znver1` in LLVM and in OSACA, which agree.) Chosen as typical of a core, not fitted
/// to one.
pub const UNITS: [f64; 5] = [2.0, 2.0, 4.0, 2.0, 1.0];

/// Scarcity of the units of `class`: `1 / u(c)`, above 0, at most 1.
#[must_use]
pub fn scarcity(class: Class) -> f64 {
    1.0 / UNITS[class as usize]
}

/// Demand of a thread, or of several together, for the units of a core.
///
/// Demands add up: the demand of concurrent threads is the sum of theirs, and the overlap of two
/// groups is the sum of the overlaps of all pairs between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitDemand([f64; 5]);

impl UnitDemand {
    /// No demand: no thread.
    pub const NONE: Self = Self([0.0; 5]);

    /// Demand of a thread with the mix `mix`, busy for the share `busy` of its life.
    ///
    /// A class unknown in `mix` takes its share from `assumed`, and counts as 0 if unknown there
    /// too. Threads to be compared need the same `assumed`. `busy` is clamped to 0 ..= 1; NaN
    /// counts as 1.
    #[must_use]
    pub fn of(mix: &Mix, busy: f64, assumed: &Mix) -> Self {
        // `clamp` keeps NaN.
        let busy = if busy.is_nan() { 1.0 } else { busy.clamp(0.0, 1.0) };
        Self(Class::ALL.map(|class| {
            let share = mix.get(class).or(assumed.get(class)).map_or(0.0, crate::Share::get);
            // The root, since the overlap multiplies the demands of two threads.
            busy * share * scarcity(class).sqrt()
        }))
    }

    /// Overlap `w(self, other)`, in unit clashes per pair of instructions. Symmetric, and never
    /// negative for demands of threads; for a difference of demands it may be negative.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> f64 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }

    /// Demand multiplied by `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self(self.0.map(|d| d * factor))
    }

    /// Demand by class, scaled by `1/√u(c)`; the overlap is the inner product of two such arrays.
    #[must_use]
    pub fn as_array(&self) -> &[f64; 5] {
        &self.0
    }
}

impl Add for UnitDemand {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for UnitDemand {
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl Sub for UnitDemand {
    type Output = Self;
    fn sub(mut self, other: Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine -= theirs;
        }
        self
    }
}

/// Mean of `mixes`, class by class: an assumption for threads that were not profiled.
///
/// A class that no mix has is unknown in the mean.
#[must_use]
pub fn mean_mix<'a>(mixes: impl IntoIterator<Item = &'a Mix>) -> Mix {
    let mut sums = [(0.0, 0_usize); 5];
    for mix in mixes {
        for class in Class::ALL {
            if let Some(share) = mix.get(class) {
                sums[class as usize].0 += share.get();
                sums[class as usize].1 += 1;
            }
        }
    }
    let mut mean = Mix::default();
    for class in Class::ALL {
        let (sum, known) = sums[class as usize];
        // Rounding can lift a mean of ones just above one.
        mean.set(
            class,
            // Rounding may exceed 1.
            (known > 0).then(|| crate::Share::new((sum / known as f64).min(1.0))).flatten(),
        );
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;
    use proptest::prelude::*;

    fn mix(shares: [f64; 5]) -> Mix {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, Share::new(shares[class as usize]));
        }
        mix
    }

    fn any_shares() -> impl Strategy<Value = [f64; 5]> {
        prop::array::uniform5(0.0..=1.0)
    }

    /// float 0.8 · 0.5 / 2 units + int 0.1 · 0.4 / 4 units = 0.2 + 0.01.
    #[test]
    fn by_hand() {
        let a = UnitDemand::of(&mix([0.0, 0.8, 0.1, 0.0, 0.0]), 1.0, &Mix::default());
        let b = UnitDemand::of(&mix([0.0, 0.5, 0.4, 0.0, 0.0]), 1.0, &Mix::default());
        assert!((a.overlap(&b) - 0.21).abs() < 1e-12);
        let half = UnitDemand::of(&mix([0.0, 0.5, 0.4, 0.0, 0.0]), 0.5, &Mix::default());
        assert!((a.overlap(&half) - 0.105).abs() < 1e-12);
    }

    #[test]
    fn unknown_takes_what_is_assumed() {
        let known = mix([0.1, 0.2, 0.3, 0.4, 0.5]);
        let seen = UnitDemand::of(&Mix::default(), 1.0, &known);
        assert_eq!(seen, UnitDemand::of(&known, 1.0, &Mix::default()));
        assert_eq!(UnitDemand::of(&Mix::default(), 1.0, &Mix::default()), UnitDemand::NONE);
    }

    #[test]
    fn mean_leaves_out_what_is_unknown() {
        let mut half_blind = mix([0.2, 0.4, 0.0, 0.0, 0.0]);
        half_blind.store = None;
        let mean = mean_mix([&half_blind, &mix([0.4, 0.4, 0.0, 0.0, 0.6])]);
        assert!((mean.branch.unwrap().get() - 0.3).abs() < 1e-12);
        assert_eq!(mean.store, Share::new(0.6));
        assert_eq!(mean_mix([]), Mix::default());
    }

    #[test]
    fn busy_is_cut() {
        let m = mix([1.0; 5]);
        let full = UnitDemand::of(&m, 1.0, &m);
        assert_eq!(UnitDemand::of(&m, 7.0, &m), full);
        assert_eq!(UnitDemand::of(&m, f64::NAN, &m), full);
        assert_eq!(UnitDemand::of(&m, -1.0, &m), UnitDemand::NONE);
    }

    proptest! {
        #[test]
        fn symmetric_and_never_negative(a in any_shares(), b in any_shares(), busy in 0.0..=1.0) {
            let a = UnitDemand::of(&mix(a), busy, &Mix::default());
            let b = UnitDemand::of(&mix(b), 1.0, &Mix::default());
            prop_assert!(a.overlap(&b) >= 0.0);
            prop_assert!((a.overlap(&b) - b.overlap(&a)).abs() < 1e-12);
        }

        #[test]
        fn groups_overlap_as_their_pairs(shares in prop::array::uniform4(any_shares())) {
            let [a, b, c, d] = shares.map(|s| UnitDemand::of(&mix(s), 1.0, &Mix::default()));
            let pairs = a.overlap(&c) + a.overlap(&d) + b.overlap(&c) + b.overlap(&d);
            prop_assert!(((a + b).overlap(&(c + d)) - pairs).abs() < 1e-9);
        }
    }
}
