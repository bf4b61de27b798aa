//! What taking programs' code apart may cost.
//!
//! # Problem
//! Files and memory of other users' programs say how much there is to be read: a sparse file of 16 KB on disk claims
//! gigabytes of symbols, and a function of jumps alone has more paths than can be followed.
//! # Approach
//! Everything that grows with what a file claims is paid for before it is done, in *steps* of about a nanosecond on the
//! machines of docs/reference/sampling.md. Where the budget ends, code counts as unreadable. Steps are counted and no clock is
//! read, so that the same file gives the same answer on a busy machine.

/// Steps that may still be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// So many steps.
    #[must_use]
    pub const fn of(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Pays for `steps`; `None`, now and from now on, if there are not so many left.
    pub fn spend(&mut self, steps: u64) -> Option<()> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Pays for `count` things of `steps` each, as [`Budget::spend`].
    pub fn spend_each(&mut self, count: usize, steps: u64) -> Option<()> {
        self.spend(steps.saturating_mul(count as u64))
    }

    /// Steps that are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Does `work` with `most` steps, or with all that are left if those are fewer.
    pub fn within<T>(&mut self, most: u64, work: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut part = Self::of(most.min(self.left));
        let before = part.left;
        let done = work(&mut part);
        self.left -= before - part.left;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone() {
        let mut budget = Budget::of(10);
        assert_eq!((budget.spend(4), budget.left()), (Some(()), 6));
        assert_eq!((budget.spend(7), budget.left()), (None, 0));
        assert_eq!((budget.spend(1), budget.spend(0)), (None, Some(())));
        assert_eq!(Budget::of(u64::MAX - 1).spend_each(usize::MAX, 2), None);
    }

    #[test]
    fn a_part_takes_no_more_than_its_part() {
        let mut budget = Budget::of(10);
        assert_eq!(budget.within(4, |part| part.spend(3)), Some(()));
        assert_eq!(budget.left(), 7);
        assert_eq!(budget.within(4, |part| part.spend(5)), None);
        assert_eq!(budget.left(), 3);
        assert_eq!(budget.within(4, |part| part.spend(4)), None);
        assert_eq!(budget.left(), 0);
    }
}
