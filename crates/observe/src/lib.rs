//! How programs are watched: counters, instruction-pointer samples, emulation, /proc.
//!
//! One backend a file or folder; all of them fill the types of `colocate-model`. This is an edge
//! crate: it makes system calls, and only the modules that make them may hold `unsafe`.

pub mod accounting;
pub mod affinity;
pub mod bounded;
pub mod code;
pub mod doctor;
pub mod emulate;
pub mod foreign;
pub mod identity;
pub mod lifecycle;
pub mod limits;
pub mod mca;
pub mod perf;
pub mod pmu;
pub mod privilege;
pub mod proc;
pub mod runstate;
pub mod sample;
pub mod sharing;
pub mod signal;
pub mod sources;
pub mod spin;
pub mod sys;
pub mod task;

pub use lifecycle::{LifecycleEvents, Options, TaskEvent};
pub use sys::SysError;
pub use task::{Pid, Tid};
