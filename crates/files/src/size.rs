//! Limits of size.

use std::fmt;

/// The largest size that a file of one format may have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxSize(u64);

impl MaxSize {
    /// So many bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many KiB.
    #[must_use]
    pub const fn kib(kib: u32) -> Self {
        Self((kib as u64) << 10)
    }

    /// So many MiB.
    #[must_use]
    pub const fn mib(mib: u32) -> Self {
        Self((mib as u64) << 20)
    }

    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MaxSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}
