//! Sets of PUs in the text forms of the kernel and of command-line tools.
//!
//! | form | example | written by |
//! |---|---|---|
//! | list | `0-3,8` | sysfs, `taskset -c`, `numactl -C` |
//! | list with a stride | `0-31:2` (every second) | `taskset -c` |
//! | list with groups | `0-31:2/4` (the first two of every four) | the kernel's `isolcpus=`, cpusets |
//! | mask | `0xff`, `ff,ffffffff` | `taskset`, `/proc/<pid>/status`, `/proc/irq` |

use crate::flaw::Flaw;
use crate::ids::PuNr;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;

/// Highest PU number accepted. Linux allows at most 8,192 CPUs (`NR_CPUS`); the rest is margin, and the bound keeps a hostile file from claiming all memory.
pub(crate) const MAX_PU_NR: u32 = 65_535;

/// Bits in one group of a mask printed by the kernel.
const GROUP_BITS: u32 = 32;

/// Bits in one word of [`PuSet`].
const WORD_BITS: u32 = u64::BITS;

/// A set of PUs by kernel number. Prints as a list, `0-3,8`; the empty set prints as an empty
/// string.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("pattern" = "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$")))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PuSet {
    /// Bit `b` of word `w` is PU `64 w + b`. The last word is never 0, so equal sets have equal
    /// words.
    words: Words,
}

/// Stored inline for up to 128 PUs, since many threads have such a set.
type Words = SmallVec<[u64; 2]>;

