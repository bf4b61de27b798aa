//! What replaces unknown figures: one figure for each thing that can be unknown, with the range
//! that it may well lie in.
//!
//! A prediction that rests on a guess is only worth something together with those of the other guesses
//! in the range: [`Assumptions::sample`](crate::Assumptions::sample) draws them. Unless a line says otherwise the
//! ranges are our own judgement of ordinary compiled programs, not measured.

use crate::curve::MissCurve;
use crate::mix::Class;
use crate::phase::Component;
use colocate_machine::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Something that is guessed where it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guessed {
    /// Front-end slots of an instruction.
    Slots,
    /// Branches among all instructions.
    BranchShare,
    /// Floating-point arithmetic among all instructions.
    FloatShare,
    /// Integer arithmetic among all instructions.
    IntShare,
    /// Reads of memory among all instructions.
    LoadShare,
    /// Writes of memory among all instructions.
    StoreShare,
    /// Multiplications among integer arithmetic.
    IntMulPart,
    /// Divisions among integer arithmetic.
    IntDivPart,
    /// Multiplications among floating-point arithmetic.
    FloatMulPart,
    /// Divisions and square roots among floating-point arithmetic.
    FloatDivPart,
    /// Least cycles by dependencies.
    DependentCycles,
    /// How many times longer dependencies take with half of the window.
    DividedFactor,
    /// Stalls that neither ports nor shared caches explain.
    StallCycles,
    /// Mispredicted branches among all instructions.
    BranchMisses,
    /// Factor on [`typical_misses`].
    MissFactor,
    /// Misses under way at the same time.
    ParallelMisses,
    /// Lines written back for each fetched.
    WrittenBack,
    /// Lines that come from another task's cache.
    SharedLines,
}

/// The figure that is usual, between the least and the most that is plausible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plausible {
    /// The least.
    pub least: f64,
    /// What is taken when one figure must do.
    pub usual: f64,
    /// The most.
    pub most: f64,
}

impl Plausible {
    /// The figure at a place from 0, the least, over 0.5, the usual, to 1, the most.
    #[must_use]
    pub fn at(self, place: f64) -> f64 {
        if place < 0.5 {
            self.least + 2.0 * place * (self.usual - self.least)
        } else {
            self.usual + (2.0 * place - 1.0) * (self.most - self.usual)
        }
    }
}

const fn plausible(least: f64, usual: f64, most: f64) -> Plausible {
    Plausible { least, usual, most }
}

impl Guessed {
    /// All of them in order.
    pub const ALL: [Self; 18] = [
        Self::Slots,
        Self::BranchShare,
        Self::FloatShare,
        Self::IntShare,
        Self::LoadShare,
        Self::StoreShare,
        Self::IntMulPart,
        Self::IntDivPart,
        Self::FloatMulPart,
        Self::FloatDivPart,
        Self::DependentCycles,
        Self::DividedFactor,
        Self::StallCycles,
        Self::BranchMisses,
        Self::MissFactor,
        Self::ParallelMisses,
        Self::WrittenBack,
        Self::SharedLines,
    ];

    /// What may replace it. Judgement, not measurement, but for two: with half of the window
    /// dependencies take up to √2 as long, since the instructions that are ready at a time grow with the
    /// square root of the window (Riseman and Foster, IEEE Trans. Computers 1972; remembered); the miss
    /// factor spans programs around [`typical_misses`].
    #[must_use]
    pub const fn plausible(self) -> Plausible {
        match self {
            Self::Slots => plausible(1.0, 1.1, 1.3),
            Self::BranchShare => plausible(0.03, 0.13, 0.2),
            Self::FloatShare => plausible(0.0, 0.1, 0.5),
            Self::IntShare => plausible(0.2, 0.4, 0.7),
            Self::LoadShare => plausible(0.15, 0.25, 0.4),
            Self::StoreShare => plausible(0.03, 0.1, 0.15),
            Self::IntMulPart => plausible(0.0, 0.02, 0.1),
            Self::IntDivPart => plausible(0.0, 0.002, 0.01),
            Self::FloatMulPart => plausible(0.3, 0.45, 0.7),
            Self::FloatDivPart => plausible(0.0, 0.02, 0.1),
            Self::DependentCycles => plausible(0.25, 0.5, 1.0),
            Self::DividedFactor => plausible(1.0, 1.15, std::f64::consts::SQRT_2),
            Self::StallCycles => plausible(0.0, 0.05, 0.2),
            Self::BranchMisses => plausible(0.0, 0.003, 0.01),
            Self::MissFactor => plausible(0.2, 1.0, 3.0),
            Self::ParallelMisses => plausible(1.0, 2.0, 6.0),
            Self::WrittenBack => plausible(0.0, 0.3, 0.6),
            Self::SharedLines => plausible(0.0, 0.0, 0.001),
        }
    }

