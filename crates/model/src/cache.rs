//! Shared caches: occupancy and misses of each task.
//!
//! # Problem
//! Tasks that share a cache evict each other's lines. A task's occupancy follows from the rates at
//! which the tasks fetch lines, and these rates follow from the occupancies.
//!
//! # Approach
//! The footprint of a window of instructions is the data touched in the window. When a window grows
//! by an instruction, its footprint grows by the misses per instruction of a cache of the
//! footprint's size. A miss curve thus gives the footprint of each window. A cache with LRU
//! replacement holds the footprints of all its tasks in the longest time for which they fit (Xiang,
//! Ding, Luo and Bao: HOTL, a higher order theory of locality, ASPLOS 2013). Random replacement,
//! and a policy that admits few new lines: [`chance`]. A policy between two of these is modelled as
//! both at once: each governs a part of all accesses, and both reach equally far back.
//!
//! # Terms
//! - `m(c)`: misses per instruction with `c` bytes.
//! - window: instructions times the size of a line, so that `dc = m(c) · d(window)`, from
//!   `c(0) = 0`.
//! - speed: growth of a task's window, instructions per second times the size of a line.
//!
//! # Limits
//! No associativity and no prefetching. Lines shared by tasks of one address space count for each
//! task: footprints are added as if the tasks touched different data.

use crate::curve::MissCurve;

pub mod chance;

/// Data touched in a window of instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    /// Size in bytes.
    pub bytes: f64,
    /// Misses per instruction of a cache of that size: the growth of the footprint.
    pub misses: f64,
}

/// Relative difference below which two numbers count as equal. Rounding errors of a dozen
/// operations are a thousand times smaller.
const EQUAL: f64 = 1e-12;

/// Window in which `bytes` more are filled while misses fall linearly from `high` to `low`:
/// `∫ dc / m(c)`. Infinite if `low` is 0.
#[must_use]
pub fn window(bytes: f64, high: f64, low: f64) -> f64 {
    let fall = high - low;
    // Level misses have a plain quotient; the logarithm's would be 0 / 0.
    if fall <= high * EQUAL { bytes / high } else { bytes / fall * (high / low).ln() }
}

/// Window from an empty cache to each of a curve's `points` of size and misses.
pub(crate) fn windows(points: &[(f64, f64)]) -> Vec<f64> {
    // A curve is level before its first point, as in [`MissCurve::at`].
    let mut before = points.first().map_or((0.0, 0.0), |&(_, misses)| (0.0, misses));
    let mut sum = 0.0;
    let windows = points.iter().map(|&(bytes, misses)| {
        // A point of no bytes is filled at once, whatever the misses.
        sum += if bytes > before.0 { window(bytes - before.0, before.1, misses) } else { 0.0 };
        before = (bytes, misses);
        sum
    });
    windows.collect()
}

/// Footprint of a window.
///
/// Where misses fall by `k` a byte they fall exponentially with the window: `dc = m · dw` and
/// `dm = −k · dc` give `m = m₀ · exp(−k·w)`, and `c = c₀ + (m₀ − m) / k`. Where misses are level,
/// `c = c₀ + m₀ · w`.
#[inline]
pub(crate) fn footprint(curve: &MissCurve, window: f64) -> Footprint {
    let points = curve.points();
    let windows = curve.windows();
    let after = windows.partition_point(|&filled| filled <= window);
    // Without points the index wraps to one that no point has.
    let Some(&(low_at, low)) = points.get(after.min(points.len().wrapping_sub(1))) else {
        return Footprint { bytes: 0.0, misses: 0.0 };
    };
    let (from, high, filled) = match after.checked_sub(1) {
        // The first piece of the curve begins at 0 bytes, at time 0.
        None => (0.0, points[0].1, 0.0),
        Some(before) => (points[before].0, points[before].1, windows[before]),
    };
    // Without misses the footprint does not grow, not even in an infinite window.
    if high <= 0.0 {
        return Footprint { bytes: from, misses: 0.0 };
    }
    let rest = window - filled;
    // Misses are level after the last point, and a slope of 0 would divide by 0.
    if after == points.len() || high - low <= high * EQUAL {
        return Footprint { bytes: from + high * rest, misses: high };
    }
    let slope = (high - low) / (low_at - from);
    let gone = gone(slope * rest);
    Footprint { bytes: from + high * gone / slope, misses: high * (1.0 - gone) }
}

