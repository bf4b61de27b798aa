//! The machine's nodes, and which of them pages of a process may go to.

use super::work::PageTarget;
use colocate_files::kernel;
use colocate_machine::{NodeNr, PuNr, PuSet};
use std::path::Path;
use std::str::FromStr;
use thiserror::Error;

/// The nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineNodes {
    /// Online nodes.
    pub online: Vec<NodeNr>,
    /// Nodes with memory.
    pub with_memory: Vec<NodeNr>,
    /// PUs of each online node.
    pub pus: Vec<(NodeNr, PuSet)>,
}

impl MachineNodes {
    /// Reads the nodes from `devices/system/node` below `sys`, which is `/sys` on a live machine;
    /// `None` for a kernel without nodes.
    pub fn read(sys: &Path) -> Option<Self> {
        let folder = sys.join("devices/system/node");
        let online = listed(&folder, "online")?;
        let pus = online.iter().filter_map(|node| {
            let text = kernel::read_text(&folder.join(format!("{node}/cpulist"))).ok()?;
            Some((*node, PuSet::parse_list(&text).ok()?))
        });
        Some(Self { with_memory: listed(&folder, "has_memory")?, pus: pus.collect(), online })
    }

    /// Node of a PU; `None` if offline.
    pub fn of(&self, pu: PuNr) -> Option<NodeNr> {
        self.pus.iter().find(|(_, pus)| pus.contains(pu)).map(|(node, _)| *node)
    }

    /// The nodes of a set of PUs, in order.
    pub fn of_set(&self, set: &PuSet) -> Vec<NodeNr> {
        let used = self.pus.iter().filter(|(_, pus)| !pus.intersection(set).is_empty());
        used.map(|(node, _)| *node).collect()
    }
}

fn listed(folder: &Path, name: &str) -> Option<Vec<NodeNr>> {
    numbers(&kernel::read_text(&folder.join(name)).ok()?)
}

/// Parses a list of nodes in the kernel's format.
pub fn numbers(list: &str) -> Option<Vec<NodeNr>> {
    // Lists of nodes have the form of CPU lists.
    Some(PuSet::parse_list(list).ok()?.iter().map(|number| NodeNr(number.0)).collect())
}

/// List of nodes in the kernel's format, e.g. `0-2,5`.
pub fn list(nodes: &[NodeNr]) -> String {
    let set: PuSet = nodes.iter().map(|node| PuNr(node.0)).collect();
    set.to_string()
}

/// Target of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetWord {
    /// On a single node.
    Node(NodeNr),
    /// Interleaved over all nodes that the process may use.
    Interleave,
}

impl FromStr for TargetWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `parse` alone would accept a plus sign.
        let plain = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match text {
            "interleave" => Ok(Self::Interleave),
            _ => plain
                .then(|| text.parse().ok())
                .flatten()
                .map(|number| Self::Node(NodeNr(number)))
                .ok_or_else(|| "expected a node's number or \"interleave\"".into()),
        }
    }
}

/// Reason why pages cannot have this target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The node does not exist or is offline.
    #[error("expected a node that is online, {}, found {}", list(online), wanted.0)]
    Offline {
        /// The node.
        wanted: NodeNr,
        /// Online nodes.
        online: Vec<NodeNr>,
    },
    /// The node does not exist, on a machine with a single node.
    #[error("node {} is not online: this machine has only node {}", wanted.0, only.0)]
    SingleNode {
        /// The node.
        wanted: NodeNr,
        /// Only node.
        only: NodeNr,
    },
    /// The node has no memory.
    #[error("expected a node with memory, {}, found node {}, which has none", list(with_memory), wanted.0)]
    NoMemory {
        /// The node.
        wanted: NodeNr,
        /// Nodes with memory.
        with_memory: Vec<NodeNr>,
    },
    /// The process's cpuset does not have the node.
    #[error(
        "expected a node that the process's cpuset allows, {}, found node {}; see Mems_allowed_list \
         in /proc/PID/status",
        list(allowed), wanted.0
    )]
    NotAllowed {
        /// The node.
        wanted: NodeNr,
        /// Allowed nodes.
        allowed: Vec<NodeNr>,
    },
    /// Interleaving needs at least two nodes.
    #[error("expected two nodes with memory that the process may use, found only {}", list(found))]
    NothingToInterleave {
        /// Available nodes.
        found: Vec<NodeNr>,
    },
}

