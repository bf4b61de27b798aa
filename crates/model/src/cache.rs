//! Caches that tasks share: how much each task holds of one, and how often each misses.
//!
//! # Problem
//! Tasks that share a cache push each other's lines out. How much of it each holds follows from how fast
//! each brings lines in, and that follows from how much each holds.
//!
//! # Approach
//! The footprint of a window of instructions is the data touched in it. While a window grows by an
//! instruction its footprint grows by the lines that a cache of just that size would miss: so a miss
//! curve gives the footprint of every window. A cache with LRU replacement holds the footprints of all
//! its tasks in the longest time for which they fit (Xiang, Ding, Luo and Bao: HOTL, a higher order
//! theory of locality, ASPLOS 2013). One that gives up lines by chance, and one that lets few new ones in:
//! [`chance`]. One that does something between is taken as both at once: a part of all accesses is subject to
//! the one and the rest to the other, and both reach equally far back.
//!
//! # Terms
//! - `m(c)`: misses per instruction with `c` bytes.
//! - window: instructions times the size of a line, so that `dc = m(c) · d(window)`, from `c(0) = 0`.
//! - speed: how fast a task's window grows, instructions per second times the size of a line.
//!
//! # What is left out
//! Associativity, prefetching, and that tasks of one address space may hold
//! a line together: their footprints are added, as if they touched different data.

use crate::curve::MissCurve;

pub mod chance;

/// What a window of instructions touches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    /// Its size.
    pub bytes: f64,
    /// Misses per instruction of a cache of that size: how fast the footprint grows.
    pub misses: f64,
}

/// Two numbers that are nearer to each other than this, as a share, count as equal.
/// Rounding errors of a dozen operations are a thousand times smaller.
const EQUAL: f64 = 1e-12;

/// How long it takes to fill `bytes` more while misses fall from `high` to `low` in a straight line:
/// `∫ dc / m(c)`. Infinite if `low` is 0.
#[must_use]
pub fn window(bytes: f64, high: f64, low: f64) -> f64 {
    let fall = high - low;
    if fall <= high * EQUAL { bytes / high } else { bytes / fall * (high / low).ln() }
}

/// How long it takes from nothing to fill each of a curve's points, of size and misses.
pub(crate) fn windows(points: &[(f64, f64)]) -> Vec<f64> {
    let mut before = points.first().map_or((0.0, 0.0), |&(_, misses)| (0.0, misses));
    let mut sum = 0.0;
    let step = |&(bytes, misses): &(f64, f64)| {
        // A point of no bytes is filled at once, whatever the misses.
        sum += if bytes > before.0 { window(bytes - before.0, before.1, misses) } else { 0.0 };
        before = (bytes, misses);
        sum
    };
    points.iter().map(step).collect()
}

/// What is touched in a window.
///
/// Where misses fall by `k` a byte they fall exponentially with the window: `dc = m · dw` and
/// `dm = −k · dc` give `m = m₀ · exp(−k·w)`, and `c = c₀ + (m₀ − m) / k`. Where they are level,
/// `c = c₀ + m₀ · w`.
#[inline]
pub(crate) fn footprint(curve: &MissCurve, window: f64) -> Footprint {
    let (points, windows) = (curve.points(), curve.windows());
    let after = windows.partition_point(|&filled| filled <= window);
    let Some(&(low_at, low)) = points.get(after.min(points.len().wrapping_sub(1))) else {
        return Footprint { bytes: 0.0, misses: 0.0 };
    };
    let (from, high, filled) = match after.checked_sub(1) {
        None => (0.0, points[0].1, 0.0),
        Some(before) => (points[before].0, points[before].1, windows[before]),
    };
    // Where nothing misses nothing grows, not even in an infinite window.
    if high <= 0.0 {
        return Footprint { bytes: from, misses: 0.0 };
    }
    let rest = window - filled;
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
        x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0)))
    }
}

/// [`Sharer::chance`] of a cache that gives up any line, by chance.
pub(crate) const RANDOM: f64 = 0.5;

/// A task that shares a cache.
#[derive(Clone, Copy, Debug)]
pub struct Sharer<'a> {
    /// Its misses.
    pub curve: &'a MissCurve,
    /// Its speed; at least 0.
    pub speed: f64,
    /// Bytes of its footprint that nearer caches hold in place of this one: 0 but for an exclusive one.
    pub elsewhere: f64,
    /// How little the cache cares for when a line was used: 0 is LRU, ½ random, and with 1 most new lines
    /// are not even kept; between, it is two of them at once.
    pub chance: f64,
}

