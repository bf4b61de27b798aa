//! Critical sections of a repeated parallel region, from its executions with one thread and with
//! all threads.
//!
//! # Problem
//! Executions by one thread do not show whether every further thread adds critical sections, as
//! when each merges its result, or the threads share them, as when each iteration of a loop has
//! one. [`super::Trained`] models the first case.
//! # Terms
//! - `o`: time outside of critical sections by one thread; `c`: time inside, shared by the threads;
//!   `i`: time inside that every thread adds.
//! - `b`: share of a shared resource that one thread uses. With the resource exhausted, `P` threads
//!   spend `P · o · b` outside in all instead of `o`. `b` is therefore found without counters, from
//!   the growth of the time outside. The resource is supposed to be the memory's bandwidth.
//! # Equations
//! - `T(P) = max(max(o / P, o · b) + c / P, c) + P · i` (derived): no thread is faster than the
//!   critical sections one after the other.
//! - From `h(1) = c + i` and `h(P) = c + P · i`, time inside in all: `i = (h(P) - h(1)) / (P - 1)`.
//!
//! # Properties
//! - **Inverse**: times computed from known parts yield these parts. -> test `parts_of_executions`
//! - **Least time** but for [`TOLERANCE`]. -> test `least_but_for_tolerance`

use super::Trained;

/// Relative slowdown accepted for a quarter fewer threads. Chosen.
pub const TOLERANCE: f64 = 0.02;
/// Growth of the time outside from which a shared resource counts as exhausted. Chosen: above the
/// effect of a busy machine.
pub const GROWTH: f64 = 1.25;

/// Mean execution of a region. Times are in any one unit, summed over threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executed {
    /// Number of threads; at least 1.
    pub threads: u32,
    /// Time outside of critical sections without waits for them; above 0.
    pub outside: f64,
    /// Time inside of critical sections.
    pub inside: f64,
}

/// Parts of a region's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sections {
    /// Time that every thread adds, and the time outside.
    pub trained: Trained,
    /// Time inside, shared by the threads.
    pub shared: f64,
}

impl Sections {
    /// Parts from executions with one thread and with more; `None` if `more` has fewer than two
    /// threads.
    #[must_use]
    pub fn of(one: Executed, more: Executed) -> Option<Self> {
        if more.threads < 2 {
            return None;
        }
        let threads = f64::from(more.threads);
        // Measured times scatter: a part is neither negative nor above the whole.
        let each = ((more.inside - one.inside) / (threads - 1.0)).clamp(0.0, one.inside);
        let growth = more.outside / one.outside;
        // With the resource exhausted the time outside is `P · o · b`.
        let bandwidth = (growth >= GROWTH).then(|| (growth / threads).min(1.0));
        let trained = Trained { outside: one.outside, inside: each, bandwidth };
        Some(Self { trained, shared: one.inside - each })
    }

    /// Time with `threads` threads.
    #[must_use]
    pub fn time(&self, threads: u32) -> f64 {
        let each = f64::from(threads.max(1)) * self.trained.inside;
        // `Trained::time` includes the sections that every thread adds.
        let parallel = self.trained.time(threads) - each;
        (parallel + self.shared / f64::from(threads.max(1))).max(self.shared) + each
    }

    /// Share of one thread's time in critical sections.
    #[must_use]
    pub fn share(&self) -> f64 {
        let inside = self.shared + self.trained.inside;
        inside / (inside + self.trained.outside)
    }

    /// Useful number of threads on `cores` cores. Fewer threads than those of least time, if that
    /// costs at most [`TOLERANCE`] and frees a quarter of the threads.
    #[must_use]
    pub fn advise(&self, cores: u32) -> u32 {
        let best = (1..=cores.max(1)).fold(1, |best, threads| {
            if self.time(threads) < self.time(best) { threads } else { best }
        });
        let enough = self.time(best) * (1.0 + TOLERANCE);
        let fewest = (1..=best).find(|&threads| self.time(threads) <= enough).unwrap_or(best);
        if 4 * fewest <= 3 * best { fewest } else { best }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 76 outside and 24 inside on one thread. Shared by the threads: still 24 with 8 threads, so
    /// 24 is the least. 100 / 24 = 4.2 threads reach it: five, since four take 4.2 % longer, which
    /// is too much. Added by each: 192 on 8 threads, and √(76 / 24) = 1.8: two.
    #[test]
    fn both_kinds_by_hand() {
        let one = Executed { threads: 1, outside: 76.0, inside: 24.0 };
        let more = |inside, outside| Executed { threads: 8, outside, inside };
        let advised = |more| Sections::of(one, more).unwrap().advise(8);
        assert_eq!(advised(more(24.0, 76.0)), 5);
        assert_eq!(advised(more(192.0, 76.0)), 2);
        assert_eq!(Sections::of(one, more(24.0, 76.0)).unwrap().share(), 0.24);
        assert_eq!(Sections::of(one, one), None);
    }

    /// All parallel: eight. Twice the time outside on eight threads: four exhaust the resource.
    /// Nearly all inside: one.
    #[test]
    fn nothing_everything_and_bandwidth() {
        let advised = |inside: [f64; 2], outside: [f64; 2]| {
            let one = Executed { threads: 1, outside: outside[0], inside: inside[0] };
            let more = Executed { threads: 8, outside: outside[1], inside: inside[1] };
            Sections::of(one, more).unwrap().advise(8)
        };
        assert_eq!(advised([0.0, 0.0], [100.0, 104.0]), 8);
        assert_eq!(advised([0.0, 0.0], [100.0, 200.0]), 4);
        assert_eq!(advised([99.0, 99.0], [1.0, 1.0]), 1);
    }

    proptest! {
        #[test]
        fn parts_of_executions(outside in 1.0..1e3_f64, each in 0.0..10.0_f64, shared in 0.0..100.0_f64, threads in 2..100_u32) {
            let inside = |threads: u32| shared + each * f64::from(threads);
            let executed = |threads| Executed { threads, outside, inside: inside(threads) };
            let found = Sections::of(executed(1), executed(threads)).unwrap();
            prop_assert!((found.shared - shared).abs() < 1e-6 && (found.trained.inside - each).abs() < 1e-6);
            prop_assert_eq!(found.trained.bandwidth, None);
            prop_assert!((found.time(1) - outside - each - shared).abs() < 1e-6);
        }

        #[test]
        fn least_but_for_tolerance(
            outside in 1.0..1e3_f64, each in 0.0..10.0_f64, shared in 0.0..100.0_f64,
            bandwidth in prop_oneof![Just(None), (0.01..=1.0_f64).prop_map(Some)], cores in 1..100_u32,
        ) {
            let sections = Sections { trained: Trained { outside, inside: each, bandwidth }, shared };
            let best = (1..=cores).map(|threads| sections.time(threads)).fold(f64::INFINITY, f64::min);
            let threads = sections.advise(cores);
            prop_assert!((1..=cores).contains(&threads));
            prop_assert!(sections.time(threads) <= best * (1.0 + TOLERANCE) * (1.0 + 1e-12));
        }
    }
}
