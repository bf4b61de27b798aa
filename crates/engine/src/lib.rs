//! The loop over a host: observe, decide, act.
//!
//! Pure: a host is a trait, and time is what the host says it is.

pub mod estimate;
pub mod guard;
pub mod host;
pub mod known;
pub mod meanwhile;
pub mod planner;
pub mod rates;
pub mod run;
pub mod schedule;
mod walk;

pub use host::{Counts, Host, HostError, JobEnd, QuantumEnd, SeenTask, Snapshot, Stand};
pub use known::Known;
pub use meanwhile::Meanwhile;
pub use planner::{FixedPlan, Modelled, Planner};
pub use run::{Cause, Outcome, Planned, Settings, first_plan, run};
