//! Files of the model, and described machines.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod described_machines;
mod max_min;
mod phase_file;
mod profile_file;
