//! Random number generator of this project: a seed gives the same plan with every version.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
//! 2014): a counter that grows by the golden ratio's odd fraction, mixed by two multiplications.
//! Good enough for shuffling; not for secrets.

/// Random number generator. Equal seeds give equal numbers, in all versions.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Generator with the seed `seed`; all seeds are equally good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        // 2⁶⁴ over the golden ratio; odd, so the counter passes through all 2⁶⁴ states.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        // Shifts and factors of the finalizer: Stafford's variant 13 of MurmurHash3's.
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform random number in 0 .. `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        // Numbers at the top, which would favour small remainders, are drawn again.
        let fair = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next_u64();
            if drawn < fair {
                return usize::try_from(drawn % bound).expect("less than a usize");
            }
        }
    }

    /// Uniform random number in 0 .. 1, in steps of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits fill the significand of an `f64` exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles `items`, every order with the same probability (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567 that the generator's published test vectors give.
    #[test]
    fn known_numbers() {
        let mut rng = SplitMix64::new(1_234_567);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn shuffles_the_same_for_ever() {
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
        SplitMix64::new(7).shuffle(&mut items);
        assert_eq!(items, [1, 4, 5, 2, 6, 0, 3, 7]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = SplitMix64::new(0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
