//! The loop over a host: observe, decide, act.
//!
//! Pure: a host is a trait, and time is what the host says it is.

pub mod host;

pub use host::{Host, HostError, JobEnd, QuantumEnd, SeenTask, Snapshot, TaskState};
