//! How far apart a thread's accesses to the same line are, and what that means for caches of any size.
//!
//! # Problem
//! A cache of `C` lines that keeps the most recently used ones misses exactly the accesses before which
//! at least `C` other lines were used since the last access to the same line (Mattson et al. 1970). One
//! pass over the accesses that finds these *distances* therefore says how often a cache of any size
//! misses.
//!
//! # Approach
//! The lines, in the order of their last use, are kept in three pieces, so that what is frequent is
//! cheap and what is far is sampled:
//! 1. *front*: the last [`FRONT`] lines, searched one by one;
//! 2. *middle*: the [`MIDDLE`] lines before them, in a [`Recency`]; distances are exact up to here;
//! 3. *far*: of all lines before them only those whose number's hash is below a threshold, in another
//!    [`Recency`] (Waldspurger et al., SHARDS, 2015). When there are more than [`FAR`], the
//!    threshold is halved. A distance among the sampled lines, divided by the share that is sampled, is
//!    the distance.
//!
//! How many accesses go beyond the middle is known exactly; the samples only say how they are
//! distributed over far distances.
//!
//! # Properties
//! - **Exact up to the middle**: the misses of caches of up to `FRONT + MIDDLE` lines are those of a
//!   simulated cache, and all misses are as long as the far lines are not more than `FAR`.
//!   -> test `equals_a_simulated_cache`
//! - **More cache, no more misses**. -> test `more_cache_never_means_more_misses`
//! - **Sampled far**: misses of a program with more lines are near those of a simulated cache.
//!   -> test `sampled_distances_are_near`

use crate::recency::{Line, NodeIdx, Recency, mix};

/// Lines that are searched one by one. Chosen: three of four accesses of gzip, which spreads them widely, end
/// here, by its own counts.
pub const FRONT: usize = 16;
/// Lines whose distances are exact, 256 KiB of them: small caches would be badly sampled.
pub const MIDDLE: usize = 4096;
/// Sampled lines at a time, at most.
pub const FAR: usize = 32_768;

/// Distances below 16 are kept each for itself, others in eight parts of every power of two.
const BUCKETS: usize = 16 + 8 * 40;
/// The share of lines that is sampled, at first, in units of 2⁻³².
const ALL: u64 = 1 << 32;

/// The distances between one thread's accesses to the same line.
pub struct Distances {
    /// Each with its node of the middle; at first there is no line and no node.
    front: [(Line, Option<NodeIdx>); FRONT],
    middle: Recency,
    far: Option<Recency>,
    /// Lines whose hash is below it are sampled.
    threshold: u64,
    counts: Counts,
}

/// How many accesses found their line at which distance.
#[derive(Clone)]
pub struct Counts {
    /// How many accesses found their line at each distance within front and middle.
    near: [u64; BUCKETS],
    /// The same beyond, of sampled lines, each for as many as it stands for.
    beyond: [u64; BUCKETS],
    /// First accesses to sampled lines, each for as many as it stands for.
    first: u64,
    /// Accesses beyond the middle, sampled or not.
    all_beyond: u64,
    /// Lines that left the middle, and those of them that had been written to.
    left: u64,
    left_written: u64,
}

/// What a thread's distances amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misses {
    /// Numbers of lines, rising, and how many accesses miss a cache of so many; the last is what no
    /// cache helps.
    pub by_lines: Vec<(u64, u64)>,
    /// Lines that a cache of `FRONT + MIDDLE` lines gave up.
    pub left: u64,
    /// Those of them that it had to write back.
    pub left_written: u64,
}

impl Default for Distances {
    fn default() -> Self {
        Self::new()
    }
}

impl Distances {
    /// Of a thread that has used nothing yet.
    pub fn new() -> Self {
        // No line of a program has this number: addresses end long before.
        let nothing = (Line::new(u64::MAX >> 1, false), None);
        Self {
            front: [nothing; FRONT],
            middle: Recency::new(MIDDLE),
            far: None,
            threshold: ALL,
            counts: Counts::NONE,
        }
    }

    /// What has been counted so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The thread uses `line`.
    #[inline]
    pub fn access(&mut self, line: Line) {
        let (first, known) = self.front[0];
        if first.is(line) {
            self.counts.near[0] += 1;
            self.front[0] = (first.or(line), known);
            return;
        }
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

    /// The thread uses a line that is not in front; the others made room and `last` found none.
    fn access_behind(&mut self, line: Line, last: (Line, Option<NodeIdx>)) {
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

    fn access_far(&mut self, line: Line) {
        self.counts.all_beyond += 1;
        if !self.is_sampled(line.number()) {
            return;
        }
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

impl Counts {
    const NONE: Self = Self {
        near: [0; BUCKETS],
        beyond: [0; BUCKETS],
        first: 0,
        all_beyond: 0,
        left: 0,
        left_written: 0,
    };

    /// What was counted after `before`, which is of the same thread.
    pub fn since(&self, before: &Self) -> Self {
        let less = |all: &[u64; BUCKETS], before: &[u64; BUCKETS]| {
            std::array::from_fn(|at| all[at].saturating_sub(before[at]))
        };
        Self {
            near: less(&self.near, &before.near),
            beyond: less(&self.beyond, &before.beyond),
            first: self.first.saturating_sub(before.first),
            all_beyond: self.all_beyond.saturating_sub(before.all_beyond),
            left: self.left.saturating_sub(before.left),
            left_written: self.left_written.saturating_sub(before.left_written),
        }
    }

    /// What they amount to.
    pub fn misses(&self) -> Misses {
        let sampled = self.first + self.beyond.iter().sum::<u64>();
        // Samples stand for about as many accesses as there were; the true number is known. With no
        // samples at all nothing is known of what is far, and no cache is said to help.
        let scaled = |amount: u64| {
            let exact = u128::from(amount) * u128::from(self.all_beyond);
            let share = exact.checked_div(u128::from(sampled));
            share.map_or(self.all_beyond, |share| u64::try_from(share).unwrap_or(u64::MAX))
        };
        let (mut near, mut beyond) = (0, self.first);
        let mut missed = scaled(beyond);
        let mut by_lines = Vec::new();
        for at in (0..BUCKETS).rev() {
            near += self.near[at];
            beyond += self.beyond[at];
            let with = near + scaled(beyond);
            if with > missed {
                // A cache of the next bucket's least distance has all of this one's.
                by_lines.push((least(at + 1), missed));
                by_lines.push((least(at), with));
            }
            missed = with;
        }
        by_lines.push((0, missed));
        by_lines.dedup_by_key(|(lines, _)| *lines);
        by_lines.reverse();
        Misses { by_lines, left: self.left, left_written: self.left_written }
    }
}

/// The bucket that `distance` is counted in.
fn bucket(distance: usize) -> usize {
    if distance < 16 {
        return distance;
    }
    let octave = distance.ilog2() as usize;
    (16 + 8 * (octave - 4) + ((distance >> (octave - 3)) & 7)).min(BUCKETS - 1)
}

/// The least distance of bucket `at`.
fn least(at: usize) -> u64 {
    if at < 16 {
        return at as u64;
    }
    let (octave, part) = (4 + (at - 16) / 8, (at - 16) % 8);
    (8 + part as u64) << (octave - 3)
}

/// 32 bits that do not depend on what else a line's number is used for.
fn hash(number: u64) -> u64 {
    mix(number ^ 0x5851_f42d_4c95_7f2d) >> 32
}
