//! A plan: a place for every task, the reason of every choice, the predicted effect.

use crate::pages::PageMove;
use crate::why::{Allocated, Selected};
use colocate_machine::{Machine, Nanos, PuNr, Shared};
use colocate_model::{Class, Mix, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

pub use colocate_evidence::{JobIdx, Place, TaskId};

/// Version of the plan format that this build reads and writes.
pub const VERSION: u32 = 2;

/// The most partners that a reason holds. A core has at most seven others while each task has a PU of
/// its own (SMT-8); an eighth says that there are more. With thousands of tasks on a few PUs, lists
/// of all of them would grow with the square of their number.
pub const MAX_PARTNERS: usize = 8;

/// What is known of one task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Which task.
    pub id: TaskId,
    /// Job and thread name, for display.
    pub name: String,
    /// Its instruction mix; every class unknown if it was never watched.
    pub mix: Mix,
    /// How busy it is: CPU time over life time, in 0 ..= 1; `None` if unknown. A task that mostly
    /// sleeps stresses nothing.
    pub busy: Option<f64>,
    /// Instructions per cycle of its core while it runs, best alone; `None` if they were not counted.
    pub ipc: Option<f64>,
    /// Its demand vector, if there is more to say than its mix.
    pub phase: Option<Phase>,
}

impl Task {
    /// How much the task counts, in 0 ..= 1: its busy share; 1 if that is unknown, since taking a busy
    /// task for an idle one costs more than the reverse.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.busy.filter(|busy| !busy.is_nan()).map_or(1.0, |busy| busy.clamp(0.0, 1.0))
    }

    /// Its instructions per cycle, if that is known and a number above 0.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.ipc.filter(|ipc| ipc.is_finite() && *ipc > 0.0)
    }

    /// How much it does of `class`: busy share × share of instructions, in 0 ..= 1; `None` if its
    /// share is unknown.
    #[must_use]
    pub fn load(&self, class: Class) -> Option<f64> {
        self.mix.get(class).map(|share| share.get() * self.weight())
    }

    /// How many instructions of `class` it executes in a cycle of the time that it is there; `None` if its share or its
    /// instructions per cycle are unknown.
    #[must_use]
    pub fn instructions(&self, class: Class) -> Option<f64> {
        Some(self.load(class)? * self.rate()?)
    }
}

/// What overlaps are counted in: unit clashes per what; see the policy `mix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Per pair of instructions, one of each task: rates are not known of all tasks.
    #[default]
    PairOfInstructions,
    /// Per cycle.
    Cycle,
}

impl Per {
    /// In words, behind "unit clashes".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::PairOfInstructions => "per pair of instructions",
            Self::Cycle => "per cycle",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
    const fn is_pair(&self) -> bool {
        matches!(self, Self::PairOfInstructions)
    }
}

