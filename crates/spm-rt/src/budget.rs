//! Limit on a PU's time for calls that move no page.
//!
//! # Problem
//! A call announces the largest possible access of its loop. A search announces its whole array,
//! and may end at the first element; a bound may be any number. So the time of a call must not
//! follow from the announced size.
//! # Approach
//! The first [`FREE`] spans of a range are examined in every call. Further spans draw on a budget
//! of the PU: a share of its time, saved up to the cost of a full table at most. A loop that really
//! accesses the announced range takes far longer than its spans cost, so its call is within the
//! budget.
//! # Algorithm
//! Each PU has a time up to which all is paid (the generic cell rate algorithm, ITU-T I.371). A
//! span advances it by [`SPAN_NS`] times [`SHARE`]; measured time beyond the estimate, and time
//! without a moved page, by [`SHARE`] times itself. A paid time of at most now is within the
//! budget.
//! # Properties
//! - **Bounded**: whatever is announced, all calls of a PU take at most one part in [`SHARE`] of
//!   its time, beside one full table and the first spans of each call. -> test `bounded_by_time`
//! - **Enough**: a loop that accesses all that it announces is never cut.
//!   -> test `enough_for_loops_that_run`

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Spans examined in every call: the pages at both ends of a range, and a few blocks.
pub const FREE: u64 = 32;
/// Inverse of the budget's share of a PU's time: 4 %. Chosen.
const SHARE: u64 = 25;
/// Estimated time of a span, in nanoseconds. Measured: 6 for a span in the caches
/// (docs/results/benchmarks.md).
const SPAN_NS: u64 = 10;
/// Largest time counted for a span, in nanoseconds: some lines of the table from memory. In a
/// longer time another thread had the PU.
const MOST_SPAN_NS: u64 = 500;
/// Largest saving, in spans: the whole table.
const MOST_SPANS: u64 = 1 << 16;
/// Time to save up [`MOST_SPANS`]: 16 ms.
const SAVED_NS: u64 = MOST_SPANS * SPAN_NS * SHARE;

/// Budget of a PU.
#[derive(Debug)]
pub struct MoveBudget {
    /// Time up to which all is paid, in nanoseconds.
    paid_ns: AtomicU64,
}

impl MoveBudget {
    /// Unused budget.
    #[must_use]
    pub const fn unspent() -> Self {
        Self { paid_ns: AtomicU64::new(0) }
    }

    /// Takes up to `wanted` spans from the budget; returns their number.
    pub fn take_spans(&self, wanted: u64, now_ns: u64) -> u64 {
        let Some(more) = wanted.checked_sub(FREE).filter(|more| *more > 0) else { return wanted };
        let paid = self.paid_ns(now_ns);
        let allowed = more.min(now_ns.saturating_sub(paid) / (SPAN_NS * SHARE));
        self.paid_ns.store(paid + allowed * SPAN_NS * SHARE, Relaxed);
        FREE + allowed
    }

    /// Charges the time of `spans` beyond their estimate.
    pub fn settle(&self, spans: u64, spent_ns: u64, now_ns: u64) {
        let spent_ns = spent_ns.min(spans * MOST_SPAN_NS);
        self.take_time(spent_ns.saturating_sub(spans * SPAN_NS), now_ns);
    }

    /// Charges time without a moved page.
    pub fn take_time(&self, spent_ns: u64, now_ns: u64) {
        let paid = self.paid_ns(now_ns);
        self.paid_ns.store(paid.saturating_add(spent_ns.saturating_mul(SHARE)), Relaxed);
    }

    /// True if the budget is overdrawn.
    pub fn is_spent(&self, now_ns: u64) -> bool {
        self.paid_ns(now_ns) > now_ns
    }

    fn paid_ns(&self, now_ns: u64) -> u64 {
        // Time that passed unused before is not saved.
        self.paid_ns.load(Relaxed).max(now_ns.saturating_sub(SAVED_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of calls that announce 2^42 ints, each of which takes no longer than its spans: of 10 and of 150 ns each.
    #[test]
    fn bounded_by_time() {
        let budget = MoveBudget::unspent();
        let wanted = (4_u64 << 42) / (1 << 16);
        let mut now = 1_000_000_000;
        for each_ns in [SPAN_NS, 150] {
            let (begin, mut spent) = (now, 0);
            while now < begin + 1_000_000_000 {
                let taken = budget.take_spans(wanted, now);
                now += taken * each_ns;
                if taken > FREE {
                    spent += (taken - FREE) * each_ns;
                    budget.settle(taken, taken * each_ns, now);
                }
            }
            // 4 % of a second, rounded up, and 65,536 that were saved up.
            let most = 1_000_000_000 / SHARE * 3 / 2 + MOST_SPANS * each_ns;
            assert!(spent <= most, "{spent} of {most} for {each_ns} each");
        }
        budget.take_spans(wanted, now);
        assert_eq!(budget.take_spans(wanted, now), FREE, "all is spent");
        assert_eq!(budget.take_spans(FREE, now), FREE, "always");
        budget.take_time(1_000_000, now);
        assert!(budget.is_spent(now + 24_000_000) && !budget.is_spent(now + 26_000_000));
    }

    /// Ranges of 1 MiB to 4 GiB, read at 25 GB/s: faster than a thread reads memory.
    #[test]
    fn enough_for_loops_that_run() {
        let budget = MoveBudget::unspent();
        let mut now = 1_000_000_000;
        for round in 0..200 {
            let spans = 1 << (4 + round % 13);
            assert_eq!(budget.take_spans(spans, now), spans, "{round}");
            now += spans * 65_536 / 25;
        }
    }
}
