//! Launch programs, pin their threads, read back, journal, restore.
//!
//! An edge crate: it makes system calls, all of them in [`sys`] and [`pages::call`], and it implements
//! [`colocate_engine::Host`] for this machine.

mod boost;
mod fair;
pub mod guardian;
pub mod handle;
pub mod journal;
pub mod launch;
pub mod original;
pub mod owner;
pub mod pin;
pub mod restore;
pub mod rundir;
pub mod signals;
pub mod stat;
pub mod sys;

pub mod host;
pub mod idle;
pub mod latency;
pub mod pages;
pub mod pause;
pub mod placer;
pub mod runtime;
pub mod target;
pub mod task;
pub mod task_table;

pub use handle::ProcessHandle;
pub use host::{LinuxHost, Sampling, Setup};
pub use target::Target;
