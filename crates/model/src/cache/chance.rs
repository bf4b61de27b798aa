//! Caches with random replacement, and caches that admit few new lines.
//!
//! # Approach
//! While a line waits for its next use, other accesses miss. Each of these misses evicts the line
//! with a probability of one over the number of lines in the cache. Unlike LRU, the amount of other
//! data used meanwhile is irrelevant; the time is relevant. A line lives for as long as it takes to
//! bring in as many lines as the cache has, on average. It is evicted with the probability
//! `1 − exp(−wait / life)`. The misses determine the life of lines, and the life determines the
//! misses (Berg and Hagersten: StatCache, ISPASS 2004, whose equation for a task alone is used
//! here; Martina, Garetto and Leonardi, INFOCOM 2014, derive the same from a cache whose lines have
//! times to live). The occupancy of a task is the bytes it brings in per second times the life of a
//! line.
//!
//! The wait of an access follows from the curve: data used before `c` other bytes was used one
//! window of `c` bytes ago, `∫ dc / m(c)`, as in [`super`].
//!
//! # Equation
//! With `w` the window and `u` the life of a line in the same unit, instructions times the size of
//! a line: `M(u) = m(∞) + ∫ (1 − exp(−w(c) / u)) · (−dm)`, and bytes held `u · M(u)`. Where misses
//! fall by `k` a byte from `a` to `b` they are `exp(−k·w)` of `a`, and the misses of `a − b` are
//! `a·(1 − Eₐ) − b·(1 − E_b) + (a·Eₐ − b·E_b) / (1 + k·u)` with `E = exp(−w / u)`. Over all pieces
//! the first two terms add up to those of the curve's ends.
//!
//! # Few new lines
//! Intel's last-level caches since Ivy Bridge try two policies on some of their sets and use the
//! better one for the others. One is close to LRU. Under the other a new line is the next to be
//! evicted, except for one in 16 (Abel and Reineke, nanoBench and uops.info; the idea: Qureshi and
//! others, Adaptive insertion policies, ISCA 2007). Data that passes once takes almost no room, and
//! a part of data that returns stays. In the model a missed line is kept with the probability `q` =
//! 1/16, in place of a random line. A line used again and again after the wait `w` survives the
//! wait with `s = exp(−w / u)`, is present afterwards with `a = h + (1 − h)·q`, and hits with
//! `h = a·s`. It therefore misses `1 − h = (1 − s) / (1 − (1 − q)·s)` of its uses. Equal waits of a
//! line are the best case: lines with short and long waits in turn are kept less often.

use super::{Held, gone, window, window_of};
use crate::curve::MissCurve;

/// Trivial cases: lines are evicted at once or never, or no access misses. `None` otherwise.
fn at_an_end(curve: &MissCurve, nearer: f64, life: f64) -> Option<Held> {
    let first = curve.at(nearer);
    let all = curve.touched();
    if life <= 0.0 || first <= 0.0 {
        // Bytes held are `u · M(u)`: at a life of 0 they grow by `M(0)`.
        return Some(Held { bytes: 0.0, growth: first, misses: first });
    }
    let ever = Held { bytes: all - nearer, growth: 0.0, misses: curve.at(all) };
    life.is_infinite().then_some(ever)
}

/// Probability that a missed line is kept; see the head of the file.
const KEPT: f64 = 1.0 / 16.0;

/// Share of a cache with random replacement in which a line lives for the window `life`. The growth
/// is per unit of `life`.
///
/// `nearer`: bytes of the footprint that nearer caches hold in place of this cache. Accesses to
/// these bytes do not reach this cache; the wait of other lines begins when they leave the nearer
/// caches.
#[must_use]
pub fn by_chance(curve: &MissCurve, nearer: f64, life: f64) -> Held {
    let first = curve.at(nearer);
    if let Some(held) = at_an_end(curve, nearer, life) {
        return held;
    }
    let points = curve.points();
    let windows = curve.windows();
    let begun = window_of(curve, nearer);
    let beyond = points.partition_point(|&(size, _)| size <= nearer);
    let mut sum = Sum { kept: 1.0, waited: 0.0, misses: 0.0, growth: 0.0 };
    let mut before = (nearer, first);
    for (&(size, low), &end) in points[beyond..].iter().zip(&windows[beyond..]) {
        sum.add(size - before.0, before.1, low, life, end - begun);
        before = (size, low);
    }
    // Accesses beyond the last point never hit.
    let last = before.1 * sum.kept;
    let misses = sum.misses + last;
    // `waited` is infinite where misses end; 0 times infinity is NaN.
    let waited = if last > 0.0 { last * sum.waited } else { 0.0 };
    Held { bytes: life * misses, growth: misses + sum.growth + waited, misses }
}

