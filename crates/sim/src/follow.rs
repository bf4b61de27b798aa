//! Applies a plan: the target PU of each task.

use crate::targets::Target;
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_engine::PlacementStatus;
use colocate_machine::{PuIdx, PuNr};
use colocate_policy::{DefaultPlacement, JobIdx, Place, Plan, PlanError};

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

    /// Pins a task to its target PU, or unpins it.
    pub fn set_target(&mut self, task: TaskNo) {
        let pinned = match self.targets.of[task] {
            _ if self.is_stopped(task) => None,
            Target::Pu(pu) => Some(pu).filter(|pu| self.usable[pu.idx()]),
            Target::Kernel | Target::Unusable(_) => None,
            Target::DefaultPlacement => self.default_pu(task),
        };
        if self.tasks[task].pinned != pinned {
            self.tasks[task].pinned = pinned;
            self.timers.stale = true;
        }
        if let (Some(pu), State::Ready, true) =
            (pinned, self.tasks[task].state, self.tasks[task].pu.is_some())
        {
            // One that is being created is on no queue yet; its creation puts it there.
            if self.is_queued(task) {
                self.migrate(task, pu);
            }
        }
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

    /// The target PU of a task, and its placement status.
    pub(crate) fn placement_status(&self, task: TaskNo) -> (Option<PuIdx>, PlacementStatus) {
        if self.is_stopped(task) || self.tasks[task].fills {
            return (None, PlacementStatus::Waiting);
        }
        match (self.targets.of[task], self.tasks[task].pinned) {
            (Target::Unusable(pu), _) => (
                None,
                PlacementStatus::Trouble(format!("expected a PU that can be used, found {pu}")),
            ),
            (_, Some(pu)) => (Some(pu), PlacementStatus::Placed),
            (Target::Pu(pu), None) => {
                let gone = self.platform.machine().pus[pu.idx()].os;
                (None, PlacementStatus::Trouble(format!("its place {gone} has gone offline")))
            }
            (_, None) => (None, PlacementStatus::LeftToKernel),
        }
    }
}
