//! Targets of tasks under the plan in force, and the PUs that these allow.

use crate::hotplug::UsablePus;
use crate::task::TaskNo;
use colocate_evidence::{PlacementStatus, TaskId};
use colocate_machine::{NodeIdx, PuIdx, PuNr, SharedPart};
use colocate_policy::{DefaultPlacement, Place, Plan};
use std::sync::Arc;

/// Target of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskTarget {
    /// A PU.
    Pu(PuIdx),
    /// All PUs sharing a resource with a PU.
    Sharing(SharedPart, PuIdx),
    /// A PU offline or excluded from the scenario.
    Unusable(PuNr),
    /// Any PU: left to the kernel, or its job waits.
    Kernel,
    /// None in the plan; the plan's default placement applies.
    DefaultPlacement,
}

/// PUs that are allowed for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// All usable PUs.
    All,
    /// A single PU.
    Pu(PuIdx),
    /// A proper part of the usable PUs, in logical order.
    Among(Arc<[PuIdx]>),
}

/// Facts about a task that its allowed PUs depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Whether its job is stopped.
    pub is_stopped: bool,
    /// Node on which it stays by its own choice.
    pub stays_on: Option<usize>,
}

/// Targets of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// By task.
    of: Vec<TaskTarget>,
    /// By task.
    pub allowed: Vec<Allowed>,
    /// PUs for tasks outside of the plan; `None` for the kernel's choice.
    fill: Option<Vec<PuIdx>>,
}

impl Targets {
    /// No plan, for this many tasks.
    pub fn new(tasks: usize) -> Self {
        let of = vec![TaskTarget::DefaultPlacement; tasks];
        Self { of, allowed: vec![Allowed::All; tasks], fill: None }
    }

    /// Sets the targets of all tasks, which `ids` names in order. Allowed PUs stay.
    pub fn set(&mut self, plan: &Plan, ids: impl Iterator<Item = TaskId>, pus: &UsablePus<'_>) {
        self.fill = match &plan.default_placement {
            DefaultPlacement::LeaveToKernel => None,
            DefaultPlacement::FillInOrder { pus: fill } => {
                Some(fill.iter().filter_map(|&pu| pus.by_os(pu)).collect())
            }
        };
        for (target, id) in self.of.iter_mut().zip(ids) {
            *target = match plan.place_of(id) {
                None => TaskTarget::DefaultPlacement,
                Some(Place::LeftToKernel | Place::Waiting) => TaskTarget::Kernel,
                Some(Place::Pu(pu)) => {
                    pus.by_os(pu).map_or(TaskTarget::Unusable(pu), TaskTarget::Pu)
                }
                Some(Place::Sharing(shared, pu)) => match pus.by_os(pu) {
                    Some(of) => TaskTarget::Sharing(shared, of),
                    None => TaskTarget::Unusable(pu),
                },
            };
        }
    }

    /// The single PU allowed for a task; `None` for several.
    pub fn pinned(&self, task: TaskNo) -> Option<PuIdx> {
        match self.allowed[task] {
            Allowed::Pu(pu) => Some(pu),
            Allowed::All | Allowed::Among(_) => None,
        }
    }

    /// Whether a task is allowed on all PUs.
    pub fn is_unbound(&self, task: TaskNo) -> bool {
        self.allowed[task] == Allowed::All
    }

    /// Whether a task is allowed on a PU.
    pub fn may_be_on(&self, task: TaskNo, pu: PuIdx) -> bool {
        match &self.allowed[task] {
            Allowed::All => true,
            Allowed::Pu(pinned) => *pinned == pu,
            Allowed::Among(among) => among.contains(&pu),
        }
    }

