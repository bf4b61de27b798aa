//! Caches that tasks share: who has how much of one, and how often each misses.
//!
//! # Problem
//! Tasks that share a cache push each other's lines out. How much of it each holds follows from how fast
//! each brings lines in, and that follows from how much each holds.
//!
//! # Approach
//! The footprint of a window is the data that is touched in it. While a window grows, the footprint
//! grows by one line with every miss of a cache that the footprint just fills; so a miss curve tells
//! the footprint of every window. An LRU cache holds the footprints of all tasks in the longest window
//! of time for which they fit (Xiang et al., "HOTL: a higher order theory of locality", ASPLOS 2013).
//!
//! # Terms
//! - `m(c)`: misses per instruction with `c` bytes.
//! - `c(n)`: footprint of `n` instructions in bytes: `dc/dn = line · m(c)`, `c(0) = 0`.
//! - `r(t)`: instructions per second of task `t`; in a window of `T` seconds it has `r(t) · T`.

use crate::curve::MissCurve;

/// Bytes that a task holds of a window of `filled` instruction-lines: instructions times the line's
/// size. Infinitely many fill what the curve asks for at most.
///
/// Exact for a curve of straight pieces: on one that falls by `k` a byte, misses fall exponentially,
/// `m = m₀ · exp(−k · filled)`.
#[must_use]
pub fn footprint(curve: &MissCurve, filled: f64) -> f64 {
    let mut rest = filled;
    let mut at = (0.0, curve.at(0.0));
    for &(size, misses) in curve.points() {
        let (step, fall) = (size - at.0, at.1 - misses);
        if at.1 <= 0.0 {
            return at.0;
        }
        if step > 0.0 {
            let takes = window(step, at.1, misses);
            if takes > rest {
                let slope = fall / step;
                let bytes = if slope * rest < NEARLY_LEVEL {
                    at.1 * rest
                } else {
                    at.1 * -(-slope * rest).exp_m1() / slope
                };
                return at.0 + bytes.min(step);
            }
            rest -= takes;
        }
        at = (size, misses);
    }
    // Rounding of a level curve's end must not make infinity times 0 of it.
    if at.1 > 0.0 { at.0 + at.1 * rest } else { at.0 }
}

/// Below it `1 − exp(−x)` and `x` are the same to the twelfth digit.
const NEARLY_LEVEL: f64 = 1e-12;

/// Instruction-lines that it takes to fill `step` bytes while misses fall from `high` to `low` in a
/// straight line: `∫ dc / m(c)`. Infinite if `low` is 0.
fn window(step: f64, high: f64, low: f64) -> f64 {
    let fall = high - low;
    if fall <= high * NEARLY_LEVEL { step / high } else { step / fall * (high / low).ln() }
}

/// A task that shares a cache.
#[derive(Clone, Copy, Debug)]
pub struct Sharer<'a> {
    /// Its misses.
    pub curve: &'a MissCurve,
    /// How fast it goes on: instructions per second times the line's size.
    pub speed: f64,
    /// Bytes of its footprint that other caches hold in place of this one: 0 but for an exclusive one.
    pub elsewhere: f64,
}

/// Bytes that each task holds of a cache of `capacity` bytes.
///
/// Never more than `capacity` together; less if all that they touch fits.
#[must_use]
pub fn occupancy(capacity: f64, sharers: &[Sharer<'_>]) -> Vec<f64> {
    let held = |time: f64| {
        let held = |sharer: &Sharer<'_>| {
            let filled = if sharer.speed > 0.0 { sharer.speed * time } else { 0.0 };
            (footprint(sharer.curve, filled) - sharer.elsewhere).max(0.0)
        };
        sharers.iter().map(held).collect::<Vec<_>>()
    };
    let whole = held(f64::INFINITY);
    if whole.iter().sum::<f64>() <= capacity {
        return whole;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while held(high).iter().sum::<f64>() < capacity {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if held(middle).iter().sum::<f64>() < capacity {
            low = middle;
        } else {
            high = middle;
        }
    }
    held(low)
}