/// Why a task is where it is. Shown by `--explain`, counted in reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Why {
    /// The policy leaves every task to the kernel.
    LeftToKernel,
    /// Next PU in the order that the policy fills.
    NextInOrder {
        /// What the order is, e.g. "hwloc logical order".
        order: String,
    },
    /// Drawn by a seeded generator.
    Drawn {
        /// The seed.
        seed: u64,
    },
    /// Paired from both ends of the list sorted by `key` (Serpa et al., Algorithm 1).
    HeadAndTail {
        /// The class that the list was sorted by.
        key: String,
        /// This task's place in the sorted list, from 0 for the least.
        rank: u32,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// Matched so that the whole mixes of the tasks of a core overlap least.
    Matched {
        /// Overlap with the tasks that share the core.
        overlap: f64,
        /// In which unit.
        #[serde(default, skip_serializing_if = "Per::is_pair")]
        per: Per,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// Matched so that the tasks of a core slow each other down least, as the contention model predicts.
    Modelled {
        /// Loss of its core's tasks; see the policy `symbiosis-model`. No unit.
        loss: f64,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// It takes turns with others that it wakes or that wake it. On different PUs their wake-ups would cost more than they would
    /// gain by running at the same time.
    TakesTurns {
        /// The tasks on its PU with which it does so, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
        /// Seconds a second that all of them are expected to gain.
        gain: f64,
    },
    /// It is near tasks that it communicates with.
    Near {
        /// The one with which it does so most.
        partner: TaskId,
    },
    /// Most of the memory that it uses is on that node, or comes there.
    NearPages,
    /// There are at least as many cores as tasks, so it has a core of its own.
    OwnCore,
    /// Its mix is not known. It was taken to be like the mean of the others, and so got a place that
    /// is neither good nor bad for them.
    Unknown,
    /// There are more jobs than the machine should run at once, and others were selected for this quantum.
    NotSelected,
    /// A scheduler chose its job for this quantum, and this place for it.
    Chosen {
        /// Why the job runs.
        selected: Selected,
        /// Why it is on its PU.
        allocated: Allocated,
    },
    /// There are more tasks than PUs: it takes turns with others on this PU.
    TimeShared {
        /// How many tasks have this PU in the plan.
        tasks: u32,
        /// Why this PU.
        then: Box<Why>,
    },
}

impl fmt::Display for Why {
    /// The reason in words, one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftToKernel => f.write_str("left to the kernel"),
            Self::NextInOrder { order } => write!(f, "next in order, {order}"),
            Self::Drawn { seed } => write!(f, "drawn with seed {seed}"),
            Self::HeadAndTail { key, rank, partners } => {
                write!(f, "rank {rank} by {key}, {}", beside(partners))
            }
            Self::Matched { overlap, per: Per::PairOfInstructions, partners } => {
                write!(f, "least overlap, {overlap:.4} {}", beside(partners))
            }
            Self::Matched { overlap, per: Per::Cycle, partners } => {
                write!(f, "least overlap per cycle, {overlap:.4} {}", beside(partners))
            }
            Self::Modelled { loss, partners } => {
                write!(f, "least predicted loss, {loss:.4} {}", beside(partners))
            }
            Self::TakesTurns { partners, gain } => {
                let names = named(partners);
                write!(f, "takes turns with {names}, on one PU all gain {gain:.3} s a second")
            }
            Self::Near { partner } => {
                write!(f, "near those that it communicates with, most with {partner}")
            }
            Self::NearPages => f.write_str("near the memory that it uses"),
            Self::OwnCore => f.write_str("a core of its own"),
            Self::Unknown => f.write_str("mix not known, taken as average"),
            Self::NotSelected => f.write_str("waits, others were selected for this quantum"),
            Self::Chosen { selected, allocated } => write!(f, "{selected}; {allocated}"),
            Self::TimeShared { tasks, then } => {
                // A plan that was not made here may say 0.
                write!(f, "takes turns with {} on its PU, {then}", tasks.saturating_sub(1))
            }
        }
    }
}

fn beside(partners: &[TaskId]) -> String {
    if partners.is_empty() {
        return "no task on a sibling PU".to_owned();
    }
    format!("beside {}", named(partners))
}

fn named(partners: &[TaskId]) -> String {
    let shown = partners.iter().take(MAX_PARTNERS - 1);
    let names: Vec<String> = shown.map(ToString::to_string).collect();
    let more = if partners.len() < MAX_PARTNERS { "" } else { ", …" };
    format!("{}{more}", names.join(", "))
}

/// Where one task goes, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DecisionForm", into = "DecisionForm")]
pub struct Decision {
    /// The task.
    pub task: TaskId,
    /// Job and thread name, for display.
    pub name: Arc<str>,
    /// Where it may be.
    pub place: Place,
    /// The reason.
    pub why: Why,
}

/// A decision as it is written: plans were made before tasks could wait, and are still read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionForm {
    task: TaskId,
    name: String,
    pu: Option<PuNr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing: Option<Shared>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    waits: bool,
    why: Why,
}

impl From<Decision> for DecisionForm {
    fn from(Decision { task, name, place, why }: Decision) -> Self {
        let waits = place == Place::Waiting;
        let (pu, sharing) = (place.named_pu(), place.shared());
        Self { task, name: name.as_ref().into(), pu, sharing, waits, why }
    }
}

impl TryFrom<DecisionForm> for Decision {
    type Error = String;

