//! Moves of tasks onto queues, off queues and between PUs, and the PUs that targets allow.

use crate::parts::Parts;
use crate::targets::{Allowed, Facts};
use crate::task::{TaskNo, TaskState};
use colocate_machine::PuIdx;
use colocate_model::PlacedTask;

/// Shares of far memory below this count as none.
pub(crate) const NEAR: f64 = 1e-3;

/// Puts a ready task on the queue of a PU.
pub(crate) fn join_queue(parts: &mut Parts<'_>, task: TaskNo, pu: PuIdx) {
    note_move(parts, task, pu);
    parts.queues.enqueue(task, pu);
    parts.averages.set_runnable(task, true, parts.events.now);
    parts.tasks[task].begin_wait(parts.events.now);
    parts.timers.is_stale = true;
    watch_pages(parts, task);
}

/// Takes a task off its queue; does nothing for a task without a PU.
pub(crate) fn leave_queue(parts: &mut Parts<'_>, task: TaskNo) {
    let Some(pu) = parts.queues.pu_of(task) else { return };
    let ran = parts.queues.runs(task);
    parts.queues.dequeue(task);
    parts.averages.set_runnable(task, false, parts.events.now);
    if parts.queues.load(pu) == 0 {
        parts.timers.emptied.push(pu);
    }
    if ran {
        parts.rates.is_stale = true;
    } else {
        parts.tasks[task].end_wait(parts.events.now);
    }
    parts.timers.is_stale = true;
}

/// Moves a ready task to another PU.
pub(crate) fn migrate(parts: &mut Parts<'_>, task: TaskNo, to: PuIdx) {
    if parts.queues.pu_of(task) != Some(to) {
        leave_queue(parts, task);
        join_queue(parts, task, to);
    }
}

/// Counts a move to `to`, and charges the refill of cold caches. A task on the same PU is charged
/// only after a stop.
fn note_move(parts: &mut Parts<'_>, task: TaskNo, to: PuIdx) {
    let Some(from) = parts.queues.pu_of(task) else { return };
    let left = parts.pollution.take_left(task, from);
    if from == to && left.is_none() {
        return;
    }
    let of_task = &mut parts.tasks[task];
    let demand = parts.demands.of(of_task.course.phase(), parts.platform.kind_of(to));
    let pages = &parts.accesses.of[task].pages;
    let seat = PlacedTask { pu: to, demand, pages, space: of_task.id.job.0 };
    let occupancy = &parts.rates.occupancy[task];
    let left = left.unwrap_or_default();
    let cold = parts.platform.model.refill(&seat, from, occupancy, &left, parts.rates.now());
    of_task.go(parts.platform.machine, from, to, cold.seconds);
}

/// Sets the next NUMA balancing scan of a task's memory.
pub(crate) fn watch_pages(parts: &mut Parts<'_>, task: TaskNo) {
    let far = parts.accesses.far_share(task, parts.node_of(task));
    parts.scans.set(task, far > NEAR, parts.events.now);
}

/// Pins a task to its target, or unpins the task.
pub(crate) fn set_target(parts: &mut Parts<'_>, task: TaskNo) {
    let facts = facts(parts, task);
    let tasks = &parts.tasks;
    if parts.targets.update(task, facts, &parts.pus, |other| tasks[other].is_alive()) {
        parts.timers.is_stale = true;
    }
    // A task that is being created is on no queue yet; its creation puts it on one.
    if tasks[task].state == TaskState::Ready && parts.queues.has(task) {
        let Some(pu) = parts.queues.pu_of(task) else { return };
        migrate(parts, task, allowed_near(parts, task, pu));
    }
}

fn facts(parts: &Parts<'_>, task: TaskNo) -> Facts {
    let is_stopped = parts.job_of(task).is_stopped;
    Facts { is_stopped, stays_on: parts.accesses.of[task].stays_on }
}

/// `pu`, if allowed for a task; else the least loaded of its allowed PUs.
pub(crate) fn allowed_near(parts: &Parts<'_>, task: TaskNo, pu: PuIdx) -> PuIdx {
    match &parts.targets.allowed[task] {
        Allowed::All => pu,
        Allowed::Pu(pinned) => *pinned,
        Allowed::Among(among) if among.contains(&pu) => pu,
        Allowed::Among(among) => parts.loads().least(among).unwrap_or(pu),
    }
}

/// Frees a task from offline PUs: from its pinning, and from its queue.
pub(crate) fn leave_offline(parts: &mut Parts<'_>, task: TaskNo) {
    let facts = facts(parts, task);
    parts.targets.leave_offline(task, facts, &parts.pus);
    let from = parts.queues.pu_of(task).filter(|pu| !parts.pus.has(*pu));
    if let Some(from) = from.filter(|_| parts.queues.has(task)) {
        migrate(parts, task, allowed_near(parts, task, parts.pus.near(from)));
    }
}
