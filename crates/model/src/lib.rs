//! Models of programs' demands on cores, caches and memory, as values with units and a version.
//!
//! Pure: reads no file, no clock and no global.

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
pub use profile::{Backend, Profile, ProfileError, Program, ThreadProfile};
pub use stack::Stack;
pub use symbiosis::CpiModel;
pub use system::{CpiStack, Migration, Model, ModelError, Prediction, Search, Seat, TaskRate};
