//! The interface of actuators that change threads, or cgroups of threads.
//!
//! A further actuator is a file that implements it, its record in [`crate::journal`] and an arm in [`crate::restore`].

use crate::workload::JournalWorkload;
use colocate_linux::Tid;
use colocate_linux::handle::ProcessHandle;

/// A way to change how the kernel runs a thread or a cgroup.
///
/// A change is journalled before it is applied, so that it can be undone after a crash: a change of a thread by
/// [`crate::actuators::Actuators::write`], a change of cgroups before these are created.
pub(crate) trait Actuator {
    /// Object that the actuator changes: a thread or a cgroup.
    type Target<'a>: Copy;
    /// Setting of a target that the actuator changes.
    type Setting;
    /// Line of the journal that names the change: a thread's, or one of the head.
    type Line;
    /// Part of the setting's change that the journal keeps.
    type Record;
    /// Reason of a failed change.
    type Error;

    /// Enters a pending change in the journal's line.
    fn journal(line: &mut Self::Line, record: Self::Record);

    /// Changes the setting of a target. Returns the setting read back; `None` if the target has ended, or follows later.
    ///
    /// # Errors
    /// If the kernel refuses, or shows another setting.
    fn apply(
        target: Self::Target<'_>,
        to: &Self::Setting,
    ) -> Result<Option<Self::Setting>, Self::Error>;

    /// Setting that the kernel shows; `None` if the target has ended.
    ///
    /// # Errors
    /// If the setting is unreadable, or is none of the actuator's.
    fn read_back(target: Self::Target<'_>) -> Result<Option<Self::Setting>, Self::Error>;

    /// Setting that undoes a journal's changes of a target; `None` if the target shows none of them.
    fn undo(workload: &JournalWorkload<'_>, target: Self::Target<'_>) -> Option<Self::Setting>;
}

/// Thread as a target of an actuator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRef<'a> {
    /// Process of the thread.
    pub process: &'a ProcessHandle,
    /// Number of the thread.
    pub tid: Tid,
}

impl<'a> ThreadRef<'a> {
    /// First thread of a process.
    pub fn first(process: &'a ProcessHandle) -> Self {
        Self { process, tid: process.pid().first_thread() }
    }
}
