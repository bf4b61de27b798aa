//! Moving pages: what a plan orders, and what came of it.

use crate::ids::JobIdx;
use colocate_machine::{Bytes, NodeNr};
use serde::{Deserialize, Serialize};

/// An order to move memory of a job to another node. It is given once, when its plan comes into force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMove {
    /// Whose memory: that of all its processes.
    pub job: JobIdx,
    /// Which addresses; `None` for all of it.
    pub range: Option<AddressRange>,
    /// Where to, by the kernel's number.
    pub to: NodeNr,
    /// At most so much is moved.
    pub budget: Bytes,
    /// Why, in a line.
    pub why: String,
}

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
