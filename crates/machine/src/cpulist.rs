//! Sets of PUs as the kernel and its users write them.
//!
//! | form | example | written by |
//! |---|---|---|
//! | list | `0-3,8` | sysfs, `taskset -c`, `numactl -C` |
//! | list with a stride | `0-31:2` (every second) | `taskset -c` |
//! | list with groups | `0-31:2/4` (the first two of every four) | the kernel's `isolcpus=`, cpusets |
//! | mask | `0xff`, `ff,ffffffff` | `taskset`, `/proc/<pid>/status`, `/proc/irq` |

use crate::ids::PuNr;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Highest PU number that is accepted. Linux allows 8,192 CPUs at most (`NR_CPUS`); the rest is
/// room, and the bound keeps a hostile file from claiming all memory.
pub(crate) const MAX_PU_NR: u32 = 65_535;

/// Bits in one group of a mask as the kernel prints it.
const GROUP_BITS: u32 = 32;

/// Bits in one word of a set.
const WORD_BITS: u32 = u64::BITS;

/// A set of PUs by the kernel's number. Prints as a list, `0-3,8`; the empty set prints nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PuSet {
    /// Bit `b` of word `w` is PU `64 w + b`. The last word is never 0, so that equal sets have
    /// equal words.
    words: Words,
}

/// In place up to 128 PUs: very many threads have such a set.
type Words = SmallVec<[u64; 2]>;

/// Why a text is not a set of PUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PuSetError {
    /// A part of a list has the wrong form.
    #[error("expected a CPU list like \"0-3,8\" or \"0-31:2/4\", found \"{found}\"")]
    List {
        /// The part.
        found: String,
    },
    /// A mask has the wrong form.
    #[error("expected a CPU mask like \"0xff\" or \"ff,ffffffff\", found \"{found}\"")]
    Mask {
        /// The part.
        found: String,
    },
    /// A range ends before it begins.
    #[error("expected a range that ends after it begins, found \"{first}-{last}\"")]
    Backwards {
        /// Where it begins.
        first: u32,
        /// Where it ends.
        last: u32,
    },
    /// A number is beyond [`MAX_PU_NR`].
    #[error("expected CPU numbers up to {MAX_PU_NR}, found {found}")]
    TooLarge {
        /// The number.
        found: String,
    },
}

