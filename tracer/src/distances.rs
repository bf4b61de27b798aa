//! Reuse distances of a thread's accesses, and the misses of caches of any size.
//!
//! # Problem
//! A fully associative LRU cache of `C` lines misses an access exactly if at least `C` other lines
//! were used since the last access to the same line (Mattson et al. 1970). This number of lines is
//! the *distance* of the access. One pass that finds all distances therefore gives the misses of
//! caches of all sizes.
//!
//! # Approach
//! Lines, in the order of their last use, are kept in three parts, so that frequent cases are cheap
//! and far lines are sampled:
//! 1. *front*: the last [`FRONT`] lines, searched linearly;
//! 2. *middle*: the [`MIDDLE`] lines before the front, in a [`Recency`], with exact distances;
//! 3. *far*: of all lines before the middle a sample, in another [`Recency`]: the lines with a hash
//!    below a threshold (Waldspurger et al., SHARDS, 2015). The threshold is halved when the sample
//!    has more than [`FAR`] lines. A distance among sampled lines is divided by the sampled share.
//!
//! The number of accesses beyond the middle is exact; the sample gives only their distribution over
//! far distances.
//!
//! # Properties
//! - **Exact up to the middle**: the misses of caches of up to `FRONT + MIDDLE` lines are those of
//!   a simulated cache, and all misses are as long as the far lines are not more than `FAR`.
//!   -> test `equals_a_simulated_cache`
//! - **More cache, no more misses**. -> test `more_cache_never_means_more_misses`
//! - **Sampled far**: misses of a program with more lines are near those of a simulated cache.
//!   -> test `sampled_distances_are_near`

use crate::recency::{CacheLine, NodeIdx, Recency, mix};

/// Lines of the front. Chosen: three of four of gzip's accesses, which are widely spread, end here.
pub const FRONT: usize = 16;
/// Lines of the middle, 256 KiB: for small caches a sample would be inaccurate.
pub const MIDDLE: usize = 4096;
/// Largest number of sampled lines.
pub const FAR: usize = 32_768;

/// Buckets of distances: one per distance below 16, then eight per power of two.
const BUCKETS: usize = 16 + 8 * 40;
/// Threshold of a sample of all lines, in units of 2⁻³².
const ALL: u64 = 1 << 32;

/// Distances between a thread's accesses to the same line.
pub struct Distances {
    /// Last lines, the most recent first, each with its node of the middle; `None` for the
    /// placeholders of a new thread.
    front: [(CacheLine, Option<NodeIdx>); FRONT],
    middle: Recency,
    /// `None` before the first line leaves the middle.
    far: Option<Recency>,
    /// Lines with a smaller hash are sampled.
    threshold: u64,
    counts: DistanceHistogram,
}

/// Histogram of accesses by distance.
#[derive(Clone)]
pub struct DistanceHistogram {
    /// Accesses by distance, within front and middle.
    near: [u64; BUCKETS],
    /// Sampled accesses by distance, beyond the middle, each weighted by the inverse sampled share.
    beyond: [u64; BUCKETS],
    /// First accesses to sampled lines, weighted in the same way.
    first: u64,
    /// Accesses beyond the middle, sampled or not.
    all_beyond: u64,
    /// Lines that left the middle.
    left: u64,
    /// Lines that left the middle and had been written to.
    left_written: u64,
}

/// Misses of LRU caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misses {
    /// (lines of a cache, its misses), by rising size; the last misses occur in every cache.
    pub by_lines: Vec<(u64, u64)>,
    /// Lines evicted from a cache of `FRONT + MIDDLE` lines.
    pub left: u64,
    /// Evicted lines that were written back.
    pub left_written: u64,
}

impl Default for Distances {
    fn default() -> Self {
        Self::new()
    }
}

impl Distances {
    /// Distances of a thread without accesses.
    pub fn new() -> Self {
        // A number beyond all addresses.
        let nothing = (CacheLine::new(u64::MAX >> 1, false), None);
        Self {
            front: [nothing; FRONT],
            middle: Recency::new(MIDDLE),
            far: None,
            threshold: ALL,
            counts: DistanceHistogram::NONE,
        }
    }

    /// Counts so far.
    pub const fn counts(&self) -> &DistanceHistogram {
        &self.counts
    }

    /// Records an access to `line`.
    #[inline]
    pub fn access(&mut self, line: CacheLine) {
        let (first, known) = self.front[0];
        if first.is(line) {
            self.counts.near[0] += 1;
            self.front[0] = (first.or(line), known);
            return;
        }
        // Each line moves back one place until the accessed line's place is reached.
        let mut moved = self.front[0];
        for place in 1..FRONT {
            std::mem::swap(&mut moved, &mut self.front[place]);
            if moved.0.is(line) {
                self.counts.near[place] += 1;
                self.front[0] = (moved.0.or(line), moved.1);
                return;
            }
        }
        self.access_behind(line, moved);
    }

