//! Which thread of watched programs wakes which, how long each runs and waits, and when phases end: counted in the kernel by an
//! eBPF program.
//!
//! # Problem
//! Threads that communicate wake each other, so which wakes which, and how often, says which should be near each other. A busy
//! server has a million wake-ups a second: too many to report one by one.
//! # Approach
//! `watch.bpf.c` runs in the kernel at each wake-up, each switch to another thread, and each creation and end of a thread. It
//! follows the threads that are created by watched ones, and sums up for each thread and for each pair of them. [`Watch::take`] reads
//! and clears the sums of pairs. It counts the runnable threads of each job as well, and reports when a job that had more than one
//! for a while has not any more, or the other way round ([`Watch::phase_ends`]). It is loaded by libbpf, as the tools of sched_ext are: that finds the few fields of the
//! kernel's that it reads by the type information of the kernel that runs (CO-RE), so it depends on no kernel that it was built
//! on.
//! # Limits
//! A wake-up by an interrupt that comes while a watched thread is in a system call counts as one by that thread: that there is an
//! interrupt the kernel does not show everywhere. Those that come while threads compute are distinguished. What a
//! network card's interrupt wakes comes from [`OTHERS`], and so does what a thread wakes that is not watched.
//!
//! Privilege: `CAP_BPF` and `CAP_PERFMON`, or root; Linux 5.15, with type information (`CONFIG_DEBUG_INFO_BTF`).

#[cfg(not(has_program))]
mod absent;
#[cfg(has_program)]
mod loaded;

#[cfg(not(has_program))]
pub use absent::Watch;
#[cfg(has_program)]
pub use loaded::Watch;

use thiserror::Error;

/// In place of a waker: threads that are not watched, and interrupts.
pub const OTHERS: u32 = 0;

/// So many threads, and pairs of them, there is room for. Chosen: as many as processes where `kernel.pid_max` is not raised.
pub const ROOM: u32 = 32_768;

/// Whether this build has the program.
pub const IS_BUILT: bool = cfg!(has_program);

/// Why there is nothing to watch with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EbpfError {
    /// This build has no eBPF program.
    #[error("this colocate was built without clang or libelf, so it has no eBPF program")]
    NotBuilt,
    /// The user may not load one.
    #[error("the kernel loads no eBPF program for this user: CAP_BPF or CAP_PERFMON is missing")]
    Denied,
    /// The kernel does not take it, for the reason given.
    #[error("the kernel does not take the eBPF program: {0}")]
    Refused(String),
    /// There were more threads than there is room for, by so many.
    #[error("expected at most {ROOM} threads at a time, found no room for {0}")]
    Full(u64),
}

/// What is followed beside the times of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Which thread wakes which.
    pub pairs: bool,
    /// When phases of jobs end.
    pub phases: bool,
}

/// What a thread does, and since when: `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It sleeps.
    Sleeps,
    /// It waits for a PU.
    Waits {
        /// Since then.
        since: u64,
    },
    /// It has a PU.
    Runs {
        /// Since then.
        since: u64,
    },
}

/// Times of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// CPU time since it was created, until its state began.
    pub ran_ns: u64,
    /// For how long it could run and waited for a PU since it is watched, without a wait that has not ended.
    pub waited_ns: u64,
    /// What it does now.
    pub state: State,
}

/// What came together of one pair of threads since it was last taken. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// The waking thread, or [`OTHERS`].
    pub waker: u32,
    /// The woken thread.
    pub wakee: u32,
    /// Wake-ups after which the wakee had a PU.
    pub count: u64,
    /// Of these, those after which it had the one where its waker was.
    pub same_pu: u64,
    /// How long it waited for a PU after wake-ups, in all.
    pub waited_ns: u64,
    /// How long both had a PU at the same time. That of (a, b) and that of (b, a) add up to the whole.
    pub both_ran_ns: u64,
}

/// What found no room since watching began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Threads that are not watched.
    pub tasks: u64,
    /// Wake-ups that are not counted.
    pub wake_ups: u64,
}
