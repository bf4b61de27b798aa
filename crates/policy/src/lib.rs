//! Where each task should run, and why: one file a policy.
//!
//! Pure: reads no file, no clock and no global; same inputs, same plan.

pub mod plan;

pub use plan::{Decision, JobIdx, Newborn, Plan, PlanError, Task, TaskId, Why};
