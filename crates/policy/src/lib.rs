//! Where each task should run, and why: one file a policy.
//!
//! Pure: reads no file, no clock and no global; same inputs, same plan.
//!
//! ```
//! use colocate_policy::{PolicyKind, plan};
//! # let (machine, tasks): (colocate_machine::Machine, Vec<colocate_policy::Task>) = return;
//! let policy: PolicyKind = "mix".parse().unwrap();
//! let usable: Vec<_> = machine.all_pus().collect();
//! let plan = plan(&policy, &machine, &usable, &tasks);
//! ```

#[cfg(test)]
extern crate self as colocate_policy; // so that `testing` reads the same here and in tests/

pub mod forecast;
mod judge;
pub mod kind;
pub mod matching;
pub mod places;
pub mod plan;
pub mod policies;
mod predict;
pub mod schedule;
#[cfg(test)]
mod testing;

pub use colocate_model::rng;
pub use kind::{KindError, PolicyKind};
pub use plan::{Decision, JobIdx, Newborn, Per, Place, Plan, PlanError, Task, TaskId, Why};
pub use policies::{plan, plan_on};
