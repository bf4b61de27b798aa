//! Fit of whole runs with several numbers of threads: a serial part, a parallel part and a cost for
//! every thread.
//!
//! # Terms
//! - `s`, `o`, `i`: seconds of the serial part, of the parallel part on one thread, and of each
//!   further thread.
//! - `T(P) = s + o / P + P · i`: Amdahl's law, and the critical sections of [`colocate_model::threads`].
//! # Algorithm
//! Least squares of relative errors under `s, o, i ≥ 0`. With three unknowns, all seven sets of
//! non-zero unknowns are solved and the best set without a negative part is taken: for so few this
//! is exact.
//! # Properties
//! - **Exact** where the runs follow the equation. -> test `parts_come_back`
//! - **Nothing negative, and nothing better on a grid.** -> test `no_better_on_a_grid`

use colocate_model::threads::Trained;
use serde::Serialize;

/// Least numbers of threads for three parts and an estimate of the error.
pub const LEAST_NUMBERS: usize = 4;

/// Parts of a program's time.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Serial part, in seconds.
    pub serial_s: f64,
    /// Parallel part on one thread, in seconds.
    pub parallel_s: f64,
    /// Seconds that each thread adds: the critical sections of one thread.
    pub each_s: f64,
    /// Root of the mean squared relative error.
    pub error: f64,
}

impl Fit {
    /// Fits mean seconds by number of threads; `None` with fewer than [`LEAST_NUMBERS`] numbers, or
    /// with a time not above 0.
    pub fn of(times: &[(u32, f64)]) -> Option<Self> {
        let usable = times.iter().all(|&(threads, time)| threads > 0 && time > 0.0);
        if times.len() < LEAST_NUMBERS || !usable {
            return None;
        }
        // A bit for each part; at least one part is not 0.
        let sets = (1_u8..8).filter_map(|set| Self::with(times, set));
        sets.min_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// Fits with the parts of `set` only; `None` if a part comes out negative.
    fn with(times: &[(u32, f64)], set: u8) -> Option<Self> {
        let mut sums = [[0.0; 4]; 3];
        for &(threads, time) in times {
            let threads = f64::from(threads);
            // Divided by the time, since errors are relative.
            let row = [1.0 / time, 1.0 / (threads * time), threads / time];
            for (part, line) in sums.iter_mut().enumerate() {
                // The fourth column is the right side.
                for (other, sum) in line.iter_mut().take(3).enumerate() {
                    *sum += row[part] * row[other];
                }
                line[3] += row[part];
            }
        }
        // The equation of a part left out becomes `part = 0`.
        for part in (0..3).filter(|part| set & (1 << part) == 0) {
            sums[part] = [0.0; 4];
            sums[part][part] = 1.0;
            (0..3).filter(|other| *other != part).for_each(|other| sums[other][part] = 0.0);
        }
        let [serial_s, parallel_s, each_s] = solved(sums)?;
        if serial_s.min(parallel_s).min(each_s) < 0.0 {
            return None;
        }
        let mut fit = Self { serial_s, parallel_s, each_s, error: 0.0 };
        let squares = times.iter().map(|&(threads, time)| (fit.time(threads) / time - 1.0).powi(2));
        let count = times.len() as f64;
        fit.error = (squares.sum::<f64>() / count).sqrt();
        Some(fit)
    }

    /// Seconds with `threads` threads.
    pub fn time(&self, threads: u32) -> f64 {
        let threads = f64::from(threads.max(1));
        self.serial_s + self.parallel_s / threads + self.each_s * threads
    }

    /// Serial share of the time on one thread.
    pub fn serial_share(&self) -> f64 {
        self.serial_s / self.time(1)
    }

    /// Number of threads with the least time, at most `most`.
    pub fn best(&self, most: u32) -> u32 {
        // The serial part is the same for every number of threads.
        let trained = Trained { outside: self.parallel_s, inside: self.each_s, bandwidth: None };
        trained.advise(most).threads
    }
}

/// Solves three equations by elimination with the largest pivot; `None` if they are singular.
fn solved(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-12 {
            return None;
        }
        let from = rows[column];
        for row in (0..3).filter(|row| *row != column) {
            let factor = rows[row][column] / from[column];
            for (cell, value) in rows[row].iter_mut().zip(from) {
                *cell -= factor * value;
            }
        }
    }
    Some([0, 1, 2].map(|row| rows[row][3] / rows[row][row]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(parts: [f64; 3], numbers: &[u32]) -> Vec<(u32, f64)> {
        let [serial_s, parallel_s, each_s] = parts;
        let truth = Fit { serial_s, parallel_s, each_s, error: 0.0 };
        numbers.iter().map(|&threads| (threads, truth.time(threads))).collect()
    }

    /// 1 s serial, 25 s parallel, 0.25 s a thread: 26.25 s on one thread, 6 s on ten (1 + 2.5 + 2.5), which is least.
    #[test]
    fn parts_come_back() {
        for parts in [[1.0, 25.0, 0.25], [0.0, 8.0, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 2.0]] {
            let fit = Fit::of(&times(parts, &[1, 2, 4, 8, 16])).unwrap();
            let found = [fit.serial_s, fit.parallel_s, fit.each_s];
            assert!(
                found.iter().zip(parts).all(|(a, b)| (a - b).abs() < 1e-6),
                "{fit:?}, {parts:?}"
            );
            assert!(fit.error < 1e-6);
        }
        let fit = Fit::of(&times([1.0, 25.0, 0.25], &[1, 2, 4, 8])).unwrap();
        assert_eq!((fit.best(64), fit.best(4)), (10, 4));
        assert!(
            (fit.time(10) - 6.0).abs() < 1e-6 && (fit.serial_share() - 1.0 / 26.25).abs() < 1e-6
        );
    }

    #[test]
    fn too_few_numbers_give_no_fit() {
        assert_eq!(Fit::of(&times([1.0, 25.0, 0.25], &[1, 2, 4])), None);
        assert_eq!(Fit::of(&[(1, 1.0), (2, 0.0), (3, 1.0), (4, 1.0)]), None);
    }

    proptest! {
        #[test]
        fn no_better_on_a_grid(noise in proptest::collection::vec(0.5..2.0_f64, 5), parts in proptest::array::uniform3(0.0..10.0_f64)) {
            let mut times = times(parts.map(|part| part + 0.01), &[1, 2, 3, 5, 8]);
            times.iter_mut().zip(&noise).for_each(|(time, noise)| time.1 *= noise);
            let fit = Fit::of(&times).unwrap();
            prop_assert!(fit.serial_s >= 0.0 && fit.parallel_s >= 0.0 && fit.each_s >= 0.0);
            let error = |serial_s: f64, parallel_s: f64, each_s: f64| {
                let other = Fit { serial_s, parallel_s, each_s, error: 0.0 };
                let squares = times.iter().map(|&(threads, time)| (other.time(threads) / time - 1.0).powi(2));
                (squares.sum::<f64>() / 5.0).sqrt()
            };
            for step in 0..1_000_u32 {
                let at = |digit: u32| f64::from(step / 10_u32.pow(digit) % 10) * 2.0;
                prop_assert!(error(at(0), at(1), at(2) / 5.0) >= fit.error - 1e-9);
            }
        }
    }
}
