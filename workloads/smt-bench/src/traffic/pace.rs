//! Search for the number of `nop`s at which a generator requests lines at a given rate.
//!
//! # Problem
//! The time of a line with a number of `nop`s depends on the processor, its clock and the number of
//! lines in flight. It can only be tried.
//!
//! # Approach
//! Regula falsi on nanoseconds per line, which rise with the number of `nop`s: tries on both sides
//! of the target are joined by a straight line. Until a try exceeds the target, the number
//! grows along the line from the try without `nop`s.
//!
//! # Terms
//! - *rate*: lines per microsecond of CPU time, t/µs. Nanoseconds per line are 1000 / rate.
//! - [`CLOSE`]: greatest error of a try, as a share of the target.
//!
//! # Properties
//! - **Ends**: after at most [`MOST_TRIES`] tries.        -> test `ends_close_on_any_straight_machine`
//! - **Close**: where a line takes a + b·nops nanoseconds. -> test `ends_close_on_any_straight_machine`
//! - **Honest**: an unreachable rate is reported.          -> test `more_than_there_is`

/// Greatest relative error of an accepted try. Chosen: repeated tries of one number differ by as
/// much on the development machine with other load.
pub const CLOSE: f64 = 0.03;
/// Most tries for one rate. Chosen: twice the number needed by the tests' linear machines.
pub const MOST_TRIES: usize = 24;
/// First number of `nop`s after 0. Chosen: some 20 ns, between the two ends of the useful range.
const FIRST_GUESS: u64 = 64;
/// Greatest growth of the number of `nop`s per try, while no try is slow enough.
const GROWTH: f64 = 8.0;

/// A tried number of `nop`s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriedDelay {
    /// Number of `nop`s.
    pub nops: u64,
    /// Nanoseconds of CPU time per line.
    pub line_ns: f64,
}

impl TriedDelay {
    /// Lines per microsecond of CPU time.
    #[must_use]
    pub fn rate(self) -> f64 {
        1000.0 / self.line_ns
    }
}

/// Next step of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// Try this number of `nop`s.
    Try(u64),
    /// Accept this try, the nearest possible.
    Take(TriedDelay),
    /// Even without `nop`s a line takes too long; this is the fastest try.
    TooFast(TriedDelay),
}

/// Next step for `rate` t/µs after the tries `tried`.
#[must_use]
pub fn next(rate: f64, tried: &[TriedDelay]) -> SearchStep {
    let wanted = 1000.0 / rate;
    let Some(nearest) = nearest(wanted, tried) else { return SearchStep::Try(0) };
    if off(wanted, nearest) <= CLOSE || tried.len() >= MOST_TRIES {
        return SearchStep::Take(nearest);
    }
    // Tries are noisy: more `nop`s may have taken less time. The search continues in the narrowest
    // pair.
    let above = tried.iter().filter(|t| t.line_ns > wanted).min_by_key(|t| t.nops).copied();
    let least = above.map_or(u64::MAX, |above| above.nops);
    let below =
        tried.iter().filter(|t| t.line_ns <= wanted && t.nops < least).max_by_key(|t| t.nops);
    match (below.copied(), above) {
        // 0 was tried first, so `above` is the try of 0.
        (None, Some(above)) => SearchStep::TooFast(above),
        (Some(below), Some(above)) if above.nops - below.nops <= 1 => SearchStep::Take(nearest),
        (Some(below), Some(above)) => SearchStep::Try(between(wanted, below, above)),
        (Some(below), None) => SearchStep::Try(further(wanted, tried[0], below)),
        (None, None) => SearchStep::Take(nearest),
    }
}

/// Relative error of `tried` from `wanted` nanoseconds.
fn off(wanted: f64, tried: TriedDelay) -> f64 {
    (tried.line_ns / wanted - 1.0).abs()
}

fn nearest(wanted: f64, tried: &[TriedDelay]) -> Option<TriedDelay> {
    tried.iter().copied().min_by(|a, b| off(wanted, *a).total_cmp(&off(wanted, *b)))
}

/// Number at which the straight line through both tries has `wanted`, strictly between their
/// numbers.
fn between(wanted: f64, below: TriedDelay, above: TriedDelay) -> u64 {
    let share = (wanted - below.line_ns) / (above.line_ns - below.line_ns);
    let gap = (above.nops - below.nops) as f64;
    (below.nops + whole(gap * share)).clamp(below.nops + 1, above.nops - 1)
}

