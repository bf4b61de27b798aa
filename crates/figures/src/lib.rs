//! Figures with confidence intervals, and the tables and charts that show them.
//!
//! A comparison is a [`state::State`] that grows by one [`state::Run`] at a time in the order that
//! [`order::blocks`] draws, and a [`comparison::Comparison`] made of it at the end. Nothing here runs
//! a program or reads a clock; the times are passed in.

pub mod comparison;
pub mod gantt;
pub mod order;
pub mod plot;
pub mod rounds;
pub mod state;
pub mod stats;
pub mod table;
