//! A plan: place of every task, reason of every decision, predicted effect.

use crate::why::{Allocated, Selected};
use colocate_evidence::AddressRange;
use colocate_machine::{Bytes, Machine, Nanos, NodeNr, PuNr, SharedPart};
use colocate_model::{Class, Mix, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

pub use colocate_evidence::{JobIdx, Place, TaskId};

/// Version of the plan format in this build.
pub const VERSION: u32 = 2;

/// Largest number of partners in a reason. A core has at most seven sibling PUs (SMT-8); an eighth
/// partner means "and more". Full lists of thousands of tasks on a few PUs would grow with the
/// square of the number of tasks.
pub const MAX_PARTNERS: usize = 8;

/// A task with its known demands.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Identity of the task.
    pub id: TaskId,
    /// Job and thread name, for display.
    pub name: String,
    /// Instruction mix; every class unknown if the task was never watched.
    pub mix: Mix,
    /// Busy share: CPU time over life time, in 0 ..= 1; `None`: unknown. A mostly sleeping task
    /// puts little load on its core.
    pub busy: Option<f64>,
    /// Instructions per core cycle of run time, preferably measured alone; `None`: not counted.
    pub ipc: Option<f64>,
    /// Instructions executed in the profiled run; `None`: not counted.
    pub instructions: Option<u64>,
    /// Demand vector, if more than the mix is known.
    pub phase: Option<Phase>,
}

impl Task {
    /// Weight in 0 ..= 1: the busy share, or 1 if unknown. To take a busy task for an idle task
    /// costs more than the reverse.
    #[must_use]
    pub fn weight(&self) -> f64 {
        // `clamp` would keep a NaN.
        self.busy.filter(|busy| !busy.is_nan()).map_or(1.0, |busy| busy.clamp(0.0, 1.0))
    }

    /// Instructions per cycle, if known, finite and above 0.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.ipc.filter(|ipc| ipc.is_finite() && *ipc > 0.0)
    }

    /// Load of `class`: busy share × share of instructions, in 0 ..= 1; `None`: share unknown.
    #[must_use]
    pub fn load(&self, class: Class) -> Option<f64> {
        self.mix.get(class).map(|share| share.get() * self.weight())
    }

    /// Instructions of `class` per cycle of life time; `None` if the class's share or the
    /// instructions per cycle are unknown.
    #[must_use]
    pub fn per_cycle(&self, class: Class) -> Option<f64> {
        Some(self.load(class)? * self.rate()?)
    }

    /// Instructions of `class` in the profiled run; `None` if the class's share or the number of
    /// instructions is unknown.
    #[must_use]
    pub fn count(&self, class: Class) -> Option<f64> {
        Some(self.mix.get(class)?.get() * self.instructions? as f64)
    }
}

/// Unit of overlaps: the denominator of unit clashes, see the policy `mix`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Per pair of instructions, each from another task: some task's rate is unknown.
    #[default]
    PairOfInstructions,
    /// Per cycle.
    Cycle,
}

impl Per {
    /// Words to follow "unit clashes".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::PairOfInstructions => "per pair of instructions",
            Self::Cycle => "per cycle",
        }
    }

    const fn is_pair(&self) -> bool {
        matches!(self, Self::PairOfInstructions)
    }
}

