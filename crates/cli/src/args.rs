//! Parsers of values on the command line.

use colocate_machine::Nanos;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a number within `range`; `what` is its name in the error.
pub fn number(text: &str, what: impl Display, range: RangeInclusive<f64>) -> Result<f64, String> {
    // Also refuses NaN, which lies in no range.
    let found = text.trim().parse().ok().filter(|number| range.contains(number));
    let low = range.start();
    let high = range.end();
    found.ok_or_else(|| format!("expected {what} from {low} to {high}, found {text}"))
}

/// Parses a time within `range` of seconds, with or without a unit as in [`time`].
pub fn seconds(text: &str, range: RangeInclusive<f64>) -> Result<Nanos, String> {
    let found = duration(text).filter(|time| range.contains(&time.as_secs_f64()));
    let low = range.start();
    let high = range.end();
    found.ok_or_else(|| format!("expected seconds from {low} to {high}, found {text}"))
}

/// Parses whole seconds: a number, or a time with a unit.
pub fn whole_seconds(text: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let range = f64::from(*range.start())..=f64::from(*range.end());
    // The range has been checked, so the fallback is never used.
    seconds(text, range).map(|time| u32::try_from(time.0 / 1_000_000_000).unwrap_or(u32::MAX))
}

/// Parses whole milliseconds: a number, or a time with a unit.
pub fn millis(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    // Without a unit, `duration` would take the number for seconds.
    let has_unit = text.ends_with(char::is_alphabetic);
    let with_unit = duration(text).filter(|_| has_unit).map(|time| time.0 / 1_000_000);
    let found = text.trim().parse().ok().or(with_unit).filter(|ms| range.contains(ms));
    let low = range.start();
    let high = range.end();
    found.ok_or_else(|| format!("expected milliseconds from {low} to {high}, found {text}"))
}

/// Parses a time such as `200ms`, `0.5`, `5 s` or `1min`, in seconds without a unit; `expected` is
/// the range in words.
pub fn time(text: &str, range: &RangeInclusive<Nanos>, expected: &str) -> Result<Nanos, String> {
    let time = duration(text).filter(|time| range.contains(time));
    time.ok_or_else(|| format!("expected {expected}, found {text:?}"))
}

/// A number with a unit of time, in seconds without a unit, as in sleep(1) and systemd.time(7).
fn duration(text: &str) -> Option<Nanos> {
    let text = text.trim();
    // An exponent is refused: its `e` begins the unit.
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number.trim_end().parse::<f64>().ok()? * unit;
    // Refuses negative times, and those too long for a `Duration`.
    Duration::try_from_secs_f64(seconds).ok().map(Nanos::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_range() {
        assert_eq!(number(" 0.5", "seconds", 0.001..=10.0), Ok(0.5));
        for wrong in ["0", "11", "-1", "nan", "x", ""] {
            let expected = format!("expected seconds from 0.001 to 10, found {wrong}");
            assert_eq!(number(wrong, "seconds", 0.001..=10.0), Err(expected));
        }
        assert_eq!(seconds("0.1", 0.1..=60.0), Ok(Nanos::from_millis(100)));
        assert!(seconds("inf", 0.1..=60.0).is_err());
    }

    #[test]
    fn times_have_units() {
        let range = Nanos::from_millis(10)..=Nanos::from_secs(60);
        for text in ["200 ms", "200ms", "200000us", "0.2", " .2s", "0.2 s"] {
            assert_eq!(time(text, &range, "a time"), Ok(Nanos::from_millis(200)), "{text}");
        }
        for text in ["60", "60s", "1min", "1m", "60 sec"] {
            assert_eq!(time(text, &range, "a time"), Ok(Nanos::from_secs(60)), "{text}");
            assert_eq!(seconds(text, 1.0..=60.0), Ok(Nanos::from_secs(60)), "{text}");
        }
        for (text, ms) in [("200", 200), ("200ms", 200), ("1s", 1_000), ("0.05 s", 50)] {
            assert_eq!(millis(text, 0..=60_000), Ok(ms), "{text}");
        }
        for wrong in ["", "0.5", "-1", "61s", "ms"] {
            assert!(millis(wrong, 0..=60_000).is_err(), "{wrong}");
        }
        assert_eq!(whole_seconds("2min", 1..=86_400), Ok(120));
        assert_eq!(whole_seconds("1.9", 1..=86_400), Ok(1));
        assert!(whole_seconds("0", 1..=86_400).is_err());
        let odd =
            ["", "200", "ms", "9 ms", "61 s", "-5 ms", "5 ks", "1e3", "99999999999999999999 h"];
        for wrong in odd {
            let expected = format!("expected 10 ms to 60 s, found {wrong:?}");
            assert_eq!(time(wrong, &range, "10 ms to 60 s"), Err(expected));
        }
    }
}