/// `1 − exp(−x)` for `x` of at least 0, to twelve digits: `exp` alone is faster than `exp_m1`.
fn gone(x: f64) -> f64 {
    if x > 1e-3 {
        1.0 - (-x).exp()
    } else {
        // The next term of the series, x⁵ / 120, is below 1e-14 of the result.
        x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0)))
    }
}

/// [`Sharer::chance`] of a cache with random replacement.
pub(crate) const RANDOM: f64 = 0.5;

/// A task that shares a cache.
#[derive(Clone, Copy, Debug)]
pub struct Sharer<'a> {
    /// Miss curve of the task.
    pub curve: &'a MissCurve,
    /// Growth of the task's window; at least 0.
    pub speed: f64,
    /// Bytes of the footprint that nearer caches hold in place of this cache; 0 unless this cache
    /// is exclusive.
    pub elsewhere: f64,
    /// Replacement policy: 0 is LRU, ½ random, and 1 keeps few new lines. Between two of these,
    /// both apply at once.
    pub chance: f64,
}

/// A task's share of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Occupancy in bytes.
    pub bytes: f64,
    /// Growth of the occupancy as the content reaches farther back: bytes a second, or per unit of
    /// the window.
    pub growth: f64,
    /// Misses per instruction.
    pub misses: f64,
}

impl Held {
    /// Weighted mean: `part` of `self` and the rest of `other`.
    fn mixed(self, other: Self, part: f64) -> Self {
        Self {
            bytes: mix(part, self.bytes, other.bytes),
            growth: mix(part, self.growth, other.growth),
            misses: mix(part, self.misses, other.misses),
        }
    }
}

fn mix(part: f64, one: f64, two: f64) -> f64 {
    part * one + (1.0 - part) * two
}

impl Sharer<'_> {
    /// Share of a cache that holds the content of the last `time` seconds. With random replacement
    /// `time` is the mean life of a line.
    #[must_use]
    #[inline]
    pub fn after(&self, time: f64) -> Held {
        // A task that does not run fetches no lines.
        if self.speed <= 0.0 {
            return Held::default();
        }
        let window = self.speed * time;
        if self.chance <= 0.0 {
            return self.by_use(window);
        }
        let mut held = chance::by_chance(self.curve, self.elsewhere, window);
        if self.chance > RANDOM {
            let few = chance::by_admission(self.curve, self.elsewhere, window);
            held = few.mixed(held, (self.chance - RANDOM) / (1.0 - RANDOM));
        }
        // So far per unit of the window; `growth` is per second.
        held.growth *= self.speed;
        if self.chance < RANDOM {
            held.mixed(self.by_use(window), self.chance / RANDOM)
        } else {
            held
        }
    }

    /// Share of an LRU cache.
    #[inline]
    fn by_use(&self, window: f64) -> Held {
        let Footprint { bytes, misses } = footprint(self.curve, window);
        // An exclusive cache holds the footprint beyond the nearer caches.
        let here = bytes - self.elsewhere;
        if here > 0.0 {
            Held { bytes: here, growth: misses * self.speed, misses }
        } else {
            // The nearer caches hold the whole footprint: an access that misses there misses here
            // too.
            Held { bytes: 0.0, growth: 0.0, misses: self.curve.at(self.elsewhere) }
        }
    }

    /// Occupancy, in bytes, of a private cache of `capacity` bytes.
    #[must_use]
    pub fn alone(&self, capacity: f64) -> f64 {
        (self.curve.touched() - self.elsewhere).clamp(0.0, capacity)
    }
}

