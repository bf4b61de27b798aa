//! Observations: the state of every task, and the reports of every source, at the end of a quantum.

use crate::{Exemption, JobIdx, PagesMoved, Place, SourceReports, TaskId};
use colocate_machine::{Nanos, PuNr};
use colocate_model::{Mix, Stack};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reason for the end of a quantum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantumEnd {
    /// The quantum's time is over.
    #[default]
    Elapsed,
    /// The set of usable PUs has changed; `Host::machine` and `Host::usable` have the new state.
    MachineChanged,
    /// A job has ended while other jobs run.
    JobEnded,
    /// Tasks that share a PU under the plan wait for it more than before, while none of them runs
    /// ([`crate::SharedPu`]).
    Crowded,
    /// The last job has ended.
    AllJobsEnded,
}

/// Status of a task's placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlacementStatus {
    /// On its PU, as confirmed by the host.
    Placed,
    /// Left to the kernel by the plan or its default placement.
    #[default]
    LeftToKernel,
    /// Waiting under the plan: the task does not run, or only fills idle PUs, where the host lets
    /// waiting jobs fill them.
    Waiting,
    /// Placement is deferred until the process has counted its usable PUs.
    Settling,
    /// Single PUs are forbidden for the task.
    Exempt(Exemption),
    /// The program chose its own PUs, and its choice is respected.
    PinnedByProgram,
    /// Ended before its placement.
    Missed,
    /// Failed placement, with the reason in one line.
    Trouble(String),
}

impl PlacementStatus {
    /// Name in reports, and the reason, if any.
    #[must_use]
    pub fn describe(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Placed => ("placed", None),
            Self::LeftToKernel => ("left to the kernel", None),
            Self::Waiting => ("waiting", None),
            Self::Settling => ("not placed yet", None),
            Self::Exempt(exemption) => ("not placed", Some(exemption.reason())),
            Self::PinnedByProgram => ("pinned by the program", None),
            Self::Missed => ("ended before it could be placed", None),
            Self::Trouble(why) => ("trouble", Some(why)),
        }
    }
}

/// Further counts of a task since its creation, beside instructions and cycles. The count of a
/// quantum is the difference of two observations. `None` if the host cannot count the event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskCounts {
    /// Loads and stores: requests to its nearest cache.
    pub accesses: Option<u64>,
    /// Misses of each data cache over the PUs of the task, nearest cache first. A miss is a request
    /// to the next cache; a miss of the last cache is a request to memory.
    pub misses: Option<Vec<u64>>,
    /// Bytes read from memory and written back.
    pub memory_bytes: Option<u64>,
    /// Cycles by cause, in cycles, not per instruction. The sum is [`SeenTask::cycles`] less the
    /// cycles of stretches with unknown causes. Divided by the instructions of the same time, they
    /// are a CPI stack.
    pub stack: Option<Stack>,
}

/// State and counts of a task since its creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenTask {
    /// Task ID.
    pub id: TaskId,
    /// Names of job and thread, for messages. Shared, as plans copy it every quantum.
    pub name: Arc<str>,
    /// Creation time on the host's clock.
    pub created: Nanos,
    /// End on the host's clock; `None` while the task lives.
    pub ended: Option<Nanos>,
    /// CPU time since creation; `None` if the host cannot read it.
    pub cpu_time: Option<Nanos>,
    /// Run-queue wait since creation: time runnable without a PU; `None` if the host cannot read
    /// it. A wait in progress may be missing.
    pub waited: Option<Nanos>,
    /// Spin time, in CPU time and in waits for a PU; `None` if the task was not sampled.
    pub spun: Option<Nanos>,
    /// Instructions since creation; `None` if the host does not count them.
    pub instructions: Option<u64>,
    /// Core cycles of the task since creation; `None` if the host does not count them.
    pub cycles: Option<u64>,
    /// Larger of two counts: voluntary waits, and calls that read or write. `None` if unknown.
    pub switches: Option<u64>,
    /// Further counts; `None` without any. Boxed, as few tasks have counts where threads are many.
    pub counts: Option<Box<TaskCounts>>,
    /// Mix since creation; `None` if the task was not watched.
    pub mix: Option<Box<Mix>>,
    /// Target by the plan or its default placement.
    pub target: Place,
    /// Status of the placement.
    pub status: PlacementStatus,
    /// Actual mask as last read back from the host; empty if the task ended before any reading.
    pub allowed: Arc<[PuNr]>,
    /// PU of the last observed execution; `None` if the task ended before any reading.
    pub last_ran: Option<PuNr>,
}

impl SeenTask {
    /// New task without any counts, created at `created` on the host's clock.
    #[must_use]
    pub fn new(id: TaskId, name: Arc<str>, created: Nanos) -> Self {
        Self { id, name, created, ..Self::default() }
    }

    /// Whether the task lives.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Mix since creation; all parts unknown if the task was not watched.
    #[must_use]
    pub fn known_mix(&self) -> Mix {
        self.mix.as_deref().copied().unwrap_or_default()
    }

    /// Cycles by cause, see [`TaskCounts::stack`]; `None` if not counted.
    #[must_use]
    pub fn stack(&self) -> Option<Stack> {
        self.counts.as_ref()?.stack
    }

    /// Instructions per cycle since creation; `None` if either is not counted or the cycles are 0.
    pub fn ipc(&self) -> Option<f64> {
        let cycles = self.cycles.filter(|&cycles| cycles > 0)?;
        Some(self.instructions? as f64 / cycles as f64)
    }
}

/// End of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// The job.
    pub job: JobIdx,
    /// Time on the host's clock.
    pub at: Nanos,
    /// Exit status as a shell reports it: the exit code, or 128 + the signal's number.
    pub status: i32,
    /// CPU time of the job's reaped processes; `None` if the host cannot read it.
    pub cpu_time: Option<Nanos>,
}

/// State at the end of a quantum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The host's clock at the end of the quantum; 0 is the launch.
    pub at: Nanos,
    /// Reason for the end of the quantum.
    pub end: QuantumEnd,
    /// All tasks seen so far, in the order of their IDs.
    pub tasks: Vec<SeenTask>,
    /// Ended jobs, in the order of their ends.
    pub ended: Vec<JobEnd>,
    /// Results of page orders completed since the last observation.
    pub moved: Vec<PagesMoved>,
    /// Reports of sources on tasks' relations and pages.
    pub reports: SourceReports,
}

impl Observation {
    /// State before the launch: no tasks at time 0, every report unknown.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Ended jobs. Their tasks may live on.
    #[must_use]
    pub fn over(&self) -> BTreeSet<JobIdx> {
        self.ended.iter().map(|end| end.job).collect()
    }
}
