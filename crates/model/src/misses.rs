//! Counted misses of a thread's accesses to memory, by the size of the cache.

use crate::curve::MissCurve;
use colocate_machine::Bytes;

/// Accesses of a thread that miss a private LRU cache, by the number of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissCounts {
    line: Bytes,
    /// Lines of a cache, ascending from 0, and accesses that miss the cache, not rising.
    by_lines: Vec<(u64, u64)>,
    left: u64,
    left_written: u64,
}

impl MissCounts {
    /// Counts for caches with lines of size `line`: numbers of lines with the accesses that miss,
    /// the lines evicted (`left`) and the evicted dirty lines (`left_written`).
    ///
    /// `None` if the size of a line is 0, the numbers of lines do not ascend from 0, misses rise,
    /// or `left_written` exceeds `left`.
    #[must_use]
    pub fn new(
        line: Bytes,
        by_lines: Vec<(u64, u64)>,
        left: u64,
        left_written: u64,
    ) -> Option<Self> {
        let falls = by_lines.is_sorted_by(|a, b| a.0 < b.0 && a.1 >= b.1);
        let begins = by_lines.first().is_some_and(|(lines, _)| *lines == 0);
        let right = line.0 > 0 && falls && begins && left_written <= left;
        right.then_some(Self { line, by_lines, left, left_written })
    }

    /// Number of accesses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.by_lines.first().map_or(0, |(_, misses)| *misses)
    }

    /// Accesses that miss a cache of `lines` lines: linear between two counts.
    #[must_use]
    pub fn at(&self, lines: u64) -> f64 {
        let after = self.by_lines.partition_point(|(other, _)| *other <= lines);
        // The first count is of 0 lines, so `after` is at least 1.
        let (from, high) = self.by_lines[after.max(1) - 1];
        match self.by_lines.get(after) {
            None => high as f64,
            Some(&(to, low)) => {
                let part = (lines - from) as f64 / (to - from) as f64;
                high as f64 - (high - low) as f64 * part
            }
        }
    }

    /// Share of evicted lines that were dirty, 0 to 1; `None` below 1,000 evictions.
    #[must_use]
    pub fn written_back(&self) -> Option<f64> {
        /// Chosen: a share of this many is known to two digits.
        const ENOUGH: u64 = 1000;
        (self.left >= ENOUGH).then(|| self.left_written as f64 / self.left as f64)
    }

    /// Sum over several threads, each with a cache of its own; `None` for no thread, or for lines
    /// of different sizes.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sums of counts
    pub fn together(threads: &[&Self]) -> Option<Self> {
        let line = threads.first()?.line;
        if threads.iter().any(|thread| thread.line != line) {
            return None;
        }
        let lines =
            threads.iter().flat_map(|thread| thread.by_lines.iter().map(|(lines, _)| *lines));
        let mut sizes: Vec<u64> = lines.collect();
        sizes.sort_unstable();
        sizes.dedup();
        let by_lines = sizes.into_iter().map(|lines| {
            let misses = threads.iter().map(|thread| thread.at(lines)).sum::<f64>();
            (lines, misses.round() as u64)
        });
        Some(Self {
            line,
            by_lines: by_lines.collect(),
            left: threads.iter().map(|thread| thread.left).sum(),
            left_written: threads.iter().map(|thread| thread.left_written).sum(),
        })
    }

    /// Misses per instruction by the cache's size, for a thread that ran `instructions`; `None` for 0.
    ///
    /// Points within half a per cent of the line between others are left out.
    #[must_use]
    // Counts of far less than 2^53, and whole lines.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn curve(&self, instructions: u64) -> Option<MissCurve> {
        if instructions == 0 {
            return None;
        }
        let mut points: Vec<(f64, f64)> = self
            .by_lines
            .iter()
            .map(|&(lines, misses)| {
                // A billionth of a miss per instruction is far below what can be measured.
                (lines as f64, (misses as f64 / instructions as f64 * 1e9).round() / 1e9)
            })
            .collect();
        // A cache of 0 lines does not exist: the curve begins at one line.
        if points.len() > 1 && points[1].0 <= 1.0 {
            points.remove(0);
        } else {
            points[0].0 = 1.0;
        }
        let points = thinned(&points).into_iter();
        MissCurve::new(
            points.map(|(lines, rate)| (Bytes((lines * self.line.0 as f64) as u64), rate)),
        )
        .ok()
    }
}

/// Removes points that interpolation between the others yields within [`NEAR`].
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept = vec![points[0]];
    let mut from = 0;
    while from + 1 < points.len() {
        let mut to = from + 1;
        while to + 1 < points.len() && is_line(&points[from..=to + 1]) {
            to += 1;
        }
        kept.push(points[to]);
        from = to;
    }
    kept
}

/// Relative error of interpolation at a point left out. Chosen.
const NEAR: f64 = 0.005;

/// Whether the line between the first and the last of `points` meets the others within [`NEAR`].
fn is_line(points: &[(f64, f64)]) -> bool {
    let (x0, y0) = points[0];
    let (x1, y1) = points[points.len() - 1];
    points.iter().all(|&(x, y)| {
        let line = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
        (line - y).abs() <= NEAR * y
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(by_lines: &[(u64, u64)]) -> MissCounts {
        MissCounts::new(Bytes(64), by_lines.to_vec(), 2000, 500).unwrap()
    }

    #[test]
    fn misses_of_a_loop_over_four_lines() {
        // 400 accesses round and round: none but the first four is a hit with less than four lines.
        let counts = counts(&[(0, 400), (3, 400), (4, 4)]);
        assert_eq!(counts.accesses(), 400);
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(counts.at(2), 400.0);
        near(counts.at(4), 4.0);
        near(counts.at(1000), 4.0);
        near(counts.written_back().unwrap(), 0.25);
        let curve = counts.curve(800).unwrap();
        assert_eq!(curve.points(), [(64.0, 0.5), (192.0, 0.5), (256.0, 0.005)]);
        assert_eq!(counts.curve(0), None);
    }

    #[test]
    fn points_that_others_say_are_left_out() {
        let counts = counts(&[(0, 1000), (1, 900), (2, 800), (3, 700), (4, 600), (8, 1)]);
        let curve = counts.curve(1000).unwrap();
        assert_eq!(curve.points(), [(64.0, 0.9), (256.0, 0.6), (512.0, 0.001)]);
    }

    #[test]
    fn threads_add_up() {
        let (a, b) = (counts(&[(0, 10), (2, 0)]), counts(&[(0, 100), (1, 80), (3, 4)]));
        let both = MissCounts::together(&[&a, &b]).unwrap();
        assert_eq!(both.by_lines, [(0, 110), (1, 85), (2, 42), (3, 4)]);
        assert_eq!((both.left, both.left_written), (4000, 1000));
        assert_eq!(MissCounts::together(&[]), None);
    }

    #[test]
    fn what_is_no_count() {
        let new = |line, by_lines: &[(u64, u64)], written| {
            MissCounts::new(Bytes(line), by_lines.to_vec(), 5, written)
        };
        assert!(new(64, &[(0, 3), (1, 3), (2, 0)], 5).is_some());
        assert_eq!(new(0, &[(0, 3)], 0), None);
        assert_eq!(new(64, &[], 0), None);
        assert_eq!(new(64, &[(1, 3)], 0), None);
        assert_eq!(new(64, &[(0, 3), (0, 2)], 0), None);
        assert_eq!(new(64, &[(0, 3), (1, 4)], 0), None);
        assert_eq!(new(64, &[(0, 3)], 6), None);
    }
}
