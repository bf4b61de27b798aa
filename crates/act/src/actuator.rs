//! The interface of actuators that change threads: a further one is a file that implements it and an arm in [`crate::restore`].

use crate::journal::Entry;
use crate::workload::Workload;
use colocate_linux::Tid;
use colocate_linux::handle::ProcessHandle;

/// A way to change how the kernel runs a thread.
///
/// A change is journalled before it is applied ([`crate::actuators::Actuators::write`]), so that it can be undone after a crash.
pub(crate) trait Actuator {
    /// Setting of a thread that the actuator changes.
    type Setting;
    /// Part of the setting's change that the journal keeps.
    type Record;
    /// Reason of a failed change.
    type Error;

    /// Enters a pending change in the journal's line of a thread.
    fn journal(line: &mut Entry, record: Self::Record);

    /// Changes the setting of a thread. Returns the setting read back; `None` if the thread has ended, or follows later.
    ///
    /// # Errors
    /// If the kernel refuses, or shows another setting.
    fn apply(
        process: &ProcessHandle,
        tid: Tid,
        to: &Self::Setting,
    ) -> Result<Option<Self::Setting>, Self::Error>;

    /// Setting that the kernel shows; `None` if the thread has ended.
    ///
    /// # Errors
    /// If the setting is unreadable, or is none of the actuator's.
    fn read_back(process: &ProcessHandle, tid: Tid) -> Result<Option<Self::Setting>, Self::Error>;

    /// Setting that undoes a journal's changes of a thread; `None` if the thread shows none of them.
    fn undo(workload: &Workload<'_>, process: &ProcessHandle, tid: Tid) -> Option<Self::Setting>;
}
