//! Values on the command line.

use colocate_machine::Nanos;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A number of `what` within `range`.
pub fn number(text: &str, what: impl Display, range: RangeInclusive<f64>) -> Result<f64, String> {
    let found = text.trim().parse().ok().filter(|number| range.contains(number));
    let (low, high) = (range.start(), range.end());
    found.ok_or_else(|| format!("expected {what} from {low} to {high}, found {text}"))
}

/// So many seconds.
pub fn seconds(text: &str, range: RangeInclusive<f64>) -> Result<Nanos, String> {
    number(text, "seconds", range).map(|seconds| Duration::from_secs_f64(seconds).into())
}

/// A time such as `200 ms`, in which the blank may be left out; `expected` is the range in words.
pub fn time(text: &str, range: &RangeInclusive<Nanos>, expected: &str) -> Result<Nanos, String> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let time = format!("{number} {}", unit.trim_start()).parse().ok();
    let time = time.filter(|time| range.contains(time));
    time.ok_or_else(|| format!("expected {expected}, found {text:?}"))
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
        for text in ["200 ms", "200ms", "200000us"] {
            assert_eq!(time(text, &range, "a time"), Ok(Nanos::from_millis(200)), "{text}");
        }
        for wrong in ["", "200", "ms", "9 ms", "61 s", "-5 ms", "0.5 s", "99999999999999 s"] {
            let expected = format!("expected 10 ms to 60 s, found {wrong:?}");
            assert_eq!(time(wrong, &range, "10 ms to 60 s"), Err(expected));
        }
    }
}
