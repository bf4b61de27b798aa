//! Draws of mixes and programs: published tables depend on them, so a bound is kept by multiplication,
//! as when they were drawn first, and not by [`SplitMix64::below`].

use colocate_model::rng::SplitMix64;

/// Random number in 0 .. `bound`, with a bias of at most `bound` / 2⁶⁴.
pub fn below(random: &mut SplitMix64, bound: usize) -> usize {
    // The upper half of the product is uniform below `bound`.
    let product = u128::from(random.next_u64()) * bound as u128;
    usize::try_from(product >> 64).expect("below a usize")
}

/// Shuffles `items` (Fisher and Yates).
pub fn shuffle<T>(random: &mut SplitMix64, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(random, last + 1));
    }
}
