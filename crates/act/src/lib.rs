//! Launch programs, pin their threads, read back, journal, restore.
//!
//! An edge crate: it makes system calls, all of them in [`sys`] and [`pages::call`].

pub mod boost;
pub mod fair;
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

pub mod idle;
pub mod pages;
pub mod pause;

pub use handle::ProcessHandle;
