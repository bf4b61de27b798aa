//! Sets of caches and of PUs, as wide as the machine needs.

use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, Not};

/// Set of caches or PUs: bit `i` is number `i`.
pub(super) trait IndexSet:
    Copy + Debug + Default + Eq + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
    /// Most members.
    const MOST: usize;

    /// Set of one number below [`Self::MOST`].
    fn only(number: u8) -> Self;

    /// Lowest member; `None` for the empty set.
    fn lowest(self) -> Option<u8>;

    /// Whether there is no member.
    #[inline]
    fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Members, lowest first.
    #[inline]
    fn members(self) -> impl Iterator<Item = u8> {
        let mut left = self;
        std::iter::from_fn(move || {
            let lowest = left.lowest()?;
            left = left & !Self::only(lowest);
            Some(lowest)
        })
    }
}

macro_rules! index_set {
    ($word:ty) => {
        impl IndexSet for $word {
            const MOST: usize = Self::BITS as usize;

            #[inline]
            fn only(number: u8) -> Self {
                1 << number
            }

            #[inline]
            #[allow(clippy::cast_possible_truncation)] // 128 at most
            fn lowest(self) -> Option<u8> {
                (self != 0).then_some(self.trailing_zeros() as u8)
            }
        }
    };
}

index_set!(u32);
index_set!(u128);
