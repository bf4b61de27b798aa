//! Quantities with the unit in the type.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use thiserror::Error;

/// Syntax error in a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected {expected}, found \"{found}\"")]
pub struct UnitError {
    /// Expected form, with an example.
    pub expected: &'static str,
    /// Text found.
    pub found: String,
}

/// A time span in whole nanoseconds. Conversions to coarser units round down.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `ms` milliseconds; saturates at the largest representable span.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds; saturates at the largest representable span.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The span in seconds, rounded to the nearest `f64`.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(n: Nanos) -> Self {
        Self::from_nanos(n.0)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 1_000_000 => write!(f, "{}.{} µs", n / 1_000, n % 1_000 / 100),
            n if n < 1_000_000_000 => write!(f, "{}.{} ms", n / 1_000_000, n % 1_000_000 / 100_000),
            _ => write!(f, "{:.2} s", self.as_secs_f64()),
        }
    }
}

/// A size in bytes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }
}

impl fmt::Display for Bytes {
    /// Formats in the largest binary unit with a value of at least 1, with one decimal unless
    /// whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut unit = 0;
        let mut scale = 1024;
        // TiB is the largest unit for any value.
        while unit + 1 < UNITS.len() && self.0 / scale >= 1024 {
            scale *= 1024;
            unit += 1;
        }
        if self.0.is_multiple_of(scale) {
            write!(f, "{} {}", self.0 / scale, UNITS[unit])
        } else {
            let value = self.0 as f64 / scale as f64;
            write!(f, "{value:.1} {}", UNITS[unit])
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Parses a whole number and a binary unit: `512 B`, `32 KiB`, `8 MiB`, `16 GiB`, `1 TiB`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::parse(text).ok_or_else(|| UnitError {
            expected: "a size like \"32 KiB\" or \"16 GiB\"",
            found: text.into(),
        })
    }
}

impl Bytes {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.trim().split_once(' ')?;
        let power = ["B", "KiB", "MiB", "GiB", "TiB"].iter().position(|&name| name == unit)?;
        let number: u64 = number.parse().ok()?;
        number.checked_mul(1 << (10 * power)).map(Self)
    }
}

/// A frequency in cycles per second.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hertz(pub u64);

impl Hertz {
    /// `n` MHz.
    #[must_use]
    pub const fn mhz(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
}

impl FromStr for Hertz {
    type Err = UnitError;

    /// Parses a number with at most nine decimals and a unit: `2.3 GHz`, `1150 MHz`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::parse(text).ok_or_else(|| UnitError {
            expected: "a frequency like \"2.3 GHz\"",
            found: text.into(),
        })
    }
}

impl Hertz {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.trim().split_once(' ')?;
        let digits = match unit {
            "GHz" => 9,
            "MHz" => 6,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_plain = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_plain || fraction.len() > digits {
            return None;
        }
        // "2.3" GHz is "2" followed by "3" and eight zeros.
        format!("{whole}{fraction:0<digits$}").parse().ok().map(Self)
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ghz = self.0 as f64 / 1e9;
        write!(f, "{ghz:.2} GHz")
    }
}

/// Cycles of a core, in total or per operation; not negative.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("minimum" = 0, "maximum" = 10_000)))]
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cycles(pub f64);

impl FromStr for Cycles {
    type Err = UnitError;

    /// Parses a number and its unit: `17 cycles`, `4.5 cycles`, `1 cycle`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let number = text.strip_suffix(" cycles").or(text.strip_suffix(" cycle"));
        let cycles = number.and_then(plain_number);
        cycles
            .map(Self)
            .ok_or_else(|| UnitError { expected: "cycles like \"17 cycles\"", found: text.into() })
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles", self.0)
    }
}

/// Bytes per second; not negative.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000_000_000_000_u64)))]
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

impl FromStr for BytesPerSecond {
    type Err = UnitError;

    /// Parses a number and a decimal unit: `21.3 GB/s`, `800 MB/s`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::parse(text).ok_or_else(|| UnitError {
            expected: "a bandwidth like \"21.3 GB/s\"",
            found: text.into(),
        })
    }
}

impl BytesPerSecond {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once(' ')?;
        let scale = match unit {
            "GB/s" => 1e9,
            "MB/s" => 1e6,
            _ => return None,
        };
        plain_number(number).map(|number| Self(number * scale))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GB/s", self.0 / 1e9)
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    /// Parses a whole number and its unit: `90 ns`, `12 us`, `200 ms`, `3 s`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::parse(text)
            .ok_or_else(|| UnitError { expected: "a time like \"90 ns\"", found: text.into() })
    }
}

impl Nanos {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once(' ')?;
        let scale: u64 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        number.checked_mul(scale).map(Self)
    }
}

/// Parses a decimal number of digits and at most one point.
fn plain_number(text: &str) -> Option<f64> {
    // `parse` would accept signs, exponents and names.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_in_usual_notation() {
        assert_eq!("17 cycles".parse(), Ok(Cycles(17.0)));
        assert_eq!("4.5 cycles".parse(), Ok(Cycles(4.5)));
        assert_eq!("21.25 GB/s".parse(), Ok(BytesPerSecond(21.25e9)));
        assert_eq!("90 ns".parse(), Ok(Nanos(90)));
        assert_eq!("200 ms".parse(), Ok(Nanos::from_millis(200)));
        for text in ["-4 cycles", "4", "inf cycles", "1e9 cycles", ". cycles"] {
            assert!(text.parse::<Cycles>().is_err(), "{text}");
        }
        for text in ["-1 GB/s", "21", "5 GiB/s", "nan GB/s"] {
            assert!(text.parse::<BytesPerSecond>().is_err(), "{text}");
        }
        for text in ["-90 ns", "90", "9.5 ns", "99999999999999 s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_in_usual_notation() {
        assert_eq!("32 KiB".parse(), Ok(Bytes::kib(32)));
        assert_eq!("16 GiB".parse(), Ok(Bytes(16 << 30)));
        assert_eq!("2.3 GHz".parse(), Ok(Hertz(2_300_000_000)));
        assert_eq!("1150 MHz".parse(), Ok(Hertz::mhz(1150)));
        assert_eq!("3 GHz".parse(), Ok(Hertz::mhz(3000)));
    }

    #[test]
    fn wrong_quantities_get_one_line() {
        for text in ["32KiB", "32 KB", "-1 KiB", "1.5 GiB", "99999999999 TiB", ""] {
            let error = text.parse::<Bytes>().expect_err(text).to_string();
            assert_eq!(
                error,
                format!("expected a size like \"32 KiB\" or \"16 GiB\", found \"{text}\"")
            );
        }
        for text in ["2.3", "2.3 ghz", ".5 GHz", "-2 GHz", "2.3.4 GHz", "1.2345678 MHz"] {
            let error = text.parse::<Hertz>().expect_err(text).to_string();
            assert_eq!(error, format!("expected a frequency like \"2.3 GHz\", found \"{text}\""));
        }
    }
}
