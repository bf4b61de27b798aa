//! Applies a plan: the target of each task.

use crate::loads::Loads;
use crate::targets::{Allowed, Facts};
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_evidence::{JobIdx, PlacementStatus};
use colocate_machine::{PuIdx, PuNr};
use colocate_policy::{Place, Plan, PlanError};

impl World<'_> {
    /// Puts the plan in force: moves the living tasks, and keeps the targets of tasks to be
    /// created.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if only a part of a job is to wait; nothing has changed then.
    pub fn follow(&mut self, plan: &Plan) -> Result<(), PlanError> {
        // First of all, as it is the only step that can fail.
        let waiting = plan.waiting()?;
        self.targets.set(plan, self.tasks.iter().map(|task| task.id), &self.pus);
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

    /// Pins a task to its target, or unpins the task.
    pub fn set_target(&mut self, task: TaskNo) {
        let facts = self.facts(task);
        let tasks = &self.tasks;
        let changed = self.targets.update(task, facts, &self.pus, |other| {
            tasks[other].created.is_some() && tasks[other].state != State::Ended
        });
        if changed {
            self.timers.note_change();
        }
        // A task that is being created is on no queue yet; its creation puts it on one.
        if self.tasks[task].state == State::Ready && self.queues.has(task) {
            let Some(pu) = self.queues.pu_of(task) else { return };
            self.migrate(task, self.allowed_near(task, pu));
        }
    }

    fn facts(&self, task: TaskNo) -> Facts {
        Facts { is_stopped: self.is_stopped(task), stays_on: self.tasks[task].stays_on }
    }

    pub(crate) fn loads(&self) -> Loads<'_> {
        Loads::new(&self.pus, &self.queues)
    }

    /// `pu`, if allowed for a task; else the least loaded of its allowed PUs.
    pub(crate) fn allowed_near(&self, task: TaskNo, pu: PuIdx) -> PuIdx {
        match self.targets.allowed(task) {
            Allowed::All => pu,
            Allowed::Pu(pinned) => *pinned,
            Allowed::Among(among) if among.contains(&pu) => pu,
            Allowed::Among(among) => self.loads().least(among).unwrap_or(pu),
        }
    }

    /// Frees a task from an offline PU: from its pinning, and from its queue.
    pub(super) fn leave_offline(&mut self, task: TaskNo) {
        self.targets.leave_offline(task, self.facts(task), &self.pus);
        let from = self.queues.pu_of(task).filter(|pu| !self.pus.has(*pu));
        if let Some(from) = from.filter(|_| self.queues.has(task)) {
            self.migrate(task, self.allowed_near(task, self.pus.near(from)));
        }
    }

    /// Target of a task, and its placement status.
    pub(crate) fn placement_status(&self, task: TaskNo) -> (Place, PlacementStatus) {
        if self.is_stopped(task) || self.queues.is_filler(task) {
            return (Place::LeftToKernel, PlacementStatus::Waiting);
        }
        self.targets.status(task, &self.pus)
    }

    /// The kernel's number of a PU.
    pub(crate) fn os(&self, pu: PuIdx) -> PuNr {
        self.pus.os(pu)
    }
}
