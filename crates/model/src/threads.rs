//! Number of threads of a parallel program: the models of feedback-driven threading (Suleman,
//! Qureshi and Patt, ASPLOS 2008).
//!
//! # Problem
//! More threads do no more work if they queue for a critical section, or if the bandwidth of the
//! memory is exhausted.
//! # Approach
//! One thread runs the first iterations. They show its time in critical sections, its time outside,
//! and its share of the bandwidth. Two models derive the useful number of threads. The published
//! equations are below; they are remembered, and were not verified against the paper's text, which
//! was not available.
//! # Terms
//! - `P`: threads.
//! - `o`, `i`: time of an iteration outside and inside of critical sections, by one thread
//!   (`T_NoCS`, `T_CS`).
//! - `b`: share of the peak bandwidth that one thread uses (`BU_1`).
//! # Equations
//! - Critical sections (SAT): `T(P) = o / P + P · i`, least at `P = √(o / i)`.
//! - Bandwidth (BAT): `P` threads need `P · b`; from `P = 1 / b` the bandwidth is exhausted.
//! - Both, combined in our way: `T(P) = max(o / P, o · b) + P · i`: the parallel part takes at
//!   least as long as its traffic. Its minimum is at the smaller of the two bounds, as published.
//! - Threads are whole: of the two whole numbers around the bound the one of less time, and the
//!   smaller of equals, since fewer threads take less power. The published text rounds to the
//!   nearest, with the same result except for bounds between `√(n (n + 1))` and `n + ½`.
//!
//! # Properties
//! - **Least time** of all numbers of threads, by the equation. -> test `least_of_all`
//! - **The published bounds** without rounding. -> test `bounds_by_hand`

pub mod lost;
pub mod sections;

/// Measurements of one thread of a parallel program. Times are of the same iterations, in any one
/// unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Time outside of critical sections; above 0.
    pub outside: f64,
    /// Time inside of critical sections; 0 without any.
    pub inside: f64,
    /// Used share of the peak bandwidth, 0 to 1; `None` if unknown.
    pub bandwidth: Option<f64>,
}

/// Limit of the useful number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLimit {
    /// More threads would wait for each other at critical sections.
    CriticalSections,
    /// More threads would wait for the memory.
    Bandwidth,
    /// No more cores.
    Cores,
}

/// Useful number of threads, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Number of threads; at least 1.
    pub threads: u32,
    /// Limit met by more threads.
    pub limit: ThreadLimit,
}

impl Trained {
    /// `√(o / i)`; `None` without critical sections.
    pub(crate) fn critical_sections(&self) -> Option<f64> {
        (self.inside > 0.0).then(|| (self.outside / self.inside).sqrt())
    }

    /// `1 / b`; `None` for a bandwidth of 0 or unknown.
    pub(crate) fn saturation(&self) -> Option<f64> {
        self.bandwidth.filter(|share| *share > 0.0).map(|share| 1.0 / share)
    }

    /// Time of the same iterations with `threads` threads, by both models.
    #[must_use]
    pub fn time(&self, threads: u32) -> f64 {
        let threads = f64::from(threads.max(1));
        // A bandwidth that is unknown is assumed to be no limit.
        let traffic = self.outside * self.bandwidth.unwrap_or(0.0);
        (self.outside / threads).max(traffic) + threads * self.inside
    }

    /// Useful number of threads on `cores` cores; 0 cores count as 1.
    #[must_use]
    pub fn advise(&self, cores: u32) -> Advice {
        let cores = cores.max(1);
        let bounds = [
            (self.critical_sections(), ThreadLimit::CriticalSections),
            (self.saturation(), ThreadLimit::Bandwidth),
        ];
        let known = bounds.into_iter().filter_map(|(bound, limit)| Some((bound?, limit)));
        // Of equal bounds `min_by` takes the first.
        let least = known.min_by(|a, b| a.0.total_cmp(&b.0));
        match least.filter(|(bound, _)| *bound < f64::from(cores)) {
            // No bound below the number of cores.
            None => Advice { threads: cores, limit: ThreadLimit::Cores },
            Some((bound, limit)) => Advice { threads: self.whole(bound, cores), limit },
        }
    }

    /// The better of the two whole numbers around a bound below `cores`.
    fn whole(&self, bound: f64, cores: u32) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below the cores
        // The bound is below 1 where critical sections take longer than the rest.
        let below = (bound.floor() as u32).clamp(1, cores);
        let above = (below + 1).min(cores);
        if self.time(above) < self.time(below) { above } else { below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 25 outside and 1 inside: 5 threads, which take 5 + 5; 4 and 6 take 10.25 and 10.17. An
    /// eighth of the bandwidth: 8 threads. With both limits the smaller number.
    #[test]
    fn bounds_by_hand() {
        let trained = Trained { outside: 25.0, inside: 1.0, bandwidth: Some(0.125) };
        assert_eq!((trained.critical_sections(), trained.saturation()), (Some(5.0), Some(8.0)));
        assert!((trained.time(5) - 10.0).abs() < 1e-12);
        let advice = |trained: Trained, cores| {
            let Advice { threads, limit } = trained.advise(cores);
            (threads, limit)
        };
        assert_eq!(advice(trained, 16), (5, ThreadLimit::CriticalSections));
        assert_eq!(advice(trained, 4), (4, ThreadLimit::Cores));
        let no_sections = Trained { inside: 0.0, ..trained };
        assert_eq!(advice(no_sections, 16), (8, ThreadLimit::Bandwidth));
        let nothing_known = Trained { bandwidth: None, ..no_sections };
        assert_eq!(advice(nothing_known, 16), (16, ThreadLimit::Cores));
    }

    /// 2 outside and 1 inside: one thread and two threads take 3, so one; √2 is nearer to 1, too.
    /// 2.2 outside: √2.2 = 1.48 is nearer to 1, but 2 is better: 3.2 and 3.1.
    #[test]
    fn rounded_by_time() {
        let of = |outside| Trained { outside, inside: 1.0, bandwidth: None }.advise(16).threads;
        assert_eq!([of(2.0), of(2.2), of(0.1)], [1, 2, 1]);
    }

    proptest! {
        /// Every number of threads is tried. Where rounding makes two of them equally good, either will do.
        #[test]
        fn least_of_all(
            outside in 0.01..1e4_f64,
            inside in prop_oneof![Just(0.0), 1e-4..10.0_f64],
            bandwidth in prop_oneof![Just(None), (0.001..=1.0_f64).prop_map(Some)],
            cores in 1..200_u32,
        ) {
            let trained = Trained { outside, inside, bandwidth };
            let best = (1..=cores).map(|threads| trained.time(threads)).fold(f64::INFINITY, f64::min);
            let advice = trained.advise(cores);
            prop_assert!((1..=cores).contains(&advice.threads));
            prop_assert!(trained.time(advice.threads) <= best * (1.0 + 1e-12), "{advice:?}");
            if advice.limit == ThreadLimit::Cores {
                prop_assert_eq!(advice.threads, cores);
            }
        }
    }
}
