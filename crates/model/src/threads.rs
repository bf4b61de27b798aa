//! How many threads a parallel program should have: the models of feedback-driven threading (Suleman, Qureshi and
//! Patt, ASPLOS 2008).
//!
//! # Problem
//! More threads do no more work where they queue for a critical section, or where the memory's bandwidth is used up.
//! # Approach
//! The first iterations are run by one thread, which shows how long it is in critical sections, how long outside, and what
//! share of the bandwidth it uses. Two models say from that how many threads are worth while. The published equations
//! are below; they are remembered, and were not verified against the paper's text, which was not at hand.
//! # Terms
//! - `P`: threads.
//! - `o`, `i`: time of an iteration outside and inside of critical sections, by one thread (`T_NoCS`, `T_CS`).
//! - `b`: share of the peak bandwidth that one thread uses (`BU_1`).
//! # Equations
//! - Critical sections (SAT): `T(P) = o / P + P · i`, least at `P = √(o / i)`.
//! - Bandwidth (BAT): `P` threads need `P · b`; from `P = 1 / b` on there is no more to be had.
//! - Both, our way to put them into one: `T(P) = max(o / P, o · b) + P · i`: the parallel part takes as long as
//!   its traffic does at least. Its minimum is at the smaller of the two bounds, which is what is published.
//! - Threads are whole: of the two whole numbers around the bound the one of less time, and the smaller one of equals, since
//!   fewer threads take less power. Where the published text rounds to the nearest, this is the same but for bounds
//!   between `√(n (n + 1))` and `n + ½`.
//!
//! # Properties
//! - **Least time** of all numbers of threads, by the equation. -> test `least_of_all`
//! - **The published bounds** without rounding. -> test `bounds_by_hand`

pub mod lost;
pub mod sections;

/// What one thread has shown of a parallel program. Times are of the same iterations, in any one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Time outside of critical sections; above 0.
    pub outside: f64,
    /// Time inside; 0 if there are none.
    pub inside: f64,
    /// Share of the peak bandwidth that it uses, 0 to 1; `None` if unknown.
    pub bandwidth: Option<f64>,
}

/// What keeps more threads from doing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// They would wait for each other at critical sections.
    CriticalSections,
    /// They would wait for the memory.
    Bandwidth,
    /// There are no more cores.
    Cores,
}

/// How many threads are worth while, and why no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// How many; at least 1.
    pub threads: u32,
    /// What more of them would meet with.
    pub limit: Limit,
}

impl Trained {
    /// `√(o / i)`; `None` without critical sections.
    pub(crate) fn critical_sections(&self) -> Option<f64> {
        (self.inside > 0.0).then(|| (self.outside / self.inside).sqrt())
    }

    /// `1 / b`; `None` if it uses none, or that is unknown.
    pub(crate) fn saturation(&self) -> Option<f64> {
        self.bandwidth.filter(|share| *share > 0.0).map(|share| 1.0 / share)
    }

    /// Time of the same iterations with so many threads, by both models.
    #[must_use]
    pub fn time(&self, threads: u32) -> f64 {
        let threads = f64::from(threads.max(1));
        let traffic = self.outside * self.bandwidth.unwrap_or(0.0);
        (self.outside / threads).max(traffic) + threads * self.inside
    }

    /// How many threads on so many cores, of which there is at least one.
    #[must_use]
    pub fn advise(&self, cores: u32) -> Advice {
        let cores = cores.max(1);
        let bounds = [
            (self.critical_sections(), Limit::CriticalSections),
            (self.saturation(), Limit::Bandwidth),
        ];
        let known = bounds.into_iter().filter_map(|(bound, limit)| Some((bound?, limit)));
        let least = known.min_by(|a, b| a.0.total_cmp(&b.0));
        match least.filter(|(bound, _)| *bound < f64::from(cores)) {
            None => Advice { threads: cores, limit: Limit::Cores },
            Some((bound, limit)) => Advice { threads: self.whole(bound, cores), limit },
        }
    }

    /// The better of the two whole numbers around a bound below `cores`.
    fn whole(&self, bound: f64, cores: u32) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below the cores
        let below = (bound.floor() as u32).clamp(1, cores);
        let above = (below + 1).min(cores);
        if self.time(above) < self.time(below) { above } else { below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 25 outside and 1 inside: 5 threads, which take 5 + 5; 4 and 6 take 10.25 and 10.17. An eighth of the bandwidth: 8 threads.
    /// Both: the smaller.
    #[test]
    fn bounds_by_hand() {
        let trained = Trained { outside: 25.0, inside: 1.0, bandwidth: Some(0.125) };
        assert_eq!((trained.critical_sections(), trained.saturation()), (Some(5.0), Some(8.0)));
        assert!((trained.time(5) - 10.0).abs() < 1e-12);
        let advice = |trained: Trained, cores| {
            let Advice { threads, limit } = trained.advise(cores);
            (threads, limit)
        };
        assert_eq!(advice(trained, 16), (5, Limit::CriticalSections));
        assert_eq!(advice(trained, 4), (4, Limit::Cores));
        let no_sections = Trained { inside: 0.0, ..trained };
        assert_eq!(advice(no_sections, 16), (8, Limit::Bandwidth));
        let nothing_known = Trained { bandwidth: None, ..no_sections };
        assert_eq!(advice(nothing_known, 16), (16, Limit::Cores));
    }

    /// With 2 outside and 1 inside one thread takes 3, and so do two: one it is. √2 is nearer to 1, too; with 2.2, √2.2 = 1.48 is
    /// nearer to 1 and 2 is better: 3.2 and 3.1.
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
            if advice.limit == Limit::Cores {
                prop_assert_eq!(advice.threads, cores);
            }
        }
    }
}
