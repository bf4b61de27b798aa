//! Which tasks use the same memory.

use crate::TaskId;
use colocate_machine::Nanos;
use serde::Serialize;

/// Time in which a task used written memory that another task had used within a second, since both
/// were created.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// Task with this use.
    pub task: TaskId,
    /// Earlier user of the memory.
    pub with: TaskId,
    /// CPU time before the task's accesses to the memory, estimated. With several earlier users,
    /// the share of this user.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of samples behind the estimate.
    pub samples: u64,
}
