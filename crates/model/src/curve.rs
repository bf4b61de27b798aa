//! Misses per instruction as a function of the cache's size.

use colocate_machine::Bytes;
use serde::{Deserialize, Serialize};

/// Misses per instruction of a private cache, by the cache's size: a miss-ratio curve times the
/// accesses per instruction.
///
/// Linear in the size between its points, and level before the first and after the last. Never
/// rising: a larger cache has no more misses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, f64)>", into = "Vec<(String, f64)>")]
pub struct MissCurve {
    /// Size in bytes and misses per instruction; sizes ascend, misses do not.
    points: Vec<(f64, f64)>,
    /// Window to fill each size; see [`crate::cache::window`].
    windows: Vec<f64>,
    /// Size in bytes from which there are no misses; infinite if there always are some.
    touched: f64,
}

/// Bound on misses per instruction: more than any instruction has, and small enough to keep derived
/// numbers finite.
const MOST: f64 = 1e3;

impl MissCurve {
    /// Curve through `points` of size and misses per instruction.
    ///
    /// # Errors
    /// A message of one line, if there is no point, sizes do not ascend, misses rise, or misses are
    /// negative or above 1,000 an instruction.
    pub fn new(points: impl IntoIterator<Item = (Bytes, f64)>) -> Result<Self, String> {
        let points: Vec<_> =
            points.into_iter().map(|(size, misses)| (size.0 as f64, misses)).collect();
        if points.is_empty() {
            return Err("expected points of size and misses, found none".into());
        }
        // `contains` is false for NaN, so NaN is refused as well.
        if let Some((_, misses)) = points.iter().find(|(_, m)| !(0.0..=MOST).contains(m)) {
            return Err(format!(
                "expected misses per instruction from 0 to {MOST}, found {misses}"
            ));
        }
        for pair in points.windows(2) {
            if pair[0].0 >= pair[1].0 {
                return Err(format!(
                    "expected sizes that rise, found {} after {}",
                    pair[1].0, pair[0].0
                ));
            }
            if pair[0].1 < pair[1].1 {
                return Err(format!(
                    "expected misses that do not rise with the size, found {} after {}",
                    pair[1].1, pair[0].1
                ));
            }
        }
        // Computed once: each round of the search for rates uses the windows.
        let windows = crate::cache::windows(&points);
        // Misses never rise with the size, so the first 0 is the end of the data.
        let touched = points.iter().find(|(_, misses)| *misses <= 0.0);
        let touched = touched.map_or(f64::INFINITY, |&(size, _)| size);
        Ok(Self { points, windows, touched })
    }

    /// Misses per instruction of a cache of `size` bytes; 0 for a curve without points.
    #[must_use]
    pub fn at(&self, size: f64) -> f64 {
        let after = self.points.partition_point(|&(point, _)| point <= size);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, None) => 0.0,
            (None, Some(&(_, first))) => first,
            (Some((_, last)), None) => last,
            (Some((from, high)), Some(&(to, low))) => {
                high + (low - high) * (size - from) / (to - from)
            }
        }
    }

    /// Smallest size, in bytes, with at most `misses` per instruction; the size of the last point
    /// if there is none.
    pub(crate) fn size_for(&self, misses: f64) -> f64 {
        let after = self.points.partition_point(|&(_, more)| more > misses);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, _) => 0.0,
            (Some((last, _)), None) => last,
            (Some((from, high)), Some(&(to, low))) => {
                // `high > misses ≥ low`, so the divisor is not 0.
                from + (to - from) * (high - misses) / (high - low)
            }
        }
    }

    /// Points of size in bytes and misses per instruction.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Window to fill the size of each point: instructions times the size of a line.
    pub(crate) fn windows(&self) -> &[f64] {
        &self.windows
    }

    /// Bytes touched in all: infinite if misses never end, 0 for a curve without points.
    #[must_use]
    pub const fn touched(&self) -> f64 {
        self.touched
    }
}

impl TryFrom<Vec<(String, f64)>> for MissCurve {
    type Error = String;
    fn try_from(points: Vec<(String, f64)>) -> Result<Self, String> {
        let points = points.into_iter().map(|(size, misses)| {
            Ok((size.parse::<Bytes>().map_err(|error| error.to_string())?, misses))
        });
        Self::new(points.collect::<Result<Vec<_>, String>>()?)
    }
}

impl From<MissCurve> for Vec<(String, f64)> {
    fn from(curve: MissCurve) -> Self {
        let points = curve.points.into_iter();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // made from whole bytes
        points.map(|(size, misses)| (format!("{} B", size as u64), misses)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_its_points() {
        let curve = MissCurve::new([(Bytes::kib(32), 0.02), (Bytes::kib(64), 0.01)]).unwrap();
        let at = |kib: f64| curve.at(kib * 1024.0);
        assert!((at(0.0) - 0.02).abs() < 1e-15);
        assert!((at(48.0) - 0.015).abs() < 1e-15);
        assert!((at(1e6) - 0.01).abs() < 1e-15);
        let size = |misses: f64| curve.size_for(misses) / 1024.0;
        assert_eq!((size(0.03), size(0.02), size(0.001)), (0.0, 0.0, 64.0));
        assert!((size(0.015) - 48.0).abs() < 1e-9);
        let back: Vec<(String, f64)> = curve.clone().into();
        assert_eq!(MissCurve::try_from(back), Ok(curve));
    }

    #[test]
    fn what_is_no_curve() {
        let read = |points: &[(&str, f64)]| {
            let points: Vec<(String, f64)> =
                points.iter().map(|&(size, misses)| (size.to_owned(), misses)).collect();
            MissCurve::try_from(points).unwrap_err()
        };
        assert!(read(&[]).contains("found none"));
        assert!(read(&[("1 KiB", -0.1)]).contains("from 0 to 1000"));
        assert!(read(&[("1 KiB", 1e9)]).contains("from 0 to 1000"));
        assert!(read(&[("1 KiB", f64::NAN)]).contains("from 0 to 1000"));
        assert!(read(&[("2 KiB", 0.1), ("1 KiB", 0.0)]).contains("sizes that rise"));
        assert!(read(&[("1 KiB", 0.1), ("2 KiB", 0.2)]).contains("do not rise"));
        assert!(read(&[("1 kb", 0.1)]).contains("expected a size like"));
    }
}
