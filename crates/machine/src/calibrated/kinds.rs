//! Classification of measured cores into kinds.
//!
//! # Problem
//! Equal cores never measure equal: clocks change, timers tick, other threads run. Kinds derived
//! from noise would make schedulers migrate threads without benefit.
//!
//! # Approach
//! Two cores are of different kinds only if their ranges are apart by more than [`NOISE`]. A core
//! with a range in between joins both: kinds are separated by gaps that no core's range reaches
//! into.
//!
//! # Terms
//! The *reach* of a core is the upper end of its range, increased by [`NOISE`].
//!
//! # Algorithm
//! Cores are sorted by the lower end of their ranges. A new kind begins at a core whose lower end
//! is above the reach of every core before it. Time: n log n for n cores.
//!
//! # Properties
//! - **Alike together**: cores whose values differ by no more than the noise are one kind. -> test `alike_cores_are_one_kind`
//! - **Apart**: cores of two kinds have ranges with a gap above the noise. -> test `kinds_are_apart_by_more_than_noise`
//! - **Ordered**: kinds are numbered without gaps, and a faster kind has the greater values. -> test `kinds_are_ordered`
//! - **Indifferent**: the order of cores and the unit of speed decide nothing. -> test `order_and_unit_do_not_matter`

use crate::cpulist::PuSet;
use crate::ids::PuNr;

/// Confidence of the range of a [`Speed`]. Chosen wide: with the usual 95 %, one of twenty equal
/// cores would differ by chance.
pub const CONFIDENCE: f64 = 0.999;

/// Speed relative to the fastest core, with its range of confidence [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Speed; 1 is the fastest. Above 0.
    pub value: f64,
    /// Lower end of the range. Above 0.
    pub low: f64,
    /// Upper end of the range; may be above 1, since the fastest speed is uncertain too.
    pub high: f64,
}

impl Speed {
    /// Converts the speed to units of `unit`.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        Self { value: self.value / unit, low: self.low / unit, high: self.high / unit }
    }

    /// Converts to the kernel's `cpu_capacity`: 1024 is the fastest; at least 1, as a core of
    /// capacity 0 could not run.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to 1024
    pub fn capacity(self) -> u32 {
        (self.value * 1024.0).round().clamp(1.0, 1024.0) as u32
    }
}

/// Measured speed of a PU, and the speeds reported of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PuSpeed {
    /// Kernel number of the PU.
    pub pu: PuNr,
    /// Work per second of wall time, relative to the fastest core. Includes time lost to other
    /// load, since any thread on the PU waits as long.
    pub speed: Speed,
    /// Speeds reported by firmware and kernel.
    pub reported: super::Reported,
}

/// A kind of core by measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredKind {
    /// Geometric mean of the cores, relative to the fastest kind, with the least and the greatest
    /// end of their ranges.
    pub speed: Speed,
    /// Measured PUs of the kind.
    pub pus: PuSet,
}

/// Greatest gap between the ranges of two cores that counts as noise, as a share. Chosen: the
/// rounds of a measurement follow each other, so a disturbance of some seconds affects all rounds
/// and is in no range. Two equal PUs of a virtual machine, measured above all other programs while
/// other programs compiled, differed by up to 13 %, with ranges 7 % apart (2026-11-21,
/// docs/reference/cores.md). Cores favoured by the firmware clock some percent higher than others of their
/// kind; real kinds of cores differ by far more.
pub const NOISE: f64 = 0.1;

/// Kind of each core; 0 is the slowest.
#[must_use]
pub fn kinds_of(speeds: &[Speed]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..speeds.len()).collect();
    order.sort_by(|&a, &b| speeds[a].low.total_cmp(&speeds[b].low));
    let mut kinds = vec![0; speeds.len()];
    let mut kind = 0;
    // Infinite before the first core, which begins no new kind.
    let mut reach = f64::INFINITY;
    for core in order {
        let speed = speeds[core];
        let own = speed.high * (1.0 + NOISE);
        if speed.low > reach {
            kind += 1;
            reach = own;
        } else {
            reach = if reach.is_finite() { reach.max(own) } else { own };
        }
        kinds[core] = kind;
    }
    kinds
}

