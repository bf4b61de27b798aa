//! The interface to a machine with programs on it.

use colocate_evidence::{Grant, JobIdx, Observation, Source};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_policy::Plan;
use thiserror::Error;

/// A machine with programs: real or simulated.
pub trait Host {
    /// The machine now; it changes when a PU goes offline or comes online.
    fn machine(&self) -> &Machine;

    /// PUs that the tasks may use, by the kernel's number, in logical order: online, in the
    /// inherited affinity mask and in the cgroup's cpuset.
    fn usable(&self) -> &[PuNr];

    /// Provides the requested evidence from now on. Returns the backend of each request, or the
    /// reason of its refusal; refused evidence stays unknown.
    ///
    /// To be called before the jobs are launched. A later request without [`Source::Mix`] ends this
    /// source, which costs the programs time; all other sources go on.
    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant>;

    /// Lets the placed tasks run for one quantum and returns their activity.
    ///
    /// The first call launches the jobs. The quantum ends when its time is over or, earlier, at an
    /// event relevant to plans; see [`colocate_evidence::QuantumEnd`]. Tasks created meanwhile are
    /// placed by [`Plan::default_placement`].
    ///
    /// # Errors
    /// [`HostError`] if the host can no longer watch or place. The programs go on running.
    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError>;

    /// Whether a CPU quota throttled a job in the last quantum, or shortly before.
    fn is_throttled(&self) -> bool {
        false
    }
}

/// A request for evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Kind of evidence.
    pub source: Source,
    /// Jobs whose tasks are observed.
    pub jobs: &'a [JobIdx],
}

/// Error after which a host cannot go on.
#[derive(Debug, Error)]
#[error("{what}: {why}")]
pub struct HostError {
    /// Action that failed.
    pub what: String,
    /// Reason, with the remedy where known.
    pub why: String,
}
