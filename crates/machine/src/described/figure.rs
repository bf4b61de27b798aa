//! Form of a single entry of a description.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::str::FromStr;

/// A figure, with or without a source.
#[derive(Clone, Debug)]
pub(super) struct DescribedFigure<T> {
    pub(super) value: T,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for DescribedFigure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The table form: a figure with its source, without other keys.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Sourced {
            value: toml::Value,
            #[serde(rename = "source")]
            _source: String,
        }
        let value = match toml::Value::deserialize(deserializer)? {
            table @ toml::Value::Table(_) => {
                table
                    .try_into::<Sourced>()
                    .map_err(|error| D::Error::custom(error.message()))?
                    .value
            }
            value => value,
        };
        let value = value.try_into().map_err(|error| D::Error::custom(error.message()))?;
        Ok(Self { value })
    }
}

/// A quantity written as text, such as `"8 MiB"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}
