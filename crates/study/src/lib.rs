//! Experiments that are simulated: workloads x policies x repetitions, and the published studies.

pub mod coherence;
pub mod contention;
pub mod curve;
pub mod definition;
pub mod files;
pub mod heat;
pub mod matrices;
pub mod metric;
pub mod patterns;
pub mod piccoli;
pub mod published;
pub mod replication;
pub mod simulate;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod train;