/// Reason of a task's place. Shown by `--explain`, counted in reports.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Error)]
#[serde(tag = "why", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PlaceReason {
    /// The policy leaves every task to the kernel.
    #[error("left to the kernel")]
    LeftToKernel,
    /// Next PU in the order that the policy fills.
    #[error("next in order, {order}")]
    NextInOrder {
        /// Name of the order, e.g. "hwloc logical order".
        order: String,
    },
    /// Drawn by a seeded generator.
    #[error("drawn with seed {seed}")]
    Drawn {
        /// The seed.
        seed: u64,
    },
    /// Paired from both ends of the list sorted by `key` (Serpa et al., Algorithm 1).
    #[error("rank {rank} by {key}, {}", beside(partners))]
    HeadAndTail {
        /// Instruction class of the sort.
        #[cfg_attr(
            feature = "schema",
            schemars(extend("enum" = ["branch", "float", "int", "load", "store"]))
        )]
        key: String,
        /// Rank in the sorted list, from 0 for the least.
        rank: u32,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// Matched for the least overlap of the whole mixes of the tasks on a core.
    #[error("least overlap{}, {overlap:.4} {}", if per.is_pair() { "" } else { " per cycle" }, beside(partners))]
    Matched {
        /// Overlap with the tasks on the same core.
        overlap: f64,
        /// Unit of the overlap.
        #[serde(default, skip_serializing_if = "Per::is_pair")]
        per: Per,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// Matched for the least slowdown on a core that the contention model predicts.
    #[error("least predicted loss, {loss:.4} {}", beside(partners))]
    Modelled {
        /// Loss of the core's tasks, see the policy `symbiosis-model`. No unit.
        loss: f64,
        /// Tasks on sibling PUs, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
    },
    /// Shares a PU, or a core or cache that is as good, with tasks that alternate with it by
    /// wake-ups. On separate PUs the wake-ups would cost more than running at the same time would
    /// gain.
    #[error("takes turns with {}, on one PU all gain {gain:.3} s a second", named(partners))]
    TakesTurns {
        /// Alternating tasks there, the first [`MAX_PARTNERS`] by ID.
        partners: Vec<TaskId>,
        /// Expected gain of the whole group, in seconds per second.
        gain: f64,
    },
    /// Near its communication partners.
    #[error("near those that it communicates with, most with {partner}")]
    Near {
        /// Partner with the most communication.
        partner: TaskId,
    },
    /// On the node with most of the memory in use, or to which this memory moves.
    #[error("near the memory that it uses")]
    NearPages,
    /// Core of its own: there are at least as many cores as tasks.
    #[error("a core of its own")]
    OwnCore,
    /// Unknown mix, assumed to be the mean of the known mixes. The place is neither good nor bad
    /// for the tasks beside it.
    #[error("mix not known, taken as average")]
    Unknown,
    /// Not selected for this quantum: the machine has more jobs than should run at once.
    #[error("waits, others were selected for this quantum")]
    NotSelected,
    /// A scheduler selected the job for this quantum and allocated the PU.
    #[error("{selected}; {allocated}")]
    Chosen {
        /// Reason of the job's selection.
        selected: Selected,
        /// Reason of the PU.
        allocated: Allocated,
    },
    /// Time-shared PU: the machine has more tasks than PUs.
    #[error("takes turns with {} on its PU, {then}", tasks.saturating_sub(1))]
    TimeShared {
        /// Number of tasks on this PU in the plan. A plan that was not made here may say 0.
        tasks: u32,
        /// Reason of this PU.
        then: Box<PlaceReason>,
    },
}

fn beside(partners: &[TaskId]) -> String {
    if partners.is_empty() {
        return "no task on a sibling PU".to_owned();
    }
    format!("beside {}", named(partners))
}

fn named(partners: &[TaskId]) -> String {
    // The last partner of a full list only means that there are more.
    let shown = partners.iter().take(MAX_PARTNERS - 1);
    let names: Vec<String> = shown.map(ToString::to_string).collect();
    let more = if partners.len() < MAX_PARTNERS { "" } else { ", …" };
    format!("{}{more}", names.join(", "))
}

/// Place and reason of one task.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DecisionForm", into = "DecisionForm")]
pub struct Decision {
    /// The task.
    pub task: TaskId,
    /// Job and thread name, for display.
    pub name: Arc<str>,
    /// Place until the next decision.
    pub place: Place,
    /// The reason.
    pub why: PlaceReason,
}

/// Serialized form of a decision.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionForm {
    task: TaskId,
    name: String,
    pu: Option<PuNr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing: Option<SharedPart>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    waits: bool,
    why: PlaceReason,
}

