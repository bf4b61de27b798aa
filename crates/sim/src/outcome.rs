//! What came of a simulation.

use colocate_evidence::{TaskId, TaskSpan};
use colocate_machine::Nanos;
use colocate_model::Assumptions;

/// What came of a simulation. All of it is simulated; nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The machine that was simulated.
    pub machine: String,
    /// The scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// What the model assumed.
    pub assumptions: Assumptions,
    /// The machine's clock at the end.
    pub lasted: Nanos,
    /// Whether every job did its work; if not, the horizon came first.
    pub complete: bool,
    /// The jobs, in the scenario's order.
    pub jobs: Vec<JobOutcome>,
    /// The tasks that were created, in the order of their IDs.
    pub tasks: Vec<TaskOutcome>,
    /// How often tasks shared a core: what Feliu's slides call the frequency matrix.
    pub together: Together,
    /// How much of the machine was used.
    pub used: Used,
    /// Which task ran where and when, in the order of their ends; empty if it was not recorded.
    pub spans: Vec<TaskSpan>,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// When it was launched; `None` if the simulation was over before.
    pub launched: Option<Nanos>,
    /// When it had done its work for the first time; `None` if it never did.
    pub done: Option<Nanos>,
    /// How often it did its work.
    pub runs: u32,
    /// How long the work takes when nothing else is on the machine and the kernel places the threads;
    /// `None` if that was not simulated.
    pub alone: Option<Nanos>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    /// Which task.
    pub id: TaskId,
    /// Job and thread name.
    pub name: String,
    /// When it was first created.
    pub created: Nanos,
    /// When it ended for good; at the latest the simulation's end.
    pub ended: Nanos,
    /// Time that it ran.
    pub ran: Nanos,
    /// Of that, time that it spun at a barrier.
    pub spun: Nanos,
    /// Time that it could have run, but waited for a PU, or its job was stopped.
    pub waited: Nanos,
    /// Time that it slept, at barriers too.
    pub slept: Nanos,
    /// Instructions it did, but for those with which it only waited.
    pub instructions: f64,
    /// Cycles of the cores it ran on, while it ran.
    pub cycles: f64,
    /// How long the same instructions take alone on a core of the fastest kind with the memory near.
    pub alone: Nanos,
    /// Bytes to and from memory.
    pub memory_bytes: f64,
    /// Instructions weighted with the part of its memory that was on another node than it.
    pub far_instructions: f64,
    /// How often it was moved.
    pub moves: Moves,
}

/// How often a task came to another PU than the last one, by how far that was: each move counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// To a sibling PU.
    pub same_core: u32,
    /// To another core under the same last-level cache.
    pub same_cache: u32,
    /// To another last-level cache of the same node.
    pub same_node: u32,
    /// To another node.
    pub other_node: u32,
    /// Pages that came to another node, in bytes.
    pub page_bytes: u64,
}

impl Moves {
    /// All moves of the task.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.same_core + self.same_cache + self.same_node + self.other_node
    }
}

/// For how long tasks of two jobs ran on the same core at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Number of jobs.
    jobs: usize,
    /// Seconds, row by row; summed over all pairs of tasks, so that two pairs count twice.
    seconds: Vec<f64>,
}

impl Together {
    /// None yet.
    #[must_use]
    pub fn new(jobs: usize) -> Self {
        Self { jobs, seconds: vec![0.0; jobs * jobs] }
    }

    /// Adds a time for which a task of job `a` and another of job `b` shared a core.
    ///
    /// # Panics
    /// If there is no such job.
    pub fn add(&mut self, a: usize, b: usize, seconds: f64) {
        self.seconds[a * self.jobs + b] += seconds;
        if a != b {
            self.seconds[b * self.jobs + a] += seconds;
        }
    }

    /// Seconds for which tasks of `a` and `b` shared a core, summed over the pairs of tasks. Symmetric;
    /// on the diagonal pairs of tasks of the same job.
    ///
    /// # Panics
    /// If there is no such job.
    #[must_use]
    pub fn seconds(&self, a: usize, b: usize) -> f64 {
        self.seconds[a * self.jobs + b]
    }
}

/// How much of the machine was used, on average over the time from the first launch to the end; each
/// between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// PUs: part of the time that each ran a task.
    pub pus: Vec<f64>,
    /// Cores: part of the front end's slots.
    pub slots: Vec<f64>,
    /// Cores: part of the cycles of all their ports.
    pub ports: Vec<f64>,
    /// Memory controllers: part of the bandwidth.
    pub controllers: Vec<f64>,
    /// Links: part of the bandwidth.
    pub links: Vec<f64>,
    /// Levels of caches, nearest first: part of the bandwidth of each that serves a PU, on average over them.
    pub caches: Vec<LevelUse>,
    /// Ports that do the same or overlapping work, kind by kind of core.
    pub port_groups: Vec<PortGroupUse>,
}

/// How much of a level of caches was used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelUse {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Part of the bandwidth; `None` if the machine's description does not know it.
    pub used: Option<f64>,
}

/// How much ports that do the same or overlapping work were used, on average over all cores of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PortGroupUse {
    /// The kind of core.
    pub kind: String,
    /// Their names, as the machine's description has them.
    pub ports: Vec<String>,
    /// Part of their cycles, on average over them.
    pub used: f64,
    /// Part of the cycles of the fullest of them, with work spread as evenly as it can be.
    pub fullest: f64,
}

impl JobOutcome {
    /// How long its first run took; `None` if it did not end.
    #[must_use]
    pub fn took(&self) -> Option<Nanos> {
        Some(self.done?.saturating_sub(self.launched?))
    }

    /// `T_co / T_alone` of its first run; `None` if it did not end or its time alone is not known.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let alone = self.alone.filter(|&alone| alone > Nanos::ZERO)?;
        Some(self.took()?.as_secs_f64() / alone.as_secs_f64())
    }
}

impl TaskOutcome {
    /// Its progress: the part of its speed alone that it had while it lived and did not sleep; below 1
    /// because of waiting, of spinning, of siblings, of far memory. `None` if it never was ready.
    #[must_use]
    pub fn progress(&self) -> Option<f64> {
        let ready = (self.ran + self.waited).as_secs_f64();
        (ready > 0.0).then(|| self.alone.as_secs_f64() / ready)
    }

    /// Instructions per cycle while it ran; `None` if it never ran.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }
}
