//! The kernel's fair scheduling policies, from which tasks are put under SCHED_IDLE.

use std::ffi::c_int;
use std::fmt;

/// A policy that threads had before, and get again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fair {
    /// SCHED_OTHER, the default.
    Other,
    /// SCHED_BATCH.
    Batch,
}

impl Fair {
    /// By the kernel's number; `None` for all other policies.
    pub const fn of(policy: c_int) -> Option<Self> {
        match policy {
            libc::SCHED_OTHER => Some(Self::Other),
            libc::SCHED_BATCH => Some(Self::Batch),
            _ => None,
        }
    }

    /// The kernel's number.
    pub const fn policy(self) -> c_int {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
        }
    }

    /// Reads what [`Fair::letter`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "o" => Some(Self::Other),
            "b" => Some(Self::Batch),
            _ => None,
        }
    }

    /// Its letter in the journal.
    pub const fn letter(self) -> char {
        match self {
            Self::Other => 'o',
            Self::Batch => 'b',
        }
    }
}

impl fmt::Display for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "SCHED_OTHER",
            Self::Batch => "SCHED_BATCH",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_they_are_written() {
        for fair in [Fair::Other, Fair::Batch] {
            assert_eq!(Fair::parse(&fair.letter().to_string()), Some(fair));
            assert_eq!(Fair::of(fair.policy()), Some(fair));
        }
        assert_eq!((Fair::parse("-"), Fair::of(libc::SCHED_IDLE)), (None, None));
    }
}
