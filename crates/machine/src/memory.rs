//! The node whose memory the kernel gives to threads of each node.
//!
//! Threads of a node with memory get that. For the others the kernel makes a list of the nodes to take memory from; the
//! first of that list is computed here as the kernel does it (Linux: mm/page_alloc.c, `build_zonelists`).

use crate::ids::NodeIdx;
use crate::machine::Machine;
use crate::units::Bytes;

/// What the kernel adds to the distance of a node that has PUs of its own (`PENALTY_FOR_NODE_WITH_CPUS`).
const WITH_PUS: u64 = 1;

/// The kernel's factor that makes any difference in distance count more than all loads (`MAX_NUMNODES`).
const MOST_NODES: u64 = 1 << 10;

impl Machine {
    /// The node where pages are that a thread of each node touches first, in the order of `nodes`; `None` where no node
    /// has memory. A node of which the memory is unknown has some.
    #[must_use]
    pub fn memory_nodes(&self) -> Vec<Option<NodeIdx>> {
        let count = self.nodes.len();
        let all = || (0..count).map(NodeIdx::new);
        if all().all(|node| self.has_memory(node)) {
            return all().map(Some).collect();
        }
        let mut order: Vec<NodeIdx> = all().collect();
        order.sort_by_key(|node| self.nodes[node.idx()].os);
        let mut penalties = vec![0; count];
        for home in self.cores.iter().filter_map(|core| core.node) {
            penalties[home.idx()] = WITH_PUS;
        }
        let mut found = vec![None; count];
        let mut load = vec![0; count];
        for local in order {
            found[local.idx()] = self.first_fallback(local, &penalties, &mut load);
        }
        found
    }

    /// Whether a node has memory, as far as is known.
    #[must_use]
    pub fn has_memory(&self, node: NodeIdx) -> bool {
        self.nodes[node.idx()].memory != Some(Bytes(0))
    }

    /// Distance between two nodes: the firmware's, or else the kernel's two values.
    fn distance(&self, from: NodeIdx, to: NodeIdx) -> u32 {
        let said = self.distances.as_ref().map(|found| found.rows[from.idx()][to.idx()]);
        said.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// The first node of the list of `local`. The first node of each distance in the list counts as more loaded in later
    /// lists.
    fn first_fallback(
        &self,
        local: NodeIdx,
        penalties: &[u64],
        load: &mut [u64],
    ) -> Option<NodeIdx> {
        let os = |node: NodeIdx| self.nodes[node.idx()].os;
        let cost = |node: NodeIdx, load: &[u64]| {
            let behind = u64::from(os(node) < os(local));
            let distance = u64::from(self.distance(local, node)) + behind + penalties[node.idx()];
            (node != local, distance * MOST_NODES + load[node.idx()], os(node))
        };
        let nodes = (0..self.nodes.len()).map(NodeIdx::new);
        let mut left: Vec<NodeIdx> = nodes.filter(|node| self.has_memory(*node)).collect();
        let (mut first, mut before) = (None, local);
        while let Some(at) = (0..left.len()).min_by_key(|at| cost(left[*at], load)) {
            let node = left.swap_remove(at);
            if self.distance(local, node) != self.distance(local, before) {
                load[node.idx()] += 1;
            }
            first.get_or_insert(node);
            before = node;
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described;
    use crate::machine::Distances;

    /// Four nodes: 0 and 1 with two PUs each and no memory, 2 and 3 with memory and no PUs.
    fn apart(rows: Option<Vec<Vec<u32>>>) -> Machine {
        let text = "version = 1\nname = \"apart\"\n[shape]\npackages = 2\ncores-per-package = 2\n\
                    pus-per-core = 1\nnodes = 4\n";
        let mut machine = described::from_toml(text).expect("described").machine;
        for (index, core) in machine.cores.iter_mut().enumerate() {
            core.node = Some(NodeIdx::new(index / 2));
        }
        for (index, node) in machine.nodes.iter_mut().enumerate() {
            node.memory = Some(Bytes::mib(if index < 2 { 0 } else { 1 }));
        }
        machine.distances = rows.map(|rows| Distances { rows });
        machine
    }

    fn numbers(machine: &Machine) -> Vec<Option<usize>> {
        machine.memory_nodes().into_iter().map(|node| node.map(NodeIdx::idx)).collect()
    }

    #[test]
    fn the_nearest_memory_is_taken() {
        let rows = vec![
            vec![10, 20, 40, 15],
            vec![20, 10, 15, 40],
            vec![40, 15, 10, 30],
            vec![15, 40, 30, 10],
        ];
        assert_eq!(numbers(&apart(Some(rows))), [Some(3), Some(2), Some(2), Some(3)]);
    }

    /// Node 0 takes node 2, so node 1 takes node 3, as in a guest of Linux 6.12.
    #[test]
    fn nodes_as_far_as_each_other_are_taken_in_turn() {
        assert_eq!(numbers(&apart(None)), [Some(2), Some(3), Some(2), Some(3)]);
    }

    #[test]
    fn a_node_with_memory_is_its_own() {
        let mut machine = apart(None);
        machine.nodes[1].memory = None;
        assert_eq!(numbers(&machine)[1..], [Some(1), Some(2), Some(3)]);
        machine.nodes.iter_mut().for_each(|node| node.memory = Some(Bytes(0)));
        assert_eq!(numbers(&machine), [None; 4]);
    }
}
