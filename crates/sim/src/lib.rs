//! Simulation of [`Scenario`]s on described machines, through the contention model.
//!
//! Pure: reads no file, no clock and no global; the same scenario gives the same outcome. All
//! results are simulated.
//!
//! Two threads that only add floating-point numbers, on the two PUs of one core:
//!
//! ```
//! use colocate_machine::performance::WorkKind;
//! use colocate_machine::{Bytes, Nanos, PuNr, described};
//! use colocate_model::phase::{Known, PortWork};
//! use colocate_model::{Assumptions, Phase};
//! use colocate_policy::PolicySpec;
//! use colocate_sim::{
//!     JobSpec, KernelScheduler, Method, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Platform,
//!     Scenario, SimulationOptions, ThreadSpec, TotalWork, simulate,
//! };
//! let epyc = described::from_toml(described::MACHINES[0].1)?;
//! let speeds = epyc.performance.expect("described with speeds");
//! let platform = Platform::new(&epyc.machine, &speeds, Assumptions::default())?;
//! let work = Known::new(PortWork::Kinds(vec![(WorkKind::FloatAdd, 1.0)]), "the loop");
//! let adds = PhaseSpec::of(Phase { work, ..Phase::default() });
//! # let (phase, sleep) = (PhaseIdx(0), Nanos::ZERO);
//! let course = vec![PhaseSegment { phase, instructions: 1_000_000, sleep, barrier: false }];
//! # let (name, born, work) = (String::new(), Nanos::ZERO, TotalWork::Once);
//! # let (pages, resident) = (Pages::FirstTouch, Bytes(0));
//! let thread = ThreadSpec { name, born, course, work, pages, resident };
//! # let (name, arrives, memory) = (String::new(), Nanos::ZERO, Vec::new());
//! let job = JobSpec { name, arrives, threads: vec![thread], barrier: None, memory };
//! # let (name, events) = (String::new(), Vec::new());
//! # let (quantum, grain, horizon) = (Nanos::from_millis(10), Nanos::ZERO, Nanos::from_secs(1));
//! let scenario = Scenario {
//!     phases: vec![adds],
//!     jobs: vec![job.clone(), job],
//!     usable: Some(vec![PuNr(0), PuNr(32)]),
//!     method: Method::Leave,
//!     kernel: KernelScheduler::default(),
//!     seed: 1,
//! #   name, quantum, grain, horizon, events,
//!     // … and the name, times and hotplug events.
//! };
//! let outcome = simulate(&platform, &scenario, &PolicySpec::named("os"), &SimulationOptions::default())?;
//! let slowdown = outcome.jobs[0].slowdown().expect("the job has ended");
//! assert!(slowdown > 1.2, "{slowdown}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accesses;
mod alone;
pub mod coherent;
mod course;
mod crowding;
mod domains;
mod ends;
pub mod error;
mod events;
pub mod host;
mod hotplug;
mod imbalance;
mod instances;
mod job;
pub mod kernel;
mod load_averages;
mod loads;
pub mod metrics;
mod on_pu;
pub mod outcome;
mod parts;
mod placing;
pub mod platform;
mod pollution;
mod queues;
mod rates;
mod region;
pub mod run;
mod scans;
pub mod scenario;
mod sources;
mod tally;
mod targets;
mod task;
mod teams;
#[cfg(test)]
mod testing;
mod timers;
mod wake_history;
mod waking;
mod woken;
mod world;

use colocate_engine::HostError;
use colocate_machine::performance::Impossible;
use colocate_model::phase::PhaseError;
use colocate_policy::PlanError;
use thiserror::Error;

pub use alone::{alone_of, courses_of};
pub use error::ScenarioError;
pub use host::SimHost;
pub use kernel::{Fork, KernelScheduler, NumaBalancing, PeriodicBalance, Wake, WakeAffine};
pub use outcome::{
    JobOutcome, LevelUse, Moves, Outcome, PortGroupUse, TaskOutcome, Together, Used,
};
pub use platform::Platform;
pub use run::{SimulationOptions, demands_of, simulate, simulate_with};
pub use scenario::{
    Barrier, BarrierWait, Fetch, JobSpec, MemorySpec, MemoryUse, Method, Pages, PhaseIdx,
    PhaseSegment, PhaseSpec, PuEvent, Scenario, Serial, ThreadSpec, TotalWork,
};
pub use woken::WakeChoices;

/// Reason why a simulation cannot run or go on.
#[derive(Debug, Error)]
pub enum SimError {
    /// The scenario does not make sense on this machine.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The machine's figures are too few for the model.
    #[error(transparent)]
    Model(#[from] Impossible),
    /// A phase cannot run on this machine.
    #[error("phase {phase}: {error}")]
    Phase {
        /// Name of the phase.
        phase: String,
        /// Reason.
        error: PhaseError,
    },
    /// The plan cannot be applied.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The engine's loop cannot go on.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The simulation broke a rule of its own (`invariants`): a defect of the simulator.
    #[error("the simulation is wrong, please report it: {0}")]
    Broken(String),
}
