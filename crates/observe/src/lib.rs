//! How programs are watched: counters, instruction-pointer samples, emulation, /proc.
//!
//! One backend a file or folder; all of them fill the types of `colocate-model`. This is an edge
//! crate: it makes system calls, and only the modules that make them may hold `unsafe`.

pub mod bounded;
pub mod code;
pub mod doctor;
pub mod emulate;
mod event;
pub mod identity;
pub mod lifecycle;
pub mod mca;
pub mod perf;
pub mod pmu;
pub mod sample;
pub mod sharing;
pub mod sources;
pub mod spin;
mod tree;

pub use event::TaskEvent;
pub use lifecycle::{LifecycleEvents, LifecycleOptions};
