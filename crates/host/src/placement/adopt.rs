//! Plans adopted: targets set, and tasks placed that are elsewhere.

use super::Placing;
use super::rules::{self, PlacementEvent};
use crate::pausing::Pausing;
use crate::task::TrackedTask;
use crate::workload::HostState;
use colocate_act::journal::Mark;
use colocate_act::mask_owner::MaskOwner;
use colocate_evidence::{JobIdx, TaskId};
use colocate_linux::clock::now;
use colocate_machine::{Nanos, PuNr};
use colocate_policy::{Decision, DefaultPlacement, Place, Plan};
use std::iter::Peekable;
use std::slice::Iter;

/// Comparing all tasks with the plan takes at most one part in this many of a PU. Chosen: a twentieth of what watching may take.
const FOLLOW_SHARE: u64 = 1_000;

/// Takes over a plan: named tasks go where it says, others by default placement. When the scheduling has
/// ended, no plan is followed.
///
/// Where little has changed since the plan before, only the tasks that differ are placed, and all tasks seldom: most threads of
/// large programs sleep.
pub(crate) fn adopt(placing: &mut Placing, work: &mut HostState, pausing: &Pausing, plan: &Plan) {
    if pausing.is_over() {
        return;
    }
    let before = placing.plan();
    // Another default placement changes also tasks that no plan names.
    let before = before.filter(|before| before.default_placement == plan.default_placement);
    let differing = before.map(|before| differing(before, plan));
    if differing.as_ref().is_some_and(Differing::is_empty) {
        return;
    }
    let begun = now();
    let is_partial = work.launched.is_some() && begun < placing.next_follow;
    if let Some(differing) = differing.filter(|_| is_partial) {
        let ids = with_those_of(work, differing);
        return adopt_for(placing, work, pausing, ids, plan);
    }
    let ids = movable_tasks(work);
    adopt_for(placing, work, pausing, ids, plan);
    let took = now().saturating_sub(begun);
    placing.next_follow = now() + Nanos(took.0.saturating_mul(FOLLOW_SHARE));
}

/// Takes over a plan for these tasks.
fn adopt_for(
    placing: &mut Placing,
    work: &mut HostState,
    pausing: &Pausing,
    ids: Vec<TaskId>,
    plan: &Plan,
) {
    placing.set_plan(Some(plan.clone()));
    work.table.jobs.note_planned();
    let places = ids.into_iter().map(|id| (id, place_of(work, id, plan)));
    // Named ones first, so that the others find the room that is left.
    let (named, others): (Vec<_>, Vec<_>) = places.partition(|(_, place)| place.is_some());
    for &(id, place) in &named {
        work.table.set_target(id, place.unwrap_or_default());
    }
    for &(id, _) in &others {
        set_default_target(work, id, &plan.default_placement);
    }
    // A stopped task stays where it is: it runs nowhere.
    for (id, place) in named.into_iter().chain(others) {
        if place != Some(Place::Waiting) || pausing.fills(id.job) {
            follow(placing, work, id);
        }
    }
}

/// Aims a task at the PU that it has, or at another one, by default placement.
fn set_default_target(work: &mut HostState, id: TaskId, rule: &DefaultPlacement) {
    let before = work.table.tasks.get_mut(id).and_then(|task| task.placement.target.pu());
    // The task's own load must not count in the search for the least loaded PU.
    work.table.set_target(id, Place::LeftToKernel);
    let kept = kept(before, rule).map(Place::Pu);
    let target = kept.unwrap_or_else(|| work.table.targets.default_target(rule));
    work.table.set_target(id, target);
}

/// Place of a task by a plan; `None` for default placement.
fn place_of(work: &mut HostState, id: TaskId, plan: &Plan) -> Option<Place> {
    let exempt = work.table.tasks.get_mut(id).and_then(|task| task.placement.exempt);
    rules::planned_place(plan.place_of(id), exempt)
}

/// The movable tasks that differ, and all pinned ones of jobs that have waited and continue: which of them a plan names may have
/// changed meanwhile.
fn with_those_of(work: &mut HostState, differing: Differing) -> Vec<TaskId> {
    let mut tasks = differing.tasks;
    for job in differing.goes_on {
        let of_job = work.table.tasks.living_of(job);
        let placed = of_job.filter(|task| task.thread.mark != Mark::Original);
        tasks.extend(placed.map(|task| task.id));
    }
    tasks.sort_unstable();
    tasks.dedup();
    tasks.retain(|&id| work.table.tasks.get_mut(id).is_some_and(|task| is_movable(task)));
    tasks
}

/// Puts every task where it is aimed at, as the meaning of places has changed.
pub(crate) fn follow_all(placing: &mut Placing, work: &mut HostState) {
    for id in movable_tasks(work) {
        follow(placing, work, id);
    }
}

