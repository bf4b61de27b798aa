//! Directory of the caches with a copy of each line. Only cached lines have an entry, so its size
//! follows that of the caches. With few caches and PUs an entry takes 16 bytes in place of 64.

use super::cache::LineNr;
use super::geometry::{CacheSet, PuSet};
use foldhash::fast::FixedState;
use std::collections::HashMap;

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

type LineTable<V> = HashMap<LineNr, V, FixedState>;

/// Entries by line.
#[derive(Clone, Debug)]
pub(super) enum Directory {
    /// Few caches and PUs: an entry is a word of owner, unique cache, PUs and caches, from the
    /// highest bits down.
    Small { table: LineTable<u64>, pus: u32, caches: u32 },
    /// Many caches or PUs.
    Large(LineTable<DirectoryEntry>),
}

/// Bits of a cache's number plus 1; 0 is no cache.
const NUMBER: u32 = 8;

impl Directory {
    /// Empty directory of a machine with this many caches and PUs.
    #[allow(clippy::cast_possible_truncation)] // 128 at most
    pub fn new(caches: usize, pus: usize) -> Self {
        if caches + pus + 2 * NUMBER as usize <= u64::BITS as usize {
            Self::Small { table: LineTable::default(), pus: pus as u32, caches: caches as u32 }
        } else {
            Self::Large(LineTable::default())
        }
    }

    /// Entry of a line; an entry without holders for a line in no cache.
    #[inline]
    pub fn get(&self, line: LineNr) -> DirectoryEntry {
        match self {
            Self::Small { table, pus, caches } => {
                unpacked(table.get(&line).copied().unwrap_or_default(), *pus, *caches)
            }
            Self::Large(table) => table.get(&line).copied().unwrap_or_default(),
        }
    }

    /// Sets the entry of a line; removes an entry without holders.
    #[inline]
    pub fn set(&mut self, line: LineNr, entry: DirectoryEntry) {
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

    /// All entries, in any order.
    pub fn all(&self) -> Vec<(LineNr, DirectoryEntry)> {
        match self {
            Self::Small { table, pus, caches } => {
                let words = table.iter();
                words.map(|(line, word)| (*line, unpacked(*word, *pus, *caches))).collect()
            }
            Self::Large(table) => table.iter().map(|(line, entry)| (*line, *entry)).collect(),
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // sets have no more bits than `pus` and `caches`
fn packed(entry: DirectoryEntry, pus: u32, caches: u32) -> u64 {
    let numbers = packed_number(entry.owner) << NUMBER | packed_number(entry.unique);
    (numbers << pus | entry.used_by as u64) << caches | entry.holders as u64
}

fn packed_number(cache: Option<u8>) -> u64 {
    cache.map_or(0, |cache| u64::from(cache) + 1)
}

fn unpacked(word: u64, pus: u32, caches: u32) -> DirectoryEntry {
    let used_by = word >> caches;
    let numbers = used_by >> pus;
    DirectoryEntry {
        holders: low(word, caches).into(),
        used_by: low(used_by, pus).into(),
        owner: unpacked_number(numbers >> NUMBER),
        unique: unpacked_number(numbers),
    }
}

#[allow(clippy::cast_possible_truncation)] // at most 8 bits
fn unpacked_number(numbers: u64) -> Option<u8> {
    (low(numbers, NUMBER) as u8).checked_sub(1)
}

/// The lowest bits of a word.
fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Beside a map of the standard library; lines are few, so that they meet, or follow each
        /// other.
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
                    let entry = DirectoryEntry {
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
