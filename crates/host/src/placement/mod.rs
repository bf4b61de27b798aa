//! Placement of threads: [`rules`] decide from facts, [`apply`] sets masks, [`creation`] and [`events`] take in what threads do, and
//! [`adopt()`] follows plans.

mod adopt;
mod apply;
mod creation;
mod events;
mod rules;

pub(crate) use adopt::{adopt, follow_all, leave_to_kernel};
pub(crate) use apply::{Placing, note_filter};
pub(crate) use creation::{hold_process, place_new};
pub(crate) use events::{begin_program, on_exec, on_fork, on_storm};
pub(crate) use rules::{ForkExemption, PlacementEvent, after_reset};