/// Target for `word` for the pages of a process with the allowed nodes `allowed`.
///
/// # Errors
/// [`TargetError`] with the reason why the target is impossible.
pub fn target(
    word: TargetWord,
    nodes: &MachineNodes,
    allowed: &[NodeNr],
) -> Result<PageTarget, TargetError> {
    let wanted = match word {
        TargetWord::Node(wanted) => wanted,
        TargetWord::Interleave => {
            let found: Vec<NodeNr> = nodes
                .online
                .iter()
                .copied()
                .filter(|node| nodes.with_memory.contains(node) && allowed.contains(node))
                .collect();
            let enough = found.len() > 1;
            return if enough {
                Ok(PageTarget::Interleave(found))
            } else {
                Err(TargetError::NothingToInterleave { found })
            };
        }
    };
    if !nodes.online.contains(&wanted) {
        return Err(match nodes.online[..] {
            [only] => TargetError::SingleNode { wanted, only },
            _ => TargetError::Offline { wanted, online: nodes.online.clone() },
        });
    }
    if !nodes.with_memory.contains(&wanted) {
        return Err(TargetError::NoMemory { wanted, with_memory: nodes.with_memory.clone() });
    }
    if !allowed.contains(&wanted) {
        return Err(TargetError::NotAllowed { wanted, allowed: allowed.to_vec() });
    }
    Ok(PageTarget::Node(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(online: &str, with_memory: &str) -> MachineNodes {
        let numbers = |text| numbers(text).unwrap();
        MachineNodes { online: numbers(online), with_memory: numbers(with_memory), pus: Vec::new() }
    }

    fn refused(word: &str, nodes: &MachineNodes, allowed: &str) -> String {
        let word = word.parse().unwrap();
        target(word, nodes, &numbers(allowed).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn targets_that_cannot_be() {
        let four = nodes("0-3", "0-2");
        assert_eq!(refused("7", &four, "0-3"), "expected a node that is online, 0-3, found 7");
        assert_eq!(
            refused("3", &four, "0-3"),
            "expected a node with memory, 0-2, found node 3, which has none"
        );
        assert_eq!(
            refused("2", &four, "0-1"),
            "expected a node that the process's cpuset allows, 0-1, found node 2; see \
             Mems_allowed_list in /proc/PID/status"
        );
        assert_eq!(
            refused("interleave", &four, "2-3"),
            "expected two nodes with memory that the process may use, found only 2"
        );
        let one = nodes("0", "0");
        assert_eq!(refused("1", &one, "0"), "node 1 is not online: this machine has only node 0");
    }

    #[test]
    fn targets_that_can_be() {
        let four = nodes("0-3", "0,2-3");
        let to = |word: &str| target(word.parse().unwrap(), &four, &numbers("0-2").unwrap());
        assert_eq!(to("2"), Ok(PageTarget::Node(NodeNr(2))));
        assert_eq!(to("interleave"), Ok(PageTarget::Interleave(vec![NodeNr(0), NodeNr(2)])));
    }

    #[test]
    fn words_that_are_no_target() {
        for wrong in ["", "-1", "+1", "node1", "all", "99999999999"] {
            assert!(wrong.parse::<TargetWord>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_saved_tree_is_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices/system/node");
        for (name, text) in [
            ("online", "0-1\n"),
            ("has_memory", "0\n"),
            ("node0/cpulist", "0-1\n"),
            ("node1/cpulist", "2,4\n"),
        ] {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let nodes = MachineNodes::read(root.path()).unwrap();
        assert_eq!((list(&nodes.online), list(&nodes.with_memory)), ("0-1".into(), "0".into()));
        assert_eq!((nodes.of(PuNr(4)), nodes.of(PuNr(3))), (Some(NodeNr(1)), None));
        assert_eq!(nodes.of_set(&PuSet::parse_list("1-2").unwrap()), [NodeNr(0), NodeNr(1)]);
        assert_eq!(MachineNodes::read(&root.path().join("nowhere")), None);
    }
}
