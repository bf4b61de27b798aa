//! Pages: which tasks use them and where they are, and what came of orders to move them.

use crate::{JobIdx, TaskId};
use colocate_machine::{Bytes, Nanos, NodeIdx, NodeNr};
use serde::{Deserialize, Serialize};

/// Addresses from `start` to before `end`, as in `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// The first one behind it.
    pub end: u64,
}

/// What came of an order, by what was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesMoved {
    /// Whose memory.
    pub job: JobIdx,
    /// Where to.
    pub to: NodeNr,
    /// So much is there that was elsewhere before.
    pub moved: Bytes,
    /// So much was to be there and is not: over the budget, busy, or without room.
    pub left: Bytes,
    /// Why nothing, or nothing more, could be moved; `None` if nothing prevented it.
    pub trouble: Option<String>,
}

/// Memory of a job that lies together: where it is, and which tasks have used it.
#[derive(Clone, Debug, PartialEq)]
pub struct PageGroup {
    /// Whose memory.
    pub job: JobIdx,
    /// Its addresses.
    pub range: AddressRange,
    /// The part of its pages on each node, by the node's index; all 0 where that is unknown.
    pub on: Vec<f64>,
    /// Its use until now: one entry for each task and node from which it was used.
    pub uses: Vec<PageUse>,
}

/// Use of a page group by a task on the PUs of one node, since both are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// The task.
    pub task: TaskId,
    /// Where it was: the node whose memory is nearest there ([`colocate_machine::Machine::memory_nodes`]).
    pub node: NodeIdx,
    /// CPU time in which its next access was to that memory, estimated.
    pub time: Nanos,
    /// From how many samples.
    pub samples: u64,
    /// How many of these were writes.
    pub writes: u64,
}

impl PageGroup {
    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.range.end.saturating_sub(self.range.start))
    }

    /// The node with most of it, if that is known; of several the first.
    #[must_use]
    pub fn home(&self) -> Option<NodeIdx> {
        let most = self.on.iter().copied().fold(0.0, f64::max);
        (most > 0.0).then(|| self.on.iter().position(|part| *part >= most).map(NodeIdx::new))?
    }
}
