//! Kernel primitives that watching and acting share: numbers of tasks, handles of processes, the clock, signals, limits, masks,
//! and one parser of each file of /proc.
//!
//! An edge crate: it makes system calls, and decides nothing.

pub mod accounting;
pub mod affinity;
pub mod clock;
mod error;
pub mod foreign;
pub mod handle;
pub mod limits;
pub mod move_pages;
pub mod poll;
pub mod privilege;
pub mod proc;
pub mod run_time;
pub mod signal;
pub mod sys;
mod task;

pub use error::SysError;
pub use handle::ProcessHandle;
pub use task::{Pid, Tid};