    /// The component of a demand vector that it belongs to.
    #[must_use]
    pub const fn component(self) -> Component {
        match self {
            Self::Slots => Component::Slots,
            Self::BranchShare
            | Self::FloatShare
            | Self::IntShare
            | Self::LoadShare
            | Self::StoreShare
            | Self::IntMulPart
            | Self::IntDivPart
            | Self::FloatMulPart
            | Self::FloatDivPart => Component::Work,
            Self::DependentCycles => Component::DependentCycles,
            Self::DividedFactor => Component::DependentCyclesDivided,
            Self::StallCycles => Component::StallCycles,
            Self::BranchMisses => Component::BranchMisses,
            Self::MissFactor => Component::Misses,
            Self::ParallelMisses => Component::ParallelMisses,
            Self::WrittenBack => Component::WrittenBack,
            Self::SharedLines => Component::SharedLines,
        }
    }

    /// The share of `class`.
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

    /// Its name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::BranchShare => "branch-share",
            Self::FloatShare => "float-share",
            Self::IntShare => "int-share",
            Self::LoadShare => "load-share",
            Self::StoreShare => "store-share",
            Self::IntMulPart => "int-mul-part",
            Self::IntDivPart => "int-div-part",
            Self::FloatMulPart => "float-mul-part",
            Self::FloatDivPart => "float-div-part",
            Self::DependentCycles => "dependent-cycles",
            Self::DividedFactor => "divided-factor",
            Self::StallCycles => "stall-cycles",
            Self::BranchMisses => "branch-misses",
            Self::MissFactor => "miss-factor",
            Self::ParallelMisses => "parallel-misses",
            Self::WrittenBack => "written-back",
            Self::SharedLines => "shared-lines",
        }
    }
}

impl fmt::Display for Guessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A figure for everything that can be unknown; by default the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Guessed, f64>", into = "BTreeMap<Guessed, f64>")]
pub struct Guesses([f64; Guessed::ALL.len()]);

impl Default for Guesses {
    fn default() -> Self {
        Self(Guessed::ALL.map(|guessed| guessed.plausible().usual))
    }
}

impl Guesses {
    /// The figure.
    #[must_use]
    pub const fn get(&self, guessed: Guessed) -> f64 {
        self.0[guessed as usize]
    }

    /// These, with another figure for one thing; cut to its plausible range, and the usual one for what
    /// is not a number.
    #[must_use]
    pub fn with(mut self, guessed: Guessed, figure: f64) -> Self {
        let Plausible { least, usual, most } = guessed.plausible();
        self.0[guessed as usize] = if figure.is_nan() { usual } else { figure.clamp(least, most) };
        self
    }
}

impl TryFrom<BTreeMap<Guessed, f64>> for Guesses {
    type Error = String;
    /// What is left out is as usual.
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
/// They fall with the square root of the cache's size, the rule of thumb that Hartstein et al. ("Cache
/// miss behavior: is it √2?", Computing Frontiers 2006; remembered) found across programs; 20 in 1,000
/// instructions with 32 KiB is our judgement.
#[must_use]
pub fn typical_misses(factor: f64) -> MissCurve {
    const AT_32_KIB: f64 = 0.02;
    let halvings = (0..=6).map(|step| {
        let quadruples = Bytes::kib(32 << (2 * step));
        (quadruples, factor * AT_32_KIB / f64::from(1 << step))
    });
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

    /// docs/assumptions.md says what is guessed, figure by figure.
    #[test]
    fn the_page_says_the_same() {
        let page = include_str!("../../../../docs/assumptions.md");
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
