//! PUs at which tasks are aimed.

use super::TaskTable;
use colocate_evidence::TaskId;
use colocate_machine::PuNr;
use colocate_policy::{DefaultPlacement, Place, Plan};
use std::collections::HashMap;

/// Numbers of living tasks by target PU.
#[derive(Debug, Default)]
pub struct TargetCounts(HashMap<PuNr, u32>);

impl TargetCounts {
    fn add(&mut self, target: Place) {
        if let Some(pu) = target.pu() {
            *self.0.entry(pu).or_default() += 1;
        }
    }

    /// Removes a task with this target.
    pub(super) fn remove(&mut self, target: Place) {
        if let Some(count) = target.pu().and_then(|pu| self.0.get_mut(&pu)) {
            *count = count.saturating_sub(1);
        }
    }

    /// PU of a task under default placement: the PU with the fewest living tasks targeted at it, on
    /// a tie the earliest in the list.
    pub fn default_target(&self, rule: &DefaultPlacement) -> Place {
        Place::from(match rule {
            DefaultPlacement::LeaveToKernel => None,
            DefaultPlacement::FillInOrder { pus } => {
                pus.iter().copied().min_by_key(|pu| self.0.get(pu).copied().unwrap_or(0))
            }
        })
    }
}

impl TaskTable {
    /// Aims a living task at a place.
    pub fn set_target(&mut self, id: TaskId, place: Place) {
        if let Some(task) = self.tasks.get_mut(id) {
            self.targets.remove(task.placement.target);
            self.targets.add(place);
            task.placement.target = place;
        }
    }

    /// Place of a new task in a plan. The first task of a run unknown to the plan takes the place
    /// of the earlier run's first task.
    pub fn target_of(&self, plan: &Plan, id: TaskId) -> Place {
        let job = self.jobs.get(id.job).filter(|_| self.begins_run(id));
        let place = plan
            .place_of(id)
            .or_else(|| plan.place_of(TaskId { job: id.job, order: job?.planned }));
        place.unwrap_or_else(|| self.targets.default_target(&plan.default_placement))
    }
}
