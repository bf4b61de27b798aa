//! How much worse, or better, guarded schedulers are than the kernel alone, over many workloads.
//!
//! # Algorithm
//! 1. Each workload once under the kernel, and under each scheduler without and with the guard.
//! 2. A case above the limit with the guard is run again, [`ROUNDS`] times with more runs each, as long as
//!    the runs of the round by themselves are above the limit on average. One that is above it after the last
//!    round *is above*; one that is above it by more than [`SURE`] standard errors of the last round's mean is *surely* so.
//! 3. A case that gained more than [`GAIN`] without the guard is run again both ways, to see what is left of the gain.
//!
//! Runs that chose which cases are run again are not counted again, so that luck which was picked out is not taken for an
//! effect. `os` goes through all of this like a scheduler, with other luck than the kernel that it is compared
//! with: what comes of it is luck. An effect of just the limit is found in one of eight cases, since it has to be
//! above three times; larger ones more often.

use super::cases::any_case;
use super::kept::Kept;
use super::runs::{Bench, Runs};
use super::under::Under;
use colocate_engine::Meanwhile;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a guarded scheduler may cost: 1 %.
const LIMIT: f64 = 0.01;

/// Runs of the guarded scheduler in each round, and of the kernel.
const ROUNDS: [(u64, u64); 2] = [(4, 8), (12, 16)];

/// Standard errors. Chosen: beyond that by luck in one of a hundred.
const SURE: f64 = 2.5;

/// What counts as a gain. Chosen: twice the limit.
const GAIN: f64 = 0.02;

/// Runs of a scheduler that gained.
const GAINERS: u64 = 3;

/// Runs of a round, and of gainers, begin so many seeds after those before.
const APART: u64 = 100;

/// What came of a scheduler on a workload: effects.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub seed: u64,
    pub free: f64,
    pub guarded: f64,
    /// Part of the quanta that was the kernel's.
    pub controls: f64,
    /// Of the last round, if it was above the limit in all: the effect and its standard error.
    pub above: Option<(f64, f64)>,
    /// Without and with the guard in fresh runs, if it gained.
    pub gain: Option<(f64, f64)>,
}

fn found_of(bench: &mut Bench<'_>, under: Under) -> Found {
    let kernel = bench.kernel(0, 1);
    let free = bench.under(under, false, 0, 1).0.over(kernel).0;
    let (guarded, controls) = bench.under(under, true, 0, 1);
    let guarded = guarded.over(kernel).0;
    let gain = (free < -GAIN).then(|| {
        let from = APART * (1 + ROUNDS.len() as u64);
        let (_, kernels) = ROUNDS[0];
        let kernel = bench.kernel(APART, kernels);
        let fresh = |guarded| bench.under(under, guarded, from, GAINERS).0.over(kernel).0;
        (fresh(false), fresh(true))
    });
    let above = above(bench, under, guarded);
    Found { seed: bench.case.scenario.seed, free, guarded, controls, above, gain }
}

fn above(bench: &mut Bench<'_>, under: Under, first: f64) -> Option<(f64, f64)> {
    let mut last = (first, 0.0);
    for (round, (times, kernels)) in (1..).zip(ROUNDS) {
        if last.0 <= LIMIT {
            break;
        }
        let kernel = bench.kernel(APART * round, kernels);
        last = bench.under(under, true, APART * round, times).0.over(kernel);
    }
    Some(last).filter(|last| last.0 > LIMIT)
}

/// Mean and standard error.
fn mean(of: &[f64]) -> (f64, f64) {
    let runs = Runs::of(of);
    (100.0 * runs.mean, 100.0 * runs.variance.sqrt())
}

