//! Machine code that programs ran, and its demand on a core.
//!
//! # Approach
//! A program's code is known by *stretches*: some hundred instructions in the order in which a
//! thread ran them. Stretches are recorded all through the run ([`emulate`](crate::emulate)), or
//! put together from samples (`walk`). A stretch shows more than single blocks: values passed from
//! block to block, and how blocks of different kinds balance each other. [`Analysis`] has
//! `llvm-mca` simulate each stretch as an endless loop, and averages.

mod analysis;
mod stretch;
mod walk;

pub use analysis::{Analysis, Simulated, by_kind, in_kinds};
pub use stretch::{LENGTH, Stretch, Weight};
pub(crate) use stretch::{of_one, of_trace};
pub(crate) use walk::{spread, walk};
