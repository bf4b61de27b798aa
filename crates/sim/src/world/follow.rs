//! Applies a plan: the target of each task.

use crate::parts::Parts;
use crate::task::{TaskNo, TaskState};
use crate::world::filling::{fillers, have_fill};
use crate::world::moves::set_target;
use crate::world::pages::move_pages;
use crate::world::stop::{let_go, stop};
use colocate_engine::Meanwhile;
use colocate_evidence::{JobIdx, PagesMoved, PlacementStatus};
use colocate_policy::{Place, Plan, PlanError};

/// Puts the plan in force: moves the living tasks, and keeps the targets of tasks to be created.
/// Returns the results of its orders to move memory.
///
/// # Errors
/// [`PlanError::PartlyWaiting`] if only a part of a job is to wait; nothing has changed then.
pub(crate) fn follow(
    parts: &mut Parts<'_>,
    meanwhile: Meanwhile,
    plan: &Plan,
) -> Result<Vec<PagesMoved>, PlanError> {
    // First of all, as it is the only step that can fail.
    let waiting = plan.waiting()?;
    parts.targets.set(plan, parts.tasks.iter().map(|task| task.id), &parts.pus);
    let fillers = fillers(parts, meanwhile, &waiting, plan);
    let stopped: Vec<JobIdx> =
        waiting.into_iter().filter(|job| fillers.binary_search(job).is_err()).collect();
    // Tasks are stopped before targets change, so that none is put on a queue for a moment.
    stop(parts, &stopped);
    have_fill(parts, &fillers);
    for task in 0..parts.tasks.len() {
        if !matches!(parts.tasks[task].state, TaskState::NotCreated | TaskState::Ended) {
            set_target(parts, task);
        }
    }
    let_go(parts, &stopped);
    Ok(move_pages(parts, &plan.pages))
}

/// Target of a task, and its placement status.
pub(crate) fn placement_status(parts: &Parts<'_>, task: TaskNo) -> (Place, PlacementStatus) {
    if parts.job_of(task).is_stopped || parts.queues.is_filler(task) {
        return (Place::LeftToKernel, PlacementStatus::Waiting);
    }
    parts.targets.status(task, &parts.pus)
}
