//! Outcome of a simulation: times, counts and use of the machine.

use colocate_evidence::{TaskId, TaskSpan};
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::Assumptions;

/// Outcome of a simulation. All figures are simulated; nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Name of the machine.
    pub machine: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// Assumptions of the model.
    pub assumptions: Assumptions,
    /// The machine's clock at the end.
    pub lasted: Nanos,
    /// Whether every job did its work before the horizon.
    pub complete: bool,
    /// The jobs, in the scenario's order.
    pub jobs: Vec<JobOutcome>,
    /// All created tasks, in the order of their IDs.
    pub tasks: Vec<TaskOutcome>,
    /// Time that tasks shared a core: the frequency matrix of Feliu's slides.
    pub together: Together,
    /// How much of the machine was used.
    pub used: Used,
    /// Spans of tasks on PUs, in the order of their ends; empty if not recorded.
    pub spans: Vec<TaskSpan>,
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Name of the job.
    pub name: String,
    /// Time of the launch; `None` if the simulation ended before.
    pub launched: Option<Nanos>,
    /// Time of the first end of its work; `None` if never.
    pub done: Option<Nanos>,
    /// Finished runs.
    pub runs: u32,
    /// Time of the work with nothing else on the machine and threads placed by the kernel; `None`
    /// if not simulated.
    pub alone: Option<Nanos>,
}

/// Outcome of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    /// Job and order of creation.
    pub id: TaskId,
    /// Job and thread name.
    pub name: String,
    /// Time of its first creation.
    pub created: Nanos,
    /// Time of its last end; at the latest the simulation's.
    pub ended: Nanos,
    /// Time on a PU.
    pub ran: Nanos,
    /// Part of `ran` spent spinning at a barrier.
    pub spun: Nanos,
    /// Time runnable without a PU, or with its job stopped.
    pub waited: Nanos,
    /// Time asleep, at barriers too.
    pub slept: Nanos,
    /// Instructions, spinning left out.
    pub instructions: f64,
    /// Cycles of its cores during `ran`.
    pub cycles: f64,
    /// Time of the same instructions alone, on a core of the fastest kind with its memory near.
    pub alone: Nanos,
    /// Bytes to and from memory.
    pub memory_bytes: f64,
    /// Instructions, each times the share of the task's memory on another node.
    pub far_instructions: f64,
    /// Moves to other PUs.
    pub moves: Moves,
}

/// Moves of a task to another PU than its last, by distance; each counts once.
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
    /// Bytes of its pages moved to another node.
    pub page_bytes: u64,
}

impl Moves {
    /// All moves of the task.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.same_core + self.same_cache + self.same_node + self.other_node
    }

    /// Counts a move between PUs, by distance.
    pub(crate) fn count(&mut self, machine: &Machine, from: PuIdx, to: PuIdx) {
        let core_from = machine.core_of(from);
        let core_to = machine.core_of(to);
        let cache_from = machine.last_level_cache(from);
        if core_from == core_to {
            self.same_core += 1;
        } else if cache_from.is_some() && cache_from == machine.last_level_cache(to) {
            self.same_cache += 1;
        } else if machine.cores[core_from.idx()].node == machine.cores[core_to.idx()].node {
            self.same_node += 1;
        } else {
            self.other_node += 1;
        }
    }
}

/// Time during which tasks of two jobs shared a core.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Number of jobs.
    jobs: usize,
    /// Seconds, row by row, summed over all pairs of tasks: two pairs at a time count twice.
    seconds: Vec<f64>,
}

impl Together {
    /// No time yet, for this many jobs.
    #[must_use]
    pub fn new(jobs: usize) -> Self {
        Self { jobs, seconds: vec![0.0; jobs * jobs] }
    }

    /// Adds seconds during which a task of job `a` and another of job `b` shared a core.
    ///
    /// # Panics
    /// If a job is not among them.
    pub fn add(&mut self, a: usize, b: usize, seconds: f64) {
        self.seconds[a * self.jobs + b] += seconds;
        // The diagonal must not count twice.
        if a != b {
            self.seconds[b * self.jobs + a] += seconds;
        }
    }

    /// Seconds during which tasks of `a` and `b` shared a core, summed over the pairs of tasks.
    /// Symmetric; the diagonal has pairs of tasks of the same job.
    ///
    /// # Panics
    /// If a job is not among them.
    #[must_use]
    pub fn seconds(&self, a: usize, b: usize) -> f64 {
        self.seconds[a * self.jobs + b]
    }
}

/// Mean use of the machine from the first launch to the end, each as a part between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// By PU: part of the time with a running task.
    pub pus: Vec<f64>,
    /// By core: part of the front end's slots.
    pub slots: Vec<f64>,
    /// By core: part of the cycles of all its ports.
    pub ports: Vec<f64>,
    /// By memory controller: part of the bandwidth.
    pub controllers: Vec<f64>,
    /// By link: part of the bandwidth.
    pub links: Vec<f64>,
    /// By cache level, nearest first.
    pub caches: Vec<LevelUse>,
    /// By kind of core and group of ports with the same or overlapping work.
    pub port_groups: Vec<PortGroupUse>,
}

/// Use of a level of caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelUse {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Part of the bandwidth, mean over the level's caches; `None` if the bandwidth is not
    /// described.
    pub used: Option<f64>,
}

/// Use of ports with the same or overlapping work, mean over all cores of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PortGroupUse {
    /// Name of the kind of core.
    pub kind: String,
    /// Names of the ports, as described.
    pub ports: Vec<String>,
    /// Part of the ports' cycles, mean over the ports.
    pub used: f64,
    /// Part of the fullest port's cycles, with work spread as evenly as possible.
    pub fullest: f64,
}

impl JobOutcome {
    /// Time of its first run; `None` if unfinished.
    #[must_use]
    pub fn took(&self) -> Option<Nanos> {
        Some(self.done?.saturating_sub(self.launched?))
    }

    /// `T_co / T_alone` of its first run; `None` if unfinished, or if its time alone is unknown.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let alone = self.alone.filter(|&alone| alone > Nanos::ZERO)?;
        Some(self.took()?.as_secs_f64() / alone.as_secs_f64())
    }
}

impl TaskOutcome {
    /// Progress: its speed while runnable, relative to alone. Below 1 because of waits, spinning,
    /// siblings and far memory. `None` if never runnable.
    #[must_use]
    pub fn progress(&self) -> Option<f64> {
        let ready = (self.ran + self.waited).as_secs_f64();
        (ready > 0.0).then(|| self.alone.as_secs_f64() / ready)
    }

    /// Instructions per cycle; `None` without cycles.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }
}
