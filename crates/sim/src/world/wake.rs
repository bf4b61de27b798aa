//! Tasks that become runnable: new, woken, or continued after a stop.

use crate::loads::Loads;
use crate::parts::Parts;
use crate::placing::{fork_pu, wake_pu};
use crate::task::{TaskNo, TaskState};
use crate::world::memory::touch_pages;
use crate::world::moves::{allowed_near, join_queue};

/// Wakes a task, if asleep; holds the task if its job is stopped.
pub(crate) fn wake(parts: &mut Parts<'_>, task: TaskNo) {
    if parts.tasks[task].state != TaskState::Asleep {
        return;
    }
    if parts.job_of(task).is_stopped {
        hold(parts, task);
        return;
    }
    parts.tasks[task].enter(TaskState::Ready, parts.events.now);
    enqueue_woken(parts, task);
}

/// Puts a task with an earlier PU on a queue.
fn enqueue_woken(parts: &mut Parts<'_>, task: TaskNo) {
    let wake = parts.scenario.kernel.wake;
    let pu = parts.targets.pinned(task);
    let pu = pu.or_else(|| wake_pu(parts.loads(), &parts.targets, wake, task));
    let pu = parts.pus.near(pu.unwrap_or(parts.launcher));
    join_queue(parts, task, allowed_near(parts, task, pu));
}

/// Puts a new task on a queue, and places its memory.
pub(crate) fn begin(parts: &mut Parts<'_>, task: TaskNo) {
    let first = parts.job_of(task).first();
    let parent = parts.queues.pu_of(first).filter(|_| task != first).unwrap_or(parts.launcher);
    let pu = match parts.targets.pinned(task) {
        Some(pu) => pu,
        None => {
            let loads = Loads::new(&parts.pus, &parts.queues);
            let fork = parts.scenario.kernel.fork;
            let idlest = fork_pu(loads, fork, &mut parts.rng, parts.pus.near(parent));
            allowed_near(parts, task, idlest)
        }
    };
    join_queue(parts, task, pu);
    touch_pages(parts, task, pu);
}

/// Stops a ready or new task.
pub(crate) fn hold(parts: &mut Parts<'_>, task: TaskNo) {
    parts.tasks[task].enter(TaskState::Stopped, parts.events.now);
    parts.pollution.stop(task, parts.queues.pu_of(task));
}

/// Lets a stopped task continue: where it ran, or as a new task.
pub(crate) fn go_on(parts: &mut Parts<'_>, task: TaskNo) {
    parts.tasks[task].enter(TaskState::Ready, parts.events.now);
    if parts.queues.pu_of(task).is_some() {
        enqueue_woken(parts, task);
    } else {
        begin(parts, task);
    }
}

/// Ends the spinning of a task. A wait for its PU before this is time waited to spin.
pub(crate) fn end_spin(parts: &mut Parts<'_>, task: TaskNo) {
    if parts.waits(task) {
        let now = parts.events.now;
        parts.tasks[task].end_wait(now);
        parts.tasks[task].begin_wait(now);
    }
}
