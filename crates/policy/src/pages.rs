//! Orders to move pages.

use colocate_evidence::{AddressRange, JobIdx};
use colocate_machine::{Bytes, NodeNr};
use serde::{Deserialize, Serialize};

/// Order to move memory of a job to a node, carried out once when its plan is applied.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMove {
    /// Job whose memory moves, of all its processes.
    pub job: JobIdx,
    /// Address ranges to move; empty: all memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AddressRange>,
    /// Destination by kernel node number.
    pub to: NodeNr,
    /// Upper bound of the bytes moved.
    pub budget: Bytes,
    /// Reason, in one line.
    pub why: String,
}
