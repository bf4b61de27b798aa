//! PUs at which tasks are aimed.

use super::TaskTable;
use colocate_evidence::TaskId;
use colocate_machine::PuNr;
use colocate_policy::{DefaultPlacement, Place, Plan};

impl TaskTable {
    /// Aims a living task at a place.
    pub fn set_target(&mut self, id: TaskId, place: Place) {
        self.set_load(id, place.pu());
        if let Some(task) = self.tasks.get_mut(&id) {
            task.placement.target = place;
        }
    }

    /// Moves a task's load from its target PU to `to`.
    pub(super) fn set_load(&mut self, id: TaskId, to: Option<PuNr>) {
        let from = self.tasks.get(&id).and_then(|task| task.placement.target.pu());
        if let Some(count) = from.and_then(|pu| self.load.get_mut(&pu)) {
            *count = count.saturating_sub(1);
        }
        if let Some(pu) = to {
            *self.load.entry(pu).or_default() += 1;
        }
    }

    /// Place of a new task in a plan. The first task of a run unknown to the plan takes the place
    /// of the earlier run's first task.
    pub fn target_of(&self, plan: &Plan, id: TaskId) -> Place {
        let job = self.jobs.get(id.job.0 as usize).filter(|_| self.begins_run(id));
        let place = plan
            .place_of(id)
            .or_else(|| plan.place_of(TaskId { job: id.job, order: job?.planned }));
        place.unwrap_or_else(|| self.default_target(&plan.default_placement))
    }

    /// PU of a task under default placement: the PU with the fewest living tasks targeted at it, on
    /// a tie the earliest in the list.
    pub fn default_target(&self, rule: &DefaultPlacement) -> Place {
        Place::from(match rule {
            DefaultPlacement::LeaveToKernel => None,
            DefaultPlacement::FillInOrder { pus } => {
                pus.iter().copied().min_by_key(|pu| self.load.get(pu).copied().unwrap_or(0))
            }
        })
    }
}
