//! What the program `colocate-study` does, whole.
//!
//! Tests run side by side, so each has folders and programs of its own, and nothing of this process is changed.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // a failed test stops; a skipped one prints why

mod bandwidth;
mod bench;
mod described;
mod generate;
mod help;
mod hostile;
mod inputs;
mod interfering;
mod outputs;
mod simulate;
mod study;
mod trace;
mod train;
