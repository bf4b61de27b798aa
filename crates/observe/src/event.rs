//! Creations, ends and names of tasks.

use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;

/// Lifecycle event of a task. Times are on `CLOCK_MONOTONIC`.
///
/// For every task `Created` comes first and once, `Ended` last. Events of different tasks are in
/// the order of time, but an event can come after a later event of another CPU.
///
/// A thread that executes a program takes over the number of its process's first thread. Unless it
/// is the first thread itself, the events are: the first thread has ended, a task with its number
/// is created, and the executing thread ends under its old number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// Created, or already present when watching began.
    Created {
        /// Time of the creation, or of the discovery for a task found in `/proc`.
        at: Nanos,
        /// Process number.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// Process of the creator: the task's own for a further thread, another for a first thread.
        parent_pid: Pid,
        /// Creator, or thread that takes over the number; else the first thread of `parent_pid`.
        parent_tid: Tid,
        /// Whether the task was found in `/proc`, which does not show the creator thread.
        found: bool,
    },
    /// Ended.
    Ended {
        /// Time of the event.
        at: Nanos,
        /// Process number.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// Renamed. A new thread has its creator's name, without an event.
    Named {
        /// Time of the event.
        at: Nanos,
        /// Process number.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The name, at most 15 bytes.
        name: String,
        /// Whether the name is new because of an exec of the process.
        exec: bool,
    },
    /// Lost records of the kernel. Creations and ends among them follow, found in `/proc`.
    Lost {
        /// Number.
        count: u64,
    },
    /// Thread storm: a process creates threads faster than
    /// [`crate::LifecycleOptions::most_a_second`]. Until it slows down, long-lived threads are
    /// reported late, as found, and short-lived threads not at all.
    Storm {
        /// Time of the event.
        at: Nanos,
        /// The process.
        pid: Pid,
    },
}

impl TaskEvent {
    /// Time of the event; `None` for losses.
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
