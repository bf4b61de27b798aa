//! How many times slower one PU is than another: a loop on both at the same time.
//!
//! The loops are real-time threads below the one that slows, so that programs that run on the PUs meanwhile
//! change nothing.

use crate::sys;
use anyhow::Context as _;
use colocate_figures::stats::{self, Estimate};
use serde::Serialize;
use smt_bench::thread;
use std::hint::black_box;
use std::time::Duration;

/// For how long the loops run. Chosen: a hundred default periods, at whose ends the result is off by an eighth of a
/// percent at most.
const WINDOW: Duration = Duration::from_millis(200);

/// For how long all others run after that. Chosen: the loops are real-time threads, too, and with 400 ms of every
/// second and [`share::MOST`](crate::share::MOST) of the rest stay below the 95 % that the kernel lets these have.
const PAUSE: Duration = Duration::from_millis(300);

/// Their real-time priority: the lowest.
const PRIORITY: u8 = 1;

/// Steps between two readings of the clock: about a µs.
const STEPS: u64 = 1000;

/// How many times slower PU `slow` is than PU `fast`.
///
/// # Errors
/// If a thread cannot be prepared, or a loop did nothing.
pub fn ratio(slow: u32, fast: u32, windows: u32) -> anyhow::Result<Measured> {
    let ratios = (0..windows).map(|_| once(slow, fast)).collect::<anyhow::Result<Vec<f64>>>()?;
    let both = stats::geometric_estimate(&ratios).zip(stats::median(&ratios));
    let ms = WINDOW.as_millis();
    let stuck = || format!("cannot measure PU {slow}: a loop there did nothing for {ms} ms");
    let (mean, median) = both.with_context(stuck)?;
    Ok(Measured { mean, median })
}

/// How many times slower a PU was in some windows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// The geometric mean, which is reported.
    pub mean: Estimate,
    /// The median, by which the share is corrected: on a virtual machine a window may be lost to others.
    pub median: f64,
}

fn once(slow: u32, fast: u32) -> anyhow::Result<f64> {
    let cpus = [slow, fast];
    let prepare = |number: usize| thread::pin(cpus[number]);
    let work = |number: usize, ()| {
        sys::be_real_time(PRIORITY)?;
        let rate = rate();
        // A result from elsewhere means nothing.
        thread::is_on(cpus[number])?;
        anyhow::Ok(rate)
    };
    let mut rates = thread::side_by_side(2, prepare, work, || ())?.into_iter();
    std::thread::sleep(PAUSE);
    let mut next = || rates.next().context("a thread without a result")?;
    let slow = next()?;
    Ok(next()? / slow)
}

/// Rounds of the loop in a ns of wall-clock time.
#[allow(clippy::cast_precision_loss)] // a rate needs few digits
fn rate() -> f64 {
    let window = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let begun = thread::wall_ns();
    let (mut rounds, mut passed) = (0_u64, 0);
    while passed < window {
        black_box(round(rounds));
        rounds += 1;
        passed = thread::wall_ns() - begun;
    }
    rounds as f64 / passed as f64
}

/// Steps that wait for each other and access no memory. The multiplier is Knuth's (MMIX).
fn round(seed: u64) -> u64 {
    let step = |value: u64, _| value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (0..STEPS).fold(seed, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;

    /// What the thread that slows and a loop take of a second at most, on one PU: the loop has what is left of it in
    /// windows.
    fn taken(share: f64) -> f64 {
        let second = Duration::from_secs(1).as_secs_f64();
        let (window, cycle) = (WINDOW.as_secs_f64(), (WINDOW + PAUSE).as_secs_f64());
        let whole = (second / cycle).floor();
        let windows = whole * window + (second - whole * cycle).min(window);
        share + (1.0 - share) * windows
    }

    #[test]
    fn real_time_threads_stay_below_the_kernels_limit() {
        // 0.9 and a tenth of the two windows of 0.2 s.
        assert!((taken(0.9) - 0.94).abs() < 1e-9, "{}", taken(0.9));
        assert!(taken(share::MOST) < 0.95, "{}", taken(share::MOST));
    }
}