impl PuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Words::new_const() }
    }

    /// Adds a PU; says whether it was new.
    pub fn insert(&mut self, pu: PuNr) -> bool {
        let new = !self.contains(pu);
        self.insert_bits(pu.idx() / 64, 1 << (pu.0 % 64));
        new
    }

    /// Adds some PUs of one word, perhaps none.
    fn insert_bits(&mut self, word: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bits;
    }

    /// Whether `pu` is in the set.
    #[must_use]
    pub fn contains(&self, pu: PuNr) -> bool {
        self.words.get(pu.idx() / 64).is_some_and(|word| word & (1 << (pu.0 % 64)) != 0)
    }

    /// How many PUs are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The PUs, lowest number first.
    pub fn iter(&self) -> impl Iterator<Item = PuNr> + '_ {
        // A set of high numbers has many empty words before them.
        let used = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        used.flat_map(|(index, &word)| {
            (0..64)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| PuNr::new(index * 64 + bit))
        })
    }

    /// The PUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self::of_words(&both.collect::<Words>())
    }

    /// The PUs of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        let left = self.words.iter().zip(others).map(|(a, b)| a & !b);
        Self::of_words(&left.collect::<Words>())
    }

    /// Whether every PU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Reads a list. An empty text is the empty set, as the kernel's `offline` file has it.
    ///
    /// # Errors
    /// [`PuSetError`] names the part that is wrong.
    pub fn parse_list(text: &str) -> Result<Self, PuSetError> {
        let mut set = Self::new();
        let text = text.trim();
        if !text.is_empty() {
            text.split(',').try_for_each(|part| set.add_range(part.trim()))?;
        }
        Ok(set)
    }

    /// Reads a hex mask: one number of any length, or groups of 32 bits with commas between them,
    /// highest first. A leading `0x` is allowed on every group.
    ///
    /// # Errors
    /// [`PuSetError`] names the part that is wrong.
    pub fn parse_mask(text: &str) -> Result<Self, PuSetError> {
        let groups: Vec<&str> = text.trim().split(',').map(hex_digits).collect();
        let alone = groups.len() == 1;
        let mut set = Self::new();
        for (index, group) in groups.iter().rev().enumerate() {
            let sane = !group.is_empty() && group.chars().all(|digit| digit.is_ascii_hexdigit());
            if !sane || (!alone && group.len() > 8) {
                return Err(PuSetError::Mask { found: shortened(text) });
            }
            set.add_digits(group, index)?;
        }
        Ok(set)
    }

    /// The set as the kernel prints a mask: groups of 32 bits in hex, highest first, all but the
    /// first with leading zeros.
    #[must_use]
    pub fn mask(&self) -> String {
        let halves: Vec<u64> =
            self.words.iter().flat_map(|word| [word & 0xffff_ffff, word >> GROUP_BITS]).collect();
        let top = halves.iter().rposition(|&half| half != 0).unwrap_or(0);
        let mut text = format!("{:x}", halves.first().map_or(0, |_| halves[top]));
        for half in halves[..top].iter().rev() {
            text.push_str(&format!(",{half:08x}"));
        }
        text
    }

    /// The set that a mask of the kernel's names: bit `b` of word `w` is PU `64 w + b`.
    #[must_use]
    pub fn of_words(words: &[u64]) -> Self {
        let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        Self { words: words[..used].into() }
    }

    /// The same, to be read.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds one part of a list: `5`, `0-3`, `0-31:2` or `0-31:2/4`.
    fn add_range(&mut self, part: &str) -> Result<(), PuSetError> {
        let wrong = || PuSetError::List { found: shortened(part) };
        let (range, step) = part.split_once(':').map_or((part, None), |(r, s)| (r, Some(s)));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first, wrong)?, number(last, wrong)?);
        // "every second" is "the first one of every two".
        let (used, group) = match step.map(|step| step.split_once('/').unwrap_or(("1", step))) {
            None => (1, 1),
            Some((used, group)) => (number(used, wrong)?, number(group, wrong)?),
        };
        if step.is_some() && (!range.contains('-') || used == 0 || used > group) {
            return Err(wrong());
        }
        if last < first {
            return Err(PuSetError::Backwards { first, last });
        }
        if group <= WORD_BITS {
            self.add_pattern(first, last, used, group);
        } else {
            for begin in (first..=last).step_by(group as usize) {
                self.add_pattern(begin, last.min(begin + used - 1), 1, 1);
            }
        }
        Ok(())
    }

    /// Adds the first `used` of every `group` PUs from `first` to `last`, for groups of a word at most. It goes a word
    /// at a time, so that a long list that names the same PUs again and again is read soon.
    fn add_pattern(&mut self, first: u32, last: u32, used: u32, group: u32) {
        // Two words of it, so that one can begin anywhere in a group.
        let chosen = || (0..2 * WORD_BITS).filter(|bit| bit % group < used);
        let pattern = match used == group {
            true => u128::MAX,
            false => chosen().fold(0, |pattern, bit| pattern | 1 << bit),
        };
        for word in first / WORD_BITS..=last / WORD_BITS {
            let begin = word * WORD_BITS;
            // The word may begin before the first group does: `group` words earlier is as good.
            let phase = (begin + group * WORD_BITS - first) % group;
            let after = u64::MAX << first.saturating_sub(begin);
            let before = u64::MAX >> (WORD_BITS - 1).saturating_sub(last - begin);
            self.insert_bits(word as usize, low_word(pattern >> phase) & after & before);
        }
    }

    /// Adds hex digits whose lowest bit is bit 0 of group `index`.
    fn add_digits(&mut self, digits: &str, index: usize) -> Result<(), PuSetError> {
        for (place, digit) in digits.chars().rev().enumerate() {
            let value = digit.to_digit(16).unwrap_or(0);
            for bit in (0..4).filter(|bit| value & (1 << bit) != 0) {
                let pu = index * GROUP_BITS as usize + place * 4 + bit;
                if pu > MAX_PU_NR as usize {
                    return Err(PuSetError::TooLarge { found: pu.to_string() });
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

fn hex_digits(group: &str) -> &str {
    let group = group.trim();
    group.strip_prefix("0x").or_else(|| group.strip_prefix("0X")).unwrap_or(group)
}

/// Enough of `text` to recognise it in a one-line message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

fn number(text: &str, wrong: impl Fn() -> PuSetError) -> Result<u32, PuSetError> {
    let text = text.trim();
    // `parse` would accept a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let in_range = text.parse().ok().filter(|&nr| nr <= MAX_PU_NR);
    in_range.ok_or_else(|| PuSetError::TooLarge { found: shortened(text) })
}

/// Whether `text` can only be a mask: a `0x`, a hex letter, or a group of eight digits after a
/// comma, which as a list would name a CPU that cannot exist.
fn looks_like_mask(text: &str) -> bool {
    let hex_letter = |byte: u8| byte.is_ascii_hexdigit() && !byte.is_ascii_digit();
    let full_group = |group: &str| group.len() == 8 && group.bytes().all(|b| b.is_ascii_digit());
    text.trim().starts_with("0x")
        || text.trim().starts_with("0X")
        || text.bytes().any(hex_letter)
        || text.split(',').skip(1).any(full_group)
}

impl FromStr for PuSet {
    type Err = PuSetError;

    /// Reads a list or a mask, whichever it is. Digits alone are a list: `10` is CPU 10, and the
    /// mask is written `0x10`.
    fn from_str(text: &str) -> Result<Self, PuSetError> {
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
    type Error = PuSetError;

    fn try_from(text: String) -> Result<Self, PuSetError> {
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
