//! Lines in the order of their last use, which says how much else was used since.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A line of the program's memory: its address by the line's size, and whether it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(u64);

impl Line {
    /// The line numbered `number`.
    pub const fn new(number: u64, written: bool) -> Self {
        Self(number << 1 | written as u64)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0 >> 1
    }

    /// Whether it was written to.
    pub const fn is_written(self) -> bool {
        self.0 & 1 != 0
    }

    /// The same line, written to if either is.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | (other.0 & 1))
    }
}

/// A set of lines, each put on top when it is added, that knows how many lie above any of them.
///
/// Lines have places that rise with the order in which they came; a tree of sums counts the places in
/// use, so that finding out takes time with the logarithm of the number of places. When no place is
/// left above, the lines move down together.
pub struct Recency {
    /// What is in each place.
    places: Vec<Line>,
    /// One bit for each place that is in use.
    used: Vec<u64>,
    /// Sums over the words of `used`, as a binary indexed tree: `sums[i]` is of the words from
    /// `i & (i + 1)` to `i`.
    sums: Vec<u32>,
    place_of: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    /// The next place on top.
    next: usize,
    /// No word of `used` below it has a bit.
    lowest: usize,
}

impl Recency {
    /// A set of at most `most` lines; some more may be in it for a moment.
    pub fn new(most: usize) -> Self {
        // With four places for each, moving them down costs one step for three that were added.
        let words = (4 * most).div_ceil(64) + 1;
        Self {
            places: vec![Line(0); 64 * words],
            used: vec![0; words],
            sums: vec![0; words],
            place_of: HashMap::with_capacity_and_hasher(most + 1, BuildHasherDefault::default()),
            next: 0,
            lowest: 0,
        }
    }

    /// How many lines are in it.
    pub fn len(&self) -> usize {
        self.place_of.len()
    }

    /// Takes out the line numbered `number`, if it is there, and says how many lay above it.
    pub fn take(&mut self, number: u64) -> Option<(Line, usize)> {
        let place = self.place_of.remove(&number)? as usize;
        let up_to = self.up_to(place);
        self.clear(place);
        // The line itself is no longer among those that `len` counts.
        Some((self.places[place], self.len() + 1 - up_to))
    }

    /// Puts `line`, which must not be in it, on top.
    pub fn put(&mut self, line: Line) {
        if self.next == self.places.len() {
            self.keep(|_| true);
        }
        let place = self.next;
        self.next += 1;
        self.places[place] = line;
        self.used[place / 64] |= 1 << (place % 64);
        self.add(place / 64, 1);
        // There are fewer places than 2^32.
        self.place_of.insert(line.number(), u32::try_from(place).unwrap_or(u32::MAX));
    }

    /// Takes out the line at the bottom.
    pub fn take_lowest(&mut self) -> Option<Line> {
        let from = self.lowest;
        self.lowest += self.used[from..].iter().position(|word| *word != 0)?;
        let place = 64 * self.lowest + self.used[self.lowest].trailing_zeros() as usize;
        let line = self.places[place];
        self.place_of.remove(&line.number());
        self.clear(place);
        Some(line)
    }

    /// Drops the lines that `wanted` does not name, and moves the others down.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        let mut next = 0;
        for place in 0..self.next {
            let line = self.places[place];
            if self.used[place / 64] & (1 << (place % 64)) == 0 {
                continue;
            }
            if wanted(line.number()) {
                self.places[next] = line;
                self.place_of.insert(line.number(), u32::try_from(next).unwrap_or(u32::MAX));
                next += 1;
            } else {
                self.place_of.remove(&line.number());
            }
        }
        self.used.fill(0);
        self.sums.fill(0);
        for word in 0..next.div_ceil(64) {
            let bits = (next - 64 * word).min(64);
            self.used[word] = u64::MAX >> (64 - bits);
            self.add(word, self.used[word].count_ones());
        }
        (self.next, self.lowest) = (next, 0);
    }

    fn clear(&mut self, place: usize) {
        self.used[place / 64] &= !(1 << (place % 64));
        self.add(place / 64, u32::MAX);
    }

    /// Adds to the number of places in use in word `word`; one less is `u32::MAX`.
    fn add(&mut self, word: usize, amount: u32) {
        let mut at = word;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(amount);
            at |= at + 1;
        }
    }

    /// How many places are in use up to `place`.
    fn up_to(&self, place: usize) -> usize {
        let within = self.used[place / 64] & (u64::MAX >> (63 - place % 64));
        let mut sum = within.count_ones();
        let mut end = place / 64;
        while end > 0 {
            sum += self.sums[end - 1];
            end &= end - 1;
        }
        sum as usize
    }
}

/// A hash of a line's number.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// Spreads a number over all bits: the finishing step of SplitMix64 (Steele, Lea, Flood 2014).
pub const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