/// Leaves every task unpinned for good: all masks are restored.
pub(crate) fn leave_to_kernel(placing: &mut Placing, work: &mut HostState) {
    placing.set_plan(None);
    for id in movable_tasks(work) {
        work.table.set_target(id, Place::LeftToKernel);
        follow(placing, work, id);
    }
}

/// The living tasks that may be put elsewhere, in the order of their IDs.
fn movable_tasks(work: &mut HostState) -> Vec<TaskId> {
    let living = work.table.tasks.living_mut();
    living.filter_map(|task| is_movable(task).then_some(task.id)).collect()
}

/// Puts a living task where it is aimed at, unless it is there.
fn follow(placing: &mut Placing, work: &mut HostState, id: TaskId) {
    let at = now();
    let Some(target) = work.table.tasks.get_mut(id).map(|task| task.placement.target) else {
        return;
    };
    let wanted = placing.mark_at(work, target);
    let Some(task) = work.table.tasks.get_mut(id) else { return };
    let mark = task.thread.mark;
    let placement = &task.placement;
    let is_pinned = rules::is_pinned_as_wanted(wanted, mark, &placement.status);
    if rules::is_unpinned_as_wanted(wanted, mark, &placement.status, placement.exempt)
        && work.actuators.mask_owner(&mut task.thread) == MaskOwner::Original
    {
        return;
    }
    if is_pinned && task.thread.allowed == work.actuators.mask(wanted) {
        return;
    }
    placing.place(work, id, PlacementEvent::PlanChanged, at);
}

/// Whether a task is living and may be put elsewhere.
fn is_movable(task: &TrackedTask) -> bool {
    task.ended.is_none() && rules::is_movable(&task.placement.status)
}

/// Difference of two plans.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differing {
    /// Tasks with different places.
    tasks: Vec<TaskId>,
    /// Jobs that waited and do not wait any more.
    goes_on: Vec<JobIdx>,
}

impl Differing {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

fn differing(before: &Plan, now: &Plan) -> Differing {
    let (mut before, mut now) =
        (before.decisions.iter().peekable(), now.decisions.iter().peekable());
    let mut differing = Differing::default();
    loop {
        let first = before.peek().into_iter().chain(now.peek()).map(|it| it.task).min();
        let Some(task) = first else { return differing };
        let place_in = |plan: &mut Peekable<Iter<'_, Decision>>| {
            plan.next_if(|decision| decision.task == task).map(|decision| decision.place)
        };
        let (there, here) = (place_in(&mut before), place_in(&mut now));
        if there != here {
            differing.tasks.push(task);
        }
        let goes_on = there == Some(Place::Waiting) && here != there;
        // Decisions are in the order of jobs, so an entry for the job would be the last.
        if goes_on && differing.goes_on.last() != Some(&task.job) {
            differing.goes_on.push(task.job);
        }
    }
}

/// The PU that a task has already, if default placement could have given it.
fn kept(pu: Option<PuNr>, rule: &DefaultPlacement) -> Option<PuNr> {
    match rule {
        DefaultPlacement::LeaveToKernel => None,
        DefaultPlacement::FillInOrder { pus } => pu.filter(|pu| pus.contains(pu)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_policy::PlaceReason;

    fn plan(places: &[(u32, Place)]) -> Plan {
        let decision = |&(order, place): &(u32, Place)| Decision {
            task: TaskId { job: JobIdx(0), order },
            name: "t".into(),
            place,
            why: PlaceReason::LeftToKernel,
        };
        Plan {
            version: 1,
            machine: "m".into(),
            pus: Vec::new(),
            policy: "p".into(),
            decisions: places.iter().map(decision).collect(),
            default_placement: DefaultPlacement::LeaveToKernel,
            ..Plan::default()
        }
    }

    /// 1 goes elsewhere, 2 is not named any more, 4 is new; 0 and 3 stay.
    #[test]
    fn only_what_differs() {
        let on = |pu| Place::from(Some(PuNr(pu)));
        let before = plan(&[(0, on(0)), (1, on(1)), (2, on(2)), (3, on(3))]);
        let now = plan(&[(0, on(0)), (1, on(3)), (3, on(3)), (4, Place::LeftToKernel)]);
        let found = differing(&before, &now);
        let orders: Vec<u32> = found.tasks.iter().map(|task| task.order).collect();
        assert_eq!((orders, found.goes_on), (vec![1, 2, 4], vec![]));
        assert!(differing(&now, &now).is_empty());
    }

    /// A job that waits is named by one of its tasks. When it continues, others of it may have to be left to the kernel.
    #[test]
    fn a_job_that_goes_on_differs() {
        let (waits, runs) =
            (plan(&[(0, Place::Waiting)]), plan(&[(3, Place::from(Some(PuNr(1))))]));
        assert_eq!(differing(&waits, &runs).goes_on, [JobIdx(0)]);
        assert_eq!(differing(&runs, &waits).goes_on, []);
    }
}