/// A larger number: where the straight line from `bare`, the try without `nop`s, through `below` has `wanted`.
fn further(wanted: f64, bare: TriedDelay, below: TriedDelay) -> u64 {
    if below.nops == 0 {
        return FIRST_GUESS;
    }
    let added = below.line_ns - bare.line_ns;
    // Where `nop`s are hidden behind the load, or noise hides them, no line shows how many are missing.
    let growth = if added > 0.0 { (wanted - bare.line_ns) / added } else { GROWTH };
    // More in any case: a try with the same number would show nothing new.
    whole(below.nops as f64 * growth.clamp(1.0, GROWTH)).max(below.nops + 1)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rounded, at least 0, and few digits
fn whole(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(rate: f64, line_ns: impl Fn(u64) -> f64) -> (SearchStep, Vec<TriedDelay>) {
        let mut tried = Vec::new();
        loop {
            match next(rate, &tried) {
                SearchStep::Try(nops) => tried.push(TriedDelay { nops, line_ns: line_ns(nops) }),
                end => return (end, tried),
            }
        }
    }

    /// 5 ns and a third for each: 100 t/µs are 10 ns, so 15. None takes 5, and 64 take 26.33; the line
    /// between has 10 at 64 · 5/21.33 = 15, which takes 10.
    #[test]
    fn a_straight_machine_by_hand() {
        let (end, tried) = search(100.0, |nops| 5.0 + nops as f64 / 3.0);
        assert_eq!(tried.iter().map(|t| t.nops).collect::<Vec<_>>(), [0, 64, 15]);
        assert_eq!(end, SearchStep::Take(TriedDelay { nops: 15, line_ns: 10.0 }));
    }

    /// 1 t/µs are 1000 ns. 64 take 69, and the line leads to 995, more than eight times as many: 512 take
    /// 517, and the line leads to 995.
    #[test]
    fn slow_rates_are_approached_by_what_is_missing() {
        let (end, tried) = search(1.0, |nops| 5.0 + nops as f64);
        assert_eq!(tried.iter().map(|t| t.nops).collect::<Vec<_>>(), [0, 64, 512, 995]);
        assert_eq!(end, SearchStep::Take(TriedDelay { nops: 995, line_ns: 1000.0 }));
    }

    /// 5 ns a line are 200 t/µs: 206 are within 3 %, 220 are not.
    #[test]
    fn more_than_there_is() {
        let machine = |nops: u64| 5.0 + nops as f64;
        let all = TriedDelay { nops: 0, line_ns: 5.0 };
        assert_eq!(search(205.0, machine).0, SearchStep::Take(all));
        assert_eq!(search(220.0, machine), (SearchStep::TooFast(all), vec![all]));
        assert!((all.rate() - 200.0).abs() < 1e-9);
    }

    /// Each `nop` costs 10 ns, so 12 ns are between two numbers: the nearer one is taken.
    #[test]
    fn coarse_machines_give_the_nearest() {
        let (end, _) = search(1000.0 / 12.0, |nops| 5.0 + 10.0 * nops as f64);
        assert_eq!(end, SearchStep::Take(TriedDelay { nops: 1, line_ns: 15.0 }));
    }

    /// A `nop` takes a thousandth of a line: 88 ns, and 115 are 270 times 0.1 more.
    #[test]
    fn short_nops_beside_long_lines() {
        let (end, tried) = search(1000.0 / 115.0, |nops| 88.0 + 0.1 * nops as f64);
        assert_eq!(tried.iter().map(|t| t.nops).collect::<Vec<_>>(), [0, 64, 270]);
        assert!(matches!(end, SearchStep::Take(found) if found.nops == 270), "{end:?}");
    }

    /// Every second try takes three times as long.
    #[test]
    fn noise_does_not_hold_it_for_ever() {
        let mut tries = 0_u32;
        let mut tried = Vec::new();
        while let SearchStep::Try(nops) = next(70.0, &tried) {
            tries += 1;
            let noise = if tries.is_multiple_of(2) { 3.0 } else { 0.9 };
            tried.push(TriedDelay { nops, line_ns: (5.0 + nops as f64 / 3.0) * noise });
        }
        assert!(tried.len() <= MOST_TRIES, "{tried:?}");
    }

    proptest! {
        #[test]
        fn ends_close_on_any_straight_machine(start in 0.2..200.0_f64, slope in 0.1..1.0_f64, rate in 0.1..2000.0_f64) {
            let wanted = 1000.0 / rate;
            let (end, tried) = search(rate, |nops| start + slope * nops as f64);
            prop_assert!(tried.len() <= MOST_TRIES / 2, "{} tries", tried.len());
            match end {
                SearchStep::Take(found) => {
                    // As near as whole numbers of nops allow.
                    let coarse = slope / wanted / 2.0;
                    prop_assert!(off(wanted, found) <= CLOSE.max(coarse) + 1e-9, "{found:?} for {wanted}");
                }
                SearchStep::TooFast(all) => prop_assert!(all.nops == 0 && start > wanted),
                SearchStep::Try(_) => prop_assert!(false),
            }
        }
    }
}