impl From<Decision> for DecisionForm {
    fn from(Decision { task, name, place, why }: Decision) -> Self {
        let waits = place == Place::Waiting;
        let name = name.as_ref().into();
        Self { task, name, pu: place.named_pu(), sharing: place.shared(), waits, why }
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

/// Placement of tasks without a decision: tasks created after the plan.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DefaultPlacement {
    /// Affinity mask of the command.
    LeaveToKernel,
    /// PU of the list with the fewest living placed tasks; the earliest among equals.
    FillInOrder {
        /// PUs by the kernel's number, in the order to fill.
        pus: Vec<PuNr>,
    },
}

/// Slowdown of a task: run time together over run time alone on the same PU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// Under the default assumptions, the first in the list.
    pub usual: f64,
    /// Minimum over all assumptions.
    pub least: f64,
    /// Maximum over all assumptions.
    pub most: f64,
}

/// Place of every task, with reasons.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Name of the machine.
    pub machine: String,
    /// Kernel numbers of the usable PUs, in logical order.
    pub pus: Vec<PuNr>,
    /// Policy of the plan with its settings, e.g. `random:seed=7`.
    pub policy: String,
    /// One decision per task, in the order of task IDs.
    pub decisions: Vec<Decision>,
    /// Placement of tasks without a decision.
    pub default_placement: DefaultPlacement,
    /// Memory to move once, when the plan is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageMove>,
    /// Effect that the policy predicts, one sentence with its unit; `None`: no prediction.
    pub predicted: Option<String>,
    /// Slowdown of each decision's task by the contention model; `None` if not requested, or if the
    /// machine's speed is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdowns: Option<Vec<Slowdown>>,
    /// Momentary places before the plan is applied. The kernel goes on from there with threads that
    /// the plan leaves to the kernel. Empty for most policies.
    #[serde(skip)]
    pub initial: Vec<(TaskId, PuNr)>,
    /// Messages to the user, one line each, shown once each.
    #[serde(skip)]
    pub messages: Vec<String>,
    /// State of the policy, in one line; `None`: nothing to show.
    #[serde(skip)]
    pub state: Option<String>,
    /// Time until the next decision unless an event comes first; `None`: one quantum. Capped at one
    /// quantum where jobs may wait.
    #[serde(skip)]
    pub lasts: Option<Nanos>,
}

impl Default for Plan {
    /// Plan for no machine without a decision: all tasks are left to the kernel.
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

/// Order to move memory of a job to a node, carried out once when its plan is applied.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMove {
    /// Job whose memory moves, of all its processes.
    pub job: JobIdx,
    /// Address ranges to move; empty: all memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AddressRange>,
    /// Destination by kernel node number.
    pub to: NodeNr,
    /// Upper bound of the bytes moved.
    pub budget: Bytes,
    /// Reason, in one line.
    pub why: String,
}

/// Reason why a text is not a plan for this machine.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The text is not JSON in the plan format.
    #[error("expected a plan (docs/schemas/plan.json), found: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The plan has another format version.
    #[error("expected a plan of version {VERSION}, found version {0}; plan again")]
    Version(u64),
    /// A task of the plan is on a PU that is not online.
    #[error("expected a plan for this machine, found task {0} on {1}, which is not online here")]
    NoSuchPu(TaskId, PuNr),
    /// Decisions are not in the order of task IDs, or a task has two: task and task before.
    #[error(
        "expected one decision a task in the order of job and thread, found task {0} after {1}"
    )]
    OutOfOrder(TaskId, TaskId),
    /// A job cannot wait in part: a task that waits, and one that does not.
    #[error("expected all tasks of job {job} to wait or none, found {0} waiting and {1} not", job = .0.job.0)]
    PartlyWaiting(TaskId, TaskId),
}