impl PuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Words::new_const() }
    }

    /// Adds a PU; returns true if it was new.
    pub fn insert(&mut self, pu: PuNr) -> bool {
        let new = !self.contains(pu);
        self.insert_bits(pu.idx() / 64, 1 << (pu.0 % 64));
        new
    }

    /// Adds the PUs of one word, possibly none.
    fn insert_bits(&mut self, word: usize, bits: u64) {
        // A zero word at the end would make equal sets differ.
        if bits == 0 {
            return;
        }
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bits;
    }

    /// True if `pu` is in the set.
    #[must_use]
    pub fn contains(&self, pu: PuNr) -> bool {
        self.words.get(pu.idx() / 64).is_some_and(|word| word & (1 << (pu.0 % 64)) != 0)
    }

    /// Number of PUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Iterates over the PUs, lowest number first.
    pub fn iter(&self) -> impl Iterator<Item = PuNr> + '_ {
        // A set of high numbers has many empty words before them.
        let used = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        used.flat_map(|(index, &word)| {
            (0..64)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| PuNr::new(index * 64 + bit))
        })
    }

    /// PUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        // No PU beyond the shorter set is in both.
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self::of_words(&both.collect::<Words>())
    }

    /// PUs of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        let left = self.words.iter().zip(others).map(|(a, b)| a & !b);
        Self::of_words(&left.collect::<Words>())
    }

    /// True if every PU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Parses a list. An empty text is the empty set, as in the kernel's `offline` file.
    ///
    /// # Errors
    /// [`Flaw`] with the wrong part.
    pub fn parse_list(text: &str) -> Result<Self, Flaw> {
        let mut set = Self::new();
        let text = text.trim();
        if !text.is_empty() {
            text.split(',').try_for_each(|part| set.add_range(part.trim()))?;
        }
        Ok(set)
    }

    /// Parses a hex mask: one number of any length, or groups of 32 bits separated by commas,
    /// highest first. Every group may have a leading `0x`.
    ///
    /// # Errors
    /// [`Flaw`] with the wrong part.
    pub fn parse_mask(text: &str) -> Result<Self, Flaw> {
        let groups: Vec<&str> = text.trim().split(',').map(hex_digits).collect();
        // A single group is a number of any length.
        let alone = groups.len() == 1;
        let mut set = Self::new();
        for (index, group) in groups.iter().rev().enumerate() {
            let sane = !group.is_empty() && group.chars().all(|digit| digit.is_ascii_hexdigit());
            if !sane || (!alone && group.len() > 8) {
                let found = shortened(text);
                let form = "a CPU mask like \"0xff\" or \"ff,ffffffff\"";
                return Err(Flaw(format!("expected {form}, found \"{found}\"")));
            }
            set.add_digits(group, index)?;
        }
        Ok(set)
    }

    /// Formats the set as a mask of the kernel: groups of 32 bits in hex, highest first, all but
    /// the first with leading zeros.
    #[must_use]
    pub fn mask(&self) -> String {
        let halves: Vec<u64> =
            self.words.iter().flat_map(|word| [word & 0xffff_ffff, word >> GROUP_BITS]).collect();
        let top = halves.iter().rposition(|&half| half != 0).unwrap_or(0);
        // The empty set prints as 0.
        let mut text = format!("{:x}", halves.first().map_or(0, |_| halves[top]));
        for half in halves[..top].iter().rev() {
            text.push_str(&format!(",{half:08x}"));
        }
        text
    }

    /// Builds the set from the words of a kernel mask: bit `b` of word `w` is PU `64 w + b`.
    #[must_use]
    pub fn of_words(words: &[u64]) -> Self {
        // Zero words at the end would make equal sets differ.
        let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        Self { words: words[..used].into() }
    }

    /// Words of the set, as in [`PuSet::of_words`]; without trailing zero words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds one part of a list: `5`, `0-3`, `0-31:2` or `0-31:2/4`.
    fn add_range(&mut self, part: &str) -> Result<(), Flaw> {
        let (range, step) = part.split_once(':').map_or((part, None), |(r, s)| (r, Some(s)));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = number(first, part)?;
        let last = number(last, part)?;
        // "every second" is "the first one of every two".
        let (used, group) = match step.map(|step| step.split_once('/').unwrap_or(("1", step))) {
            None => (1, 1),
            Some((used, group)) => (number(used, part)?, number(group, part)?),
        };
        // Only a range can have a stride.
        if step.is_some() && (!range.contains('-') || used == 0 || used > group) {
            return Err(malformed(part));
        }
        if last < first {
            let expected = "a range that ends after it begins";
            return Err(Flaw(format!("expected {expected}, found \"{first}-{last}\"")));
        }
        if group <= WORD_BITS {
            self.add_pattern(first, last, used, group);
        } else {
            // A pattern has two words, so longer groups are added one by one.
            for begin in (first..=last).step_by(group as usize) {
                self.add_pattern(begin, last.min(begin + used - 1), 1, 1);
            }
        }
        Ok(())
    }

    /// Adds the first `used` of every `group` PUs from `first` to `last`, for groups of at most a
    /// word.
    ///
    /// The cost is per word, not per PU: a long list may name the same PUs over and over.
    fn add_pattern(&mut self, first: u32, last: u32, used: u32, group: u32) {
        // Two words, so that a word's pattern can begin anywhere in a group.
        let pattern = if used == group {
            u128::MAX
        } else {
            let chosen = (0..2 * WORD_BITS).filter(|bit| bit % group < used);
            chosen.fold(0, |pattern, bit| pattern | 1 << bit)
        };
        for word in first / WORD_BITS..=last / WORD_BITS {
            let begin = word * WORD_BITS;
            // The word may begin before the first group: adding multiples of `group`
            // keeps the phase and avoids a negative difference.
            let phase = (begin + group * WORD_BITS - first) % group;
            let after = u64::MAX << first.saturating_sub(begin);
            let before = u64::MAX >> (WORD_BITS - 1).saturating_sub(last - begin);
            self.insert_bits(word as usize, low_word(pattern >> phase) & after & before);
        }
    }

    /// Adds hex digits; their lowest bit is bit 0 of group `index`.
    fn add_digits(&mut self, digits: &str, index: usize) -> Result<(), Flaw> {
        for (place, digit) in digits.chars().rev().enumerate() {
            // The caller has checked the digits, so the default is not used.
            let value = digit.to_digit(16).unwrap_or(0);
            for bit in (0..4).filter(|bit| value & (1 << bit) != 0) {
                let pu = index * GROUP_BITS as usize + place * 4 + bit;
                if pu > MAX_PU_NR as usize {
                    return Err(too_large(&pu.to_string()));
                }
                self.insert(PuNr::new(pu));
            }
        }
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation)] // the lower half is meant
const fn low_word(bits: u128) -> u64 {
    bits as u64
}

