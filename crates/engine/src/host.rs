//! The interface to a machine with programs on it.

use colocate_evidence::{Grant, JobIdx, Observation, Source};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_policy::Plan;
use thiserror::Error;

/// A machine with programs on it: this one, or a simulated one.
pub trait Host {
    /// The machine as it is now; it changes when a PU goes offline.
    fn machine(&self) -> &Machine;

    /// PUs that the tasks may use, by the kernel's number, in logical order: online, in the
    /// inherited affinity mask and in the cgroup's cpuset.
    fn usable(&self) -> &[PuNr];

    /// From now on provides what is requested, and says for each request what provides it, or why nothing does. What is
    /// not provided is unknown.
    ///
    /// To be called before the jobs are launched. A later request without [`Source::Mix`] ends that source, which costs the
    /// programs time; the others go on.
    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant>;

    /// Lets the placed tasks run for one quantum and says what each did.
    ///
    /// The first call launches the jobs. The quantum ends when its time is over or, earlier, when
    /// something happens that a plan may depend on; see [`colocate_evidence::QuantumEnd`]. Tasks created meanwhile go
    /// where [`Plan::default_placement`] says.
    ///
    /// # Errors
    /// [`HostError`] if the host can no longer watch or place. The programs go on running.
    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError>;

    /// Whether a CPU quota has throttled a job in the last quantum, or shortly before.
    fn is_throttled(&self) -> bool {
        false
    }
}

/// A request for evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Of this kind.
    pub source: Source,
    /// On the tasks of these jobs.
    pub jobs: &'a [JobIdx],
}

/// Why a host cannot go on.
#[derive(Debug, Error)]
#[error("{what}: {why}")]
pub struct HostError {
    /// What was tried.
    pub what: String,
    /// What came of it, with what to do where that is known.
    pub why: String,
}
