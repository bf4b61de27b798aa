//! Where each task should run, and why: one file and one row of [`table`] a policy.
//!
//! Pure: reads no file, no clock and no global; same inputs, same plan.
//!
//! ```
//! use colocate_policy::{Knowledge, PolicySpec};
//! # let (machine, tasks): (colocate_machine::Machine, Vec<colocate_policy::Task>) = return;
//! let policy: PolicySpec = "mix".parse().unwrap();
//! let usable: Vec<_> = machine.all_pus().collect();
//! let plan = policy.plan(&Knowledge::default(), &machine, &usable, &tasks);
//! ```

#[cfg(test)]
extern crate self as colocate_policy; // so that `testing` reads the same here and in tests/

pub mod communication;
pub mod evidence;
pub mod forecast;
mod judge;
pub mod matching;
pub mod pages;
mod paging;
pub mod places;
pub mod plan;
pub mod policies;
pub mod policy;
mod predict;
mod row;
pub mod schedule;
pub mod table;
#[cfg(test)]
mod testing;
pub mod why;

pub use colocate_model::rng;
pub use evidence::Evidence;
pub use pages::PageMove;
pub use plan::{Decision, DefaultPlacement, Per, Place, Plan, PlanError, Task, Why};
pub use policy::Policy;
pub use table::{Knowledge, PolicySpec, SoloProfile, SpecError};
