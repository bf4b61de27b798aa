//! Placement of threads: [`rules`] decide from facts, [`apply`] sets masks, [`creation`] and [`events`] take in what threads do, and
//! [`adopt`] follows plans.

mod adopt;
mod apply;
mod creation;
mod events;
mod rules;

pub(crate) use apply::Placing;
pub(crate) use rules::{Event, after_reset};