/// What came of one scheduler in all cases.
fn line(name: &str, found: &[Found]) -> String {
    let all = |of: &dyn Fn(&Found) -> f64| found.iter().map(of).collect::<Vec<f64>>();
    let (free, guarded) = (all(&|f| f.free), all(&|f| f.guarded));
    let worst = |of: &[f64]| 100.0 * of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let beyond = |of: &[f64]| of.iter().filter(|&&effect| effect > LIMIT).count();
    let above: Vec<(u64, f64, f64)> =
        found.iter().filter_map(|f| f.above.map(|(effect, luck)| (f.seed, effect, luck))).collect();
    let sure: Vec<&(u64, f64, f64)> =
        above.iter().filter(|(_, effect, luck)| effect - SURE * luck > LIMIT).collect();
    let most = above.iter().map(|(_, effect, _)| 100.0 * effect).fold(0.0, f64::max);
    let gains: Vec<(f64, f64)> = found.iter().filter_map(|f| f.gain).collect();
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| gains.iter().map(of).sum::<f64>();
    let (gained, kept) = (-sum(&|gain| gain.0), -sum(&|gain| gain.1));
    let per = 100.0 / found.len() as f64;
    let ((free_mean, _), (guarded_mean, luck)) = (mean(&free), mean(&guarded));
    let mut text = format!(
        "{name:14} | {free_mean:+7.2} {:+7.2} {:5} | {guarded_mean:+6.2} ±{luck:4.2} {:+6.2} {:5} {:5} {most:5.1} {:5} | \
         {:4} {:6.2} {:6.2} {:5.0} | {:4.0}",
        worst(&free),
        beyond(&free),
        worst(&guarded),
        beyond(&guarded),
        above.len(),
        sure.len(),
        gains.len(),
        gained * per,
        kept * per,
        100.0 * kept / gained,
        100.0 * found.iter().map(|f| f.controls).sum::<f64>() / found.len() as f64,
    );
    for (seed, effect, luck) in sure {
        let _ = write!(text, "\n    case {seed}: {:+.2} ± {:.2}", 100.0 * effect, 100.0 * luck);
    }
    text
}

/// Each of these schedulers in `cases`, or as many of them as are begun in `minutes`, those included that the file `keep` holds
/// already; how many were done, and what came of them.
pub fn study(
    schedulers: &[Under],
    waiting: Meanwhile,
    cases: Range<u64>,
    minutes: u64,
    keep: Option<&Path>,
) -> (u64, String) {
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    let names: Vec<String> = schedulers.iter().map(|under| under.name()).collect();
    let (kept, before) = Kept::open(keep, &names);
    let done: BTreeSet<u64> = before.values().flatten().map(|found| found.seed).collect();
    let (next, found) = (AtomicU64::new(cases.start), Mutex::new(before));
    let work = || {
        while Instant::now() < until {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= cases.end {
                break;
            }
            if done.contains(&seed) {
                continue;
            }
            let case = any_case(seed);
            let mut bench = Bench::new(&case, waiting);
            for &under in schedulers {
                let one = found_of(&mut bench, under);
                kept.add(&under.name(), &one);
                found.lock().unwrap().entry(under.name()).or_default().push(one);
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().unwrap();
    let done = found.values().next().map_or(0, |found| found.len() as u64);
    let mut text = format!(
        "simulated: {done} workloads; turnaround against the kernel alone in %, + is worse; os: luck alone\n\
         above, most, sure: of those that stay above the limit when they are run again\n\
         gains, gained, kept: those that gain without the guard, and per workload of all what they gain without and with it\n\
         {:14} | {:^21} | {:^45} | {:^24} | kernel's\n\
         {:14} | {:>7} {:>7} {:>5} | {:>12} {:>6} {:>5} {:>5} {:>5} {:>5} | {:>4} {:>6} {:>6} {:>5} | quanta, %\n",
        "",
        "without guard",
        "with guard",
        "gains",
        "",
        "mean",
        "worst",
        ">1 %",
        "mean",
        "worst",
        ">1 %",
        "above",
        "most",
        "sure",
        "n",
        "gained",
        "kept",
        "%",
    );
    for (name, found) in &mut found {
        found.sort_by_key(|found| found.seed);
        let _ = writeln!(text, "{}", line(name, found));
    }
    (done, text)
}
