//! Where a process's pages are, and moving them to another node.
//!
//! [`work`] says which pages are moved in which batches and what becomes of each, [`pace`] how large
//! a batch may be, [`status`] what became of pages; these are values in, values out.
//! [`colocate_linux::move_pages`] holds the system calls, [`live`] the process of this machine that they are made for, and
//! [`maps`], [`nodes`] and [`tasks`] read `/proc` and `/sys`.
//!
//! Pages are moved with move_pages(2), which leaves memory policies alone and moves a huge page as
//! one. What it answers is not believed: where each page is, is read back.

pub mod live;
pub mod maps;
pub mod nodes;
pub mod pace;
pub mod status;
pub mod tasks;
pub mod work;

#[cfg(test)]
mod testing;

pub use colocate_linux::move_pages::Addr;

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Addresses from `start` to before `end`, written as `/proc/PID/maps` does: `7f00000000-7f00200000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressSpan {
    /// The first address.
    pub start: Addr,
    /// First address after the range.
    pub end: Addr,
}

/// Text that is not an address range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected START-END in hex with START below END, as in /proc/PID/maps, found \"{found}\"")]
pub struct SpanError {
    /// Text found.
    pub found: String,
}

impl AddressSpan {
    /// All addresses.
    pub const ALL: Self = Self { start: Addr(0), end: Addr(u64::MAX) };

    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Common addresses; `None` if there are none.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    /// Widened to whole pages of `page_b` bytes.
    pub const fn whole_pages(self, page_b: u64) -> Self {
        let end = match self.end.0.checked_next_multiple_of(page_b) {
            Some(end) => end,
            // No whole page begins above the last multiple.
            None => self.end.0 / page_b * page_b,
        };
        Self { start: Addr(self.start.0 / page_b * page_b), end: Addr(end) }
    }
}

impl FromStr for AddressSpan {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let number = |text: &str| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            // `from_str_radix` would accept a sign.
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let span = text.split_once('-').and_then(|(start, end)| {
            Some(Self { start: Addr(number(start)?), end: Addr(number(end)?) })
        });
        span.filter(|span| span.start < span.end).ok_or_else(|| SpanError { found: text.into() })
    }
}

impl fmt::Display for AddressSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_as_the_kernel_writes_them() {
        let span: AddressSpan = "7f00-8f00".parse().unwrap();
        assert_eq!(span, AddressSpan { start: Addr(0x7f00), end: Addr(0x8f00) });
        assert_eq!("0x7f00-0x8f00".parse(), Ok(span));
        assert_eq!(span.to_string(), "7f00-8f00");
        for wrong in ["", "7f00", "8f00-7f00", "7f00-7f00", "-7f00", "+1-2", "x-y", "1-2-3"] {
            assert_eq!(wrong.parse::<AddressSpan>(), Err(SpanError { found: wrong.into() }));
        }
    }

    #[test]
    fn spans_widen_to_pages() {
        let wide = |text: &str| text.parse::<AddressSpan>().unwrap().whole_pages(4096).to_string();
        assert_eq!(wide("1001-1fff"), "1000-2000");
        assert_eq!(wide("1000-2000"), "1000-2000");
        assert_eq!(wide("0-ffffffffffffffff"), "0-fffffffffffff000");
    }
}
