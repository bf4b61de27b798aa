//! Policies and plans from outside.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "../../src/testing.rs"]
#[allow(dead_code)] // shared with the unit tests, which use more of it
mod testing;

mod plan_file;
mod whole_plans;
