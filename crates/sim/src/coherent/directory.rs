//! Which caches have which line. Only lines that a cache has are in it, so that it is as large as the caches.
//! Of machines with few caches and PUs an entry takes 16 bytes in place of 64.

use super::cache::Line;
use super::geometry::{CacheSet, PuSet};
use foldhash::fast::FixedState;
use std::collections::HashMap;

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

type Table<V> = HashMap<Line, V, FixedState>;

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
            Self::Small { table, pus, caches } => {
                unpacked(table.get(&line).copied().unwrap_or_default(), *pus, *caches)
            }
            Self::Large(table) => table.get(&line).copied().unwrap_or_default(),
        }
    }

    /// Changes it.
    #[inline]
    pub fn set(&mut self, line: Line, entry: Entry) {
        let is_held = entry.holders != 0;
        match self {
            Self::Small { table, pus, caches } if is_held => {
                table.insert(line, packed(entry, *pus, *caches));
            }
            Self::Small { table, .. } => drop(table.remove(&line)),
            Self::Large(table) if is_held => drop(table.insert(line, entry)),
            Self::Large(table) => drop(table.remove(&line)),
        }
    }

    /// All of them, in any order.
    pub fn all(&self) -> Vec<(Line, Entry)> {
        match self {
            Self::Small { table, pus, caches } => {
                let entry = |(line, word): (&Line, &u64)| (*line, unpacked(*word, *pus, *caches));
                table.iter().map(entry).collect()
            }
            Self::Large(table) => table.iter().map(|(line, entry)| (*line, *entry)).collect(),
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
