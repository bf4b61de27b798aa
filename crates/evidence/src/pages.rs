//! Pages: which tasks use them and where they are, and what came of orders to move them.

use crate::{JobIdx, TaskId};
use colocate_machine::{Bytes, Nanos, NodeIdx, NodeNr};
use serde::{Deserialize, Serialize};

/// Addresses from `start` to before `end`, as in `/proc/PID/maps`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
}

/// Result of a page order, from the locations read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesMoved {
    /// Job that owns the memory.
    pub job: JobIdx,
    /// Target.
    pub to: NodeNr,
    /// Bytes now on the node that were elsewhere before.
    pub moved: Bytes,
    /// Bytes not on the node despite the order: over the budget, busy, or without room.
    pub left: Bytes,
    /// Reason for an incomplete move; `None` if nothing prevented the move.
    pub trouble: Option<String>,
}

/// Contiguous memory of a job, its nodes, and the tasks that have used it.
#[derive(Clone, Debug, PartialEq)]
pub struct PageGroup {
    /// Job that owns the memory.
    pub job: JobIdx,
    /// Address range.
    pub range: AddressRange,
    /// Fraction of the pages on each node, by node index; all 0 if unknown.
    pub on: Vec<f64>,
    /// Use until now: one entry per task and node of the accessing PU.
    pub uses: Vec<PageUse>,
}

/// Use of a page group by a task on the PUs of one node, since both are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// The task.
    pub task: TaskId,
    /// Node of the accessing PUs: the node with the nearest memory
    /// ([`colocate_machine::Machine::memory_nodes`]).
    pub node: NodeIdx,
    /// CPU time before the task's accesses to this memory, estimated.
    pub time: Nanos,
    /// Number of samples behind the estimate.
    pub samples: u64,
    /// Number of these samples that were writes.
    pub writes: u64,
}

impl PageGroup {
    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.range.end.saturating_sub(self.range.start))
    }

    /// Node with most of the pages, on a tie the first; `None` if unknown.
    #[must_use]
    pub fn home(&self) -> Option<NodeIdx> {
        let most = self.on.iter().copied().fold(0.0, f64::max);
        // All 0: the nodes are unknown.
        (most > 0.0).then(|| self.on.iter().position(|part| *part >= most).map(NodeIdx::new))?
    }
}
