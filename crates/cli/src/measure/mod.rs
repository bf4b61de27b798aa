//! Measurements with micro-benchmarks: the order of cells, the PUs, and kernels beside each other.

pub mod beside;
pub mod harness;
pub mod scenarios;
#[doc(hidden)]
pub mod testing;
