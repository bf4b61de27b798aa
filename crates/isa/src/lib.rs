//! What kind of work one machine instruction is.
//!
//! Both ways of decoding programs, `sample` and `emulate`, count with the functions of this crate,
//! so that their figures mean the same.

pub mod class;

pub use class::{Class, ClassCounts, ClassSet};
