//! What simulations do, whole. One binary: to link many takes longer than to run them.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod alone;
mod barriers;
mod common;
mod filling;
mod guard;
mod hotplug;
mod known_beforehand;
mod one_fast_one_slow;
mod page_moves;
mod page_policies;
mod progress;
mod properties;
mod relief;
mod schedulers;
mod schedules;
mod serial_phases;
mod symbiotic;
mod turns;
mod waiting;
