//! Which caches have which line. Only lines that a cache has are in it, so that it is as large as the caches.

use super::cache::Line;
use super::geometry::{CacheSet, PuSet};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

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
#[derive(Clone, Debug, Default)]
pub(super) struct Directory(HashMap<Line, Entry, FixedState>);

impl Directory {
    /// That of a line; no cache has it if there is none.
    pub fn get(&self, line: Line) -> Entry {
        self.0.get(&line).copied().unwrap_or_default()
    }

    /// Changes it.
    pub fn set(&mut self, line: Line, entry: Entry) {
        match self.0.entry(line) {
            Slot::Occupied(there) if entry.holders == 0 => {
                there.remove();
            }
            Slot::Occupied(mut there) => *there.get_mut() = entry,
            Slot::Vacant(_) if entry.holders == 0 => {}
            Slot::Vacant(room) => {
                room.insert(entry);
            }
        }
    }

    /// All of them, in any order.
    pub fn all(&self) -> impl Iterator<Item = (Line, Entry)> {
        self.0.iter().map(|(line, entry)| (*line, *entry))
    }
}
