//! Creations, ends and names of tasks.

use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;

/// Something that happened to a task. Times are on `CLOCK_MONOTONIC`.
///
/// For every task `Created` comes first and once, `Ended` last. Events of different tasks are in the order of
/// time, but an event can come after a later one of another CPU.
///
/// A thread that is not its process's first and executes a program takes over the first one's
/// number: the first one has ended, one with its number is created, and then the thread ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// It was created, or was there already when watching began.
    Created {
        /// When; for a task found in `/proc`, when it was found.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The process that created it: its own for a further thread, another one for the first
        /// thread of a process.
        parent_pid: Pid,
        /// The thread that created it, or that takes over its number; the first thread of that process where
        /// unknown.
        parent_tid: Tid,
        /// Whether it was found in `/proc`, which does not say what thread created it.
        found: bool,
    },
    /// It has ended.
    Ended {
        /// When.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// It has a new name. A new thread has its creator's name, which is not reported.
    Named {
        /// When.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The name, at most 15 bytes.
        name: String,
        /// Whether it is new because the process executes another program now.
        exec: bool,
    },
    /// Records of the kernel were lost. Creations and ends among them follow, found in `/proc`.
    Lost {
        /// How many.
        count: u64,
    },
    /// A process creates threads faster than [`crate::Options::most_a_second`]. Until it slows down, threads that live on are
    /// reported late, as found, and the others not at all.
    Storm {
        /// When.
        at: Nanos,
        /// The process.
        pid: Pid,
    },
}

impl TaskEvent {
    /// When it happened; `None` for losses.
    #[must_use]
    pub fn at(&self) -> Option<Nanos> {
        match self {
            Self::Created { at, .. }
            | Self::Ended { at, .. }
            | Self::Named { at, .. }
            | Self::Storm { at, .. } => Some(*at),
            Self::Lost { .. } => None,
        }
    }
}