impl Plan {
    /// Reads a plan from JSON text.
    ///
    /// # Errors
    /// [`PlanError::Version`] for another version, checked first; [`PlanError::Malformed`] for
    /// another format; [`PlanError::OutOfOrder`] if a task has two decisions or decisions are not
    /// in order; [`PlanError::PartlyWaiting`] if only a part of a job waits.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct PlanHeader {
            version: u64,
        }
        // The version first: another version may fail with a misleading error about its shape.
        let head: PlanHeader = serde_json::from_str(text)?;
        if head.version != u64::from(VERSION) {
            return Err(PlanError::Version(head.version));
        }
        let plan: Self = serde_json::from_str(text)?;
        let mut pairs = plan.decisions.windows(2).map(|pair| (pair[0].task, pair[1].task));
        match pairs.find(|(before, task)| before >= task) {
            Some((before, task)) => Err(PlanError::OutOfOrder(task, before)),
            None => plan.waiting().map(|_| plan),
        }
    }

    /// Whether a task is put on one PU or several, or a task that is created later.
    #[must_use]
    pub fn places_any(&self) -> bool {
        self.default_placement != DefaultPlacement::LeaveToKernel
            || self.decisions.iter().any(|decision| decision.place.named_pu().is_some())
    }

    /// Waiting jobs, in order. No task of a waiting job runs, whether the plan names the task or
    /// not.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if only a part of a job waits.
    pub fn waiting(&self) -> Result<Vec<JobIdx>, PlanError> {
        let mut jobs = Vec::new();
        for of_job in self.decisions.chunk_by(|a, b| a.task.job == b.task.job) {
            let waiting = of_job.iter().find(|decision| decision.place == Place::Waiting);
            let running = of_job.iter().find(|decision| decision.place != Place::Waiting);
            match (waiting, running) {
                (Some(waits), Some(runs)) => {
                    return Err(PlanError::PartlyWaiting(waits.task, runs.task));
                }
                (Some(waits), None) => jobs.push(waits.task.job),
                (None, _) => {}
            }
        }
        Ok(jobs)
    }

    /// True if the plan measures a job's speed on cores of its own. Then no further job may fill
    /// PUs that the plan leaves idle.
    #[must_use]
    pub fn measures(&self) -> bool {
        self.decisions
            .iter()
            .any(|it| matches!(it.why, PlaceReason::Chosen { selected: Selected::Estimated, .. }))
    }

    /// Reason of selection of each job that a scheduler chose for this quantum.
    #[must_use]
    pub fn selected(&self) -> BTreeMap<JobIdx, &Selected> {
        let chosen = self.decisions.iter().filter_map(|decision| match &decision.why {
            PlaceReason::Chosen { selected, .. } => Some((decision.task.job, selected)),
            _ => None,
        });
        chosen.collect()
    }

    /// Plan with the initial places; other threads keep their place, and no memory moves.
    #[must_use]
    pub fn initially(&self) -> Self {
        let mut plan = Self { pages: Vec::new(), ..self.clone() };
        for (task, pu) in &self.initial {
            let at = plan.decisions.binary_search_by_key(task, |decision| decision.task);
            let decision = at.ok().map(|at| &mut plan.decisions[at]);
            if let Some(decision) =
                decision.filter(|it| matches!(it.why, PlaceReason::Chosen { .. }))
            {
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
    /// [`PlanError::NoSuchPu`] with the first PU that is not online.
    pub fn check_against(&self, machine: &Machine) -> Result<(), PlanError> {
        let mut named =
            self.decisions.iter().filter_map(|it| Some((it.task, it.place.named_pu()?)));
        let missing = named.find(|(_, pu)| machine.pu_by_os(*pu).is_none());
        missing.map_or(Ok(()), |(task, pu)| Err(PlanError::NoSuchPu(task, pu)))
    }

    /// Place of `task`; `None` without a decision. A job waits as a whole, so a task without a
    /// decision waits if its job waits.
    #[must_use]
    pub fn place_of(&self, task: TaskId) -> Option<Place> {
        let beside = match self.decisions.binary_search_by_key(&task, |decision| decision.task) {
            Ok(at) => return Some(self.decisions[at].place),
            // Decisions are sorted, so a decision of the same job is a neighbour.
            Err(at) => self.decisions[at.saturating_sub(1)..].iter().take(2),
        };
        let mut of_job = beside.filter(|decision| decision.task.job == task.job);
        of_job.find(|decision| decision.place == Place::Waiting).map(|decision| decision.place)
    }
}
