//! How much of a PU's time calls may take that move no page.
//!
//! # Problem
//! A call announces what its loop may access at most. A search announces all of its array, and may end at the first element; a bound
//! may be any number. So the time of a call must not follow from what it announces.
//! # Approach
//! The first [`FREE`] spans of a range are looked at in every call. For more of them each PU has a budget: a share of its time, of
//! which at most what one full table costs is saved up. A loop that accesses what it has announced takes far longer than its spans
//! cost, so its call is within the budget.
//! # Algorithm
//! Of each PU one time is kept, up to which all is paid (the generic cell rate algorithm, ITU-T I.371). A span moves it on by
//! [`SPAN_NS`] times [`SHARE`]; what spans took beyond that, and time that was spent without moving a page, by so many times itself.
//! What is paid up to now or less is within the budget.
//! # Properties
//! - **Bounded**: whatever is announced, all calls of a PU take at most one part in [`SHARE`] of its time, beside one full table and
//!   the first spans of each call. -> test `bounded_by_time`
//! - **Enough**: a loop that accesses all that it announces is never cut. -> test `enough_for_loops_that_run`

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Spans that are looked at in each call: the pages at both ends of a range, and a few blocks.
pub const FREE: u64 = 32;
/// One part in so many of a PU's time is its budget: 4 %. Chosen.
const SHARE: u64 = 25;
/// Time that a span counts for before it is looked at, in nanoseconds. 6 were measured of one that is in the caches
/// (docs/results/benchmarks.md).
const SPAN_NS: u64 = 10;
/// The most that it counts for afterwards: some lines of the table from memory. In what is beyond, another thread had the PU.
const MOST_SPAN_NS: u64 = 500;
/// Spans that may be saved up: all that the table holds.
const MOST_SPANS: u64 = 1 << 16;
/// Time in which so many are saved up: 16 ms.
const SAVED_NS: u64 = MOST_SPANS * SPAN_NS * SHARE;

/// The budget of a PU.
#[derive(Debug)]
pub struct Budget {
    /// Time up to which all is paid, in nanoseconds.
    paid_ns: AtomicU64,
}

impl Budget {
    /// Of a PU on which nothing was spent.
    #[must_use]
    pub const fn unspent() -> Self {
        Self { paid_ns: AtomicU64::new(0) }
    }

    /// Takes as many of these spans as there may be at a time, and says how many.
    pub fn take_spans(&self, wanted: u64, now_ns: u64) -> u64 {
        let Some(more) = wanted.checked_sub(FREE).filter(|more| *more > 0) else { return wanted };
        let paid = self.paid_ns(now_ns);
        let allowed = more.min(now_ns.saturating_sub(paid) / (SPAN_NS * SHARE));
        self.paid_ns.store(paid + allowed * SPAN_NS * SHARE, Relaxed);
        FREE + allowed
    }

    /// Takes what so many spans took beyond what was taken for them before.
    pub fn settle(&self, spans: u64, spent_ns: u64, now_ns: u64) {
        let spent_ns = spent_ns.min(spans * MOST_SPAN_NS);
        self.take_time(spent_ns.saturating_sub(spans * SPAN_NS), now_ns);
    }

    /// Takes time that was spent without moving a page.
    pub fn take_time(&self, spent_ns: u64, now_ns: u64) {
        let paid = self.paid_ns(now_ns);
        self.paid_ns.store(paid.saturating_add(spent_ns.saturating_mul(SHARE)), Relaxed);
    }

    /// Whether more was spent than there was.
    pub fn is_spent(&self, now_ns: u64) -> bool {
        self.paid_ns(now_ns) > now_ns
    }

    fn paid_ns(&self, now_ns: u64) -> u64 {
        self.paid_ns.load(Relaxed).max(now_ns.saturating_sub(SAVED_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of calls that announce 2^42 ints, each of which takes no longer than its spans: of 10 and of 150 ns each.
    #[test]
    fn bounded_by_time() {
        let budget = Budget::unspent();
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
        let budget = Budget::unspent();
        let mut now = 1_000_000_000;
        for round in 0..200 {
            let spans = 1 << (4 + round % 13);
            assert_eq!(budget.take_spans(spans, now), spans, "{round}");
            now += spans * 65_536 / 25;
        }
    }
}
