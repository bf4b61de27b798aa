//! One set-associative cache: the lines in it, with their flags.

use super::geometry::CacheShape;
use colocate_machine::performance::Replacement;

/// Number of a line of memory: its address over the size of a line.
pub(super) type LineNr = u64;

/// The line may be written silently: no cache off this cache's path has a copy. Nearest level only.
pub(super) const UNIQUE: u64 = 1;
/// The line was written here since its insertion. Nearest level only.
pub(super) const DIRTY: u64 = 2;
/// The line may be evicted without a change of the directory: another cache of the path has it, and
/// its data is written. Nearest level only.
pub(super) const SILENT: u64 = 4;
/// First access bit: a bit for each PU of the core, set by its uses since the line's insertion.
/// Nearest level only.
pub(super) const USED: u32 = 3;
/// Most PUs of a core.
pub(super) const SIBLINGS: u32 = 8;
const FLAGS: u32 = USED + SIBLINGS;
/// Bits of an entry with the line's number.
const LINE_BITS: u64 = u64::MAX << FLAGS;
/// Entry without a line: no line has this number.
const EMPTY: u64 = u64::MAX;

/// Sets of lines, each in the order of last use, latest first and free entries last: a hit on the
/// latest line moves nothing.
#[derive(Clone, Debug)]
pub(super) struct SetAssociativeCache {
    ways: usize,
    mask: u64,
    /// Set by set: a line's number above its flags, or [`EMPTY`].
    entries: Vec<u64>,
    /// State of the random number generator; `None` unless replacement is random.
    random: Option<u64>,
}

impl SetAssociativeCache {
    pub fn new(shape: &CacheShape) -> Self {
        let ways = shape.ways as usize;
        // Any state but 0 will do for xorshift.
        let random = (shape.replacement == Replacement::Random).then_some(0x9e37_79b9_7f4a_7c15);
        let entries = vec![EMPTY; ways * shape.sets as usize];
        Self { ways, mask: u64::from(shape.sets) - 1, entries, random }
    }

    /// Place of a line's set. The number of sets is a power of two.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // below the number of sets
    fn first(&self, line: LineNr) -> usize {
        (line & self.mask) as usize * self.ways
    }

    #[inline]
    fn set(&mut self, line: LineNr) -> &mut [u64] {
        let first = self.first(line);
        &mut self.entries[first..first + self.ways]
    }

    /// Whether a line is the last used of its set and has all of these flags.
    #[inline]
    pub fn is_latest(&self, line: LineNr, flags: u64) -> bool {
        let latest = self.entries.get(self.first(line));
        latest.is_some_and(|entry| entry & (LINE_BITS | flags) == line << FLAGS | flags)
    }

    /// Reads a line's set, all of it. Returns any number.
    #[inline]
    pub fn load(&self, line: LineNr) -> u64 {
        let first = self.first(line);
        // Entries of 64 bytes.
        self.entries[first..first + self.ways].iter().step_by(8).fold(0, |sum, it| sum ^ it)
    }

    /// The line evicted by the next insertion into this line's set, unless replacement is random.
    #[inline]
    pub fn next_victim(&self, line: LineNr) -> LineNr {
        self.entries[self.first(line) + self.ways - 1] >> FLAGS
    }

    /// Flags of a line, now the last used; `None` on a miss.
    #[inline]
    pub fn touch(&mut self, line: LineNr) -> Option<&mut u64> {
        let set = self.set(line);
        let at = set.iter().position(|entry| entry >> FLAGS == line)?;
        let entry = set[at];
        set.copy_within(0..at, 1);
        set[0] = entry;
        Some(&mut set[0])
    }

    /// Whether a line is there.
    pub fn has(&self, line: LineNr) -> bool {
        let first = self.first(line);
        self.entries[first..first + self.ways].iter().any(|entry| entry >> FLAGS == line)
    }

    /// Flags of a line, without a use; `None` on a miss.
    pub fn peek(&mut self, line: LineNr) -> Option<&mut u64> {
        self.set(line).iter_mut().find(|entry| **entry >> FLAGS == line)
    }

    /// Inserts a missing line as the last used. Returns the evicted line and its flags.
    #[inline]
    pub fn insert(&mut self, line: LineNr, flags: u64) -> Option<(LineNr, u64)> {
        debug_assert!(line >> (64 - FLAGS) == 0 && self.peek(line).is_none());
        let random = self.random.as_mut().map(next_random);
        let set = self.set(line);
        let last = set.len() - 1;
        // The last entry of a set is the least recently used, or free.
        #[allow(clippy::cast_possible_truncation)] // below the number of ways
        let at = match random {
            Some(random) if set[last] != EMPTY => (random % set.len() as u64) as usize,
            _ => last,
        };
        let out = set[at];
        set.copy_within(0..at, 1);
        set[0] = line << FLAGS | flags;
        (out != EMPTY).then_some((out >> FLAGS, out & !LINE_BITS))
    }

    /// Removes a line. Returns its flags; `None` on a miss.
    pub fn remove(&mut self, line: LineNr) -> Option<u64> {
        let set = self.set(line);
        let at = set.iter().position(|entry| entry >> FLAGS == line)?;
        let flags = set[at] & !LINE_BITS;
        set.copy_within(at + 1.., at);
        set[set.len() - 1] = EMPTY;
        Some(flags)
    }

    /// All lines, with their flags.
    pub fn lines(&self) -> impl Iterator<Item = (LineNr, u64)> {
        let there = self.entries.iter().filter(|entry| **entry != EMPTY);
        there.map(|entry| (entry >> FLAGS, entry & !LINE_BITS))
    }
}

/// Marsaglia's xorshift.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
