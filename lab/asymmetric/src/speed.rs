//! How many times slower one PU is than another: a loop on both at the same time.
//!
//! The loops are real-time threads below the one that slows, so that programs that run on the PUs meanwhile
//! change nothing.

use crate::error::Error;
use crate::sys;
use colocate_study::stats::{self, Estimate};
use serde::Serialize;
use smt_bench::thread;
use std::hint::black_box;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// For how long the loops run. Chosen: a hundred usual periods, at whose ends the result is off by an eighth of a percent
/// at most.
const WINDOW: Duration = Duration::from_millis(200);

/// For how long everybody else runs after that. Chosen: the loops are real-time threads, too, and with 400 ms of every
/// second and [`share::MOST`](crate::share::MOST) of the rest stay below the 95 % that the kernel lets these have.
const PAUSE: Duration = Duration::from_millis(300);

/// Their real-time priority: the lowest.
const PRIORITY: u8 = 1;

/// Steps between two looks at the clock: about a µs.
const STEPS: u64 = 1000;

/// How many times slower PU `slow` is than PU `fast`.
///
/// # Errors
/// As [`Error`] has them for threads; [`Error::Stuck`] if a loop did nothing.
pub fn ratio(slow: u32, fast: u32, windows: u32) -> Result<Measured, Error> {
    let ratios = (0..windows).map(|_| once(slow, fast)).collect::<Result<Vec<f64>, Error>>()?;
    let ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
    let both = stats::geometric_estimate(&ratios).zip(stats::median(&ratios));
    let (mean, median) = both.ok_or(Error::Stuck { cpu: slow, ms })?;
    Ok(Measured { mean, median })
}

/// How many times slower a PU was in some windows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// The geometric mean, which is told.
    pub mean: Estimate,
    /// The median, by which the share is corrected: on a virtual machine a window may be lost to others.
    pub median: f64,
}

fn once(slow: u32, fast: u32) -> Result<f64, Error> {
    // They begin some 0.1 ms apart, which is nothing beside a window.
    let [slow, fast] = std::thread::scope(|scope| {
        let loops = [slow, fast].map(|cpu| start(scope, cpu));
        loops.map(|started| started.and_then(join))
    });
    std::thread::sleep(PAUSE);
    Ok(fast? / slow?)
}

type Started<'scope> = ScopedJoinHandle<'scope, Result<f64, Error>>;

fn start<'scope>(scope: &'scope Scope<'scope, '_>, cpu: u32) -> Result<Started<'scope>, Error> {
    let measure = move || {
        prepare(cpu)?;
        let rate = rate();
        // What was done elsewhere says nothing of it.
        thread::is_on(cpu)?;
        Ok(rate)
    };
    Builder::new().spawn_scoped(scope, measure).map_err(Error::Thread)
}

fn join(started: Started<'_>) -> Result<f64, Error> {
    started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn prepare(cpu: u32) -> Result<(), Error> {
    thread::pin(cpu)?;
    sys::be_real_time(PRIORITY).map_err(Error::NotPermitted)
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

/// Steps that wait for each other and ask for no memory. The multiplier is Knuth's (MMIX).
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
