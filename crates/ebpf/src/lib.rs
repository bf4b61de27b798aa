//! Wake-ups between the threads of watched programs, their run and wait times, and the ends of
//! phases, counted in the kernel by an eBPF program.
//!
//! # Problem
//! Threads that communicate wake each other. Pairs with many wake-ups belong near each other. A
//! busy server has a million wake-ups a second, too many to report one by one.
//! # Approach
//! `watch.bpf.c` runs in the kernel at each wake-up, each context switch, and each creation and end
//! of a thread. The program follows the threads that watched threads create, and keeps sums for
//! each thread and each pair of threads. [`EbpfProgram::take`] reads and clears the sums of pairs.
//!
//! The program also counts the runnable threads of each job. It reports the end of a phase of at
//! least 20 ms: the job had at most one runnable thread and now has more, or the reverse
//! ([`EbpfProgram::phase_ends`]).
//!
//! libbpf loads the program, as it does for the tools of sched_ext. The offsets of the kernel's
//! fields come from the type information of the running kernel (CO-RE), so one build runs on any
//! kernel.
//! # Limits
//! A wake-up by an interrupt during a watched thread's system call counts as a wake-up by the
//! thread, because not every kernel shows the interrupt. Interrupts of computing threads are told
//! apart. Wake-ups by a network card's interrupt, and by threads that are not watched, come from
//! [`OTHERS`].
//! Privilege: `CAP_BPF` and `CAP_PERFMON`, or root; Linux 5.15, with type information (`CONFIG_DEBUG_INFO_BTF`).
//! # Example
//! ```no_run
//! use colocate_ebpf::{EbpfProgram, Follow, OTHERS};
//! let mut watch = EbpfProgram::start(Follow { pairs: true, phases: false })?;
//! // The first thread of job 0; the threads that it creates are followed.
//! watch.add(4711, 0)?;
//! // … after a while:
//! for pair in watch.take()? {
//!     assert!(pair.same_pu <= pair.count && pair.wakee != OTHERS);
//! }
//! assert_eq!(watch.lost()?.wake_ups, 0);
//! # Ok::<(), colocate_ebpf::EbpfError>(())
//! ```

#[cfg(not(has_program))]
mod absent;
#[cfg(has_program)]
mod loaded;

#[cfg(not(has_program))]
pub use absent::EbpfProgram;
#[cfg(has_program)]
pub use loaded::EbpfProgram;

use thiserror::Error;

/// Waker number of unwatched threads and interrupts.
pub const OTHERS: u32 = 0;

/// Capacity of the kernel's tables, in threads and in pairs of threads. Chosen: the number of
/// processes where `kernel.pid_max` is not raised.
pub const ROOM: u32 = 32_768;

/// True if this build has the eBPF program.
pub const IS_BUILT: bool = cfg!(has_program);

/// Reason for a missing or incomplete watch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EbpfError {
    /// This build has no eBPF program.
    #[error("this colocate was built without clang or libelf, so it has no eBPF program")]
    NotBuilt,
    /// The user may not load eBPF programs.
    #[error("the kernel loads no eBPF program for this user: CAP_BPF or CAP_PERFMON is missing")]
    Denied,
    /// The kernel rejects the program, for the reason given.
    #[error("the kernel does not take the eBPF program: {0}")]
    Refused(String),
    /// The tables were full: the number of threads that found no room.
    #[error("expected at most {ROOM} threads at a time, found no room for {0}")]
    Full(u64),
}

/// Events to follow in addition to the times of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Wake-ups by pairs of threads.
    pub pairs: bool,
    /// Ends of the phases of jobs.
    pub phases: bool,
}

/// Scheduling state of a thread, with its beginning: `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingState {
    /// Asleep.
    Sleeps,
    /// Runnable, waiting for a PU.
    Waits {
        /// Beginning of the wait.
        since: u64,
    },
    /// Running on a PU.
    Runs {
        /// Beginning of the run.
        since: u64,
    },
}

/// Times of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// CPU time from the creation of the thread to the beginning of its state.
    pub ran_ns: u64,
    /// Time runnable without a PU since the watch began. A wait that has not ended is left out.
    pub waited_ns: u64,
    /// State at the time of the call.
    pub state: SchedulingState,
}

/// Sums of one pair of threads since the last [`EbpfProgram::take`]. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// The waking thread, or [`OTHERS`].
    pub waker: u32,
    /// The woken thread.
    pub wakee: u32,
    /// Wake-ups after which the wakee had a PU.
    pub count: u64,
    /// Wake-ups after which the wakee ran on the PU of its waker.
    pub same_pu: u64,
    /// Total wait of the wakee from a wake-up to a PU.
    pub waited_ns: u64,
    /// Time during which both threads had a PU. The whole is the sum of pair (a, b) and pair (b,
    /// a).
    pub both_ran_ns: u64,
    /// Turns of the wakee that began on another PU than its waker's.
    pub apart: Turns,
    /// Turns of the wakee that began on its waker's PU.
    pub together: Turns,
}

/// Turns: from a wake-up until the woken thread wakes its waker or sleeps. Each is known once the
/// thread is woken by the same waker again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Number of turns.
    pub count: u64,
    /// Their total length.
    pub ns: u64,
}

/// Events lost to full tables since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Threads not watched.
    pub tasks: u64,
    /// Wake-ups not counted.
    pub wake_ups: u64,
}
