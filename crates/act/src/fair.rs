//! The kernel's fair scheduling policies, from which tasks are put under SCHED_IDLE.

use std::ffi::c_int;
use std::fmt;

/// Fair scheduling policy of threads, to be restored later.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fair {
    /// SCHED_OTHER, the default.
    #[cfg_attr(feature = "schema", schemars(rename = "SCHED_OTHER"))]
    Other,
    /// SCHED_BATCH.
    #[cfg_attr(feature = "schema", schemars(rename = "SCHED_BATCH"))]
    Batch,
}

impl Fair {
    /// All policies: the kernel's number, the letter in the journal, the name.
    const ALL: [(Self, c_int, &'static str, &'static str); 2] = [
        (Self::Other, libc::SCHED_OTHER, "o", "SCHED_OTHER"),
        (Self::Batch, libc::SCHED_BATCH, "b", "SCHED_BATCH"),
    ];

    /// Policy with the kernel's number `policy`; `None` for all further policies.
    pub fn of(policy: c_int) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == policy).map(|row| row.0)
    }

    /// The kernel's number.
    pub const fn policy(self) -> c_int {
        Self::ALL[self as usize].1
    }

    /// Parses the output of [`Fair::letter`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.2 == text).map(|row| row.0)
    }

    /// Letter in the journal.
    pub const fn letter(self) -> &'static str {
        Self::ALL[self as usize].2
    }
}

impl fmt::Display for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_they_are_written() {
        for fair in [Fair::Other, Fair::Batch] {
            assert_eq!(Fair::parse(fair.letter()), Some(fair));
            assert_eq!(Fair::of(fair.policy()), Some(fair));
        }
        assert_eq!((Fair::parse("-"), Fair::of(libc::SCHED_IDLE)), (None, None));
    }
}
