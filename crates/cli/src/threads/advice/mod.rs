//! The best number of threads for a program, from whole runs with several numbers of threads.
//!
//! # Problem
//! The fastest number is between one and the most that the machine allows, runs scatter, and every
//! run costs time.
//! # Approach
//! Powers of two and the most allowed are run one after the other, up and down, so that drift
//! affects all alike; then numbers between the best one and its neighbours. Numbers that are not
//! resolved from the best are run again. Only whole runs are compared: instructions and CPU time
//! say little about spinning threads. A number whose first run takes [`CUT`] times as long as the
//! best number's slowest run is worse, so that run may be ended; its length stays unknown.
//! # Terms
//! - *Ratio*: geometric mean of the times with one number over the mean with another, with Welch's
//!   interval ([`ratio_interval`]). It is read after every run, up to eight times, and each reading
//!   may be wrong. So each reading has `CONFIDENCE`, which makes 95 % for all together.
//! # Algorithm
//! The number with the least mean is the best measured one. The advice is the smallest number shown
//! to be at most [`TOLERANCE`] slower, if that number or the best is shown to be better than, or as
//! good as, the most allowed. Otherwise nothing is shown, and the most allowed stays.
//! # Properties
//! - **Found** where runs do not scatter. -> test `least_of_many`
//! - **Noise changes nothing**: where noise hides all differences, the most stays.
//!   -> test `noise_is_not_resolved`
//! - **Bounded**: the runs come to an end, whatever their times. -> test `there_is_an_end`

pub mod fit;

use colocate_figures::stats::{
    Estimate, Interval, geometric_estimate, geometric_mean, ratio_interval,
};
use fit::Fit;
use serde::Serialize;

/// Slowdown taken as equal. Chosen: below it, PUs left to further programs are worth more.
pub const TOLERANCE: f64 = 0.02;
/// Ratio to the best number's slowest run from which on a run may be ended. Chosen: noise of whole
/// runs is far smaller.
pub const CUT: f64 = 2.0;
/// As [`CUT`], before the best number has been run `LEAST_RUNS` times: the scatter of runs is
/// unknown. Chosen.
pub const FIRST_CUT: f64 = 4.0;
/// Confidence of each reading of an interval. Pocock's levels for readings that are right together
/// in 95 of 100 cases are 0.0158 for five readings and 0.0106 for ten (remembered); 0.01 is on the
/// careful side.
const CONFIDENCE: f64 = 0.99;
/// Least runs with every number. Chosen: the fewest with a meaningful spread.
const LEAST_RUNS: usize = 3;
/// Most runs with a number. Chosen: an interval of ten is at most half as wide as one of three.
const MOST_RUNS: usize = 10;
/// Least ratio of two numbers between which a number is tried. Chosen: near its minimum a time
/// changes by far less than the number.
const NEAR: f64 = 1.25;
/// Most numbers that are tried. Chosen: a ladder up to 256 threads, and four between.
const MOST_NUMBERS: usize = 13;

/// Limit on the number of threads that is known before any run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cap {
    /// PUs in the inherited mask and cpuset.
    Mask,
    /// PUs that the CPU quota keeps busy.
    Quota,
    /// `OMP_THREAD_LIMIT`.
    ThreadLimit,
    /// The user's `--max`.
    Asked,
}

/// The most threads allowed, with the lowest limit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Most {
    /// Number of threads; at least 1.
    pub threads: u32,
    /// The lowest limit.
    pub by: Cap,
}

impl Most {
    /// The most threads on `pus` PUs under a quota in PUs, rounded down but at least 1, and limits.
    pub fn of(pus: u32, quota: Option<f64>, limit: Option<u32>, asked: Option<u32>) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let quota = quota.map(|pus| pus as u32);
        let caps = [Some(pus), quota, limit, asked].into_iter();
        let caps = caps.zip([Cap::Mask, Cap::Quota, Cap::ThreadLimit, Cap::Asked]);
        let known = caps.filter_map(|(most, by)| Some(Self { threads: most?.max(1), by }));
        // Never without a limit: the mask is always known.
        known.min_by_key(|most| most.threads).unwrap_or(Self { threads: 1, by: Cap::Mask })
    }
}

/// Runs with one number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadCountRuns {
    /// Number of threads.
    pub threads: u32,
    /// Seconds of each whole run.
    pub seconds: Vec<f64>,
    /// Seconds after which a run was ended as too slow.
    pub cut_s: Option<f64>,
}

/// Result of a number of threads, compared with the best measured number.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Least mean time.
    Best,
    /// At most [`TOLERANCE`] slower.
    AsGood,
    /// Resolved as slower.
    Worse,
    /// Its first run was ended after [`CUT`] times the slowest run of the best, or [`FIRST_CUT`] times.
    Cut,
    /// Noise is larger than the difference.
    NotResolved,
}