/// What a task has of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Bytes that it holds.
    pub bytes: f64,
    /// How fast they grow the farther back the content reaches: bytes a second, or a unit of the window.
    pub growth: f64,
    /// Misses per instruction.
    pub misses: f64,
}

impl Held {
    /// `part` of it, and the rest of `other`.
    fn mixed(self, other: Self, part: f64) -> Self {
        let mix = |one: f64, two: f64| part * one + (1.0 - part) * two;
        Self {
            bytes: mix(self.bytes, other.bytes),
            growth: mix(self.growth, other.growth),
            misses: mix(self.misses, other.misses),
        }
    }
}

impl Sharer<'_> {
    /// What it has of a cache whose content is that of the last `time` seconds; where lines go by chance,
    /// each stays for so long on average.
    #[must_use]
    #[inline]
    pub fn after(&self, time: f64) -> Held {
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
        held.growth *= self.speed;
        if self.chance < RANDOM {
            held.mixed(self.by_use(window), self.chance / RANDOM)
        } else {
            held
        }
    }

    /// With LRU.
    #[inline]
    fn by_use(&self, window: f64) -> Held {
        let Footprint { bytes, misses } = footprint(self.curve, window);
        let here = bytes - self.elsewhere;
        if here > 0.0 {
            Held { bytes: here, growth: misses * self.speed, misses }
        } else {
            Held { bytes: 0.0, growth: 0.0, misses: self.curve.at(self.elsewhere) }
        }
    }

    /// Bytes that it holds of a cache of `capacity` bytes that it has for itself.
    #[must_use]
    pub fn alone(&self, capacity: f64) -> f64 {
        (self.curve.touched() - self.elsewhere).clamp(0.0, capacity)
    }
}

/// How many seconds back the content of a cache of `capacity` bytes reaches: the time in which its
/// sharers touch as much. Infinite if all that they ever touch fits.
///
/// `near` is where to begin the search; any number will do. Newton's method, held within bounds: what is
/// touched grows with the time and ever more slowly, but for jumps where an exclusive cache's part begins.
#[must_use]
pub fn reach(capacity: f64, sharers: &[Sharer<'_>], near: f64) -> f64 {
    /// Chosen; on random curves and speeds the search ends after a handful.
    const STEPS: u32 = 200;
    let active = sharers.iter().filter(|sharer| sharer.speed > 0.0);
    let all: f64 = active.map(|sharer| sharer.alone(f64::INFINITY)).sum();
    if all <= capacity {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut time = if near > 0.0 && near.is_finite() { near } else { 1e-6 };
    for _ in 0..STEPS {
        let (mut held, mut growth) = (0.0, 0.0);
        for sharer in sharers {
            let its = sharer.after(time);
            held += its.bytes;
            growth += its.growth;
        }
        let missing = capacity - held;
        if missing.abs() <= capacity * EQUAL {
            break;
        }
        *(if missing > 0.0 { &mut low } else { &mut high }) = time;
        let newton = time + missing / growth;
        time = match (newton > low && newton < high, high.is_finite()) {
            (true, _) => newton,
            (false, true) => f64::midpoint(low, high),
            (false, false) => time * 4.0,
        };
        if high - low <= low * f64::EPSILON || !time.is_finite() {
            break;
        }
    }
    time
}

/// Bytes that each task holds of a cache of `capacity` bytes.
///
/// Never more than `capacity` together, but for rounding; less if all that they touch fits.
#[must_use]
pub fn occupancy(capacity: f64, sharers: &[Sharer<'_>]) -> Vec<f64> {
    let time = reach(capacity, sharers, 0.0);
    sharers.iter().map(|sharer| sharer.after(time).bytes).collect()
}

/// Lines that are missed beyond those of a full cache while `bytes` of a cache that was empty are filled.
///
/// Filling takes one miss a line. In the same window, `∫ dc / m(c)`, a full cache misses `m(bytes)` an
/// instruction; so `bytes − window · m(bytes)`, in lines. None for data that streams through, since
/// `m` is level then; every line for a working set that stays.
pub(crate) fn cold_misses(curve: &MissCurve, bytes: f64, line: f64) -> f64 {
    let bytes = bytes.min(curve.touched());
    let misses = curve.at(bytes);
    let usual = if misses > 0.0 { window_of(curve, bytes) * misses } else { 0.0 };
    ((bytes - usual) / line).max(0.0)
}

/// The window in which `bytes` are touched: the inverse of [`footprint`].
pub(crate) fn window_of(curve: &MissCurve, bytes: f64) -> f64 {
    let (points, windows) = (curve.points(), curve.windows());
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