    fn try_from(form: DecisionForm) -> Result<Self, String> {
        let DecisionForm { task, name, pu, sharing, waits, why } = form;
        let place = match (pu, sharing) {
            (Some(pu), _) if waits => return Err(format!("task {task} waits and is on {pu}")),
            (None, Some(shared)) => {
                return Err(format!("task {task} shares a {shared} with no PU"));
            }
            (None, None) if waits => Place::Waiting,
            (Some(pu), Some(shared)) => Place::Sharing(shared, pu),
            (pu, None) => Place::from(pu),
        };
        Ok(Self { task, name: name.into(), place, why })
    }
}

/// What becomes of tasks that the plan does not name: those created before the next decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DefaultPlacement {
    /// They may run wherever the command was allowed to run.
    LeaveToKernel,
    /// They take the PU of this list with the fewest living placed tasks; the earliest in the list
    /// if several have as few.
    FillInOrder {
        /// PUs by the kernel's number, in the order to fill.
        pus: Vec<PuNr>,
    },
}

/// How much slower a task is than alone on the same PU: time beside the others over time alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// With the first assumptions, the usual ones.
    pub usual: f64,
    /// The least of all assumptions.
    pub least: f64,
    /// The most of all assumptions.
    pub most: f64,
}

/// A place for every task, with reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Name of the machine it is for.
    pub machine: String,
    /// The kernel's numbers of the PUs that the plan was allowed to use, in logical order.
    pub pus: Vec<PuNr>,
    /// The policy that made it, with its settings, e.g. `random:seed=7`.
    pub policy: String,
    /// One decision a task, in the order of the tasks' IDs.
    pub decisions: Vec<Decision>,
    /// What becomes of tasks that are not named.
    pub default_placement: DefaultPlacement,
    /// Memory that is to be moved, once, when the plan comes into force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageMove>,
    /// What the policy expects of the plan, one sentence with its unit; `None` if it does not say.
    pub predicted: Option<String>,
    /// What the contention model expects of each decision's task, in their order; `None` if it is not
    /// requested, or it is not known how fast the machine is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdowns: Option<Vec<Slowdown>>,
    /// Where threads are put for a moment before the plan is in force, whatever it says of them: from there the kernel goes
    /// on with those that are left to it. Most policies leave them where they are.
    #[serde(skip)]
    pub initial: Vec<(TaskId, PuNr)>,
    /// For the user, now: one line each, and each once.
    #[serde(skip)]
    pub messages: Vec<String>,
    /// State of the policy, in one line.
    #[serde(skip)]
    pub state: Option<String>,
    /// For how long there is nothing to decide, unless something happens; `None` for one quantum. Where jobs may wait, a quantum is
    /// at most as long as all are.
    #[serde(skip)]
    pub lasts: Option<Nanos>,
}

impl Default for Plan {
    /// For no machine, and without a decision: all tasks are left to the kernel.
    fn default() -> Self {
        Self {
            version: VERSION,
            machine: String::new(),
            pus: Vec::new(),
            policy: String::new(),
            decisions: Vec::new(),
            default_placement: DefaultPlacement::LeaveToKernel,
            pages: Vec::new(),
            predicted: None,
            slowdowns: None,
            initial: Vec::new(),
            messages: Vec::new(),
            state: None,
            lasts: None,
        }
    }
}

/// Why a text is not a plan for this machine.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The text is not JSON of the plan's shape.
    #[error("expected a plan (docs/schemas/plan.json), found: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The plan is of another format version.
    #[error("expected a plan of version {VERSION}, found version {found}; plan again")]
    Version {
        /// The version in the text.
        found: u64,
    },
    /// The plan names a PU that the machine does not have online.
    #[error(
        "expected a plan for this machine, found task {task} on {pu}, which is not online here"
    )]
    NoSuchPu {
        /// The task.
        task: TaskId,
        /// The missing PU.
        pu: PuNr,
    },
    /// Decisions are not in the order of the tasks' IDs, or two are about the same task.
    #[error(
        "expected one decision a task in the order of job and thread, found task {task} after {before}"
    )]
    OutOfOrder {
        /// The task that is out of order.
        task: TaskId,
        /// The one before it.
        before: TaskId,
    },
    /// A job cannot wait in part.
    #[error("expected all tasks of job {} to wait or none, found {waits} waiting and {runs} not", .waits.job.0)]
    PartlyWaiting {
        /// A task that waits.
        waits: TaskId,
        /// One of the same job that does not.
        runs: TaskId,
    },
}

