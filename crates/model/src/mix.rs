//! Instruction mix: the share of each class of work.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Class of work, as Serpa et al. and PAPI distinguish.
///
/// The same five as in `colocate-isa`; this crate does not depend on a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Transfers of control.
    Branch,
    /// Floating-point arithmetic, scalar or vector.
    Float,
    /// Integer arithmetic and logic, scalar or vector.
    Int,
    /// Reads of memory.
    Load,
    /// Writes of memory.
    Store,
}

impl Class {
    /// All classes, in the order of files and tables.
    pub const ALL: [Self; 5] = [Self::Branch, Self::Float, Self::Int, Self::Load, Self::Store];

    /// Name of the class in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Float => "float",
            Self::Int => "int",
            Self::Load => "load",
            Self::Store => "store",
        }
    }
}

/// Share of all instructions, in 0 ..= 1.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("minimum" = 0, "maximum" = 1)))]
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    /// Share of 0.
    pub const ZERO: Self = Self(0.0);

    /// The share `value`, or `None` for a number outside 0 ..= 1.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        // `contains` is false for NaN.
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// `part` of `whole`, or `None` if `whole` is 0. A `part` above `whole` counts as `whole`.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        // Counted apart, a part may slightly exceed its whole.
        (whole > 0).then(|| Self((part as f64 / whole as f64).min(1.0)))
    }

    /// Number in 0 ..= 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = String;
    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("expected a share from 0 to 1, found {value}"))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}

impl fmt::Display for Share {
    /// Percent with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// Share of each class in a thread's instructions.
///
/// A class that the backend cannot count is `None`, never 0. An instruction can have several
/// classes or none, so the shares need not add up to one.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Transfers of control.
    pub branch: Option<Share>,
    /// Floating-point arithmetic.
    pub float: Option<Share>,
    /// Integer arithmetic.
    pub int: Option<Share>,
    /// Reads of memory.
    pub load: Option<Share>,
    /// Writes of memory.
    pub store: Option<Share>,
}

impl Mix {
    /// Share of `class`, or `None` if unknown.
    #[must_use]
    pub fn get(&self, class: Class) -> Option<Share> {
        match class {
            Class::Branch => self.branch,
            Class::Float => self.float,
            Class::Int => self.int,
            Class::Load => self.load,
            Class::Store => self.store,
        }
    }

    /// Sets the share of `class`.
    pub fn set(&mut self, class: Class, share: Option<Share>) {
        match class {
            Class::Branch => self.branch = share,
            Class::Float => self.float = share,
            Class::Int => self.int = share,
            Class::Load => self.load = share,
            Class::Store => self.store = share,
        }
    }

    /// Mix of `counts[class]` instructions of each class among `instructions`; all unknown if
    /// `instructions` is 0.
    #[must_use]
    pub fn from_counts(instructions: u64, counts: [u64; 5]) -> Self {
        let mut mix = Self::default();
        for class in Class::ALL {
            mix.set(class, Share::of(counts[class as usize], instructions));
        }
        mix
    }

    /// Whether no class is known, as for a thread that was never profiled.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Known class with the largest share, the first of [`Class::ALL`] among equals; `None` if no
    /// class is known.
    #[must_use]
    pub fn dominant(&self) -> Option<(Class, Share)> {
        let known = Class::ALL.into_iter().filter_map(|class| Some((class, self.get(class)?)));
        // `>`, not `>=`: the first of equal shares stays.
        known.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Class {
    type Err = String;

    /// Parses a class's name.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|class| class.name() == text)
            .ok_or_else(|| format!("expected branch, float, int, load or store, found {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dominant_is_the_largest_known() {
        let mut mix = Mix::default();
        assert!(mix.is_unknown());
        assert_eq!(mix.dominant(), None);
        mix.int = Share::new(0.4);
        mix.store = Share::new(0.4);
        assert_eq!(mix.dominant(), Some((Class::Int, mix.int.unwrap())));
        mix.load = Share::new(0.5);
        assert_eq!(mix.dominant().unwrap().0, Class::Load);
        assert!(!mix.is_unknown());
    }

    #[test]
    fn names_read_back() {
        for class in Class::ALL {
            assert_eq!(class.name().parse(), Ok(class));
        }
        assert_eq!(
            "fp".parse::<Class>(),
            Err("expected branch, float, int, load or store, found \"fp\"".to_owned())
        );
    }

    #[test]
    fn shares_stay_in_range() {
        assert_eq!(Share::new(1.5), None);
        assert_eq!(Share::new(f64::NAN), None);
        assert_eq!(Share::of(3, 0), None);
        assert_eq!(Share::of(3, 2), Share::new(1.0));
        assert_eq!(Share::of(1, 8).unwrap().to_string(), "12.5 %");
    }
}
