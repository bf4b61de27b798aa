//! Tunable memory traffic: a thread that requests lines from one level of the memory at a given
//! rate.
//!
//! After the micro-benchmark of Feliu et al.: a matrix of bytes with rows of some hundred bytes is
//! traversed by columns, and each byte is incremented, followed by idle time. Each byte requests a
//! line, and the idle time sets the rate.

mod generator;
mod matrix;
pub mod pace;

pub use generator::{Generator, GeneratorTally};
pub use matrix::{COLUMNS, Matrix, ROW_BYTES};
