//! A figure with its source, and how the components of a demand vector are read.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A figure with its source, or unknown: in files `{ value = …, source = "…" }`, or `"unknown"`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known<T> {
    /// It is known.
    Known {
        /// The figure.
        value: T,
        /// Where it comes from, in a few words: a manual, a tool with its version, "measured on …".
        source: String,
    },
    /// It is not.
    #[default]
    Unknown,
}

impl<T> Known<T> {
    /// A figure that is known.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// The figure, if it is known.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown => None,
        }
    }

    /// This figure, or `other` if it is unknown.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Known { .. } => self,
            Self::Unknown => other,
        }
    }

    /// Where it comes from, if it is known.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        match self {
            Self::Known { source, .. } => Some(source),
            Self::Unknown => None,
        }
    }
}

/// The form of a known figure in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure<T> {
    value: T,
    source: String,
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known { value, source } => {
                Figure { value, source: source.clone() }.serialize(serializer)
            }
            Self::Unknown => serializer.serialize_str(UNKNOWN),
        }
    }
}

const UNKNOWN: &str = "unknown";

impl<'de, T: DeserializeOwned> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form(PhantomData))
    }
}

/// Distinguished by hand, since a derived reader says only that no form fits, not what is wrong.
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
        let Figure { value, source } = Figure::deserialize(MapAccessDeserializer::new(map))?;
        if source.trim().is_empty() {
            return Err(A::Error::custom("expected the source of a figure, found none"));
        }
        Ok(Known::Known { value, source })
    }
}

/// What a component can be. A million of something for one instruction is more than any program has, and
/// little enough for sums and products of it to stay numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub least: f64,
    pub most: f64,
    pub text: &'static str,
}

/// Cycles of an instruction that were measured on a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCycles {
    /// The processor, as `/proc/cpuinfo` names its model: elsewhere the figure says nothing.
    pub processor: String,
    /// Cycles of its core for an instruction, on average.
    #[serde(deserialize_with = "cycles")]
    pub cycles: f64,
}

pub(super) const AMOUNT: Range = Range { least: 0.0, most: 1e6, text: "a number from 0 to 1e6" };
pub(super) const PART: Range = Range { least: 0.0, most: 1.0, text: "a number from 0 to 1" };
pub(super) const AT_LEAST_ONE: Range =
    Range { least: 1.0, most: 1e6, text: "a number from 1 to 1e6" };
/// No core completes a hundred instructions in a cycle.
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
