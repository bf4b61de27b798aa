//! Orders to move pages.

use colocate_evidence::{AddressRange, JobIdx};
use colocate_machine::{Bytes, NodeNr};
use serde::{Deserialize, Serialize};

/// An order to move memory of a job to another node. It is given once, when its plan comes into force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMove {
    /// Whose memory: that of all its processes.
    pub job: JobIdx,
    /// Which addresses; none for all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AddressRange>,
    /// Where to, by the kernel's number.
    pub to: NodeNr,
    /// At most so much is moved.
    pub budget: Bytes,
    /// Why, in a line.
    pub why: String,
}