/// Measurements that were never made, for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Kinds of single-PU cores 0, 1, … with these speeds, each known within 1 %, and their speeds
    /// relative to the fastest.
    pub fn kinds_with(values: &[f64]) -> (Vec<MeasuredKind>, Vec<Speed>) {
        let top = values.iter().copied().fold(0.0, f64::max);
        let speed = |value: &f64| Speed { value: *value, low: value * 0.99, high: value * 1.01 };
        let speeds: Vec<Speed> = values.iter().map(|value| speed(value).over(top)).collect();
        let of_core = kinds_of(&speeds);
        let count = of_core.iter().max().map_or(0, |last| last + 1);
        let kinds = (0..count).map(|kind| {
            let members = (0..values.len()).filter(|&core| of_core[core] == kind);
            let first = members.clone().next().expect("no kind is empty");
            MeasuredKind { speed: speeds[first], pus: members.map(PuNr::new).collect() }
        });
        (kinds.collect(), speeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speed(value: f64, half: f64) -> Speed {
        Speed { value, low: value * (1.0 - half), high: value * (1.0 + half) }
    }

    fn kinds(values: &[(f64, f64)]) -> Vec<usize> {
        kinds_of(&values.iter().map(|&(value, half)| speed(value, half)).collect::<Vec<_>>())
    }

    #[test]
    fn traced_by_hand() {
        assert_eq!(kinds(&[]), [0; 0]);
        assert_eq!(kinds(&[(1.0, 0.001)]), [0]);
        // 0.5 reaches to 0.5 · 1.01 · 1.1 = 0.556; 0.98 begins at 0.970.
        assert_eq!(kinds(&[(1.0, 0.01), (0.5, 0.01), (0.98, 0.01)]), [1, 0, 1]);
        // 0.88 reaches to 0.88 · 1.001 · 1.1 = 0.969, 1 begins at 0.999; with 0.94 between them they are one.
        assert_eq!(kinds(&[(1.0, 0.001), (0.88, 0.001)]), [1, 0]);
        assert_eq!(kinds(&[(1.0, 0.001), (0.88, 0.001), (0.94, 0.001)]), [0, 0, 0]);
        // What is not known is not distinguished: 0.5 ± 60 % reaches to 0.88, 1 ± 20 % begins at 0.8.
        assert_eq!(kinds(&[(0.5, 0.6), (1.0, 0.2)]), [0, 0]);
        // A core of which little is known joins those on both sides.
        assert_eq!(kinds(&[(0.4, 0.01), (1.0, 0.01), (0.65, 0.6)]), [0, 0, 0]);
        assert_eq!(kinds(&[(0.25, 0.01), (0.5, 0.01), (1.0, 0.01)]), [0, 1, 2]);
    }

    fn any_cores() -> impl Strategy<Value = Vec<Speed>> {
        let core = prop_oneof![
            (0.05..1.0_f64, 0.0..0.2_f64),
            (prop::sample::select(vec![0.3, 0.5, 0.97, 1.0]), 0.0..0.02_f64),
        ];
        prop::collection::vec(core.prop_map(|(value, half)| speed(value, half)), 0..40)
    }

    proptest! {
        #[test]
        fn alike_cores_are_one_kind(
            around in 0.01..10.0_f64,
            cores in prop::collection::vec((0.953..1.047_f64, 0.0..0.5_f64), 1..64),
        ) {
            let cores: Vec<Speed> =
                cores.into_iter().map(|(off, half)| speed(around * off, half)).collect();
            prop_assert!(kinds_of(&cores).iter().all(|&kind| kind == 0));
        }

        #[test]
        fn kinds_are_apart_by_more_than_noise(cores in any_cores()) {
            let kinds = kinds_of(&cores);
            for (a, kind_a) in cores.iter().zip(&kinds) {
                for (b, kind_b) in cores.iter().zip(&kinds) {
                    if kind_a < kind_b {
                        prop_assert!(a.high * (1.0 + NOISE) < b.low, "{a:?} {b:?}");
                    }
                }
            }
        }

        /// Kinds are no coarser than they must be.
        #[test]
        fn a_core_apart_from_all_is_alone(cores in any_cores()) {
            let kinds = kinds_of(&cores);
            for (index, core) in cores.iter().enumerate() {
                let apart = |other: &Speed| {
                    core.high * (1.0 + NOISE) < other.low || other.high * (1.0 + NOISE) < core.low
                };
                let mut others = cores.iter().enumerate().filter(|(other, _)| *other != index);
                if others.all(|(_, other)| apart(other)) {
                    let alike = kinds.iter().filter(|kind| **kind == kinds[index]).count();
                    prop_assert_eq!(alike, 1);
                }
            }
        }

        #[test]
        fn kinds_are_ordered(cores in any_cores()) {
            let kinds = kinds_of(&cores);
            let count = kinds.iter().max().map_or(0, |last| last + 1);
            for kind in 0..count {
                prop_assert!(kinds.contains(&kind));
            }
            for (a, kind_a) in cores.iter().zip(&kinds) {
                for (b, kind_b) in cores.iter().zip(&kinds) {
                    prop_assert!(kind_a >= kind_b || a.value < b.value);
                }
            }
        }

        #[test]
        fn order_and_unit_do_not_matter(cores in any_cores(), turn in 0..40_usize, unit in 0.1..10.0_f64) {
            let kinds = kinds_of(&cores);
            let mut turned: Vec<Speed> = cores.clone();
            let turn = turn % turned.len().max(1);
            turned.rotate_left(turn);
            let mut expected = kinds.clone();
            expected.rotate_left(turn);
            prop_assert_eq!(kinds_of(&turned), expected);
            // Powers of two change no digit, so no comparison turns over.
            let unit = unit.log2().round().exp2();
            let scaled: Vec<Speed> = cores.iter().map(|core| core.over(unit)).collect();
            prop_assert_eq!(kinds_of(&scaled), kinds);
        }
    }
}
