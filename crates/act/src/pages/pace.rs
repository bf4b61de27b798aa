//! How many pages a batch may have.
//!
//! # Problem
//! While a page is moved, a thread that touches it waits. A call that moves thousands of them can hold a
//! program up for long; one call a page costs too much. How long a page takes depends on the
//! machine, its load and the page.
//!
//! # Approach
//! Measure each batch and size the next one so that it would have taken three quarters of what is
//! allowed.
//!
//! # Properties
//! - **Shrinks at once**: after a batch over the goal the next one is smaller, unless it is at the
//!   least already. -> test `a_slow_batch_makes_the_next_smaller`
//! - **Grows with care**: at most to twice the size. -> test `sizes_keep_their_bounds`
//! - **Settles**: at any steady cost a page, batches come to keep their time.
//!   -> test `any_steady_cost_settles_within_the_limit`

use colocate_machine::Nanos;

/// Longest duration of a batch.
pub const LIMIT: Nanos = Nanos::from_millis(20);
/// Intended duration of a batch: a quarter is left for the unforeseen.
const GOAL: Nanos = Nanos::from_millis(15);
/// Maximum number of pages in a batch. Chosen: it bounds the memory in use, and a batch of this
/// size takes milliseconds on any machine.
const MOST: usize = 16_384;

/// The size of the next batch, in pages or in huge pages.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize {
    least: usize,
    limit: usize,
}

impl BatchSize {
    /// Pace for single pages. Never fewer than 32: copying 128 KiB takes microseconds, so the time
    /// of a slow batch of this size is not the copying, and a smaller batch would not help.
    pub const fn pages() -> Self {
        Self { least: 32, limit: 64 }
    }

    /// Pace for huge pages, which may have to be moved one by one.
    pub const fn blocks() -> Self {
        Self { least: 1, limit: 1 }
    }

    /// Limit of units in the next batch.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Records that a batch with `units` moved pages took `time`.
    pub fn took(&mut self, units: usize, time: Nanos) {
        // Two readings of the clock can be equal.
        let fits = GOAL.0.saturating_mul(units as u64) / time.0.max(1);
        let fits = usize::try_from(fits).unwrap_or(MOST);
        // A short batch that kept its time is no reason to shrink. It is none to grow either, however
        // fast it was: only what was moved says what moving takes.
        let (floor, top) = if time <= GOAL {
            (self.limit, (units * 2).clamp(self.limit, MOST))
        } else {
            (self.least, self.limit)
        };
        self.limit = fits.clamp(floor, top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 64 pages in 1 ms: 960 would fit the goal of 15 ms, but growth is to 128 at most.
    /// 128 pages in 30 ms: 64 fit. 64 pages in 1 s: less than one fits, so the least, 32.
    #[test]
    fn a_slow_batch_makes_the_next_smaller() {
        let mut pace = BatchSize::pages();
        let mut limits = Vec::new();
        for (pages, ms) in [(64, 1), (128, 30), (64, 1000), (32, 10)] {
            pace.took(pages, Nanos::from_millis(ms));
            limits.push(pace.limit());
        }
        assert_eq!(limits, [128, 64, 32, 48]);
    }

    #[test]
    fn a_short_batch_keeps_the_size() {
        let mut pace = BatchSize::pages();
        for (moved, ms) in [(1, 10), (1, 0), (0, 0)] {
            pace.took(moved, Nanos::from_millis(ms));
            assert_eq!(pace.limit(), 64);
        }
    }

    proptest! {
        #[test]
        fn sizes_keep_their_bounds(times in prop::collection::vec(0_u64..100_000_000, 1..50)) {
            for mut pace in [BatchSize::pages(), BatchSize::blocks()] {
                for time in &times {
                    let before = pace.limit();
                    pace.took(before, Nanos(*time));
                    prop_assert!(pace.limit() >= pace.least && pace.limit() <= MOST);
                    prop_assert!(pace.limit() <= before * 2);
                    let slow = *time > GOAL.0 && before > pace.least;
                    prop_assert!(!slow || pace.limit() < before);
                }
            }
        }

        /// From 1 ns to 400 µs a page, with up to 10 ms for the call itself.
        #[test]
        fn any_steady_cost_settles_within_the_limit(page in 1_u64..400_000, call in 0_u64..10_000_000) {
            let mut pace = BatchSize::pages();
            let cost = |pages: usize| Nanos(call + page * pages as u64);
            for _ in 0..50 {
                pace.took(pace.limit(), cost(pace.limit()));
            }
            let fits = cost(pace.least) <= LIMIT;
            prop_assert!(!fits || cost(pace.limit()) <= LIMIT, "{} pages", pace.limit());
        }
    }
}
