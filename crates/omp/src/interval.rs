//! Sum of time intervals, those that have not ended included.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the number of current intervals. Chosen: the sum keeps a year.
const COUNT_BITS: u32 = 8;

/// Total length of intervals that any threads begin and end; ns. At most 255 intervals at a time.
///
/// One word, so that each reading is consistent. Lower [`COUNT_BITS`]: number of intervals that
/// have not ended. Above: ends minus begins of all intervals, modulo 2^56. Up to a time the sum is
/// this difference plus number times time.
pub struct IntervalSum(AtomicU64);

impl IntervalSum {
    /// No interval.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Begins an interval at `time`.
    pub fn begins(&self, time: u64) {
        let change = (time << COUNT_BITS).wrapping_neg().wrapping_add(1);
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// Ends an interval at `time`.
    pub fn ends(&self, time: u64) {
        let change = (time << COUNT_BITS).wrapping_sub(1);
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// Sum up to `time`; 0 where intervals that begin later make it negative.
    pub fn until(&self, time: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        let count = word % (1 << COUNT_BITS);
        let shifted = word.wrapping_add(count.wrapping_mul(time) << COUNT_BITS);
        (shifted.cast_signed() >> COUNT_BITS).max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_counts() {
        let sum = IntervalSum::new();
        sum.begins(1_000);
        assert_eq!([1_000, 1_250].map(|time| sum.until(time)), [0, 250]);
        sum.begins(1_200);
        assert_eq!([1_250, 1_300].map(|time| sum.until(time)), [300, 400]);
        sum.ends(1_300);
        assert_eq!(sum.until(1_400), 500, "one has not ended");
        sum.ends(1_400);
        assert_eq!([0, 2_000].map(|time| sum.until(time)), [500, 500]);
    }

    #[test]
    fn a_time_before_the_begin() {
        let sum = IntervalSum::new();
        sum.begins(1_000);
        assert_eq!(sum.until(900), 0);
    }

    /// Up to 255 at a time, late in a long uptime.
    #[test]
    fn many_intervals_after_a_year() {
        let sum = IntervalSum::new();
        let year = 365 * 24 * 3_600 * 1_000_000_000;
        (0..255).for_each(|_| sum.begins(year));
        assert_eq!(sum.until(year + 10), 2_550);
        (0..255).for_each(|_| sum.ends(year + 20));
        assert_eq!(sum.until(2 * year), 5_100);
    }
}
