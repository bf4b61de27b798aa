//! NUMA node from which the kernel allocates the memory of threads on each node.
//!
//! Threads on a node with memory get memory of the node. For other nodes the kernel builds a list
//! of fallback nodes. The first node of the list is computed here as the kernel does (Linux:
//! mm/page_alloc.c, `build_zonelists`).

use crate::ids::{NodeIdx, NodeNr};
use crate::machine::Machine;
use crate::units::Bytes;

/// Kernel's penalty on the distance of a node with PUs of its own (`PENALTY_FOR_NODE_WITH_CPUS`).
const WITH_PUS: u64 = 1;

/// Kernel's factor (`MAX_NUMNODES`) by which any difference in distance outweighs all loads.
const MOST_NODES: u64 = 1 << 10;

impl Machine {
    /// Node of the pages that a thread of each node touches first, in the order of `nodes`; `None`
    /// if no node has memory. A node with unknown memory counts as having memory.
    #[must_use]
    pub fn memory_nodes(&self) -> Vec<Option<NodeIdx>> {
        let count = self.nodes.len();
        let mut order: Vec<NodeIdx> = (0..count).map(NodeIdx::new).collect();
        if order.iter().all(|&node| self.has_memory(node)) {
            return order.into_iter().map(Some).collect();
        }
        // The kernel builds the lists in the order of its node numbers, and each list depends on
        // the load left by those before.
        order.sort_by_key(|node| self.nodes[node.idx()].os);
        let mut penalties = vec![0; count];
        // A node that is no core's home has no PUs of its own.
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

    /// True if a node has memory or its memory is unknown.
    #[must_use]
    pub fn has_memory(&self, node: NodeIdx) -> bool {
        self.nodes[node.idx()].memory != Some(Bytes(0))
    }

    /// Distance between two nodes; 10 and 20, as in the kernel, if the firmware reports none.
    fn distance(&self, from: NodeIdx, to: NodeIdx) -> u32 {
        let said = self.distances.as_ref().map(|found| found.rows[from.idx()][to.idx()]);
        said.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// First node of the fallback list of `local`. The first node of each distance in the list
    /// counts as more loaded in later lists.
    fn first_fallback(
        &self,
        local: NodeIdx,
        penalties: &[u64],
        load: &mut [u64],
    ) -> Option<NodeIdx> {
        let nodes = (0..self.nodes.len()).map(NodeIdx::new);
        let mut left: Vec<NodeIdx> = nodes.filter(|node| self.has_memory(*node)).collect();
        let mut first = None;
        let mut before = local;
        while let Some(at) =
            (0..left.len()).min_by_key(|at| self.cost(local, left[*at], penalties, load))
        {
            let node = left.swap_remove(at);
            if self.distance(local, node) != self.distance(local, before) {
                load[node.idx()] += 1;
            }
            first.get_or_insert(node);
            before = node;
        }
        first
    }

    /// Sort key of `node` in the fallback list of `local`: least first.
    fn cost(
        &self,
        local: NodeIdx,
        node: NodeIdx,
        penalties: &[u64],
        load: &[u64],
    ) -> (bool, u64, NodeNr) {
        let os = self.nodes[node.idx()].os;
        // The kernel prefers nodes with higher numbers than its own to those with lower ones.
        let behind = u64::from(os < self.nodes[local.idx()].os);
        let distance = u64::from(self.distance(local, node)) + behind + penalties[node.idx()];
        (node != local, distance * MOST_NODES + load[node.idx()], os)
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
