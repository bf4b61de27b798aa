//! Traffic that can be tuned: a thread that asks one level of the memory for so many lines in a microsecond.
//!
//! After the micro-benchmark of Feliu et al.: a matrix of bytes with rows of some hundred is walked column by
//! column, each byte met is incremented, and then nothing is done for a while. Whoever walks asks for a
//! line with each byte, and how long it does nothing says how many lines it asks for.

mod generator;
mod matrix;
pub mod pace;

pub use generator::{Generator, Tally};
pub use matrix::{COLUMNS, Matrix, ROW_BYTES};
