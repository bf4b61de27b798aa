//! Guesses in place of unknown figures: a default for each component, and its plausible range.
//!
//! A prediction with a guess is only of use together with predictions for other guesses in the
//! range: [`Assumptions::sample`](crate::Assumptions::sample) draws them. Unless stated otherwise
//! the ranges are our own judgement of ordinary compiled programs, not measured.

use crate::curve::MissCurve;
use crate::mix::Class;
use colocate_machine::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Component with a guess where unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guessed {
    /// Front-end slots of an instruction.
    Slots,
    /// Share of branches among all instructions.
    BranchShare,
    /// Share of floating-point arithmetic among all instructions.
    FloatShare,
    /// Share of integer arithmetic among all instructions.
    IntShare,
    /// Share of memory reads among all instructions.
    LoadShare,
    /// Share of memory writes among all instructions.
    StoreShare,
    /// Share of multiplications among integer arithmetic.
    IntMulPart,
    /// Share of divisions among integer arithmetic.
    IntDivPart,
    /// Share of multiplications among floating-point arithmetic.
    FloatMulPart,
    /// Share of divisions and square roots among floating-point arithmetic.
    FloatDivPart,
    /// Least cycles by dependencies.
    DependentCycles,
    /// Factor on the cycles by dependencies with half of the window.
    DividedFactor,
    /// Stall cycles not caused by ports or shared caches.
    StallCycles,
    /// Mispredicted branches among all instructions.
    BranchMisses,
    /// Factor on [`typical_misses`].
    MissFactor,
    /// Misses outstanding at the same time.
    ParallelMisses,
    /// Lines written back for each line fetched.
    WrittenBack,
    /// Lines from another task's cache.
    SharedLines,
}

/// Plausible range of a figure, and its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plausible {
    /// Smallest plausible figure.
    pub least: f64,
    /// Default figure.
    pub usual: f64,
    /// Largest plausible figure.
    pub most: f64,
}

impl Plausible {
    /// Figure at `place`: 0 is the least, 0.5 the default, 1 the most, linear in between.
    #[must_use]
    pub fn at(self, place: f64) -> f64 {
        if place < 0.5 {
            self.least + 2.0 * place * (self.usual - self.least)
        } else {
            self.usual + (2.0 * place - 1.0) * (self.most - self.usual)
        }
    }
}

/// Name in files and tables, least, default and most of each component, in the order of
/// [`Guessed`].
///
/// Judgement, not measurement, with two exceptions. With half of the window dependencies take up to
/// √2 as long, since the number of ready instructions grows with the square root of the window
/// (Riseman and Foster, IEEE Trans. Computers 1972; remembered). The miss factor spans programs
/// around [`typical_misses`].
const TABLE: [(Guessed, &str, f64, f64, f64); 18] = [
    (Guessed::Slots, "slots", 1.0, 1.1, 1.3),
    (Guessed::BranchShare, "branch-share", 0.03, 0.13, 0.2),
    (Guessed::FloatShare, "float-share", 0.0, 0.1, 0.5),
    (Guessed::IntShare, "int-share", 0.2, 0.4, 0.7),
    (Guessed::LoadShare, "load-share", 0.15, 0.25, 0.4),
    (Guessed::StoreShare, "store-share", 0.03, 0.1, 0.15),
    (Guessed::IntMulPart, "int-mul-part", 0.0, 0.02, 0.1),
    (Guessed::IntDivPart, "int-div-part", 0.0, 0.002, 0.01),
    (Guessed::FloatMulPart, "float-mul-part", 0.3, 0.45, 0.7),
    (Guessed::FloatDivPart, "float-div-part", 0.0, 0.02, 0.1),
    (Guessed::DependentCycles, "dependent-cycles", 0.25, 0.5, 1.0),
    (Guessed::DividedFactor, "divided-factor", 1.0, 1.15, std::f64::consts::SQRT_2),
    (Guessed::StallCycles, "stall-cycles", 0.0, 0.05, 0.2),
    (Guessed::BranchMisses, "branch-misses", 0.0, 0.003, 0.01),
    (Guessed::MissFactor, "miss-factor", 0.2, 1.0, 3.0),
    (Guessed::ParallelMisses, "parallel-misses", 1.0, 2.0, 6.0),
    (Guessed::WrittenBack, "written-back", 0.0, 0.3, 0.6),
    (Guessed::SharedLines, "shared-lines", 0.0, 0.0, 0.001),
];

impl Guessed {
    /// All components, in order.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::Slots; TABLE.len()];
        // Iterators and `for` are not available in constants.
        let mut at = 0;
        while at < TABLE.len() {
            all[at] = TABLE[at].0;
            at += 1;
        }
        all
    };

    /// Plausible range.
    #[must_use]
    pub const fn plausible(self) -> Plausible {
        // `TABLE` is in the order of the variants.
        let (_, _, least, usual, most) = TABLE[self as usize];
        Plausible { least, usual, most }
    }

    /// Share of `class` among all instructions.
    #[must_use]
    pub const fn share(class: Class) -> Self {
        match class {
            Class::Branch => Self::BranchShare,
            Class::Float => Self::FloatShare,
            Class::Int => Self::IntShare,
            Class::Load => Self::LoadShare,
            Class::Store => Self::StoreShare,
        }
    }
}

