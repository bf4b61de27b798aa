//! What tests of this crate share.

use std::sync::Mutex;

/// There is one gate in a process: tests take turns.
pub static GATE: Mutex<()> = Mutex::new(());
