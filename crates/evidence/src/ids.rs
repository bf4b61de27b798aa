//! Which job, and which task.

use colocate_machine::{Nanos, PuIdx};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A place in the workload's list of jobs, from 0.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct JobIdx(pub u32);

/// Task of a workload: the job, and the task's number in the job's order of thread creation.
///
/// Known before the task exists, so a plan made from profiles applies at its creation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TaskId {
    /// The job.
    pub job: JobIdx,
    /// Place in the job's order of thread creation, from 0.
    pub order: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job.0, self.order)
    }
}

/// Uninterrupted time of a task on one PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpan {
    /// The task.
    pub task: TaskId,
    /// The PU.
    pub pu: PuIdx,
    /// The beginning, on the host's clock.
    pub from: Nanos,
    /// The end, on the host's clock.
    pub to: Nanos,
}
