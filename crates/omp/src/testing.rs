//! State shared by tests of this crate.

use std::sync::Mutex;

/// Lock of the process's only gate: tests run in turn.
pub static GATE: Mutex<()> = Mutex::new(());