impl fmt::Display for Guessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(TABLE[*self as usize].1)
    }
}

/// A figure for each component that can be unknown; initially the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Guessed, f64>", into = "BTreeMap<Guessed, f64>")]
pub struct Guesses([f64; Guessed::ALL.len()]);

impl Default for Guesses {
    fn default() -> Self {
        Self(Guessed::ALL.map(|guessed| guessed.plausible().usual))
    }
}

impl Guesses {
    /// Figure for a component.
    #[must_use]
    pub const fn get(&self, guessed: Guessed) -> f64 {
        self.0[guessed as usize]
    }

    /// Guesses with another figure for one component, clamped to its plausible range; NaN gives the
    /// default.
    #[must_use]
    pub fn with(mut self, guessed: Guessed, figure: f64) -> Self {
        let Plausible { least, usual, most } = guessed.plausible();
        // `clamp` keeps NaN.
        self.0[guessed as usize] = if figure.is_nan() { usual } else { figure.clamp(least, most) };
        self
    }
}

impl TryFrom<BTreeMap<Guessed, f64>> for Guesses {
    type Error = String;
    /// Omitted components get their defaults.
    fn try_from(figures: BTreeMap<Guessed, f64>) -> Result<Self, String> {
        figures.into_iter().try_fold(Self::default(), |guesses, (guessed, figure)| {
            let Plausible { least, most, .. } = guessed.plausible();
            if !(least..=most).contains(&figure) {
                return Err(format!("expected {guessed} from {least} to {most}, found {figure}"));
            }
            Ok(guesses.with(guessed, figure))
        })
    }
}

impl From<Guesses> for BTreeMap<Guessed, f64> {
    fn from(guesses: Guesses) -> Self {
        Guessed::ALL.into_iter().map(|guessed| (guessed, guesses.get(guessed))).collect()
    }
}

/// Misses per instruction of an unknown program, times `factor`.
///
/// Misses fall with the square root of the cache's size, the rule of thumb that Hartstein et al.
/// ("Cache miss behavior: is it √2?", Computing Frontiers 2006; remembered) found across programs.
/// 20 in 1,000 instructions with 32 KiB is our judgement.
#[must_use]
pub fn typical_misses(factor: f64) -> MissCurve {
    const AT_32_KIB: f64 = 0.02;
    let halvings = (0..=6).map(|step| {
        // Four times the size has half the misses.
        let quadruples = Bytes::kib(32 << (2 * step));
        (quadruples, factor * AT_32_KIB / f64::from(1 << step))
    });
    // Guesses are within the plausible range, for which the points are valid.
    MissCurve::new(halvings).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_is_plausible_and_the_table_is_in_order() {
        for (place, guessed) in Guessed::ALL.into_iter().enumerate() {
            let Plausible { least, usual, most } = guessed.plausible();
            assert_eq!(guessed as usize, place);
            assert!(0.0 <= least && least <= usual && usual <= most && least < most, "{guessed}");
            let written = serde_json::to_string(&guessed).unwrap();
            assert_eq!(written, format!("\"{guessed}\""));
        }
    }

    /// docs/method/assumptions.md says what is guessed, figure by figure.
    #[test]
    fn the_page_says_the_same() {
        let page = include_str!("../../../../docs/method/assumptions.md");
        for guessed in Guessed::ALL {
            let Plausible { least, usual, most } = guessed.plausible();
            let most = (most * 1e3).round() / 1e3;
            let row = format!("\n| `{guessed}` | {least} | {usual} | {most} | ");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn read_back_and_refused_outside_the_range() {
        let odd = Guesses::default().with(Guessed::Slots, 1.25).with(Guessed::WrittenBack, 9.0);
        assert!((odd.get(Guessed::WrittenBack) - 0.6).abs() < 1e-15);
        let text = serde_json::to_string(&odd).unwrap();
        assert_eq!(serde_json::from_str::<Guesses>(&text).unwrap(), odd);
        assert_eq!(serde_json::from_str::<Guesses>("{}").unwrap(), Guesses::default());
        let error = serde_json::from_str::<Guesses>(r#"{"slots": 7.0}"#).unwrap_err().to_string();
        assert!(error.contains("expected slots from 1 to 1.3, found 7"), "{error}");
    }

    /// 0.02 at 32 KiB; four times the cache, half the misses: 0.01 at 128 KiB, 0.02 / 16 at 8 MiB.
    #[test]
    fn typical_misses_halve_with_four_times_the_cache() {
        let curve = typical_misses(1.0);
        let at = |kib: u32| curve.at(f64::from(kib) * 1024.0);
        assert!((at(32) - 0.02).abs() < 1e-15 && (at(128) - 0.01).abs() < 1e-15);
        assert!((at(8 << 10) - 0.00125).abs() < 1e-15);
        assert!(typical_misses(0.5).at(0.0) < curve.at(0.0));
    }
}
