//! Directory of the caches with a copy of each line. Only cached lines have an entry, so its size
//! follows that of the caches.
//!
//! # Approach
//! A table of buckets of three lines. Lines of a page are in buckets that follow each other, as
//! programs use them. A line whose bucket is full is in the next one with room.

use super::cache::LineNr;
use super::sets::IndexSet;

/// Holders and users of a cached line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryEntry<S> {
    /// Caches with a copy.
    pub holders: S,
    /// PUs with uses of the line since its insertion in the detecting cache.
    pub used_by: S,
    /// The cache that has to write the line back; `None` if memory is up to date, but for silent
    /// writes by `unique`.
    pub owner: Option<u8>,
    /// The cache of the nearest level that may write the line silently; `None` if none may. It may
    /// have evicted the line since, and then it is still among the holders.
    pub unique: Option<u8>,
}

/// Place of an entry, until its removal or the next insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    bucket: usize,
    way: usize,
}

/// Lines of a bucket. Chosen: with entries for few caches and PUs they take 64 bytes.
const WAYS: usize = 3;
/// Buckets of an empty directory.
const FIRST: usize = 64;
/// Most lines for each bucket, as a mean. Chosen: at the mean before and after growth one bucket in
/// seven, and one in fifty, is too small.
const MOST_A_BUCKET: usize = 2;
/// Lines whose buckets follow each other: those of a page of 4 KiB.
const PAGE: u8 = 64;
/// Odd number whose multiples spread pages over the buckets: 2^64 over the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Place without a line: no line has this number.
const FREE: LineNr = LineNr::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket<S> {
    lines: [LineNr; WAYS],
    entries: [DirectoryEntry<S>; WAYS],
    /// Lines in later buckets that belong here or before.
    passed: u32,
}

impl<S> Bucket<S> {
    /// First place with a line.
    #[inline]
    fn position(&self, line: LineNr) -> Option<usize> {
        // Without a branch for each place: which one has the line cannot be predicted.
        let has = |way: usize| u32::from(self.lines[way] == line) << way;
        let found = has(0) | has(1) | has(2);
        (found != 0).then_some(found.trailing_zeros() as usize)
    }
}

/// Entries by line.
#[derive(Clone, Debug)]
pub(super) struct Directory<S> {
    /// A power of two.
    buckets: Vec<Bucket<S>>,
    len: usize,
}

impl<S: IndexSet> Directory<S> {
    /// Empty directory.
    pub fn new() -> Self {
        Self::with_buckets(FIRST)
    }

    fn with_buckets(buckets: usize) -> Self {
        let entries = [DirectoryEntry::default(); WAYS];
        Self { buckets: vec![Bucket { lines: [FREE; WAYS], entries, passed: 0 }; buckets], len: 0 }
    }

    /// The bucket that a line belongs to.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the high half of a product is below 2^32
    fn home(&self, line: LineNr) -> usize {
        let size = u64::from(PAGE);
        let page = (line / size).wrapping_mul(SPREAD) >> 32;
        (page * size + line % size) as usize & (self.buckets.len() - 1)
    }

    /// The bucket after a full one: in the next page, so that full pages are left at once.
    fn next(&self, bucket: usize) -> usize {
        (bucket + usize::from(PAGE) + 1) & (self.buckets.len() - 1)
    }

    /// Reads the bucket of a line. Returns any number.
    #[inline]
    pub fn load(&self, line: LineNr) -> u64 {
        self.buckets[self.home(line)].passed.into()
    }

    /// Place of a cached line's entry.
    #[inline]
    pub fn find(&self, line: LineNr) -> Slot {
        self.position(line).expect("a cached line has an entry")
    }

    /// Place of a line's entry; of a new entry without holders for a line in no cache.
    #[inline]
    pub fn find_or_insert(&mut self, line: LineNr) -> Slot {
        self.position(line).unwrap_or_else(|| self.insert(line, DirectoryEntry::default()))
    }

    #[inline]
    fn position(&self, line: LineNr) -> Option<Slot> {
        let mut bucket = self.home(line);
        for _ in 0..self.buckets.len() {
            if let Some(way) = self.buckets[bucket].position(line) {
                return Some(Slot { bucket, way });
            }
            if self.buckets[bucket].passed == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
        None
    }

    /// Inserts a missing line.
    #[inline]
    fn insert(&mut self, line: LineNr, entry: DirectoryEntry<S>) -> Slot {
        if self.len >= MOST_A_BUCKET * self.buckets.len() {
            self.grow();
        }
        self.len += 1;
        let mut at = self.home(line);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(way) = bucket.position(FREE) {
                bucket.lines[way] = line;
                bucket.entries[way] = entry;
                return Slot { bucket: at, way };
            }
            bucket.passed += 1;
            at = self.next(at);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut grown = Self::with_buckets(2 * self.buckets.len());
        for (line, entry) in self.all() {
            grown.insert(line, entry);
        }
        *self = grown;
    }

    #[inline]
    pub fn get(&self, at: Slot) -> DirectoryEntry<S> {
        self.buckets[at.bucket].entries[at.way]
    }

    /// Sets an entry; removes an entry without holders.
    #[inline]
    pub fn set(&mut self, at: Slot, entry: DirectoryEntry<S>) {
        self.buckets[at.bucket].entries[at.way] = entry;
        if entry.holders.is_empty() {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: Slot) {
        let line = std::mem::replace(&mut self.buckets[at.bucket].lines[at.way], FREE);
        self.len -= 1;
        let mut bucket = self.home(line);
        while bucket != at.bucket {
            self.buckets[bucket].passed -= 1;
            bucket = self.next(bucket);
        }
    }

    /// All entries, in any order.
    pub fn all(&self) -> impl Iterator<Item = (LineNr, DirectoryEntry<S>)> {
        let places = self.buckets.iter().flat_map(|it| it.lines.into_iter().zip(it.entries));
        places.filter(|(line, _)| *line != FREE)
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
        ) {
            let mut directory = Directory::<u32>::new();
            let mut map = BTreeMap::new();
            for (base, stride, value, removes) in steps {
                for step in 0..8 {
                    let line = base * 1_000 + (step << stride);
                    let number = |value: u8| (value & 3 > 0).then_some(value % 12);
                    let entry = DirectoryEntry {
                        holders: if removes { 0 } else { 1 << (value % 12) },
                        used_by: value.into(),
                        owner: number(value),
                        unique: number(value / 2),
                    };
                    let at = directory.find_or_insert(line);
                    prop_assert_eq!(directory.get(at), map.get(&line).copied().unwrap_or_default());
                    directory.set(at, entry);
                    if removes { map.remove(&line) } else { map.insert(line, entry) };
                }
            }
            let all: BTreeMap<LineNr, DirectoryEntry<u32>> = directory.all().collect();
            prop_assert_eq!(all, map);
        }
    }
}