/// Strips a `0x`.
fn hex_digits(group: &str) -> &str {
    let group = group.trim();
    group.strip_prefix("0x").or_else(|| group.strip_prefix("0X")).unwrap_or(group)
}

/// Beginning of `text`, 40 characters at most and without control characters, for a one-line
/// message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

fn malformed(part: &str) -> Flaw {
    let form = "a CPU list like \"0-3,8\" or \"0-31:2/4\"";
    Flaw(format!("expected {form}, found \"{}\"", shortened(part)))
}

fn too_large(number: &str) -> Flaw {
    Flaw(format!("expected CPU numbers up to {MAX_PU_NR}, found {}", shortened(number)))
}

/// Parses a PU number or a count within `part` of a list.
fn number(text: &str, part: &str) -> Result<u32, Flaw> {
    let text = text.trim();
    // `parse` would accept a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed(part));
    }
    let in_range = text.parse().ok().filter(|&nr| nr <= MAX_PU_NR);
    in_range.ok_or_else(|| too_large(text))
}

/// True if `text` can only be a mask: a `0x`, a hex letter, or a group of eight digits after a
/// comma, as a list would not contain a CPU number of eight digits.
fn looks_like_mask(text: &str) -> bool {
    text.trim().starts_with("0x")
        || text.trim().starts_with("0X")
        || text.bytes().any(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_digit())
        || text
            .split(',')
            .skip(1)
            .any(|group| group.len() == 8 && group.bytes().all(|byte| byte.is_ascii_digit()))
}

impl FromStr for PuSet {
    type Err = Flaw;

    /// Parses a list or a mask. Digits alone are a list: `10` is CPU 10, and the mask is `0x10`.
    fn from_str(text: &str) -> Result<Self, Flaw> {
        if looks_like_mask(text) { Self::parse_mask(text) } else { Self::parse_list(text) }
    }
}

impl FromIterator<PuNr> for PuSet {
    fn from_iter<I: IntoIterator<Item = PuNr>>(pus: I) -> Self {
        let mut set = Self::new();
        set.extend(pus);
        set
    }
}

impl Extend<PuNr> for PuSet {
    fn extend<I: IntoIterator<Item = PuNr>>(&mut self, pus: I) {
        for pu in pus {
            self.insert(pu);
        }
    }
}

