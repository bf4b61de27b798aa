//! Reproducible pseudo-random numbers.

/// SplitMix64 generator: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Generator with `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64, Steele and others 2014).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `limit`, or 0 if `limit` is 0. Small numbers are slightly likelier.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A random element of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        // An index below a usize always fits.
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }
}

/// A fresh seed of 32 random bits from the kernel.
///
/// # Errors
/// If the kernel's UUID cannot be read.
pub fn fresh() -> anyhow::Result<u64> {
    let text = crate::evidence::text("/proc/sys/kernel/random/uuid")?;
    Ok(u64::from_str_radix(&text[..8], 16)?)
}