/// One number of threads in the result.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadCountRow {
    /// Number of threads.
    pub threads: u32,
    /// Number of whole runs.
    pub runs: usize,
    /// Seconds of a run; `None` without a whole run.
    pub seconds: Option<Estimate>,
    /// Seconds after which a run was ended.
    pub cut_s: Option<f64>,
    /// Time over the best number's time, with `CONFIDENCE`.
    pub over_best: Option<Interval>,
    /// Comparison with the best number.
    pub standing: Standing,
}

/// Reason why more threads do not run faster.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalingLimit {
    /// More threads are not allowed.
    Allowed,
    /// Time grows again: each thread adds some, as critical sections do.
    Grows,
    /// Time stays: a serial part, or an exhausted shared resource such as memory bandwidth.
    Stays,
    /// Noise is larger than the differences.
    NotResolved,
}

/// Advised number of threads, with the reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Number of threads; the most allowed if nothing was shown.
    pub threads: u32,
    /// Reason why more threads do not run faster.
    pub limit: ScalingLimit,
    /// All numbers tried, fewest threads first.
    pub rows: Vec<ThreadCountRow>,
    /// Parts of the time; `None` if too few numbers were tried.
    pub fit: Option<Fit>,
}

/// Number of threads for the next run; `None` if more runs would change nothing relevant.
pub fn next(tried: &[ThreadCountRuns], most: u32) -> Option<u32> {
    let first = fewest(ladder(most).iter().copied(), tried, LEAST_RUNS);
    first.or_else(|| {
        let advice = advise(tried, most)?;
        let between = if tried.len() < MOST_NUMBERS { between(&advice, tried) } else { None };
        between.or_else(|| {
            let open = advice.rows.iter().filter(|row| row.standing == Standing::NotResolved);
            let open: Vec<u32> = open.map(|row| row.threads).collect();
            let best = advice.rows.iter().find(|row| row.standing == Standing::Best)?;
            let all = open.iter().copied().chain([best.threads]);
            if open.is_empty() { None } else { fewest(all, tried, MOST_RUNS) }
        })
    })
}

/// Seconds after which a run is certainly slower than the best number. `None` before the first
/// whole run, and for a number with a whole run: a slow run of that number is noise.
pub fn cut_after(tried: &[ThreadCountRuns], threads: u32) -> Option<f64> {
    if runs(tried, threads).is_some_and(|tried| !tried.seconds.is_empty()) {
        return None;
    }
    let (best, _) = means(tried).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let slowest = best.seconds.iter().copied().fold(0.0, f64::max);
    Some(slowest * if best.seconds.len() >= LEAST_RUNS { CUT } else { FIRST_CUT })
}

/// Mean seconds of the numbers with a whole run.
fn means(tried: &[ThreadCountRuns]) -> impl Iterator<Item = (&ThreadCountRuns, f64)> {
    tried.iter().filter_map(|tried| Some((tried, geometric_mean(&tried.seconds)?)))
}

/// Powers of two below `most`, and `most`.
fn ladder(most: u32) -> Vec<u32> {
    // 32 bits have no higher power.
    let powers = (0..32).map(|power| 1_u32 << power).take_while(|&power| power < most);
    powers.chain([most.max(1)]).collect()
}

fn runs(tried: &[ThreadCountRuns], threads: u32) -> Option<&ThreadCountRuns> {
    tried.iter().find(|tried| tried.threads == threads)
}

/// The number with the fewest runs among uncut numbers with fewer than `enough`; the largest first,
/// then in turn with the smallest.
fn fewest(
    numbers: impl Iterator<Item = u32>,
    tried: &[ThreadCountRuns],
    enough: usize,
) -> Option<u32> {
    let waiting = numbers.filter_map(|threads| match runs(tried, threads) {
        None => Some((0, threads)),
        Some(found) if found.cut_s.is_some() => None,
        Some(found) => Some((found.seconds.len(), threads)),
    });
    let next = waiting.filter(|(runs, _)| *runs < enough).min_by_key(|&(runs, threads)| {
        // Up and down in turn, so that drift affects all numbers alike.
        (runs, if runs % 2 == 0 { u32::MAX - threads } else { threads })
    });
    next.map(|(_, threads)| threads)
}

