//! Which tasks use the same memory.

use crate::TaskId;
use colocate_machine::Nanos;
use serde::Serialize;

/// For how long a task has used memory that another one had used within a second, and that was written, since both were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// The task whose time it is.
    pub task: TaskId,
    /// The task that had used the memory.
    pub with: TaskId,
    /// CPU time in which the task's next access was to that memory, estimated. Where several tasks had used it, their part of it.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// From how many samples that is estimated.
    pub samples: u64,
}
