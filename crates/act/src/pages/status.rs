//! Outcomes of moving pages, counted.

use super::Addr;
use colocate_linux::move_pages::Stay;
use colocate_machine::NodeNr;
use serde::Serialize;

/// Numbers of pages by result, in the machine's small pages even within huge pages.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    /// Were elsewhere and are on their node now.
    pub moved: u64,
    /// Were on their node.
    pub already_there: u64,
    /// Are not in memory.
    pub not_present: u64,
    /// Busy at each attempt.
    pub busy: u64,
    /// Mapped by several processes.
    pub shared: u64,
    /// Their node has no memory for.
    pub no_memory: u64,
    /// Cannot be moved.
    pub unmovable: u64,
    /// Not reached because of an early end.
    pub not_reached: u64,
}

impl PageCounts {
    /// Counts pages that stay.
    pub fn stay(&mut self, why: Stay, pages: u64) {
        *match why {
            Stay::NotPresent => &mut self.not_present,
            Stay::Busy => &mut self.busy,
            Stay::Shared => &mut self.shared,
            Stay::NoMemory => &mut self.no_memory,
            Stay::Unmovable => &mut self.unmovable,
        } += pages;
    }

    /// All pages.
    pub const fn total(&self) -> u64 {
        self.moved + self.already_there + self.not_present + self.left() + self.not_reached
    }

    /// Pages in memory but not on their target node.
    pub const fn left(&self) -> u64 {
        self.busy + self.shared + self.no_memory + self.unmovable
    }
}

/// Evenly spread sample of the moved pages, at most [`MovedPageSample::MOST`], so that a further
/// query costs little for any number of moved pages.
#[derive(Clone, Debug, Default)]
pub struct MovedPageSample {
    kept: Vec<(Addr, NodeNr)>,
    /// Every 2^n-th page is kept.
    halvings: u32,
    offered: u64,
}

impl MovedPageSample {
    /// Maximum number of sampled pages. Chosen: a query of this size takes about a millisecond.
    pub const MOST: usize = 4096;

    /// Offers a page.
    pub fn offer(&mut self, page: Addr, node: NodeNr) {
        if self.offered.is_multiple_of(1 << self.halvings) {
            if self.kept.len() == Self::MOST {
                let mut place = 0_usize;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.halvings += 1;
            }
            // After a halving, the page at hand is one of the kept kind: MOST is even.
            self.kept.push((page, node));
        }
        self.offered += 1;
    }

    /// Sampled pages, and their target nodes.
    pub fn pages(&self) -> &[(Addr, NodeNr)] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,000 pages: thinned twice (at 4,096 and at 8,192), so every fourth is kept: 2,500.
    #[test]
    fn a_sample_is_even() {
        let mut sample = MovedPageSample::default();
        (0..10_000).for_each(|page| sample.offer(Addr(page), NodeNr(1)));
        let expected: Vec<_> = (0..10_000).step_by(4).map(|page| (Addr(page), NodeNr(1))).collect();
        assert_eq!(sample.pages(), expected);
    }
}
