//! Experiments that are simulated: workloads x policies x repetitions, and the published studies.
//!
//! ```
//! use colocate_machine::described;
//! use colocate_study::simulate::figures::SimulatedVerdict;
//! use colocate_study::simulate::run::ExperimentSetup;
//! use colocate_study::simulate::scenario::ScenarioFile;
//! use colocate_study::simulate::table;
//! let file = ScenarioFile::from_toml(
//!     r#"
//!     version = 1
//!     name = "two adders"
//!     machine = "epyc-7301"
//!     policies = ["scatter", "compact"]
//!     seeds = 2
//!     draws = 2
//!     [[phase]]
//!     name = "adds"
//!     demand.work = { value = { kinds = { float-add = 1.0 } }, source = "the loop" }
//!     [[job]]
//!     name = "adder"
//!     [[job.thread]]
//!     copies = 2
//!     phase = "adds"
//!     alone-for = "5 ms"
//!     "#,
//! )?;
//! let epyc = described::from_toml(described::MACHINES[0].1)?;
//! let speeds = epyc.performance.expect("described with speeds");
//! let experiment = file.experiment(&epyc.machine, &speeds, &|_| Err("no further file".into()))?;
//! let bench = ExperimentSetup::new(&epyc.machine, &speeds, &experiment);
//! let units: Result<Vec<_>, _> = (0..bench.units()).map(|unit| bench.unit(unit)).collect();
//! let found = bench.figures(&units?);
//! // `compact` puts both threads on one core, under all assumptions to their loss.
//! assert_eq!(found.policies[1].metrics[0].verdict, SimulatedVerdict::Worse, "{}", table::text(&found));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod coherence;
pub mod contention;
pub mod curve;
pub mod definition;
pub mod files;
pub mod heat;
pub mod matrices;
mod metric;
mod parts;
pub mod patterns;
pub mod piccoli;
pub mod printed;
mod published;
pub mod replication;
pub mod simulate;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod train;