/// Share of a cache that keeps few new lines. In the window `filled` the cache misses as many lines
/// as it has; a line lives 16 times as long.
pub(crate) fn by_admission(curve: &MissCurve, nearer: f64, filled: f64) -> Held {
    let first = curve.at(nearer);
    if let Some(held) = at_an_end(curve, nearer, filled) {
        return held;
    }
    let points = curve.points();
    let windows = curve.windows();
    let begun = window_of(curve, nearer);
    let beyond = points.partition_point(|&(size, _)| size <= nearer);
    let mut before = (nearer, first);
    let mut waited = 0.0;
    let mut misses = 0.0;
    let mut fall = 0.0;
    for (&(size, low), &end) in points[beyond..].iter().zip(&windows[beyond..]) {
        let piece = (size - before.0, before.1, low);
        // Only the part `KEPT` of all misses evicts a line, so lives are longer by `1 / KEPT`.
        let (more, less) = few_new(piece, waited, filled / KEPT);
        misses += more;
        fall += less;
        before = (size, low);
        waited = end - begun;
    }
    // Accesses beyond the last point never hit.
    misses += before.1;
    Held { bytes: filled * misses, growth: misses - fall, misses }
}

/// Misses in a piece of `bytes` over which LRU misses fall from `high` to `low` and which begins
/// after the window `waited`. Also their fall with the life, as the slope `u · d/du`.
///
/// `∫ (1 − h) dm` by the five-point quadrature of Gauss and Legendre.
fn few_new((bytes, high, low): (f64, f64, f64), waited: f64, life: f64) -> (f64, f64) {
    // Abscissas and weights on 0 to 1.
    const POINTS: [(f64, f64); 5] = [
        (0.046_910_077_030_668, 0.118_463_442_528_094_5),
        (0.230_765_344_947_158_5, 0.239_314_335_249_683_2),
        (0.5, 0.284_444_444_444_444_4),
        (0.769_234_655_052_841_5, 0.239_314_335_249_683_2),
        (0.953_089_922_969_332, 0.118_463_442_528_094_5),
    ];
    let fall = high - low;
    if fall <= 0.0 || bytes <= 0.0 {
        return (0.0, 0.0);
    }
    let mut misses = 0.0;
    let mut slope = 0.0;
    for (place, weight) in POINTS {
        let at = low + fall * place;
        // The window in which misses fall from `high` to `at`, see `super::window`.
        let wait = (waited + bytes / fall * (high / at).ln()) / life;
        let lost = gone(wait);
        let rest = 1.0 / (KEPT + (1.0 - KEPT) * lost);
        misses += weight * fall * lost * rest;
        slope += weight * fall * KEPT * (1.0 - lost) * wait * rest * rest;
    }
    (misses, slope)
}

/// Sum over the pieces of a curve.
struct Sum {
    /// `exp(−w / u)` at the start of the next piece.
    kept: f64,
    /// `w / u` at the start of the next piece.
    waited: f64,
    /// Misses per instruction.
    misses: f64,
    /// Terms of the growth other than the misses themselves.
    growth: f64,
}

impl Sum {
    /// Adds a piece of `bytes` over which misses fall from `high` to `low` and which ends at the
    /// window `end`.
    fn add(&mut self, bytes: f64, high: f64, low: f64, life: f64, end: f64) {
        if high <= 0.0 || bytes <= 0.0 {
            return;
        }
        let fall = high - low;
        let lost = gone(window(bytes, high, low) / life);
        // a·Eₐ − b·E_b, written without a difference of two nearly equal numbers.
        let both = self.kept * (fall + low * lost);
        let steep = fall / bytes * life;
        let part = 1.0 / (1.0 + steep);
        self.misses += part * both;
        let before = high * self.kept * self.waited;
        self.kept *= 1.0 - lost;
        self.waited = end / life;
        // As at the end of `by_chance`: no product of 0 and infinity.
        let after = if low > 0.0 { low * self.kept * self.waited } else { 0.0 };
        self.growth += part * (before - after) - steep * part * part * both;
    }
}

#[cfg(test)]
mod tests;
