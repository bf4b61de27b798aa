//! `first-touch`: pages stay where they were touched first.
//!
//! # Problem
//! Policies that move pages are compared with not moving any.
//! # Approach
//! As `os`. Linux allocates a page on the node of the thread that touches it first.
//! # Terms
//! None.
//! # Algorithm
//! Nothing moves.
//! # Properties
//! - **Hands off**: no page is moved, and no task. -> test `hands_off`

use super::{PageGroupUse, Paging, Rule};
use crate::row::{PolicyRow, Purpose};
use colocate_machine::{Machine, NodeIdx};

pub static ROW: PolicyRow = PolicyRow {
    name: "first-touch",
    purpose: Purpose::Baseline,
    summary: "leaves pages where they were touched first, threads to the kernel",
    source: "Linux's default",
    make: |_, _| Paging::by(FirstTouch),
    ..PolicyRow::ONCE
};

struct FirstTouch;

impl Rule for FirstTouch {
    fn target(&mut self, _: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{orders, used};

    #[test]
    fn hands_off() {
        let periods = vec![used(&[(0, 1, 100, 0)]); 3];
        assert_eq!(orders("first-touch", &periods), vec![vec![]; 3]);
    }
}
