//! Simulated comparisons: scenarios × policies × assumptions × seeds, with verdicts.
//!
//! Nothing here was measured. Every output says *simulated* and names the machine.

pub mod contender;
pub mod figures;
pub mod gantt;
pub mod picture;
pub mod run;
pub mod scenario;
pub mod table;
