//! Figures with a source, and parsing of a demand vector's components.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Figure with its source, or unknown: in files `{ value = …, source = "…" }`, or `"unknown"`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known<T> {
    /// Known figure.
    Known {
        /// Figure.
        value: T,
        /// Source in a few words: a manual, a tool with its version, "measured on …".
        source: String,
    },
    /// Unknown figure.
    #[default]
    Unknown,
}

impl<T> Known<T> {
    /// Known figure with its source.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// Figure, if known.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown => None,
        }
    }

    /// This figure, or `other` if unknown.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Known { .. } => self,
            Self::Unknown => other,
        }
    }

    /// Source, if known.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        match self {
            Self::Known { source, .. } => Some(source),
            Self::Unknown => None,
        }
    }
}

/// Known figure as in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFigure<T> {
    value: T,
    source: String,
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known { value, source } => {
                KnownFigure { value, source: source.clone() }.serialize(serializer)
            }
            Self::Unknown => serializer.serialize_str(UNKNOWN),
        }
    }
}

const UNKNOWN: &str = "unknown";

impl<'de, T: DeserializeOwned> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A string or a table decides the form, so only self-describing formats can be read.
        deserializer.deserialize_any(Form(PhantomData))
    }
}

/// Visitor for both forms. A derived enum would report only that no form fits, not the error.
struct Form<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Form<T> {
    type Value = Known<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a figure like { value = …, source = \"…\" }, or \"unknown\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Known<T>, E> {
        if text == UNKNOWN {
            return Ok(Known::Unknown);
        }
        Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Known<T>, A::Error> {
        let KnownFigure { value, source } =
            KnownFigure::deserialize(MapAccessDeserializer::new(map))?;
        // A figure without a source cannot be judged later.
        if source.trim().is_empty() {
            return Err(A::Error::custom("expected the source of a figure, found none"));
        }
        Ok(Known::Known { value, source })
    }
}

/// Valid range of a component. A million per instruction is above any program, and small enough to
/// keep sums and products finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub least: f64,
    pub most: f64,
    pub text: &'static str,
}

/// Cycles per instruction, measured on a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCycles {
    /// Model name of the processor, as in `/proc/cpuinfo`. The figure is meaningless on others.
    pub processor: String,
    /// Core cycles per instruction, on average.
    #[serde(deserialize_with = "cycles")]
    pub cycles: f64,
}

pub(super) const AMOUNT: Range = Range { least: 0.0, most: 1e6, text: "a number from 0 to 1e6" };
pub(super) const PART: Range = Range { least: 0.0, most: 1.0, text: "a number from 0 to 1" };
pub(super) const AT_LEAST_ONE: Range =
    Range { least: 1.0, most: 1e6, text: "a number from 1 to 1e6" };
/// Least: no core completes a hundred instructions in a cycle.
pub(super) const CYCLES: Range =
    Range { least: 0.01, most: 1e6, text: "a number from 0.01 to 1e6" };

impl Range {
    pub fn contains(self, figure: f64) -> bool {
        (self.least..=self.most).contains(&figure)
    }

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Known<f64>, D::Error> {
        let known = Known::<f64>::deserialize(deserializer)?;
        match known.get() {
            Some(figure) if !self.contains(*figure) => {
                Err(D::Error::custom(format!("expected {}, found {figure}", self.text)))
            }
            _ => Ok(known),
        }
    }
}

fn cycles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let found = f64::deserialize(deserializer)?;
    if CYCLES.contains(found) {
        return Ok(found);
    }
    Err(D::Error::custom(format!("cycles: expected {}, found {found}", CYCLES.text)))
}

pub(super) fn amount<'de, D: Deserializer<'de>>(d: D) -> Result<Known<f64>, D::Error> {
    AMOUNT.read(d)
}

pub(super) fn part<'de, D: Deserializer<'de>>(d: D) -> Result<Known<f64>, D::Error> {
    PART.read(d)
}

pub(super) fn at_least_one<'de, D: Deserializer<'de>>(d: D) -> Result<Known<f64>, D::Error> {
    AT_LEAST_ONE.read(d)
}
