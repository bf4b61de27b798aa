//! Quantities with the unit in the type.

use crate::flaw::Flaw;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// The error of a text that is no quantity, unless there is one.
fn or_refuse<T>(quantity: Option<T>, expected: &str, found: &str) -> Result<T, Flaw> {
    quantity.ok_or_else(|| Flaw(format!("expected {expected}, found \"{found}\"")))
}

/// A number and the value of its unit, one of `units`.
fn scaled<'a, T: Copy>(text: &'a str, units: &[(&str, T)]) -> Option<(&'a str, T)> {
    let (number, name) = text.split_once(' ')?;
    let &(_, unit) = units.iter().find(|(unit, _)| *unit == name)?;
    Some((number, unit))
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

impl FromStr for Nanos {
    type Err = Flaw;

    /// Parses a whole number and its unit: `90 ns`, `12 us`, `200 ms`, `3 s`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        const UNITS: [(&str, u64); 5] =
            [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let time = scaled(text, &UNITS)
            .and_then(|(number, unit)| number.parse::<u64>().ok()?.checked_mul(unit));
        or_refuse(time.map(Self), "a time like \"90 ns\"", text)
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

impl FromStr for Bytes {
    type Err = Flaw;

    /// Parses a whole number and a binary unit: `512 B`, `32 KiB`, `8 MiB`, `16 GiB`, `1 TiB`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        const UNITS: [(&str, u64); 5] =
            [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
        let bytes = scaled(text.trim(), &UNITS)
            .and_then(|(number, unit)| number.parse::<u64>().ok()?.checked_mul(unit));
        or_refuse(bytes.map(Self), "a size like \"32 KiB\" or \"16 GiB\"", text)
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
    type Err = Flaw;

    /// Parses a number with at most nine decimals and a unit: `2.3 GHz`, `1150 MHz`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let hertz = scaled(text.trim(), &[("GHz", 9), ("MHz", 6)])
            .and_then(|(number, digits)| whole(number, digits));
        or_refuse(hertz.map(Self), "a frequency like \"2.3 GHz\"", text)
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
    type Err = Flaw;

    /// Parses a number and its unit: `17 cycles`, `4.5 cycles`, `1 cycle`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let number = text.strip_suffix(" cycles").or(text.strip_suffix(" cycle"));
        or_refuse(number.and_then(plain_number).map(Self), "cycles like \"17 cycles\"", text)
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
    type Err = Flaw;

    /// Parses a number and a decimal unit: `21.3 GB/s`, `800 MB/s`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        let bandwidth = scaled(text, &[("GB/s", 1e9), ("MB/s", 1e6)])
            .and_then(|(number, unit)| Some(Self(plain_number(number)? * unit)));
        or_refuse(bandwidth, "a bandwidth like \"21.3 GB/s\"", text)
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GB/s", self.0 / 1e9)
    }
}

/// Parses a decimal number with at most `digits` decimals, as the whole number of its last decimal.
fn whole(number: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_plain = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_plain || fraction.len() > digits {
        return None;
    }
    // "2.3" GHz is "2" followed by "3" and eight zeros.
    format!("{whole}{fraction:0<digits$}").parse().ok()
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
