//! The memory accesses and synchronisation of a program's threads: written under QEMU by `tracer`, read by the simulator.
//!
//! # Problem
//! Which threads share data shows only in their accesses, and there are some hundred million a second. They are to be recorded once,
//! and replayed on many machines under many mappings.
//! # Approach
//! Each thread appends blocks of its own to the one file of all ([`form`]). A reader goes through the headers of blocks once, and
//! then reads each thread at its own pace, a block at a time ([`TraceFile`]). What every trace has to be is checked by [`Check`].
//! # Limits
//! Which thread got a lock first is not recorded where no thread had to wait for it: synchronisation is seen at the system calls
//! futex, clone and exit. Threads of one process; virtual addresses.

mod check;
pub mod drmemtrace;
mod file;
pub mod form;

pub use check::{Check, Flaw, Summary, ThreadSummary};
pub use file::{ReadError, TraceFile};
