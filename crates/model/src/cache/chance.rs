//! Caches that give up any of their lines, by chance, whenever one comes in.
//!
//! # Approach
//! While a line waits to be used again others miss, and each of these misses takes it with a chance of one
//! in as many as the cache has lines. So what counts is not how much other data is used meanwhile, as with
//! LRU, but how long it takes: a line lives as long as it takes to bring in as many lines as the cache has,
//! on average, and is gone with the probability `1 − exp(−wait / life)`. How often accesses miss then says
//! how long lines live, and the other way round (Berg and Hagersten: StatCache, ISPASS 2004, whose equation
//! this is for a task alone; Martina, Garetto and Leonardi, INFOCOM 2014, write the same as a cache whose
//! lines have times to live). A task that brings in more holds more: bytes held are bytes brought in a second
//! times the life of a line.
//!
//! How long accesses wait follows from the curve: data that was used before `c` other bytes was used one
//! window of `c` bytes ago, `∫ dc / m(c)`, as in [`super`].
//!
//! # Equation
//! With `w` the window and `u` the life of a line in the same unit, instructions times the size of a line:
//! `M(u) = m(∞) + ∫ (1 − exp(−w(c) / u)) · (−dm)`, and bytes held `u · M(u)`. Where misses fall by `k` a
//! byte from `a` to `b` they are `exp(−k·w)` of `a`, and what misses of `a − b` is
//! `a·(1 − Eₐ) − b·(1 − E_b) + (a·Eₐ − b·E_b) / (1 + k·u)` with `E = exp(−w / u)`. Over all pieces the
//! first two add up to those of the curve's ends.

//!
//! # Few new lines
//! Last caches of Intel since Ivy Bridge try two policies on some of their sets and take the better one for the
//! others: one close to LRU, and one under which a new line is, but for one in 16, the next to go (Abel and
//! Reineke, nanoBench and uops.info; the idea: Qureshi and others, Adaptive insertion policies, ISCA 2007).
//! So data that passes once takes next to no place, and of data that comes round a part stays. Here: a line
//! that is missed is kept with the probability `q` = 1/16, and any is given up for it. One that is used again
//! and again after the wait `w` survives it with `s = exp(−w / u)`, is there afterwards with
//! `a = h + (1 − h)·q`, and hits with `h = a·s`, so it misses `1 − h = (1 − s) / (1 − (1 − q)·s)` of its uses.
//! That lines keep to their waits is the best case: what is used soon once and late another time is kept
//! less well.

use super::{Held, gone, window, window_of};
use crate::curve::MissCurve;

/// Where there is nothing to work out: lines go at once or stay for ever, or nothing is missed.
fn at_an_end(curve: &MissCurve, nearer: f64, life: f64) -> Option<Held> {
    let (first, all) = (curve.at(nearer), curve.touched());
    if life <= 0.0 || first <= 0.0 {
        return Some(Held { bytes: 0.0, growth: first, misses: first });
    }
    let ever = Held { bytes: all - nearer, growth: 0.0, misses: curve.at(all) };
    life.is_infinite().then_some(ever)
}

/// Probability that a line which was missed is kept; see above.
const KEPT: f64 = 1.0 / 16.0;

/// What a task holds, and misses, where a line lives for the window `life`; and how fast the bytes grow with
/// it.
///
/// `nearer`: bytes of its footprint that nearer caches hold in place of this one. Accesses to them never
/// come here, and others wait here only from when they left those.
#[must_use]
pub fn by_chance(curve: &MissCurve, nearer: f64, life: f64) -> Held {
    let first = curve.at(nearer);
    if let Some(held) = at_an_end(curve, nearer, life) {
        return held;
    }
    let (points, windows) = (curve.points(), curve.windows());
    let begun = window_of(curve, nearer);
    let beyond = points.partition_point(|&(size, _)| size <= nearer);
    let mut sum = Sum { kept: 1.0, waited: 0.0, misses: 0.0, growth: 0.0 };
    let mut before = (nearer, first);
    for (&(size, low), &end) in points[beyond..].iter().zip(&windows[beyond..]) {
        sum.add(size - before.0, before.1, low, life, end - begun);
        before = (size, low);
    }
    // What comes after the last point never hits.
    let last = before.1 * sum.kept;
    let misses = sum.misses + last;
    let waited = if last > 0.0 { last * sum.waited } else { 0.0 };
    Held { bytes: life * misses, growth: misses + sum.growth + waited, misses }
}

/// The same of a cache that keeps few new lines. It takes the window `filled` to miss as many lines as the
/// cache has; a line lives 16 times as long.
pub(crate) fn by_admission(curve: &MissCurve, nearer: f64, filled: f64) -> Held {
    let first = curve.at(nearer);
    if let Some(held) = at_an_end(curve, nearer, filled) {
        return held;
    }
    let (points, windows) = (curve.points(), curve.windows());
    let begun = window_of(curve, nearer);
    let beyond = points.partition_point(|&(size, _)| size <= nearer);
    let (mut before, mut waited) = ((nearer, first), 0.0);
    let (mut misses, mut fall) = (0.0, 0.0);
    for (&(size, low), &end) in points[beyond..].iter().zip(&windows[beyond..]) {
        let piece = (size - before.0, before.1, low);
        let (more, less) = few_new(piece, waited, filled / KEPT);
        (misses, fall) = (misses + more, fall + less);
        (before, waited) = ((size, low), end - begun);
    }
    misses += before.1;
    Held { bytes: filled * misses, growth: misses - fall, misses }
}

/// Misses of a piece of `bytes` over which misses of LRU fall from `high` to `low`, and which begins after
/// `waited`; and by how much they fall for each doubling of the life, as a slope: `u · d/du`.
///
/// `∫ (1 − h) dm` at the five points of Gauss and Legendre.
fn few_new((bytes, high, low): (f64, f64, f64), waited: f64, life: f64) -> (f64, f64) {
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
    let (mut misses, mut slope) = (0.0, 0.0);
    for (place, weight) in POINTS {
        let at = low + fall * place;
        let wait = (waited + bytes / fall * (high / at).ln()) / life;
        let lost = gone(wait);
        let rest = 1.0 / (KEPT + (1.0 - KEPT) * lost);
        misses += weight * fall * lost * rest;
        slope += weight * fall * KEPT * (1.0 - lost) * wait * rest * rest;
    }
    (misses, slope)
}

/// Pieces of a curve that have been added up.
struct Sum {
    /// `exp(−w / u)` where the next piece begins.
    kept: f64,
    /// `w / u` there.
    waited: f64,
    misses: f64,
    growth: f64,
}

impl Sum {
    /// A piece of `bytes` over which misses fall from `high` to `low`, and which ends after `end`.
    fn add(&mut self, bytes: f64, high: f64, low: f64, life: f64, end: f64) {
        if high <= 0.0 || bytes <= 0.0 {
            return;
        }
        let fall = high - low;
        let lost = gone(window(bytes, high, low) / life);
        // a·Eₐ − b·E_b, without a difference of two that may be nearly the same.
        let both = self.kept * (fall + low * lost);
        let steep = fall / bytes * life;
        let part = 1.0 / (1.0 + steep);
        self.misses += part * both;
        let before = high * self.kept * self.waited;
        (self.kept, self.waited) = (self.kept * (1.0 - lost), end / life);
        let after = if low > 0.0 { low * self.kept * self.waited } else { 0.0 };
        self.growth += part * (before - after) - steep * part * part * both;
    }
}

#[cfg(test)]
mod tests;
