//! Observations: the state of every task, and the reports of every source, at the end of a quantum.

use crate::{Exemption, JobIdx, PageGroup, PagesMoved, Place, Sharing, TaskId, WakeUps};
use colocate_machine::{Nanos, PuNr};
use colocate_model::{Mix, Stack};
use std::collections::BTreeSet;
use std::sync::Arc;

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
    /// The plan has its job wait: it does not run, or only fills idle PUs (where the host lets waiting jobs fill these).
    Waiting,
    /// It will be put on its PU when its process has counted the PUs that it may use.
    Settling,
    /// It must not be pinned to one PU.
    Exempt(Exemption),
    /// The program chose its own PUs, and that is respected.
    PinnedByProgram,
    /// It ended before it could be placed.
    Missed,
    /// Its placement failed, for the reason given in one line.
    Trouble(String),
}

impl PlacementStatus {
    /// Its name in reports, and the reason where it has one.
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
    /// A task of which nothing more is known than that it was created at `created`, on the host's clock.
    #[must_use]
    pub fn new(id: TaskId, name: Arc<str>, created: Nanos) -> Self {
        Self {
            id,
            name,
            created,
            ended: None,
            cpu_time: None,
            waited: None,
            spun: None,
            instructions: None,
            cycles: None,
            switches: None,
            counts: None,
            mix: None,
            target: Place::LeftToKernel,
            status: PlacementStatus::LeftToKernel,
            allowed: Arc::default(),
            last_ran: None,
        }
    }

    /// Whether it lives.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Its mix since it was created; all unknown if it was not watched.
    #[must_use]
    pub fn known_mix(&self) -> Mix {
        self.mix.as_deref().copied().unwrap_or_default()
    }

    /// Where its cycles went, see [`Counts::stack`].
    #[must_use]
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
    /// Reports of sources on tasks' relations and pages.
    pub reports: Reports,
}

/// Reports of the sources that concern several tasks at once: one slot a source, `None` where the host does not report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reports {
    /// Wake-ups since the source was started, without tasks that the host has forgotten.
    pub wake_ups: Option<Vec<WakeUps>>,
    /// Use of the same memory since the source was started, without tasks that the host has forgotten.
    pub sharing: Option<Vec<Sharing>>,
    /// Page groups that tasks have used, in the order of jobs and addresses, with their nodes now.
    pub pages: Option<Vec<PageGroup>>,
}

impl Reports {
    /// No report: every slot is unknown.
    pub const NONE: Self = Self { wake_ups: None, sharing: None, pages: None };
}

impl Observation {
    /// An observation without tasks at time 0, with every report unknown: the state before the launch.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            at: Nanos::ZERO,
            end: QuantumEnd::Elapsed,
            tasks: Vec::new(),
            ended: Vec::new(),
            moved: Vec::new(),
            reports: Reports::NONE,
        }
    }

    /// The jobs that are over. Tasks of theirs may live on.
    #[must_use]
    pub fn over(&self) -> BTreeSet<JobIdx> {
        self.ended.iter().map(|end| end.job).collect()
    }
}
