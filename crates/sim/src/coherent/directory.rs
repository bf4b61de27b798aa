//! Directory of the caches with a copy of each line. Only cached lines have an entry, so its size
//! follows that of the caches. With few caches and PUs an entry takes 16 bytes in place of 64.
//!
//! # Approach
//! Buckets of four lines, by the lowest bits of the line's number, as in the caches: their sets
//! bound the lines of a bucket, and lines that follow each other are in buckets that do. A line
//! that finds its bucket full is in the next one with room.

use super::cache::LineNr;
use super::geometry::{CacheSet, PuSet};

/// Holders and users of a cached line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    /// Caches with a copy.
    pub holders: CacheSet,
    /// PUs with uses of the line since its insertion in the detecting cache.
    pub used_by: PuSet,
    /// The cache that has to write the line back; `None` if memory is up to date, but for silent
    /// writes by `unique`.
    pub owner: Option<u8>,
    /// The cache of the nearest level that may write the line silently; `None` if none may.
    pub unique: Option<u8>,
}

/// Place of an entry, until its removal or the next insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    bucket: usize,
    way: usize,
}

/// Entries by line.
#[derive(Clone, Debug)]
pub(super) enum Directory {
    /// Few caches and PUs: an entry is a word.
    Small(LineTable<u64>),
    /// Many caches or PUs.
    Large(LineTable<DirectoryEntry>),
}

impl Directory {
    /// Empty directory of a machine with this many caches and PUs.
    pub fn new(caches: usize, pus: usize) -> Self {
        if caches <= HOLDERS as usize && pus <= USERS as usize {
            Self::Small(LineTable::new(FIRST))
        } else {
            Self::Large(LineTable::new(FIRST))
        }
    }

    /// Place of a cached line's entry.
    #[inline]
    pub fn find(&self, line: LineNr) -> Slot {
        let found = match self {
            Self::Small(table) => table.find(line),
            Self::Large(table) => table.find(line),
        };
        found.expect("a cached line has an entry")
    }

    /// Place of a line's entry; of a new entry without holders for a line in no cache.
    #[inline]
    pub fn find_or_insert(&mut self, line: LineNr) -> Slot {
        match self {
            Self::Small(table) => table.find(line).unwrap_or_else(|| table.insert(line, 0)),
            Self::Large(table) => {
                table.find(line).unwrap_or_else(|| table.insert(line, DirectoryEntry::default()))
            }
        }
    }

    #[inline]
    pub fn get(&self, at: Slot) -> DirectoryEntry {
        match self {
            Self::Small(table) => unpacked(table.buckets[at.bucket].words[at.way]),
            Self::Large(table) => table.buckets[at.bucket].words[at.way],
        }
    }

    /// Sets an entry; removes an entry without holders.
    #[inline]
    pub fn set(&mut self, at: Slot, entry: DirectoryEntry) {
        match self {
            Self::Small(table) if entry.holders == 0 => table.remove(at),
            Self::Small(table) => table.buckets[at.bucket].words[at.way] = packed(entry),
            Self::Large(table) if entry.holders == 0 => table.remove(at),
            Self::Large(table) => table.buckets[at.bucket].words[at.way] = entry,
        }
    }

    /// All entries, in any order.
    pub fn all(&self) -> Vec<(LineNr, DirectoryEntry)> {
        match self {
            Self::Small(table) => table.all().map(|(line, word)| (line, unpacked(word))).collect(),
            Self::Large(table) => table.all().collect(),
        }
    }
}

/// Lines of a bucket. Chosen: with their words they take the 64 bytes of a line of the host.
const WAYS: usize = 4;
/// Buckets of an empty table.
const FIRST: usize = 64;
/// Most lines for each bucket, as a mean. Chosen: one in twenty buckets is full.
const MOST_A_BUCKET: usize = 2;
/// Lines that follow each other in buckets that do: those of a page of 4 KiB.
const PAGE: u64 = 64;
/// Odd number whose multiples spread pages over the buckets: 2^64 over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Place without a line: no line has this number.
const FREE: LineNr = LineNr::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket<W> {
    lines: [LineNr; WAYS],
    words: [W; WAYS],
}

impl<W> Bucket<W> {
    /// First place with a line.
    #[inline]
    fn position(&self, line: LineNr) -> Option<usize> {
        // Without a branch for each place: which one has the line cannot be predicted.
        let found =
            (0..WAYS).fold(0, |found, way| found | u32::from(self.lines[way] == line) << way);
        (found != 0).then_some(found.trailing_zeros() as usize)
    }
}

/// Words by line.
#[derive(Clone, Debug)]
pub(super) struct LineTable<W> {
    /// A power of two.
    buckets: Vec<Bucket<W>>,
    /// By bucket: lines in later buckets that belong here or before.
    passed: Vec<u32>,
    len: usize,
}

