//! Things to try, and what came back.

use std::fmt;

/// The kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Its symbol, as manual pages write it, for those that are distinguished here.
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
    /// `sched_setaffinity` on a child, to the mask that it has, and reading it back.
    Affinity,
    /// Whether `sched_setaffinity` on process 1 is permitted; it is called with a mask that the
    /// kernel refuses after it has checked that.
    AffinityOfOthers,
    /// A software event that counts the calling thread, read once.
    CountTime,
    /// The hardware event `instructions` on the calling thread, until it has counted; `EBUSY` if
    /// others hold every counter.
    CountInstructions,
    /// All events of the backend `pmu` at once; `EBUSY` if they have to take turns.
    CountTogether,
    /// A dummy event with task events on a child, inherited, with a ring of the default size.
    TaskEvents,
    /// The same with a ring of one page, where the default size was refused.
    TaskEventsSmall,
    /// Samples of the instruction pointer on a child, inherited.
    Samples,
    /// Loading and attaching the eBPF program that counts wake-ups; `ENOEXEC` if this build has none.
    LoadEbpf,
    /// Samples of the tracepoint `sched:sched_waking` on each PU; `ENOENT` if tracefs is not mounted,
    /// `ENXIO` if this is not the first PID namespace, whose numbers samples have.
    SampleWakeUps,
    /// Reading some bytes of a child's memory with `process_vm_readv`.
    ReadMemory,
    /// Asking with `move_pages` where a page of ours is.
    MovePages,
    /// Asking with `move_pages` about no page of another process, of another user's where there is one, which the kernel permits to
    /// those who may read its memory map and move its pages.
    MovePagesOfOthers,
    /// `mbind` of no page.
    BindMemory,
    /// `set_mempolicy` with a policy that does not exist, which the kernel refuses after a filter has
    /// let it through.
    SetPolicy,
    /// `migrate_pages` with a number of nodes that the kernel refuses after a filter has let it
    /// through.
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
    /// Tries `probe`, leaves nothing behind, and says what came back: nothing, or the error.
    ///
    /// # Errors
    /// What the kernel said; for [`Probe::LibPfm`], `ENOENT`.
    fn run(&self, probe: Probe) -> Result<(), Errno>;
}
