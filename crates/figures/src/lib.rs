//! Figures with confidence intervals, and the tables and charts that show them.
//!
//! A comparison starts as a [`state::StudyState`] and grows by one [`state::FinishedRun`] at a
//! time, in the order drawn by [`order::blocks`]. At the end a [`comparison::Comparison`] is
//! computed from the state. The crate runs no program and reads no clock; times are arguments.

pub mod comparison;
pub mod gantt;
pub mod order;
pub mod plot;
pub mod rounds;
pub mod state;
pub mod stats;
pub mod table;
