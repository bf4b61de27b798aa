//! Nodes of PUs and of running threads.

use crate::sys;

/// Kernel number of a NUMA node.
pub type NodeNr = u8;

/// Largest number of nodes.
pub const MOST: usize = 16;
/// Largest number of PUs.
pub const MOST_PUS: usize = 4096;
/// PU without a node.
const NONE: NodeNr = NodeNr::MAX;

/// Node of each PU.
#[derive(Debug)]
pub struct NodeTable {
    of: [NodeNr; MOST_PUS],
    count: usize,
    pus: [u64; MOST],
}

impl NodeTable {
    /// Table of an unknown machine.
    #[must_use]
    pub const fn none() -> Self {
        Self { of: [NONE; MOST_PUS], count: 0, pus: [0; MOST] }
    }

    /// Adds a node with its PUs, as `/sys/devices/system/node/nodeN/cpulist` lists them: `0-3,8`.
    pub fn add(&mut self, node: NodeNr, cpulist: &[u8]) {
        let mut has_any = false;
        for part in cpulist.trim_ascii().split(|byte| *byte == b',') {
            let mut ends = part.splitn(2, |byte| *byte == b'-').map(crate::costs::number);
            let Some(Some(first)) = ends.next() else { continue };
            let last = ends.next().flatten().unwrap_or(first);
            // A damaged list could name any number.
            for pu in first..=last.min(MOST_PUS as u64 - 1) {
                if let Some(of) = usize::try_from(pu).ok().and_then(|pu| self.of.get_mut(pu)) {
                    *of = node;
                    if let Some(pus) = self.pus.get_mut(usize::from(node)) {
                        *pus += 1;
                    }
                    has_any = true;
                }
            }
        }
        self.count += usize::from(has_any);
    }

    /// Number of nodes with PUs.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Number of PUs of all nodes.
    #[must_use]
    pub fn pus(&self) -> u64 {
        self.pus.iter().sum()
    }

    /// Number of PUs of a node.
    #[must_use]
    pub fn pus_of(&self, node: NodeNr) -> u64 {
        self.pus.get(usize::from(node)).copied().unwrap_or(0)
    }

    /// Node of a PU; `None`: unknown.
    #[must_use]
    pub fn of(&self, pu: usize) -> Option<NodeNr> {
        self.of.get(pu).copied().filter(|node| *node != NONE)
    }

    /// Current PU of this thread, and its node.
    #[must_use]
    pub fn here(&self) -> Option<(usize, NodeNr)> {
        let pu = sys::pu()?;
        Some((pu, self.of(pu)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_by_hand() {
        let mut nodes = NodeTable::none();
        nodes.add(0, b"0-1,8\n");
        nodes.add(1, b"2-3");
        nodes.add(2, b"\n"); // memory alone
        nodes.add(3, b"4000-9000,x,7-");
        assert_eq!(nodes.count(), 3);
        let of = [0, 1, 2, 3, 4, 7, 8, 4095, 5000].map(|pu| nodes.of(pu));
        assert_eq!(of, [Some(0), Some(0), Some(1), Some(1), None, Some(3), Some(0), Some(3), None]);
    }
}
