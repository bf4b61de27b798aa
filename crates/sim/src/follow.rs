//! Applies a plan: the target of each task.

use crate::targets::Target;
use crate::task::{State, Task, TaskNo};
use crate::world::World;
use colocate_evidence::{JobIdx, PlacementStatus};
use colocate_machine::{NodeIdx, PuIdx, PuNr};
use colocate_policy::{DefaultPlacement, Place, Plan, PlanError};
use std::sync::Arc;

impl World<'_> {
    /// Puts the plan in force: moves the tasks that live, and remembers it for those to be created.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if a job is to wait in part; nothing has changed then.
    pub fn follow(&mut self, plan: &Plan) -> Result<(), PlanError> {
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
                Some(Place::Sharing(shared, pu)) => {
                    let target = |pu| Target::Sharing(shared, pu);
                    self.usable_pu(pu).map_or(Target::Unusable(pu), target)
                }
            };
        }
        let fillers = self.fillers(&waiting, plan);
        let stopped: Vec<JobIdx> =
            waiting.into_iter().filter(|job| fillers.binary_search(job).is_err()).collect();
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

    fn usable_pu(&self, pu: PuNr) -> Option<PuIdx> {
        self.platform.machine().pu_by_os(pu).filter(|pu| self.usable[pu.idx()])
    }

    /// Pins a task to its target PU or PUs, or unpins it.
    pub fn set_target(&mut self, task: TaskNo) {
        let pinned = match self.targets.of[task] {
            _ if self.is_stopped(task) => None,
            Target::Pu(pu) => Some(pu).filter(|pu| self.usable[pu.idx()]),
            Target::Kernel | Target::Unusable(_) | Target::Sharing(..) => None,
            Target::DefaultPlacement => self.default_pu(task),
        };
        let among = self.among(task);
        if self.tasks[task].pinned != pinned || self.tasks[task].among != among {
            (self.tasks[task].pinned, self.tasks[task].among) = (pinned, among);
            self.timers.stale = true;
        }
        if let (State::Ready, Some(pu)) = (self.tasks[task].state, self.tasks[task].pu) {
            // One that is being created is on no queue yet; its creation puts it there.
            let to = pinned.unwrap_or_else(|| self.allowed_near(task, pu));
            if (pinned.is_some() || to != pu) && self.is_queued(task) {
                self.migrate(task, to);
            }
        }
    }

    /// The PUs that a task is put among: some that can be used, and not all of these.
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
        pus.retain(|pu| self.usable[pu.idx()]);
        let usable = self.usable.iter().filter(|usable| **usable).count();
        let is_part = !pus.is_empty() && pus.len() < usable && !self.is_stopped(task);
        is_part.then(|| pus.into())
    }

    /// Whether the plan lets a task be on a PU.
    pub(crate) fn may_be_on(&self, task: TaskNo, pu: PuIdx) -> bool {
        let Task { pinned, among, .. } = &self.tasks[task];
        pinned.is_none_or(|pinned| pinned == pu)
            && among.as_ref().is_none_or(|among| among.contains(&pu))
    }

    /// A PU, if a task may be there; else the one with the fewest tasks of those where it may be.
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

    /// Of the PUs to fill, the first with the fewest living tasks placed on it; where it is if it is on one.
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
        let usable = fill.iter().copied().filter(|pu| self.usable[pu.idx()]);
        usable.min_by_key(|pu| placed[pu.idx()])
    }

    /// The target of a task, and its placement status.
    pub(crate) fn placement_status(&self, task: TaskNo) -> (Place, PlacementStatus) {
        let os = |pu: PuIdx| self.platform.machine().pus[pu.idx()].os;
        if self.is_stopped(task) || self.tasks[task].fills {
            return (Place::LeftToKernel, PlacementStatus::Waiting);
        }
        let trouble = |what| (Place::LeftToKernel, PlacementStatus::Trouble(what));
        let Task { pinned, among, .. } = &self.tasks[task];
        match (self.targets.of[task], pinned) {
            (Target::Unusable(pu), _) => {
                trouble(format!("expected a PU that can be used, found {pu}"))
            }
            (_, Some(pu)) => (Place::Pu(os(*pu)), PlacementStatus::Placed),
            (Target::Pu(pu), None) => trouble(format!("its place {} has gone offline", os(pu))),
            (Target::Sharing(shared, pu), None) if among.is_some() => {
                (Place::Sharing(shared, os(pu)), PlacementStatus::Placed)
            }
            (_, None) => (Place::LeftToKernel, PlacementStatus::LeftToKernel),
        }
    }
}