/// Time, in seconds, that the content of a cache of `capacity` bytes reaches back: in this time its
/// sharers touch `capacity` bytes. Infinite if all data of the sharers fits.
///
/// `near` is the start of the search; any number is valid. The method is Newton's, kept within
/// bounds: the touched bytes grow with the time and ever more slowly, except for jumps where an
/// exclusive cache's part begins.
#[must_use]
pub fn reach(capacity: f64, sharers: &[Sharer<'_>], near: f64) -> f64 {
    /// Chosen; on random curves and speeds the search ends after a handful of steps.
    const STEPS: u32 = 200;
    // A task that does not run never fills its part.
    let active = sharers.iter().filter(|sharer| sharer.speed > 0.0);
    let all: f64 = active.map(|sharer| sharer.alone(f64::INFINITY)).sum();
    if all <= capacity {
        return f64::INFINITY;
    }
    let mut low = 0.0;
    let mut high = f64::INFINITY;
    // Any positive start serves; a near one saves steps.
    let mut time = if near > 0.0 && near.is_finite() { near } else { 1e-6 };
    for _ in 0..STEPS {
        let mut held = 0.0;
        let mut growth = 0.0;
        for sharer in sharers {
            let its = sharer.after(time);
            held += its.bytes;
            growth += its.growth;
        }
        let missing = capacity - held;
        if missing.abs() <= capacity * EQUAL {
            break;
        }
        // The occupancy grows with the time: with bytes missing the time is too short.
        *(if missing > 0.0 { &mut low } else { &mut high }) = time;
        // Infinite or NaN where nothing grows; the bounds below refuse it.
        let newton = time + missing / growth;
        time = match (newton > low && newton < high, high.is_finite()) {
            (true, _) => newton,
            (false, true) => f64::midpoint(low, high),
            // No upper bound is known yet.
            (false, false) => time * 4.0,
        };
        // The bounds can meet at a jump, where no time gives exactly `capacity` bytes.
        if high - low <= low * f64::EPSILON || !time.is_finite() {
            break;
        }
    }
    time
}

/// Occupancy of each task, in bytes, in a cache of `capacity` bytes.
///
/// The sum is at most `capacity`, apart from rounding, and less if all data fits.
#[must_use]
pub fn occupancy(capacity: f64, sharers: &[Sharer<'_>]) -> Vec<f64> {
    let time = reach(capacity, sharers, 0.0);
    sharers.iter().map(|sharer| sharer.after(time).bytes).collect()
}

/// Lines missed while `bytes` of an empty cache are filled, beyond the misses of a full cache.
///
/// Filling takes one miss a line. In the same window, `∫ dc / m(c)`, a full cache misses `m(bytes)`
/// an instruction. The difference is `bytes − window · m(bytes)`, in lines. It is 0 for streaming
/// data, since `m` is level then, and all lines for a working set that stays.
pub(crate) fn cold_misses(curve: &MissCurve, bytes: f64, line: f64) -> f64 {
    // Data smaller than the cache fills only its own size.
    let bytes = bytes.min(curve.touched());
    let misses = curve.at(bytes);
    // Without misses the window is infinite, and infinity times 0 is NaN.
    let usual = if misses > 0.0 { window_of(curve, bytes) * misses } else { 0.0 };
    ((bytes - usual) / line).max(0.0)
}

/// Window in which `bytes` are touched: the inverse of [`footprint`].
pub(crate) fn window_of(curve: &MissCurve, bytes: f64) -> f64 {
    let points = curve.points();
    let windows = curve.windows();
    if bytes <= 0.0 || points.is_empty() {
        return 0.0;
    }
    let after = points.partition_point(|&(size, _)| size <= bytes);
    let (from, high, filled) = match after.checked_sub(1) {
        None => (0.0, points[0].1, 0.0),
        Some(before) => (points[before].0, points[before].1, windows[before]),
    };
    if bytes <= from { filled } else { filled + window(bytes - from, high, curve.at(bytes)) }
}

#[cfg(test)]
mod tests;
