//! Things to try, and what came back.

use std::fmt;

/// The kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Symbol of the error as in manual pages; `None` for errors not distinguished here.
    pub const fn symbol(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::ESRCH => "ESRCH",
            libc::EACCES => "EACCES",
            libc::EBUSY => "EBUSY",
            libc::ENODEV => "ENODEV",
            libc::ENXIO => "ENXIO",
            libc::EROFS => "EROFS",
            libc::EINVAL => "EINVAL",
            libc::EMFILE => "EMFILE",
            libc::ENOTTY => "ENOTTY",
            libc::ENOSYS => "ENOSYS",
            libc::ENOEXEC => "ENOEXEC",
            libc::ENOMEM => "ENOMEM",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.symbol() {
            Some(symbol) => f.write_str(symbol),
            None => write!(f, "error {}", self.0),
        }
    }
}

/// Something to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// `sched_setaffinity` on a child, to its present mask, and reading the mask back.
    Affinity,
    /// `sched_setaffinity` on process 1, with a mask that is refused after the permission check.
    AffinityOfOthers,
    /// Software event that counts the calling thread, read once.
    CountTime,
    /// `instructions` on the calling thread, until counted; `EBUSY` if every counter is in use.
    CountInstructions,
    /// All events of the backend `pmu` at once; `EBUSY` if they have to be multiplexed.
    CountTogether,
    /// A dummy event with task events on a child, inherited, with a ring of the default size.
    TaskEvents,
    /// As [`Probe::TaskEvents`] with a ring of one page, after a refusal of the default size.
    TaskEventsSmall,
    /// Samples of the instruction pointer on a child, inherited.
    Samples,
    /// Loading and attaching the eBPF program for wake-ups; `ENOEXEC` if this build has none.
    LoadEbpf,
    /// Samples of the tracepoint `sched:sched_waking` on each PU; `ENOENT` if tracefs is not
    /// mounted, `ENXIO` if this is not the first PID namespace, whose numbers samples have.
    SampleWakeUps,
    /// Reading some bytes of a child's memory with `process_vm_readv`.
    ReadMemory,
    /// Asking with `move_pages` where a page of ours is.
    MovePages,
    /// `move_pages` query for zero pages of another process, if possible another user's. The kernel
    /// permits the query to a process that may read the memory map and move the pages.
    MovePagesOfOthers,
    /// `mbind` of no page.
    BindMemory,
    /// `set_mempolicy` with an invalid policy, refused by the kernel after passing any filter.
    SetPolicy,
    /// `migrate_pages` with a number of nodes that the kernel refuses after any filter.
    MigratePages,
    /// `get_mempolicy` of the calling thread.
    MemoryPolicy,
    /// `userfaultfd`, closed at once.
    UserFault,
    /// The ioctl `PAGEMAP_SCAN` on a child's `/proc/PID/pagemap`.
    PagemapScan,
    /// Loading libpfm4.
    LibPfm,
}

/// Tries things.
pub trait Probes {
    /// Runs `probe` without lasting effects.
    ///
    /// # Errors
    /// The kernel's error; for [`Probe::LibPfm`], `ENOENT`.
    fn run(&self, probe: Probe) -> Result<(), Errno>;
}