    /// Records an access to a line outside of the front. The front's lines have moved back, and
    /// `last` has left the front.
    fn access_behind(&mut self, line: CacheLine, last: (CacheLine, Option<NodeIdx>)) {
        self.front[0] = if let Some(known) = self.middle.find(line.number()) {
            let (found, above) = self.middle.lift(known);
            self.counts.near[bucket(FRONT + above)] += 1;
            (line.or(found), Some(known))
        } else {
            self.access_far(line);
            (line, Some(self.middle.know(line)))
        };
        if let (last, Some(known)) = last {
            self.middle.put(known, last);
            if self.middle.len() > MIDDLE {
                self.leave_middle();
            }
        }
    }

    /// Evicts the least recently used line of the middle, into the sample if its hash is sampled.
    fn leave_middle(&mut self) {
        let Some(lowest) = self.middle.lowest() else { return };
        self.middle.lift(lowest);
        let line = self.middle.forget(lowest);
        self.counts.left += 1;
        self.counts.left_written += u64::from(line.is_written());
        if !self.is_sampled(line.number()) {
            return;
        }
        let far = self.far.get_or_insert_with(|| Recency::new(FAR));
        let known = far.know(line);
        far.put(known, line);
        if far.len() > FAR {
            self.threshold /= 2;
            let threshold = self.threshold;
            far.keep(|number| hash(number) < threshold);
        }
    }

    /// Counts an access to a line beyond the middle, or a first access.
    fn access_far(&mut self, line: CacheLine) {
        self.counts.all_beyond += 1;
        if !self.is_sampled(line.number()) {
            return;
        }
        // Halving the threshold could end at 0.
        let stands_for = ALL / self.threshold.max(1);
        let found = self.far.as_mut().and_then(|far| {
            let known = far.find(line.number())?;
            let (_, above) = far.lift(known);
            far.forget(known);
            Some(above)
        });
        if let Some(above) = found {
            let above = above.saturating_mul(usize::try_from(stands_for).unwrap_or(usize::MAX));
            self.counts.beyond[bucket(FRONT + MIDDLE + above)] += stands_for;
        } else {
            self.counts.first += stands_for;
        }
    }

    fn is_sampled(&self, number: u64) -> bool {
        hash(number) < self.threshold
    }
}

impl DistanceHistogram {
    const NONE: Self = Self {
        near: [0; BUCKETS],
        beyond: [0; BUCKETS],
        first: 0,
        all_beyond: 0,
        left: 0,
        left_written: 0,
    };

    /// Counts after `before`, earlier counts of the same thread.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            near: difference(&self.near, &before.near),
            beyond: difference(&self.beyond, &before.beyond),
            first: self.first.saturating_sub(before.first),
            all_beyond: self.all_beyond.saturating_sub(before.all_beyond),
            left: self.left.saturating_sub(before.left),
            left_written: self.left_written.saturating_sub(before.left_written),
        }
    }

    /// Scales a sum of sampled accesses, of all `sampled`, to the exact number of accesses beyond
    /// the middle. Without samples all these accesses miss in every cache.
    fn scaled(&self, amount: u64, sampled: u64) -> u64 {
        // The product may exceed 64 bits.
        let exact = u128::from(amount) * u128::from(self.all_beyond);
        let share = exact.checked_div(u128::from(sampled));
        share.map_or(self.all_beyond, |share| u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Misses of LRU caches by size.
    pub fn misses(&self) -> Misses {
        let sampled = self.first + self.beyond.iter().sum::<u64>();
        let mut near = 0;
        let mut beyond = self.first;
        let mut missed = self.scaled(beyond, sampled);
        let mut by_lines = Vec::new();
        for at in (0..BUCKETS).rev() {
            near += self.near[at];
            beyond += self.beyond[at];
            let with = near + self.scaled(beyond, sampled);
            if with > missed {
                // A cache with the next bucket's least distance hits all of this bucket's accesses.
                by_lines.push((least(at + 1), missed));
                by_lines.push((least(at), with));
            }
            missed = with;
        }
        by_lines.push((0, missed));
        // Neighbouring buckets have both pushed their common border.
        by_lines.dedup_by_key(|(lines, _)| *lines);
        by_lines.reverse();
        Misses { by_lines, left: self.left, left_written: self.left_written }
    }
}

/// Counts of `all` that are not in `before`.
fn difference(all: &[u64; BUCKETS], before: &[u64; BUCKETS]) -> [u64; BUCKETS] {
    std::array::from_fn(|at| all[at].saturating_sub(before[at]))
}

/// Bucket of a distance.
fn bucket(distance: usize) -> usize {
    if distance < 16 {
        return distance;
    }
    let octave = distance.ilog2() as usize;
    // The three bits below the leading one number the bucket; the last takes all larger distances.
    (16 + 8 * (octave - 4) + ((distance >> (octave - 3)) & 7)).min(BUCKETS - 1)
}

/// Least distance of bucket `at`.
fn least(at: usize) -> u64 {
    if at < 16 {
        return at as u64;
    }
    let octave = 4 + (at - 16) / 8;
    let part = (at - 16) % 8;
    (8 + part as u64) << (octave - 3)
}

/// A 32-bit hash of a line's number, independent of [`Recency`]'s hash.
fn hash(number: u64) -> u64 {
    mix(number ^ 0x5851_f42d_4c95_7f2d) >> 32
}
