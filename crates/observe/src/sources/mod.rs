//! Sources of evidence about the tasks of jobs: one backend a file, with a state of its own.
//!
//! The follower of tasks passes them to a backend and reads values from it: `colocate_host::LinuxHost` does so in every
//! quantum. A backend never sees what others know of a task, and none changes a task.

pub mod counters;
pub mod mix;
pub mod phases;
pub mod run_states;
pub mod sharing;
pub mod spinning;
pub mod switches;
pub mod wake_ups;

use colocate_evidence::TaskId;
use colocate_linux::{Pid, Tid};

/// A task, as backends know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// Which one.
    pub id: TaskId,
    /// Its process.
    pub pid: Pid,
    /// Its thread.
    pub tid: Tid,
}
