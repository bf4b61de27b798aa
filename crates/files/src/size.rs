//! Limits of size.

use std::fmt;

/// Limit of the size of a file of one format, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxSize(u64);

impl MaxSize {
    /// Limit of `bytes` bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Limit of `kib` KiB.
    #[must_use]
    pub const fn kib(kib: u32) -> Self {
        // A cast: `u64::from` is not const.
        Self((kib as u64) << 10)
    }

    /// Limit of `mib` MiB.
    #[must_use]
    pub const fn mib(mib: u32) -> Self {
        Self((mib as u64) << 20)
    }

    /// Limit in bytes.
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
