//! Workloads x policies x repetitions: figures with confidence intervals.

pub mod stats;
