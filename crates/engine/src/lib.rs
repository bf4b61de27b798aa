//! The loop over a host: observe, decide, act.
//!
//! Pure: a host is a trait, and time is the host's clock.
//!
//! ```
//! use colocate_engine::{Host, HostError, KnownJob, Request, RunSettings, Until, run};
//! use colocate_evidence::{Grant, Observation, QuantumEnd, Refusal, SourceSet};
//! use colocate_machine::{Machine, Nanos, PuNr, described};
//! use colocate_policy::{Plan, PolicySpec};
//! /// Machine without sources of evidence, whose only job ends in the first quantum.
//! struct Short(Machine);
//! impl Host for Short {
//!     fn machine(&self) -> &Machine {
//!         &self.0
//!     }
//!     fn usable(&self) -> &[PuNr] {
//!         &[PuNr(0), PuNr(32)]
//!     }
//!     fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
//!         let answer = Err(Refusal::of("it has none"));
//!         requests.iter().map(|it| Grant { source: it.source, answer: answer.clone() }).collect()
//!     }
//!     fn run_quantum(&mut self, _: &Plan, _: Nanos) -> Result<Observation, HostError> {
//!         Ok(Observation { end: QuantumEnd::AllJobsEnded, ..Observation::empty() })
//!     }
//! }
//! let machine = described::from_toml(described::MACHINES[0].1).expect("described").machine;
//! let jobs = [KnownJob { name: "true".into(), profile: None, phases: Vec::new() }];
//! let workload = RunSettings {
//!     jobs: &jobs,
//!     policy: "round-robin",
//!     until: Until::Events,
//!     watch: Nanos::from_secs(2),
//!     also: SourceSet::NONE,
//!     without: SourceSet::NONE,
//! };
//! let mut policy = PolicySpec::named(workload.policy).plain();
//! let mut places = Vec::new();
//! run(&mut Short(machine), &mut *policy, &workload, None, &mut |round| {
//!     places.extend(round.plan.decisions.iter().map(|decision| decision.place.pu()));
//! })?;
//! assert_eq!(places, [Some(PuNr(0))], "one round, with a plan for the job's first thread");
//! # Ok::<(), HostError>(())
//! ```

pub mod estimate;
pub mod guard;
pub mod host;
pub mod known;
mod lookup;
pub mod meanwhile;
mod queue;
pub mod rates;
pub mod run;

pub use host::{Host, HostError, Request};
pub use known::KnownJob;
pub use meanwhile::Meanwhile;
pub use queue::ACTIVE;
pub use run::{IssuedPlan, PlanCause, Round, RunSettings, Until, first_plan, run};
