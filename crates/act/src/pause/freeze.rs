//! Stops of whole jobs by the kernel, which freezes their cgroups.

use super::freezer::{MOST, set_frozen, there};
use super::how::How;
use crate::actuator::Actuator;
use crate::workload::JournalWorkload;
use colocate_files::Dir;
use std::io;
use std::path::PathBuf;

/// The actuator that freezes and thaws the cgroup of a job. The setting is whether the cgroup is frozen.
pub(crate) struct Freeze;

impl Actuator for Freeze {
    type Target<'a> = &'a Dir;
    type Setting = bool;
    type Line = How;
    type Record = PathBuf;
    type Error = io::Error;

    /// The head names the folder of all cgroups that may be frozen.
    fn journal(how: &mut How, folder: PathBuf) {
        *how = How::Freezer(folder);
    }

    /// The processes stop a moment later, at their next entry into the kernel.
    fn apply(cgroup: &Dir, to: &bool) -> io::Result<Option<bool>> {
        set_frozen(cgroup, *to).map(|()| None)
    }

    /// True when all processes have stopped.
    fn read_back(cgroup: &Dir) -> io::Result<Option<bool>> {
        let events = cgroup.read_text("cgroup.events", MOST).map_err(io::Error::from);
        Ok(there(events)?.map(|events| events.lines().any(|line| line == "frozen 1")))
    }

    /// Every cgroup is thawed: one that is about to freeze does not show as frozen yet.
    fn undo(workload: &JournalWorkload<'_>, _: &Dir) -> Option<bool> {
        matches!(workload.journal().pauses, Some(How::Freezer(_))).then_some(false)
    }
}
