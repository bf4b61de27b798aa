//! Where each task should run, and why: one file and one row of [`table`] a policy.
//!
//! Pure: reads no file, no clock and no global; same inputs, same plan.
//!
//! Two tasks of floating-point work and two of integer work, on two cores of two PUs each:
//!
//! ```
//! use colocate_machine::described;
//! use colocate_model::{Class, Mix, Share};
//! use colocate_policy::plan::{JobIdx, TaskId};
//! use colocate_policy::{Knowledge, PolicySpec, Task};
//! let machine = described::from_toml(described::MACHINES[0].1)?.machine;
//! let classes = [Class::Float, Class::Float, Class::Int, Class::Int];
//! let tasks = (0..).zip(classes).map(|(order, class)| {
//!     let mut mix = Mix::default();
//!     Class::ALL.map(|each| mix.set(each, Share::new(if each == class { 0.9 } else { 0.0 })));
//!     let id = TaskId { job: JobIdx(0), order };
//!     Task { id, name: class.name().into(), mix, busy: None, ipc: None, instructions: None, phase: None }
//! });
//! let usable: Vec<_> = machine.all_pus().take(4).collect();
//! let policy: PolicySpec = "mix".parse()?;
//! let plan = policy.plan(&Knowledge::default(), &machine, &usable, &tasks.collect::<Vec<_>>());
//! let pus = plan.decisions.iter().map(|decision| decision.place.pu().expect("pinned"));
//! let cores: Vec<_> = pus.map(|pu| machine.core_of(machine.pu_by_os(pu).expect("online"))).collect();
//! assert!(cores[0] != cores[1] && cores[2] != cores[3], "no two tasks of one class share a core");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
extern crate self as colocate_policy; // so that `testing` reads the same here and in tests/

mod by_id;
pub mod communication;
pub mod evidence;
pub mod forecast;
mod judge;
pub mod matching;
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
pub use plan::{
    Decision, DefaultPlacement, PageMove, Per, Place, PlaceReason, Plan, PlanError, Task,
};
pub use policy::Policy;
pub use table::{Knowledge, PolicySpec, SoloProfile, SpecError};
