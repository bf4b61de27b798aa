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

use crate::task::{Pid, Tid};
use colocate_files::kernel;
use colocate_policy::{Refusal, TaskId};
use std::path::Path;

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

/// That the numbers of threads are those that the kernel's own code uses: that this is the first PID namespace.
fn numbered_as_by_the_kernel() -> Result<(), Refusal> {
    // Its number: PID_NS_INIT_INO of the kernel's linux/nsfs.h. Where it cannot be read there are no namespaces.
    let namespace = kernel::link(Path::new("/proc/self/ns/pid"));
    if namespace.map_or(true, |of| of == Path::new("pid:[4026531836]")) {
        return Ok(());
    }
    let why = "the kernel numbers threads otherwise than this PID namespace".to_owned();
    Err(Refusal { why, remedy: "start colocate outside of the container" })
}