    /// Pins a task to its target, or unpins the task. `is_alive` says of other tasks whether they
    /// keep their PUs. Whether the allowed PUs have changed.
    pub fn update(
        &mut self,
        task: TaskNo,
        facts: Facts,
        pus: &UsablePus<'_>,
        is_alive: impl Fn(TaskNo) -> bool,
    ) -> bool {
        let pinned = match self.of[task] {
            _ if facts.is_stopped => None,
            TaskTarget::Pu(pu) => Some(pu).filter(|pu| pus.has(*pu)),
            TaskTarget::Kernel | TaskTarget::Unusable(_) | TaskTarget::Sharing(..) => None,
            TaskTarget::DefaultPlacement => self.default_pu(task, pus, is_alive),
        };
        let allowed = pinned.map_or_else(|| self.several(task, facts, pus), Allowed::Pu);
        let before = std::mem::replace(&mut self.allowed[task], allowed);
        before != self.allowed[task]
    }

    /// Frees a task from offline PUs.
    pub fn leave_offline(&mut self, task: TaskNo, facts: Facts, pus: &UsablePus<'_>) {
        if self.pinned(task).is_none_or(|pu| !pus.has(pu)) {
            // A set of PUs that share a cache or node loses those that are offline.
            self.allowed[task] = self.several(task, facts, pus);
        }
    }

    /// Allowed PUs of a task that is not pinned.
    fn several(&self, task: TaskNo, facts: Facts, pus: &UsablePus<'_>) -> Allowed {
        let machine = pus.machine();
        let mut part = match (self.of[task], facts.stays_on) {
            (TaskTarget::Sharing(shared, pu), _) => machine.sharing(shared, pu),
            (TaskTarget::DefaultPlacement, Some(node)) if self.fill.is_none() => {
                machine.home_pus(NodeIdx::new(node)).collect()
            }
            (TaskTarget::Kernel, Some(node)) => machine.home_pus(NodeIdx::new(node)).collect(),
            _ => return Allowed::All,
        };
        part.retain(|pu| pus.has(*pu));
        let is_part = !part.is_empty() && part.len() < pus.iter().count() && !facts.is_stopped;
        if is_part { Allowed::Among(part.into()) } else { Allowed::All }
    }

    /// PU of a task outside of the plan: its present PU if among the PUs to fill, else the first
    /// with the fewest placed tasks. `None` if left to the kernel.
    fn default_pu(
        &self,
        task: TaskNo,
        pus: &UsablePus<'_>,
        is_alive: impl Fn(TaskNo) -> bool,
    ) -> Option<PuIdx> {
        let fill = self.fill.as_ref()?;
        if let Some(kept) = self.pinned(task).filter(|pu| fill.contains(pu)) {
            return Some(kept);
        }
        let mut placed = vec![0_u32; pus.machine().pus.len()];
        let others = (0..self.of.len()).filter(|&other| other != task && is_alive(other));
        for pu in others.filter_map(|other| self.pinned(other)) {
            placed[pu.idx()] += 1;
        }
        let usable = fill.iter().copied().filter(|pu| pus.has(*pu));
        usable.min_by_key(|pu| placed[pu.idx()])
    }

    /// Target of a task that does not wait, and its placement status.
    pub fn status(&self, task: TaskNo, pus: &UsablePus<'_>) -> (Place, PlacementStatus) {
        let trouble = match (self.of[task], &self.allowed[task]) {
            (TaskTarget::Unusable(pu), _) => format!("expected a PU that can be used, found {pu}"),
            (_, Allowed::Pu(pu)) => return (Place::Pu(pus.os(*pu)), PlacementStatus::Placed),
            (TaskTarget::Pu(pu), _) => format!("its place {} has gone offline", pus.os(pu)),
            (TaskTarget::Sharing(shared, pu), Allowed::Among(_)) => {
                return (Place::Sharing(shared, pus.os(pu)), PlacementStatus::Placed);
            }
            _ => return (Place::LeftToKernel, PlacementStatus::LeftToKernel),
        };
        (Place::LeftToKernel, PlacementStatus::Trouble(trouble))
    }
}