impl Plan {
    /// Reads a plan from JSON text.
    ///
    /// # Errors
    /// [`PlanError::Version`] for another version, whatever else the text holds;
    /// [`PlanError::Malformed`] for another shape; [`PlanError::OutOfOrder`] if a task has two places
    /// or the decisions are not in order; [`PlanError::PartlyWaiting`] if one task of a job waits and another
    /// does not.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.version != u64::from(VERSION) {
            return Err(PlanError::Version { found: head.version });
        }
        let plan: Self = serde_json::from_str(text)?;
        let mut pairs = plan.decisions.windows(2).map(|pair| (pair[0].task, pair[1].task));
        match pairs.find(|(before, task)| before >= task) {
            Some((before, task)) => Err(PlanError::OutOfOrder { task, before }),
            None => plan.waiting().map(|_| plan),
        }
    }

    /// The jobs that wait, in order: none of their tasks runs, whether the plan names it or not.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if a job is to wait in part.
    pub fn waiting(&self) -> Result<Vec<JobIdx>, PlanError> {
        let mut jobs = Vec::new();
        for of_job in self.decisions.chunk_by(|a, b| a.task.job == b.task.job) {
            let place = |waits: bool| {
                of_job.iter().find(|decision| (decision.place == Place::Waiting) == waits)
            };
            match (place(true), place(false)) {
                (Some(waits), Some(runs)) => {
                    return Err(PlanError::PartlyWaiting { waits: waits.task, runs: runs.task });
                }
                (Some(waits), None) => jobs.push(waits.task.job),
                (None, _) => {}
            }
        }
        Ok(jobs)
    }

    /// Whether it finds out how fast a job is on cores of its own: then no other job may fill PUs that it leaves idle.
    #[must_use]
    pub fn measures(&self) -> bool {
        let measured = |why: &Why| matches!(why, Why::Chosen { selected: Selected::Estimated, .. });
        self.decisions.iter().any(|decision| measured(&decision.why))
    }

    /// Why each job runs that a scheduler chose for this quantum, by job.
    #[must_use]
    pub fn selected(&self) -> BTreeMap<JobIdx, &Selected> {
        let chosen = self.decisions.iter().filter_map(|decision| match &decision.why {
            Why::Chosen { selected, .. } => Some((decision.task.job, selected)),
            _ => None,
        });
        chosen.collect()
    }

    /// The plan that puts threads at their initial places; the others are where this plan has them, and no memory is moved.
    #[must_use]
    pub fn initially(&self) -> Self {
        let mut plan = Self { pages: Vec::new(), ..self.clone() };
        for (task, pu) in &self.initial {
            let at = plan.decisions.binary_search_by_key(task, |decision| decision.task);
            let decision = at.ok().map(|at| &mut plan.decisions[at]);
            if let Some(decision) = decision.filter(|it| matches!(it.why, Why::Chosen { .. })) {
                decision.place = Place::Pu(*pu);
            }
        }
        plan
    }

    /// The plan as JSON text, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }

    /// Checks that every PU of the plan is online on `machine`.
    ///
    /// # Errors
    /// [`PlanError::NoSuchPu`] with the first PU that is not.
    pub fn check_against(&self, machine: &Machine) -> Result<(), PlanError> {
        for decision in &self.decisions {
            let named = decision.place.named_pu();
            if let Some(pu) = named.filter(|&pu| machine.pu_by_os(pu).is_none()) {
                return Err(PlanError::NoSuchPu { task: decision.task, pu });
            }
        }
        Ok(())
    }

    /// The place of `task`; `None` if the plan does not name it. A job waits with all its tasks, so those that are not
    /// named wait with those that are.
    #[must_use]
    pub fn place_of(&self, task: TaskId) -> Option<Place> {
        let beside = match self.decisions.binary_search_by_key(&task, |decision| decision.task) {
            Ok(at) => return Some(self.decisions[at].place),
            Err(at) => self.decisions[at.saturating_sub(1)..].iter().take(2),
        };
        let mut of_job = beside.filter(|decision| decision.task.job == task.job);
        of_job.find(|decision| decision.place == Place::Waiting).map(|decision| decision.place)
    }
}
