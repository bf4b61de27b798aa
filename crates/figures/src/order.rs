//! Order of the runs of a study.
//!
//! # Problem
//! A machine drifts: it heats up, its page cache fills, other load starts. Ten runs under one
//! policy followed by ten under the next would mistake the drift for a difference.
//!
//! # Approach
//! Randomised complete blocks. A block contains one run under every policy, in random order; blocks
//! follow each other. Drift slower than a block affects all runs of the block alike, so ratios
//! within a block are free of drift.
//!
//! # Properties
//! - **Complete**: every policy once in every block. -> test `complete`
//! - **Repeatable**: the same seed, the same order.  -> test `repeatable`
//! - **Fair**: every place of a block is as likely for every policy. -> test `fair`

use colocate_policy::rng::SplitMix64;

/// A run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the block, from 0.
    pub block: u32,
    /// Index in the study's list of policies, from 0.
    pub policy: usize,
}

/// Order of `blocks` blocks over `policies` policies, drawn from `seed`.
#[must_use]
pub fn blocks(policies: usize, blocks: u32, seed: u64) -> Vec<Slot> {
    let mut random = SplitMix64::new(seed);
    let mut slots = Vec::new();
    for number in 0..blocks {
        let order = block(policies, &mut random).into_iter();
        slots.extend(order.map(|policy| Slot { block: number, policy }));
    }
    slots
}

/// Order within the next block: the numbers from 0 to `members` − 1, each once.
#[must_use]
pub fn block(members: usize, random: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members).collect();
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn complete(policies in 0..8_usize, count in 0..6_u32, seed: u64) {
            let order = blocks(policies, count, seed);
            prop_assert_eq!(order.len(), policies * count as usize);
            if policies > 0 {
                for (number, block) in order.chunks(policies).enumerate() {
                    prop_assert!(block.iter().all(|slot| slot.block as usize == number));
                    let mut seen: Vec<usize> = block.iter().map(|slot| slot.policy).collect();
                    seen.sort_unstable();
                    prop_assert_eq!(seen, (0..policies).collect::<Vec<_>>());
                }
            }
        }

        #[test]
        fn repeatable(policies in 0..8_usize, count in 0..6_u32, seed: u64) {
            prop_assert_eq!(blocks(policies, count, seed), blocks(policies, count, seed));
        }
    }

    /// 3 policies, 3,000 blocks: each is first in 1,000 of them, give or take five standard
    /// deviations of sqrt(3000 · 1/3 · 2/3) = 26.
    #[test]
    fn fair() {
        let order = blocks(3, 3_000, 11);
        for place in 0..3 {
            for policy in 0..3 {
                let times = order.chunks(3).filter(|block| block[place].policy == policy).count();
                assert!((870..=1_130).contains(&times), "policy {policy} at {place}: {times}");
            }
        }
    }
}
