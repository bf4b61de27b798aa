//! Workloads x policies x repetitions: figures with confidence intervals.
//!
//! A study is a [`state::State`] that grows by one [`state::Run`] at a time in the order that
//! [`order::blocks`] draws, and a [`figures::Comparison`] made of it at the end. Nothing here runs
//! a program or reads a clock; the times are passed in.

pub mod coherence;
pub mod contention;
pub mod cores;
pub mod curve;
pub mod figures;
pub mod heat;
pub mod matrices;
pub mod metric;
pub mod order;
pub mod patterns;
pub mod piccoli;
pub mod plot;
pub mod published;
pub mod replication;
pub mod rounds;
pub mod simulate;
pub mod state;
pub mod stats;
pub mod table;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod traffic;
pub mod train;
