//! `interleave`: page groups are dealt to all nodes in turn.
//!
//! # Problem
//! Memory initialized by one thread is on one node, whose controller then serves all threads.
//! # Approach
//! As `numactl --interleave`, which deals pages at their first touch; here existing page groups are
//! dealt. All controllers have the same load, and of n nodes a thread finds a part of 1/n near.
//! # Terms
//! None.
//! # Algorithm
//! The group with number i of its size, by address, goes to node i modulo the number of nodes with
//! memory.
//! # Properties
//! - **Even**: groups in a row are on different nodes. -> test `in_turn`
//! - **Once**: a group that is there stays. -> test `in_turn`

use super::{PageGroupUse, Paging, Rule, with_memory};
use crate::row::{PolicyRow, Purpose};
use colocate_machine::{Machine, NodeIdx};

pub static ROW: PolicyRow = PolicyRow {
    name: "interleave",
    purpose: Purpose::Baseline,
    summary: "deals page groups to all nodes in turn",
    source: "as numactl --interleave, by groups",
    make: |_, _| Paging::by(Interleave),
    ..PolicyRow::ONCE
};

struct Interleave;

impl Rule for Interleave {
    fn target(&mut self, group: &PageGroupUse<'_>, machine: &Machine) -> Option<(NodeIdx, String)> {
        let nodes = with_memory(machine);
        // A group without bytes has no number; any node is right.
        let number = group.pages.range.start / group.pages.bytes().0.max(1);
        // Without nodes no remainder by 0; `get` then finds none.
        let turn = usize::try_from(number % nodes.len().max(1) as u64).ok()?;
        Some((*nodes.get(turn)?, "next in order".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{Period, orders};

    #[test]
    fn in_turn() {
        let all: Period = vec![(0, vec![]); 6];
        assert_eq!(
            orders("interleave", &[all.clone(), all]),
            [vec![(1, 1), (2, 2), (3, 3), (5, 1)], vec![]]
        );
    }
}
