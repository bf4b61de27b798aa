//! A machine that is not here: [`Scenario`]s on described machines, through the contention model.
//!
//! Pure: reads no file, no clock and no global; the same scenario gives the same outcome. Everything that
//! comes out is simulated.

pub mod kernel;
pub mod metrics;
pub mod outcome;
pub mod scenario;

pub use kernel::{Fork, Kernel, NumaBalancing, PeriodicBalance, Wake};
pub use outcome::{JobOutcome, Moves, Outcome, Span, TaskOutcome, Together, Used};
pub use scenario::{
    JobSpec, Method, Pages, PhaseIdx, PhaseSpec, Scenario, ScenarioError, Stretch, ThreadSpec, Work,
};