impl fmt::Display for PuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().map(|pu| pu.0).peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl From<PuSet> for String {
    fn from(set: PuSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for PuSet {
    type Error = Flaw;

    fn try_from(text: String) -> Result<Self, Flaw> {
        Self::parse_list(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(pus: &[u32]) -> PuSet {
        pus.iter().map(|&pu| PuNr(pu)).collect()
    }

    #[test]
    fn lists_as_users_write_them() {
        for (text, pus) in [
            ("", &[][..]),
            ("3", &[3]),
            ("0-3,8", &[0, 1, 2, 3, 8]),
            (" 8 , 0-1\n", &[0, 1, 8]),
            ("0-7:3", &[0, 3, 6]),
            ("0-9:2/4", &[0, 1, 4, 5, 8, 9]),
            ("2-2", &[2]),
            ("1,1,1", &[1]),
        ] {
            assert_eq!(text.parse(), Ok(set(pus)), "{text:?}");
        }
    }

    #[test]
    fn masks_as_users_write_them() {
        for (text, pus) in [
            ("0x0", &[][..]),
            ("0xff", &[0, 1, 2, 3, 4, 5, 6, 7]),
            ("a", &[1, 3]),
            ("1,00000001", &[0, 32]),
            ("0x1,0x80000000", &[31, 32]),
            ("f,00000000,00000000", &[64, 65, 66, 67]),
            ("0x100000000000000000", &[68]),
        ] {
            assert_eq!(text.parse(), Ok(set(pus)), "{text:?}");
        }
    }

    #[test]
    fn wrong_texts_get_one_line() {
        for (text, message) in [
            ("1,\nx", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"x\""),
            ("1\n2", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"12\""),
            ("0-", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"0-\""),
            ("x", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"x\""),
            ("+1", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"+1\""),
            ("1,,2", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"\""),
            ("5:2", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"5:2\""),
            ("0-7:0", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"0-7:0\""),
            ("0-7:3/2", "expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"0-7:3/2\""),
            ("7-3", "expected a range that ends after it begins, found \"7-3\""),
            ("0-99999", "expected CPU numbers up to 65535, found 99999"),
            ("0xfg", "expected a CPU mask like \"0xff\" or \"ff,ffffffff\", found \"0xfg\""),
            ("0x", "expected a CPU mask like \"0xff\" or \"ff,ffffffff\", found \"0x\""),
            (
                "f,123456789",
                "expected a CPU mask like \"0xff\" or \"ff,ffffffff\", found \"f,123456789\"",
            ),
        ] {
            let error = text.parse::<PuSet>().expect_err(text);
            assert_eq!(error.to_string(), message);
        }
        let huge = format!("0x1{}", "0".repeat(20_000));
        assert_eq!(
            huge.parse::<PuSet>().expect_err("too large").to_string(),
            "expected CPU numbers up to 65535, found 80000"
        );
    }

    /// Short parts that name very many PUs, again and again.
    #[test]
    fn long_lists_are_read_soon() {
        for part in ["0-65535", "0-65535:2", "0-65535:65/130"] {
            let list = format!("{part},").repeat(10_000) + part;
            assert_eq!(PuSet::parse_list(&list), PuSet::parse_list(part), "{part}");
        }
    }

    #[test]
    fn sets_combine() {
        let (a, b) = (set(&[0, 1, 70]), set(&[1, 2]));
        assert_eq!(a.intersection(&b), set(&[1]));
        assert_eq!(a.difference(&b), set(&[0, 70]));
        assert_eq!(a.difference(&set(&[70])), set(&[0, 1]));
        assert!(set(&[70]).is_subset(&a) && !b.is_subset(&a));
    }

    proptest! {
        #[test]
        fn list_round_trip(pus in proptest::collection::btree_set(0..=MAX_PU_NR, 0..40)) {
            let pus: Vec<u32> = pus.into_iter().collect();
            let set = set(&pus);
            prop_assert_eq!(PuSet::parse_list(&set.to_string()), Ok(set.clone()));
            prop_assert_eq!(set.iter().map(|pu| pu.0).collect::<Vec<_>>(), pus);
        }

        /// Patterns are what they are one PU at a time.
        #[test]
        fn patterns_one_by_one(
            first in 0..200_u32,
            length in 0..300_u32,
            used in 1..140_u32,
            more in 0..140_u32,
        ) {
            let (last, group) = (first + length, used + more);
            let pus: Vec<u32> = (first..=last).filter(|pu| (pu - first) % group < used).collect();
            let text = format!("{first}-{last}:{used}/{group}");
            prop_assert_eq!(PuSet::parse_list(&text), Ok(set(&pus)));
        }

        #[test]
        fn mask_round_trip(pus in proptest::collection::btree_set(0..300_u32, 0..40)) {
            let set: PuSet = pus.iter().map(|&pu| PuNr(pu)).collect();
            prop_assert_eq!(PuSet::parse_mask(&set.mask()), Ok(set.clone()));
            prop_assert_eq!(set.len(), pus.len());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fx,:/ -]{0,30}|\\PC{0,30}") {
            if let Ok(set) = text.parse::<PuSet>() {
                prop_assert_eq!(PuSet::parse_list(&set.to_string()), Ok(set));
            }
        }
    }
}
