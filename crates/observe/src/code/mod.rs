//! Machine code that programs were seen running, and what it asks of a core.
//!
//! # Approach
//! A program's code is known by *stretches*: some hundred instructions in the order in which a thread
//! ran them, taken all through the run ([`emulate`](crate::emulate)) or put together from samples
//! (`walk`). A stretch holds what single blocks do not: which values pass from one block to the next,
//! and how blocks of different kinds even each other out. [`Analysis`] has `llvm-mca` simulate each one
//! as a loop without an end, and averages.

mod analysis;
mod stretch;
mod walk;

pub use analysis::{Analysis, Simulated, by_kind, in_kinds};
pub use stretch::{LENGTH, Stretch, Weight};
pub(crate) use stretch::{of_one, of_trace};
pub(crate) use walk::{spread, walk};
