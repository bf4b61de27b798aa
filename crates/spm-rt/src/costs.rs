//! Memory costs of the machine.

/// Memory costs of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCosts {
    /// Time to move a small page, in nanoseconds.
    pub page_move_ns: u64,
    /// Additional time of a remote cache line in a loop that reads sequentially, in picoseconds.
    pub remote_line_ps: u64,
    /// Cache share of a thread when all PUs are busy, in bytes.
    pub cache_bytes: u64,
    /// Sum of all caches over a PU, in bytes, for the published rule.
    pub path_bytes: u64,
    /// Largest share of all PUs' time for moving pages, in percent.
    pub moving_percent: u64,
    /// Published rule in place of the rule by costs.
    pub published: Option<PublishedRule>,
}

impl MemoryCosts {
    /// Costs without a measurement. Assumed: 2 µs per page, and 4 ns per line, so 8 accesses per
    /// byte make up for a move; a thread has 2 MiB of the caches, of 8 MiB.
    pub const ASSUMED: Self = Self {
        page_move_ns: 2_000,
        remote_line_ps: 4_000,
        cache_bytes: 2 << 20,
        path_bytes: 8 << 20,
        moving_percent: 25,
        published: None,
    };

    /// Costs with values from lines of `name value`: `page_move_ns`, `remote_line_ps`,
    /// `cache_bytes`, `path_bytes`, `moving_percent`. Further lines are ignored.
    #[must_use]
    pub fn with(mut self, text: &[u8]) -> Self {
        for line in text.split(|byte| *byte == b'\n') {
            let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let (Some(name), Some(value)) = (words.next(), words.next().and_then(number)) else {
                continue;
            };
            match name {
                b"page_move_ns" => self.page_move_ns = value,
                b"remote_line_ps" => self.remote_line_ps = value,
                b"cache_bytes" => self.cache_bytes = value,
                b"path_bytes" => self.path_bytes = value,
                b"moving_percent" => self.moving_percent = value,
                _ => {}
            }
        }
        self
    }
}

/// Thresholds of the dissertation's rule (Piccoli, 2014).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRule {
    /// Least size of the range, as a multiple of the size of a PU's caches.
    pub caches: f64,
    /// Least number of accesses per byte.
    pub reuse: f64,
}

impl PublishedRule {
    /// True if a range should move.
    #[must_use]
    pub fn is_worth_it(&self, size: u64, bytes: u64, caches: u64) -> bool {
        size as f64 > self.caches * caches as f64 && bytes as f64 / size as f64 > self.reuse
    }
}

/// Parses a whole number; `None` for any other text.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand() {
        let text =
            b"# measured\npage_move_ns 900\n\nremote_line_ps x\nsomething 5\ncache_bytes  1024\n";
        let costs = MemoryCosts::ASSUMED.with(text);
        assert_eq!((costs.page_move_ns, costs.cache_bytes), (900, 1024));
        assert_eq!(costs.remote_line_ps, MemoryCosts::ASSUMED.remote_line_ps);
    }

    /// The dissertation's constants: a tenth or a fifth of the caches, 200 accesses a byte.
    #[test]
    fn as_published() {
        let published = PublishedRule { caches: 0.2, reuse: 200.0 };
        let caches = 16_u64 << 20;
        assert!(published.is_worth_it(4 << 20, 201 * (4 << 20), caches));
        assert!(!published.is_worth_it(4 << 20, 200 * (4 << 20), caches), "too little reuse");
        assert!(!published.is_worth_it(3 << 20, 300 * (3 << 20), caches), "too small");
    }
}
