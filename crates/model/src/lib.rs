//! Models of programs' demands on cores, caches and memory, as values with units and a version.
//!
//! Pure: reads no file, no clock and no global.
//!
//! Slowdown of a loop of floating-point additions beside the same loop, on a sibling PU and on
//! another core:
//!
//! ```
//! use colocate_machine::performance::WorkKind;
//! use colocate_machine::{Bytes, PuIdx, described};
//! use colocate_model::phase::{Guesses, Known, PortWork};
//! use colocate_model::{Assumptions, MissCurve, Model, Phase, PlacedTask};
//! let epyc = described::from_toml(described::MACHINES[0].1)?;
//! let speeds = epyc.performance.expect("described with speeds");
//! let model = Model::new(&epyc.machine, &speeds, Assumptions::default())?;
//! let work = Known::new(PortWork::Kinds(vec![(WorkKind::FloatAdd, 1.0)]), "the loop");
//! let misses = Known::new(MissCurve::new([(Bytes::kib(32), 0.0)])?, "it reads no memory");
//! // Unknown components of the phase are guessed.
//! let adds = Phase { work, misses, ..Phase::default() };
//! let adds = adds.on(&speeds.kinds[0], &Guesses::default())?;
//! let seat = |pu| PlacedTask { pu: PuIdx(pu), demand: &adds.demand, pages: &[], space: pu };
//! let alone = model.alone(&seat(0)).ipc;
//! let slowdown = |other| alone / model.predict(&[seat(0), seat(other)]).tasks[0].ipc;
//! assert!(slowdown(1) > 1.2, "PUs 0 and 1 are siblings");
//! assert!(slowdown(2) < 1.01, "PU 2 is on another core");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod assumptions;
pub mod cache;
pub mod communication;
pub mod curve;
pub mod memory;
pub mod misses;
pub mod mix;
pub mod overlap;
pub mod phase;
pub mod ports;
pub mod profile;
pub mod rng;
pub mod smt;
pub mod stack;
pub mod symbiosis;
pub mod system;
pub mod threads;

pub use assumptions::{Assumptions, Fairness, Ranges};
pub use curve::MissCurve;
pub use misses::MissCounts;
pub use mix::{Class, Mix, Share};
pub use overlap::UnitDemand;
pub use phase::{Demand, Phase};
pub use profile::{Backend, Profile, ProfiledProgram, ThreadProfile};
pub use stack::Stack;
pub use symbiosis::CpiModel;
pub use system::{CpiStack, Migration, Model, PlacedTask, Prediction, Solver, TaskRate};
