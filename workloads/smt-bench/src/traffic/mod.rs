//! Traffic that can be tuned: a thread that requests so many lines in a microsecond from one level of the memory.
//!
//! After the micro-benchmark of Feliu et al.: a matrix of bytes with rows of some hundred is walked column by
//! column, each byte met is incremented, and then nothing is done for a while. Each byte requests a
//! line, and the idle time sets the rate.

mod generator;
mod matrix;
pub mod pace;

pub use generator::{Generator, Tally};
pub use matrix::{COLUMNS, Matrix, ROW_BYTES};
