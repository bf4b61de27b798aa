//! The seam: a machine with programs on it.

use colocate_machine::{Machine, Nanos, PuNr};
use colocate_model::Mix;
use colocate_policy::{JobIdx, Plan, TaskId};
use thiserror::Error;

/// A machine with programs on it: this one, or a simulated one.
pub trait Host {
    /// The machine as it is now; it changes when a PU goes offline.
    fn machine(&self) -> &Machine;

    /// PUs that the tasks may use, by the kernel's number, in logical order: online, in the
    /// inherited affinity mask and in the cgroup's cpuset.
    fn usable(&self) -> &[PuNr];

    /// Lets the placed tasks run for one quantum and says what each did.
    ///
    /// The quantum ends when its time is over or, earlier, when something happens that a plan may
    /// depend on; see [`QuantumEnd`]. Tasks born meanwhile go where [`Plan::newborn`] says.
    ///
    /// # Errors
    /// [`HostError`] if the host can no longer watch or place. The programs go on running.
    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Snapshot, HostError>;
}

/// Why a quantum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantumEnd {
    /// Its time was over.
    Elapsed,
    /// The PUs that may be used have changed; `Host::machine` and `Host::usable` tell the new ones.
    MachineChanged,
    /// The last job has ended.
    AllJobsEnded,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It lives, running or waiting.
    Alive,
    /// It has ended.
    Ended,
}

/// What was seen of one task in a quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenTask {
    /// Which task.
    pub id: TaskId,
    /// Job and thread name, for people.
    pub name: String,
    /// Whether it lives.
    pub state: TaskState,
    /// When it was born, on the host's clock.
    pub born: Nanos,
    /// CPU time it has used since it was born; `None` if the host cannot say.
    pub cpu_time: Option<Nanos>,
    /// Its mix since it was born; all unknown if it was not watched.
    pub mix: Mix,
    /// PUs that it really may run on, read back from the host; empty if it ended before it could
    /// be read.
    pub allowed: Vec<PuNr>,
    /// Why its placement failed, in one line; `None` if it is where the plan has it.
    pub trouble: Option<String>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// The job.
    pub job: JobIdx,
    /// When, on the host's clock.
    pub at: Nanos,
    /// Exit status as a shell reports it: the exit code, or 128 + the signal's number.
    pub status: i32,
}

/// What happened in a quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The host's clock at the end of the quantum; 0 is the launch.
    pub at: Nanos,
    /// Why the quantum ended.
    pub end: QuantumEnd,
    /// Every task seen so far, in the order of the tasks' IDs.
    pub tasks: Vec<SeenTask>,
    /// Jobs that have ended so far.
    pub ended: Vec<JobEnd>,
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
