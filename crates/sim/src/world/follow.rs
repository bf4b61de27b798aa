//! Applies a plan: the target of each task.

use crate::targets::Target;
use crate::task::{State, Task, TaskNo};
use crate::world::World;
use colocate_evidence::{JobIdx, PlacementStatus};
use colocate_machine::{NodeIdx, PuIdx, PuNr};
use colocate_policy::{DefaultPlacement, Place, Plan, PlanError};
use std::sync::Arc;

impl World<'_> {
    /// Puts the plan in force: moves the living tasks, and keeps the targets of tasks to be
    /// created.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if only a part of a job is to wait; nothing has changed then.
    pub fn follow(&mut self, plan: &Plan) -> Result<(), PlanError> {
        // First of all, as it is the only step that can fail.
        let waiting = plan.waiting()?;
        self.targets.fill = match &plan.default_placement {
            DefaultPlacement::LeaveToKernel => None,
            DefaultPlacement::FillInOrder { pus } => {
                Some(pus.iter().filter_map(|&pu| self.usable_pu(pu)).collect())
            }
        };
        for task in 0..self.tasks.len() {
            self.targets.of[task] = match plan.place_of(self.tasks[task].id) {
                None => Target::DefaultPlacement,
                Some(Place::LeftToKernel | Place::Waiting) => Target::Kernel,
                Some(Place::Pu(pu)) => self.usable_pu(pu).map_or(Target::Unusable(pu), Target::Pu),
                Some(Place::Sharing(shared, pu)) => match self.usable_pu(pu) {
                    Some(of) => Target::Sharing(shared, of),
                    None => Target::Unusable(pu),
                },
            };
        }
        let fillers = self.fillers(&waiting, plan);
        let stopped: Vec<JobIdx> =
            waiting.into_iter().filter(|job| fillers.binary_search(job).is_err()).collect();
        // Tasks are stopped before targets change, so that none is put on a queue for a moment.
        self.stop(&stopped);
        self.have_fill(&fillers);
        for task in 0..self.tasks.len() {
            if !matches!(self.tasks[task].state, State::NotCreated | State::Ended) {
                self.set_target(task);
            }
        }
        self.let_go(&stopped);
        self.move_pages(&plan.pages);
        Ok(())
    }

    /// A PU by its kernel number; `None` if offline or excluded from the scenario.
    fn usable_pu(&self, pu: PuNr) -> Option<PuIdx> {
        self.platform.machine().pu_by_os(pu).filter(|pu| self.pus.has(*pu))
    }

    /// Pins a task to its target, or unpins the task.
    pub fn set_target(&mut self, task: TaskNo) {
        let pinned = match self.targets.of[task] {
            _ if self.is_stopped(task) => None,
            Target::Pu(pu) => Some(pu).filter(|pu| self.pus.has(*pu)),
            Target::Kernel | Target::Unusable(_) | Target::Sharing(..) => None,
            Target::DefaultPlacement => self.default_pu(task),
        };
        let among = self.among(task);
        if self.tasks[task].pinned != pinned || self.tasks[task].among != among {
            self.tasks[task].pinned = pinned;
            self.tasks[task].among = among;
            self.timers.note_change();
        }
        if let (State::Ready, Some(pu)) = (self.tasks[task].state, self.tasks[task].pu) {
            // A task that is being created is on no queue yet; its creation puts it on one.
            let to = pinned.unwrap_or_else(|| self.allowed_near(task, pu));
            if (pinned.is_some() || to != pu) && self.is_queued(task) {
                self.migrate(task, to);
            }
        }
    }

    /// Allowed PUs of a task, if a proper part of the usable PUs. `None` for all, or for a stopped
    /// job.
    pub(crate) fn among(&self, task: TaskNo) -> Option<Arc<[PuIdx]>> {
        let machine = self.platform.machine();
        let mut pus = match (self.targets.of[task], self.tasks[task].stays_on) {
            (Target::Sharing(shared, pu), _) => machine.sharing(shared, pu),
            (Target::DefaultPlacement, Some(node)) if self.targets.fill.is_none() => {
                machine.home_pus(NodeIdx::new(node)).collect()
            }
            (Target::Kernel, Some(node)) => machine.home_pus(NodeIdx::new(node)).collect(),
            _ => return None,
        };
        pus.retain(|pu| self.pus.has(*pu));
        let usable = self.pus.iter().count();
        let is_part = !pus.is_empty() && pus.len() < usable && !self.is_stopped(task);
        is_part.then(|| pus.into())
    }

    /// Whether the plan allows a task on a PU.
    pub(crate) fn may_be_on(&self, task: TaskNo, pu: PuIdx) -> bool {
        let Task { pinned, among, .. } = &self.tasks[task];
        pinned.is_none_or(|pinned| pinned == pu)
            && among.as_ref().is_none_or(|among| among.contains(&pu))
    }

    /// `pu`, if allowed for a task; else the least loaded of its allowed PUs.
    pub(crate) fn allowed_near(&self, task: TaskNo, pu: PuIdx) -> PuIdx {
        let among = self.tasks[task].among.as_ref().filter(|among| !among.contains(&pu));
        let least = among.and_then(|among| {
            among.iter().copied().min_by_key(|pu| (self.pu_load(*pu), self.core_load(*pu)))
        });
        least.unwrap_or(pu)
    }

    pub(crate) fn is_queued(&self, task: TaskNo) -> bool {
        let queue = self.tasks[task].pu.map(|pu| &self.queues[pu.idx()]);
        queue.is_some_and(|queue| queue.members().any(|member| member == task))
    }

    /// Frees a task from an offline PU: from its pinning, and from its queue.
    pub(super) fn leave_offline(&mut self, task: TaskNo) {
        if self.tasks[task].pinned.is_some_and(|pu| !self.pus.has(pu)) {
            self.tasks[task].pinned = None;
        }
        // A set of PUs that share a cache or node loses those that are offline.
        self.tasks[task].among = self.among(task);
        let from = self.tasks[task].pu.filter(|pu| !self.pus.has(*pu));
        if let Some(from) = from.filter(|_| self.is_queued(task)) {
            self.migrate(task, self.allowed_near(task, self.pus.near(from)));
        }
    }

    /// PU of a task outside of the plan: its present PU if among the PUs to fill, else the first
    /// with the fewest placed tasks. `None` if left to the kernel.
    fn default_pu(&self, task: TaskNo) -> Option<PuIdx> {
        let fill = self.targets.fill.as_ref()?;
        if let Some(kept) = self.tasks[task].pinned.filter(|pu| fill.contains(pu)) {
            return Some(kept);
        }
        let mut placed = vec![0_u32; self.queues.len()];
        let others = self.tasks.iter().enumerate().filter(|&(other, _)| other != task);
        let alive = others.filter(|(_, t)| t.created.is_some() && t.state != State::Ended);
        for pu in alive.filter_map(|(_, other)| other.pinned) {
            placed[pu.idx()] += 1;
        }
        let usable = fill.iter().copied().filter(|pu| self.pus.has(*pu));
        usable.min_by_key(|pu| placed[pu.idx()])
    }

    /// Target of a task, and its placement status.
    pub(crate) fn placement_status(&self, task: TaskNo) -> (Place, PlacementStatus) {
        if self.is_stopped(task) || self.tasks[task].fills {
            return (Place::LeftToKernel, PlacementStatus::Waiting);
        }
        let Task { pinned, among, .. } = &self.tasks[task];
        let trouble = match (self.targets.of[task], pinned) {
            (Target::Unusable(pu), _) => format!("expected a PU that can be used, found {pu}"),
            (_, Some(pu)) => return (Place::Pu(self.os(*pu)), PlacementStatus::Placed),
            (Target::Pu(pu), None) => format!("its place {} has gone offline", self.os(pu)),
            (Target::Sharing(shared, pu), None) if among.is_some() => {
                return (Place::Sharing(shared, self.os(pu)), PlacementStatus::Placed);
            }
            (_, None) => return (Place::LeftToKernel, PlacementStatus::LeftToKernel),
        };
        (Place::LeftToKernel, PlacementStatus::Trouble(trouble))
    }

    /// The kernel's number of a PU.
    pub(crate) fn os(&self, pu: PuIdx) -> PuNr {
        self.platform.machine().pus[pu.idx()].os
    }
}
