//! Which caches have which line. Only lines that a cache has are in it, so that it is as large as the caches.
//!
//! A table with open addressing and linear probing (Knuth, volume 3, section 6.4, algorithms L and R). Four lines that follow each
//! other begin at places that do, and of machines with few caches and PUs an entry takes 16 bytes: then one line of the host's cache has
//! all four.

use super::cache::Line;
use super::geometry::{CacheSet, PuSet};

/// What is known of a line that at least one cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The caches that have it.
    pub holders: CacheSet,
    /// The PUs that have used it since it came into the cache where communication is detected.
    pub used_by: PuSet,
    /// The cache that has to write it back; none if memory has the same. A cache of the nearest level that is `unique` may
    /// have written it since.
    pub owner: Option<u8>,
    /// The cache of the nearest level that may write it silently.
    pub unique: Option<u8>,
}

/// Entries by line.
#[derive(Clone, Debug)]
pub(super) enum Directory {
    /// Of few caches and PUs: of an entry the owner, the unique cache, the PUs and the caches, from the highest bits down.
    Small { table: Table<u64>, pus: u32, caches: u32 },
    /// Of many.
    Large(Table<Entry>),
}

/// Bits of a cache's number, or of none.
const NUMBER: u32 = 8;

impl Directory {
    /// Of a machine with so many caches and PUs.
    #[allow(clippy::cast_possible_truncation)] // 128 at most
    pub fn new(caches: usize, pus: usize) -> Self {
        if caches + pus + 2 * NUMBER as usize <= u64::BITS as usize {
            Self::Small { table: Table::default(), pus: pus as u32, caches: caches as u32 }
        } else {
            Self::Large(Table::default())
        }
    }

    /// That of a line; no cache has it if there is none.
    #[inline]
    pub fn get(&self, line: Line) -> Entry {
        match self {
            Self::Small { table, pus, caches } => unpacked(table.get(line), *pus, *caches),
            Self::Large(table) => table.get(line),
        }
    }

    /// Changes it.
    #[inline]
    pub fn set(&mut self, line: Line, entry: Entry) {
        match self {
            Self::Small { table, .. } if entry.holders == 0 => table.remove(line),
            Self::Small { table, pus, caches } => table.set(line, packed(entry, *pus, *caches)),
            Self::Large(table) if entry.holders == 0 => table.remove(line),
            Self::Large(table) => table.set(line, entry),
        }
    }

    /// All of them, in any order.
    pub fn all(&self) -> Vec<(Line, Entry)> {
        match self {
            Self::Small { table, pus, caches } => {
                table.all().map(|(line, word)| (line, unpacked(word, *pus, *caches))).collect()
            }
            Self::Large(table) => table.all().collect(),
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // sets of so many
fn packed(entry: Entry, pus: u32, caches: u32) -> u64 {
    let number = |cache: Option<u8>| cache.map_or(0, |cache| u64::from(cache) + 1);
    let numbers = number(entry.owner) << NUMBER | number(entry.unique);
    (numbers << pus | entry.used_by as u64) << caches | entry.holders as u64
}

#[allow(clippy::cast_possible_truncation)] // at most 8 bits
fn unpacked(word: u64, pus: u32, caches: u32) -> Entry {
    let low = |word: u64, bits: u32| word & ((1 << bits) - 1);
    let number = |number: u64| (low(number, NUMBER) as u8).checked_sub(1);
    let (used_by, numbers) = (word >> caches, word >> caches >> pus);
    Entry {
        holders: low(word, caches).into(),
        used_by: low(used_by, pus).into(),
        owner: number(numbers >> NUMBER),
        unique: number(numbers),
    }
}

/// No line: none has such a number.
const EMPTY: Line = u64::MAX;
/// Places of an empty table, as a power of 2.
const FEWEST: u32 = 10;

/// What is known by line.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    places: Vec<(Line, V)>,
    used: usize,
}

impl<V: Copy + Default> Default for Table<V> {
    fn default() -> Self {
        Self { places: vec![(EMPTY, V::default()); 1 << FEWEST], used: 0 }
    }
}

impl<V: Copy + Default> Table<V> {
    /// Where a line would be if all places were free: by Fibonacci hashing of four lines together.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // below the number of places
    fn home(&self, line: Line) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let fours = self.places.len().trailing_zeros() - 2;
        let hash = (line >> 2).wrapping_mul(GOLDEN) >> (u64::BITS - fours);
        (hash << 2 | line & 3) as usize
    }

    /// Where a line is, or the free place where it would be put.
    #[inline]
    fn place(&self, line: Line) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(line);
        while self.places[at].0 != line && self.places[at].0 != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn get(&self, line: Line) -> V {
        let (there, value) = self.places[self.place(line)];
        if there == line { value } else { V::default() }
    }

    #[inline]
    fn set(&mut self, line: Line, value: V) {
        let at = self.place(line);
        let is_new = self.places[at].0 == EMPTY;
        self.places[at] = (line, value);
        if is_new {
            self.used += 1;
            if self.used > self.places.len() / 4 * 3 {
                self.grow();
            }
        }
    }

    fn grow(&mut self) {
        let free = vec![(EMPTY, V::default()); 2 * self.places.len()];
        for (line, value) in std::mem::replace(&mut self.places, free) {
            if line != EMPTY {
                let at = self.place(line);
                self.places[at] = (line, value);
            }
        }
    }

    /// Removes a line, if it is there. What stands after it moves up, unless that is before its home.
    fn remove(&mut self, line: Line) {
        let mask = self.places.len() - 1;
        let mut hole = self.place(line);
        if self.places[hole].0 == EMPTY {
            return;
        }
        self.used -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.places[at];
            if next.0 == EMPTY {
                break;
            }
            let from_home = at.wrapping_sub(self.home(next.0)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.places[hole] = next;
                hole = at;
            }
        }
        self.places[hole].0 = EMPTY;
    }

    fn all(&self) -> impl Iterator<Item = (Line, V)> {
        self.places.iter().filter(|(line, _)| *line != EMPTY).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Beside a map of the standard library; lines are few, so that they meet, or follow each other.
        #[test]
        fn as_a_map(
            steps in prop::collection::vec((0..40_u64, 1..8_u64, any::<u8>(), any::<bool>()), 0..4_000),
            is_small in any::<bool>(),
        ) {
            let mut directory = Directory::new(if is_small { 12 } else { 100 }, 8);
            let mut map = BTreeMap::new();
            for (base, stride, value, removes) in steps {
                for step in 0..8 {
                    let line = base * 1_000 + step * stride;
                    let number = |value: u8| (value & 3 > 0).then_some(value % 12);
                    let entry = Entry {
                        holders: if removes { 0 } else { 1 << (value % 12) },
                        used_by: u128::from(value),
                        owner: number(value),
                        unique: number(value / 2),
                    };
                    directory.set(line, entry);
                    if removes { map.remove(&line) } else { map.insert(line, entry) };
                    prop_assert_eq!(directory.get(line), map.get(&line).copied().unwrap_or_default());
                }
            }
            let mut all = directory.all();
            all.sort_unstable_by_key(|(line, _)| *line);
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
