//! Barriers: threads of a job that wait for each other.
//!
//! # Approach
//! A thread arrives at the barrier when a stretch with a barrier ends. It continues when every
//! thread of the job that has work left has arrived as often. A thread that is not created yet is
//! waited for, one that has done its work is not. Until then a thread sleeps, or it spins: it runs
//! a phase that gets nothing done, and takes a PU and its share of the core from others. Where the
//! job has a serial part, its first thread with work left does it once all have arrived, and the
//! others wait until it has.
//!
//! # Properties
//! - **Together**: no thread goes on to the next stretch before all have come. -> checked in every
//!   step
//! - **No deadlock**: a thread that is waited for runs, waits for a PU, sleeps for a time, or is
//!   created at a time; a stopped job's threads all wait. -> test `barriers_end`

use crate::parts::Parts;
use crate::scenario::BarrierWait;
use crate::task::{TaskNo, TaskState};
use crate::world::moves::leave_queue;
use crate::world::turns::hand_on;
use crate::world::wake::{end_spin, wake};

/// A task arrives at its job's barrier.
pub(crate) fn arrive(parts: &mut Parts<'_>, task: TaskNo) {
    let job = parts.tasks[task].job();
    let Some(barrier) = parts.scenario.jobs[job].barrier else { return };
    if barrier.takes_turns() {
        return hand_on(parts, task);
    }
    parts.teams[task].arrive();
    if has_come_together(parts, job) {
        meet(parts, task);
    }
    // The last to arrive has opened the barrier, and does not wait.
    if !parts.teams[task].waits {
        return;
    }
    match barrier.wait {
        BarrierWait::Spin(phase) => parts.tasks[task].course.spin(phase),
        BarrierWait::Sleep | BarrierWait::Turns(_) | BarrierWait::Served => {
            leave_queue(parts, task);
            parts.tasks[task].enter(TaskState::Asleep, parts.events.now);
        }
    }
}

/// Opens the barrier of a job if all tasks with work left have arrived; `by` has done its work.
pub(crate) fn recheck_barrier(parts: &mut Parts<'_>, by: TaskNo) {
    let job = parts.tasks[by].job();
    let is_waiting = parts.jobs[job].tasks().any(|task| parts.teams[task].waits);
    if is_waiting && has_come_together(parts, job) {
        meet(parts, by);
    }
}

/// The serial part is done.
pub(crate) fn end_serial(parts: &mut Parts<'_>, task: TaskNo) {
    release(parts, task);
}

/// Tasks of a job with work left.
fn team<'p>(parts: &'p Parts<'_>, job: usize) -> impl Iterator<Item = TaskNo> + 'p {
    parts.jobs[job].tasks().filter(|&task| parts.tasks[task].has_work())
}

/// Whether all tasks with work left wait at the barrier, and none does the serial part.
fn has_come_together(parts: &Parts<'_>, job: usize) -> bool {
    let serial = team(parts, job).any(|task| parts.tasks[task].course.is_serial());
    !serial && team(parts, job).all(|task| parts.teams[task].waits)
}

/// All have arrived, `by` last: the first task does the job's serial part if any, else all continue.
fn meet(parts: &mut Parts<'_>, by: TaskNo) {
    let job = parts.tasks[by].job();
    let serial = parts.scenario.jobs[job].barrier.and_then(|barrier| barrier.serial);
    let first = team(parts, job).next();
    match (serial, first) {
        (Some(serial), Some(first)) => {
            end_spin(parts, first);
            parts.tasks[first].course.begin_serial(serial);
            go_on_from_barrier(parts, first, by);
        }
        _ => release(parts, by),
    }
}

/// Lets all tasks at the barrier continue; `by` wakes them.
fn release(parts: &mut Parts<'_>, by: TaskNo) {
    let job = parts.tasks[by].job();
    for task in team(parts, job).collect::<Vec<_>>() {
        if parts.teams[task].go_on() {
            end_spin(parts, task);
            parts.tasks[task].course.go_back();
            go_on_from_barrier(parts, task, by);
        }
    }
}

fn go_on_from_barrier(parts: &mut Parts<'_>, task: TaskNo, by: TaskNo) {
    parts.teams[task].go_on();
    parts.rates.is_stale = true;
    wake(parts, task, Some(by));
}
