//! Which run of colocate something belongs to.

use colocate_linux::Pid;
use colocate_linux::proc::stat::Stat;
use std::path::Path;

/// Process, identified by number and start time, so that a later process with the same number
/// differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number.
    pub pid: Pid,
    /// Creation time in clock ticks since boot.
    pub start_ticks: u64,
}

impl Owner {
    /// This process. `proc` is `/proc`; if it is unreadable, the start time is 0.
    pub fn ours(proc: &Path) -> Self {
        let pid = Pid(std::process::id().cast_signed());
        let stat = Stat::read(proc, pid, pid.first_thread());
        Self { pid, start_ticks: stat.map_or(0, |stat| stat.start_ticks) }
    }

    /// The name of its journal's file.
    pub fn file_name(self) -> String {
        format!("run-{}-{}.journal", self.pid, self.start_ticks)
    }

    /// Owner of a journal's file, by the file's name.
    pub fn of_file(path: &Path) -> Option<Self> {
        let (pid, start) = path.file_stem()?.to_str()?.strip_prefix("run-")?.split_once('-')?;
        Some(Self { pid: Pid(pid.parse().ok()?), start_ticks: start.parse().ok()? })
    }
}
