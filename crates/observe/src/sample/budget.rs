//! Limits the cost of analysing programs' code.
//!
//! # Problem
//! Files and memory of other users' programs determine how much is read. A sparse file of 16 KB on
//! disk can claim gigabytes of symbols, and a function of only jumps has more paths than can be
//! followed.
//! # Approach
//! Work that grows with a file's claims is paid for in advance, in *steps* of about a nanosecond on
//! the machines of docs/reference/sampling.md. Code beyond the budget counts as unreadable. Steps
//! are counted, not time, so the same file gives the same answer on a busy machine.

/// Remaining steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBudget {
    left: u64,
}

impl StepBudget {
    /// A budget of `steps` steps.
    #[must_use]
    pub const fn of(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Pays for `steps`. `None`, now and from now on, if fewer are left.
    pub fn spend(&mut self, steps: u64) -> Option<()> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Pays for `count` items of `steps` each, as [`StepBudget::spend`].
    pub fn spend_each(&mut self, count: usize, steps: u64) -> Option<()> {
        self.spend(steps.saturating_mul(count as u64))
    }

    /// Remaining steps.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Runs `work` with at most `most` of the remaining steps.
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
        let mut budget = StepBudget::of(10);
        assert_eq!((budget.spend(4), budget.left()), (Some(()), 6));
        assert_eq!((budget.spend(7), budget.left()), (None, 0));
        assert_eq!((budget.spend(1), budget.spend(0)), (None, Some(())));
        assert_eq!(StepBudget::of(u64::MAX - 1).spend_each(usize::MAX, 2), None);
    }

    #[test]
    fn a_part_takes_no_more_than_its_part() {
        let mut budget = StepBudget::of(10);
        assert_eq!(budget.within(4, |part| part.spend(3)), Some(()));
        assert_eq!(budget.left(), 7);
        assert_eq!(budget.within(4, |part| part.spend(5)), None);
        assert_eq!(budget.left(), 3);
        assert_eq!(budget.within(4, |part| part.spend(4)), None);
        assert_eq!(budget.left(), 0);
    }
}
