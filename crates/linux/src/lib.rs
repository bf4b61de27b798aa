//! Kernel primitives that watching and acting share: numbers of tasks, handles of processes, the clock, signals, limits, masks,
//! and one parser of each file of /proc.
//!
//! An edge crate: it makes system calls, and decides nothing.
//!
//! ```
//! use colocate_linux::proc::Proc;
//! use colocate_linux::{Pid, Tid, affinity};
//! let own = Pid(std::process::id().try_into()?);
//! let threads = Proc::default().tasks(own)?;
//! assert!(threads.contains(&own.first_thread()));
//! let mask = affinity::of(Tid(0))?;
//! assert!(!mask.is_empty(), "the calling thread may run somewhere");
//! let ended = affinity::of(Tid(i32::MAX)).expect_err("no kernel has so many threads");
//! assert_eq!(ended.errno(), Some(3), "ESRCH");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
