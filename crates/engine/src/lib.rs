//! The loop over a host: observe, decide, act.
//!
//! Pure: a host is a trait, and time is the host's clock.

pub mod estimate;
pub mod guard;
pub mod host;
pub mod known;
mod lookup;
pub mod meanwhile;
mod queue;
pub mod rates;
pub mod run;

pub use host::{Host, HostError, Request};
pub use known::KnownJob;
pub use meanwhile::Meanwhile;
pub use queue::ACTIVE;
pub use run::{Cause, Planned, Round, Until, Workload, first_plan, run};