impl<W: Copy + Default> LineTable<W> {
    fn new(buckets: usize) -> Self {
        let free = Bucket { lines: [FREE; WAYS], words: [W::default(); WAYS] };
        Self { buckets: vec![free; buckets], passed: vec![0; buckets], len: 0 }
    }

    /// The bucket that a line belongs to.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the high half of a product is below 2^32
    fn home(&self, line: LineNr) -> usize {
        let page = (line / PAGE).wrapping_mul(SPREAD) >> 32;
        (page * PAGE + line % PAGE) as usize & (self.buckets.len() - 1)
    }

    /// The bucket after a full one: in the next page, so that full pages are left at once.
    fn next(&self, bucket: usize) -> usize {
        (bucket + PAGE as usize + 1) & (self.buckets.len() - 1)
    }

    #[inline]
    fn find(&self, line: LineNr) -> Option<Slot> {
        let mut bucket = self.home(line);
        for _ in 0..self.buckets.len() {
            if let Some(way) = self.buckets[bucket].position(line) {
                return Some(Slot { bucket, way });
            }
            if self.passed[bucket] == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
        None
    }

    /// Inserts a missing line.
    fn insert(&mut self, line: LineNr, word: W) -> Slot {
        if self.len >= MOST_A_BUCKET * self.buckets.len() {
            let mut grown = Self::new(2 * self.buckets.len());
            for (line, word) in self.all() {
                grown.insert(line, word);
            }
            *self = grown;
        }
        self.len += 1;
        let mut bucket = self.home(line);
        loop {
            if let Some(way) = self.buckets[bucket].position(FREE) {
                self.buckets[bucket].lines[way] = line;
                self.buckets[bucket].words[way] = word;
                return Slot { bucket, way };
            }
            self.passed[bucket] += 1;
            bucket = self.next(bucket);
        }
    }

    fn remove(&mut self, at: Slot) {
        let line = std::mem::replace(&mut self.buckets[at.bucket].lines[at.way], FREE);
        self.len -= 1;
        let mut bucket = self.home(line);
        while bucket != at.bucket {
            self.passed[bucket] -= 1;
            bucket = self.next(bucket);
        }
    }

    fn all(&self) -> impl Iterator<Item = (LineNr, W)> {
        let places =
            self.buckets.iter().flat_map(|bucket| bucket.lines.into_iter().zip(bucket.words));
        places.filter(|(line, _)| *line != FREE)
    }
}

/// Bits of a word, from the lowest up: caches, PUs, and twice a cache's number plus 1, or 0.
const HOLDERS: u32 = 28;
const USERS: u32 = 26;
const NUMBER: u32 = 5;

#[allow(clippy::cast_possible_truncation)] // sets have no more bits
#[inline]
fn packed(entry: DirectoryEntry) -> u64 {
    let number = |cache: Option<u8>| cache.map_or(0, |cache| u64::from(cache) + 1);
    let numbers = number(entry.owner) << NUMBER | number(entry.unique);
    (numbers << USERS | entry.used_by as u64) << HOLDERS | entry.holders as u64
}

#[allow(clippy::cast_possible_truncation)] // a number has 5 bits
#[inline]
fn unpacked(word: u64) -> DirectoryEntry {
    let low = |shift: u32, bits: u32| word >> shift & ((1 << bits) - 1);
    DirectoryEntry {
        holders: low(0, HOLDERS).into(),
        used_by: low(HOLDERS, USERS).into(),
        owner: (low(HOLDERS + USERS + NUMBER, NUMBER) as u8).checked_sub(1),
        unique: (low(HOLDERS + USERS, NUMBER) as u8).checked_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Beside a map of the standard library; lines are few, so that they meet, or follow each
        /// other, or belong to the same bucket.
        #[test]
        fn as_a_map(
            steps in prop::collection::vec((0..40_u64, 0..8_u32, any::<u8>(), any::<bool>()), 0..4_000),
            is_small in any::<bool>(),
        ) {
            let mut directory = Directory::new(if is_small { 12 } else { 100 }, 8);
            let mut map = BTreeMap::new();
            for (base, stride, value, removes) in steps {
                for step in 0..8 {
                    let line = base * 1_000 + (step << stride);
                    let number = |value: u8| (value & 3 > 0).then_some(value % 12);
                    let entry = DirectoryEntry {
                        holders: if removes { 0 } else { 1 << (value % 12) },
                        used_by: u128::from(value),
                        owner: number(value),
                        unique: number(value / 2),
                    };
                    let at = directory.find_or_insert(line);
                    prop_assert_eq!(directory.get(at), map.get(&line).copied().unwrap_or_default());
                    directory.set(at, entry);
                    if removes { map.remove(&line) } else { map.insert(line, entry) };
                }
            }
            let all: BTreeMap<LineNr, DirectoryEntry> = directory.all().into_iter().collect();
            prop_assert_eq!(all, map);
        }
    }
}