/// A number beside the best with too few runs, or half-way to the neighbour further by ratio.
fn between(advice: &Advice, tried: &[ThreadCountRuns]) -> Option<u32> {
    let started = advice.rows.iter().map(|row| row.threads);
    if let Some(again) = fewest(started, tried, LEAST_RUNS) {
        return Some(again);
    }
    let at = advice.rows.iter().position(|row| row.standing == Standing::Best)?;
    let best = advice.rows[at].threads;
    let below = at.checked_sub(1).map(|at| advice.rows[at].threads);
    let above = advice.rows.get(at + 1).map(|row| row.threads);
    let halves = [below, above].into_iter().flatten().map(|other| {
        let half = other.midpoint(best);
        (half, f64::from(other.max(best)) / f64::from(other.min(best)))
    });
    let new = halves.filter(|&(half, ratio)| ratio >= NEAR && runs(tried, half).is_none());
    new.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(half, _)| half)
}

/// Advice from the runs; `None` before the first whole run.
pub fn advise(tried: &[ThreadCountRuns], most: u32) -> Option<Advice> {
    let (best, _) = means(tried).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut rows: Vec<ThreadCountRow> = tried.iter().map(|tried| row(tried, best)).collect();
    rows.sort_by_key(|row| row.threads);
    let times: Vec<(u32, f64)> = means(tried).map(|(tried, mean)| (tried.threads, mean)).collect();
    // Rows are in the order of threads: the first one is the smallest.
    let good = rows.iter().find(|row| matches!(row.standing, Standing::Best | Standing::AsGood));
    let candidate = good.map_or(most, |row| row.threads);
    // The most allowed is what remains without advice, so nothing has to be shown.
    let shown = candidate == most || is_shown(tried, best, candidate, most);
    let threads = if shown { candidate } else { most };
    let of_more = rows.iter().rfind(|row| row.threads > threads).map(|row| row.standing);
    let limit = if !shown {
        ScalingLimit::NotResolved
    } else if threads == most {
        ScalingLimit::Allowed
    } else if matches!(of_more, Some(Standing::Worse | Standing::Cut)) {
        ScalingLimit::Grows
    } else {
        ScalingLimit::Stays
    };
    Some(Advice { threads, limit, rows, fit: Fit::of(&times) })
}

/// Whether `candidate` is shown to be no worse than `most`, or equals a best that is better.
fn is_shown(tried: &[ThreadCountRuns], best: &ThreadCountRuns, candidate: u32, most: u32) -> bool {
    let Some(all) = runs(tried, most) else { return false };
    if all.cut_s.is_some() {
        return true;
    }
    let high =
        |of: &ThreadCountRuns| Some(ratio_interval(&of.seconds, &all.seconds, CONFIDENCE)?.high);
    let candidate = runs(tried, candidate).and_then(high);
    let better = best.threads != most && high(best).is_some_and(|high| high < 1.0);
    better || candidate.is_some_and(|high| high <= 1.0 + TOLERANCE)
}

