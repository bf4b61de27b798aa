//! Ratio of the speeds of two PUs, measured by a loop on both at the same time.
//!
//! The loops are real-time threads of a lower priority than the slowing thread, so programs on the
//! PUs do not disturb the measurement.

use crate::sys;
use anyhow::{Context as _, bail};
use colocate_figures::stats::{self, Estimate};
use serde::Serialize;
use smt_bench::thread;
use std::hint::black_box;
use std::time::Duration;

/// Run time of the loops. Chosen: a hundred default periods, so a cut period changes the result by
/// an eighth of a percent at most.
const WINDOW: Duration = Duration::from_millis(200);

/// Pause after a window, for other threads. Chosen: the loops, with 400 ms of every second, and the
/// slowing thread, with [`share::MOST`](crate::share::MOST) of the rest, stay below the kernel's
/// limit of 95 % for real-time threads.
const PAUSE: Duration = Duration::from_millis(300);

/// Real-time priority of the loops: the lowest.
const PRIORITY: u8 = 1;

/// Steps between two readings of the clock: about a µs.
const STEPS: u64 = 1000;

/// Speed of PU `fast` over the speed of PU `slow`, in `windows` measurements.
///
/// # Errors
/// If a thread cannot be prepared, or a loop made no progress.
pub fn ratio(slow: u32, fast: u32, windows: u32) -> anyhow::Result<Measured> {
    let ratios = (0..windows).map(|_| once(slow, fast)).collect::<anyhow::Result<Vec<f64>>>()?;
    let both = stats::geometric_estimate(&ratios).zip(stats::median(&ratios));
    let (mean, median) = both.with_context(|| {
        let ms = WINDOW.as_millis();
        format!("cannot measure PU {slow}: a loop there did nothing for {ms} ms")
    })?;
    Ok(Measured { mean, median })
}

/// Slowdown of a PU over several windows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Geometric mean, the reported value.
    pub mean: Estimate,
    /// Median, used to correct the share: on a virtual machine the host may spoil a window.
    pub median: f64,
}

/// Ratio of the speeds in one window, followed by a pause.
fn once(slow: u32, fast: u32) -> anyhow::Result<f64> {
    let cpus = [slow, fast];
    let rates = thread::side_by_side(
        2,
        |number| thread::pin(cpus[number]),
        |number, ()| rate_on(cpus[number]),
        || (),
    )?;
    std::thread::sleep(PAUSE);
    let rates = rates.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let [slow, fast] = rates[..] else { bail!("a thread without a result") };
    Ok(fast / slow)
}

/// Rate of the loop on PU `cpu`, on which the calling thread is pinned.
///
/// # Errors
/// If the thread may not be a real-time thread, or is no longer on the PU.
fn rate_on(cpu: u32) -> anyhow::Result<f64> {
    sys::be_real_time(PRIORITY)?;
    let rate = rate();
    // A CPU set that changed meanwhile invalidates the rate.
    thread::is_on(cpu)?;
    Ok(rate)
}

/// Rounds of the loop per ns of wall-clock time.
fn rate() -> f64 {
    let window = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let begun = thread::wall_ns();
    let mut rounds = 0_u64;
    let mut passed = 0;
    while passed < window {
        black_box(round(rounds));
        rounds += 1;
        passed = thread::wall_ns() - begun;
    }
    rounds as f64 / passed as f64
}

/// A chain of dependent steps without memory access. The multiplier is Knuth's (MMIX).
fn round(seed: u64) -> u64 {
    (0..STEPS).fold(seed, |value, _| value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;

    /// Largest share of a second taken by real-time threads on a PU: `share` by the slowing thread,
    /// and the rest of each window by a loop.
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
