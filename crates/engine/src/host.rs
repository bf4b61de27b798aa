//! The interface to a machine with programs on it.

use colocate_evidence::{Grant, JobIdx, PageGroup, PagesMoved, Sharing, Source, TaskId, WakeUps};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_model::{Mix, Stack};
use colocate_policy::{Place, Plan};
use std::collections::BTreeSet;
use std::sync::Arc;
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
    /// something happens that a plan may depend on; see [`QuantumEnd`]. Tasks created meanwhile go
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

/// Why a quantum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantumEnd {
    /// Its time was over.
    Elapsed,
    /// The PUs that may be used have changed; `Host::machine` and `Host::usable` have the new ones.
    MachineChanged,
    /// A job has ended, and others go on.
    JobEnded,
    /// The last job has ended.
    AllJobsEnded,
}

/// What has become of a task's place in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementStatus {
    /// It was put on its PU, and the host has confirmed it.
    Placed,
    /// The plan or its default placement leaves it to the kernel.
    LeftToKernel,
    /// The plan has its job wait: it does not run, or only fills idle PUs ([`crate::Meanwhile`]).
    Waiting,
    /// It will be put on its PU when its process has counted the PUs that it may use.
    Settling,
    /// It must not be put on one PU, for the reason given.
    Exempt(&'static str),
    /// The program chose its own PUs, and that is respected.
    PinnedByProgram,
    /// It ended before it could be placed.
    Missed,
    /// Its placement failed, for the reason given in one line.
    Trouble(String),
}

impl PlacementStatus {
    /// Its name in reports, and the reason where it has one.
    pub fn describe(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Placed => ("placed", None),
            Self::LeftToKernel => ("left to the kernel", None),
            Self::Waiting => ("waiting", None),
            Self::Settling => ("not placed yet", None),
            Self::Exempt(why) => ("not placed", Some(why)),
            Self::PinnedByProgram => ("pinned by the program", None),
            Self::Missed => ("ended before it could be placed", None),
            Self::Trouble(why) => ("trouble", Some(why)),
        }
    }
}

/// What is counted of a task beside instructions and cycles, since it was created: what changes in a quantum is the
/// difference of two observations. `None` is what the host cannot count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Loads and stores: requests to its nearest cache.
    pub accesses: Option<u64>,
    /// Misses of each data cache over the PUs where it ran, nearest first. Each is a request to the next
    /// cache, and those of the last one are requests to memory.
    pub misses: Option<Vec<u64>>,
    /// Bytes that it read from memory and wrote back.
    pub memory_bytes: Option<u64>,
    /// Where its cycles went: here in cycles, not per instruction, so that they add up to
    /// [`SeenTask::cycles`], less those of stretches of which that is not known; divided by the instructions of
    /// the same time they are a CPI stack.
    pub stack: Option<Stack>,
}

/// What was seen of one task since it was created.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenTask {
    /// Which task.
    pub id: TaskId,
    /// Job and thread name, for messages. Shared, as plans take it over every quantum.
    pub name: Arc<str>,
    /// When it was created, on the host's clock.
    pub created: Nanos,
    /// When it ended, on the host's clock; `None` while it lives.
    pub ended: Option<Nanos>,
    /// CPU time it has used since it was created; `None` if the host cannot say.
    pub cpu_time: Option<Nanos>,
    /// Time since it was created for which it could run and waited for a PU; `None` if the host cannot say. A wait that
    /// goes on may be missing.
    pub waited: Option<Nanos>,
    /// Of its CPU time and its waits for a PU, the time in which it only waited in a loop for others; `None` if it was not
    /// sampled.
    pub spun: Option<Nanos>,
    /// Instructions it has done; `None` if the host does not count them.
    pub instructions: Option<u64>,
    /// Cycles of the cores that it ran on, while it ran; `None` if the host does not count them.
    pub cycles: Option<u64>,
    /// How often it has waited of its own accord, or read or written by a system call, whichever is more; `None` if that is
    /// not known.
    pub switches: Option<u64>,
    /// What else is counted of it; `None` where nothing is. Apart, as few have it where threads are many.
    pub counts: Option<Box<Counts>>,
    /// Its mix since it was created; `None` if it was not watched.
    pub mix: Option<Box<Mix>>,
    /// Its place by the plan or its default placement.
    pub target: Place,
    /// Whether it is there.
    pub status: PlacementStatus,
    /// PUs that it really may run on, as last read back from the host; empty if it ended before it
    /// could be read.
    pub allowed: Arc<[PuNr]>,
    /// The PU where it was last seen to run; `None` if it ended before it could be read.
    pub last_ran: Option<PuNr>,
}

impl SeenTask {
    /// Whether it lives.
    pub fn alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Its mix since it was created; all unknown if it was not watched.
    pub fn known_mix(&self) -> Mix {
        self.mix.as_deref().copied().unwrap_or_default()
    }

    /// Where its cycles went, see [`Counts::stack`].
    pub fn stack(&self) -> Option<Stack> {
        self.counts.as_ref()?.stack
    }

    /// Instructions per cycle since it was created, where both are counted and there are cycles.
    #[allow(clippy::cast_precision_loss)] // a rate needs 15 digits at most
    pub fn ipc(&self) -> Option<f64> {
        let cycles = self.cycles.filter(|&cycles| cycles > 0)?;
        Some(self.instructions? as f64 / cycles as f64)
    }
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
    /// CPU time of the job's processes that were waited for; `None` if the host cannot say.
    pub cpu_time: Option<Nanos>,
}

/// What happened until the end of a quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The host's clock at the end of the quantum; 0 is the launch.
    pub at: Nanos,
    /// Why the quantum ended.
    pub end: QuantumEnd,
    /// Every task seen so far, in the order of the tasks' IDs.
    pub tasks: Vec<SeenTask>,
    /// Jobs that have ended so far, in the order of their end.
    pub ended: Vec<JobEnd>,
    /// What came of orders to move memory that have been carried out since the observation before.
    pub moved: Vec<PagesMoved>,
    /// Wake-ups until now, without tasks that the host has forgotten; `None` if they are unknown.
    pub wake_ups: Option<Vec<WakeUps>>,
    /// Use of the same memory until now, without tasks that the host has forgotten; `None` if it is unknown.
    pub sharing: Option<Vec<Sharing>>,
    /// Page groups that tasks have used, with where they are now; `None` if they are unknown.
    pub pages: Option<Vec<PageGroup>>,
}

impl Observation {
    /// What is seen before anything was launched.
    pub(crate) fn before_the_launch() -> Self {
        Self {
            at: Nanos::ZERO,
            end: QuantumEnd::Elapsed,
            tasks: Vec::new(),
            ended: Vec::new(),
            moved: Vec::new(),
            wake_ups: None,
            sharing: None,
            pages: None,
        }
    }

    /// The jobs that are over. Tasks of theirs may live on.
    pub fn over(&self) -> BTreeSet<JobIdx> {
        self.ended.iter().map(|end| end.job).collect()
    }
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