fn row(tried: &ThreadCountRuns, best: &ThreadCountRuns) -> ThreadCountRow {
    let interval = ratio_interval(&tried.seconds, &best.seconds, CONFIDENCE);
    let standing = match interval {
        _ if tried.threads == best.threads => Standing::Best,
        _ if tried.cut_s.is_some() => Standing::Cut,
        Some(interval) if interval.high <= 1.0 + TOLERANCE => Standing::AsGood,
        Some(interval) if interval.low > 1.0 => Standing::Worse,
        _ => Standing::NotResolved,
    };
    ThreadCountRow {
        threads: tried.threads,
        runs: tried.seconds.len(),
        seconds: geometric_estimate(&tried.seconds),
        cut_s: tried.cut_s,
        over_best: interval,
        standing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_model::rng::SplitMix64;
    use proptest::prelude::*;

    /// Runs as [`next`] says until it has had enough, with times by `time`, and cut as a caller would.
    fn study(most: u32, mut time: impl FnMut(u32) -> f64) -> (Vec<ThreadCountRuns>, Advice) {
        let mut tried: Vec<ThreadCountRuns> = Vec::new();
        let mut count = 0;
        while let Some(threads) = next(&tried, most) {
            count += 1;
            assert!(count <= MOST_NUMBERS * MOST_RUNS, "no end");
            let cut = cut_after(&tried, threads).unwrap_or(f64::INFINITY);
            if !tried.iter().any(|tried| tried.threads == threads) {
                tried.push(ThreadCountRuns { threads, seconds: Vec::new(), cut_s: None });
            }
            let place = tried.iter_mut().find(|tried| tried.threads == threads).unwrap();
            match time(threads) {
                seconds if seconds > cut => place.cut_s = Some(cut),
                seconds => place.seconds.push(seconds),
            }
        }
        let advice = advise(&tried, most).unwrap();
        (tried, advice)
    }

    /// A machine that is noisy by `noise`, the same on every run of the test.
    fn noisy(noise: f64, truth: impl Fn(f64) -> f64) -> impl FnMut(u32) -> f64 {
        noisy_by(7, noise, truth)
    }

    fn noisy_by(seed: u64, noise: f64, truth: impl Fn(f64) -> f64) -> impl FnMut(u32) -> f64 {
        let mut random = SplitMix64::new(seed);
        move |threads| {
            let draw = random.below(1_000_001) as f64 / 1e6 - 0.5;
            truth(f64::from(threads)) * (1.0 + noise * draw)
        }
    }

    /// 25 s parallel and 1 s a thread: five threads take 10 s. They are found between 4 and 6.
    #[test]
    fn critical_sections_are_found() {
        let (tried, advice) = study(16, noisy(0.01, |p| 25.0 / p + p));
        assert_eq!((advice.threads, advice.limit), (5, ScalingLimit::Grows));
        let numbers: Vec<u32> = advice.rows.iter().map(|row| row.threads).collect();
        assert_eq!(numbers, [1, 2, 4, 5, 6, 8, 16]);
        assert!(
            tried.iter().all(|tried| tried.cut_s.is_none()),
            "one thread takes 26 s, not four times 10"
        );
        assert!((advice.fit.unwrap().each_s - 1.0).abs() < 0.1, "{:?}", advice.fit);
    }

    /// A memory that four threads use up: more do no harm and no good, so four it is.
    #[test]
    fn bandwidth_stays() {
        let (_, advice) = study(16, noisy(0.005, |p| (8.0 / p).max(2.0)));
        assert_eq!((advice.threads, advice.limit), (4, ScalingLimit::Stays));
    }

    /// 0.5 s with all threads: four times that are less than one and two threads take, and no run is waited for any longer.
    #[test]
    fn all_threads_where_they_help() {
        let (tried, advice) = study(16, noisy(0.02, |p| 8.0 / p));
        let cut = |threads| runs(&tried, threads).unwrap().cut_s.is_some();
        assert_eq!([cut(1), cut(2), cut(8), cut(16)], [true, true, false, false]);
        assert_eq!((advice.threads, advice.limit), (16, ScalingLimit::Allowed));
        let (_, advice) = study(2, noisy(0.02, |p| 8.0 / p));
        assert_eq!((advice.threads, advice.limit), (2, ScalingLimit::Allowed));
        let (_, advice) = study(2, noisy(0.02, |p| 1.0 + 0.5 * p));
        assert_eq!((advice.threads, advice.limit), (1, ScalingLimit::Grows));
    }

    /// Twofold noise and a difference of a twentieth, by 40 seeds: one in twenty may differ.
    #[test]
    fn noise_is_not_resolved() {
        let is_resolved = |seed: &u64| {
            let (_, advice) = study(2, noisy_by(*seed, 0.9, |p| 1.0 + 0.05 * p));
            let left = advice.rows.iter().any(|row| row.standing == Standing::NotResolved);
            assert!(left || advice.limit != ScalingLimit::NotResolved, "{advice:?}");
            !left
        };
        let resolved = (0..40).filter(is_resolved).count();
        assert!(resolved <= 6, "{resolved} of 40");
    }

    #[test]
    fn the_limit_that_binds() {
        let of = |quota, limit, asked| {
            let Most { threads, by } = Most::of(8, quota, limit, asked);
            (threads, by)
        };
        assert_eq!(of(None, None, None), (8, Cap::Mask));
        assert_eq!(of(Some(2.5), None, None), (2, Cap::Quota));
        assert_eq!(of(Some(0.5), Some(4), None), (1, Cap::Quota));
        assert_eq!(of(None, Some(4), Some(6)), (4, Cap::ThreadLimit));
        assert_eq!(of(None, None, Some(0)), (1, Cap::Asked));
        assert_eq!(ladder(1), [1]);
        assert_eq!(ladder(12), [1, 2, 4, 8, 12]);
    }

    #[test]
    fn nothing_run_nothing_said() {
        assert_eq!(advise(&[], 4), None);
        assert_eq!(next(&[], 4), Some(4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Without noise, and with one minimum: what is advised is at most as much slower as counts as equal, and as much again
        /// since not every number is tried.
        #[test]
        fn least_of_many(parallel in 1.0..100.0_f64, serial in 0.0..10.0_f64, each in 0.0..1.0_f64, most in 1..130_u32) {
            let time = |p: u32| serial + parallel / f64::from(p) + each * f64::from(p);
            let (_, advice) = study(most, time);
            let best = (1..=most).map(time).fold(f64::INFINITY, f64::min);
            prop_assert!(time(advice.threads) <= best * (1.0 + 2.0 * TOLERANCE), "{advice:?}");
        }

        #[test]
        fn there_is_an_end(seed in 0_u64..1_000_000, most in 1..300_u32) {
            let mut random = SplitMix64::new(seed);
            let (_, advice) = study(most, |_| 1.0 + random.below(1_000) as f64 / 100.0);
            prop_assert!((1..=most).contains(&advice.threads));
        }
    }
}
