//! Tasks that become runnable: new, woken, or continued after a stop.

use crate::loads::Loads;
use crate::parts::Parts;
use crate::placing::fork_pu;
use crate::task::{TaskNo, TaskState};
use crate::waking::{WakeUp, Waker, share_cache, wake_pu};
use crate::world::memory::touch_pages;
use crate::world::moves::{allowed_near, join_queue};
use colocate_machine::PuIdx;

/// Wakes a task, if asleep; holds the task if its job is stopped. `by` is the waker; `None` for a
/// timer.
pub(crate) fn wake(parts: &mut Parts<'_>, task: TaskNo, by: Option<TaskNo>) {
    if parts.tasks[task].state != TaskState::Asleep {
        return;
    }
    if parts.job_of(task).is_stopped {
        hold(parts, task);
        return;
    }
    parts.tasks[task].enter(TaskState::Ready, parts.events.now);
    enqueue_woken(parts, task, by);
}

/// Puts a task with an earlier PU on a queue.
fn enqueue_woken(parts: &mut Parts<'_>, task: TaskNo, by: Option<TaskNo>) {
    let previous = parts.queues.pu_of(task);
    let waker = by.and_then(|by| waker(parts, by));
    let chosen = parts.targets.pinned(task).or_else(|| chosen_pu(parts, task, waker));
    let pu = parts.pus.near(chosen.unwrap_or(parts.launcher));
    let pu = allowed_near(parts, task, pu);
    if let Some((waker, previous)) = waker.zip(previous) {
        let is_near = share_cache(parts.machine(), pu, waker.pu);
        parts.wake_ups.choices.add(pu, waker.pu, previous, is_near);
    }
    join_queue(parts, task, pu);
}

/// A task as the waker of another; `None` without a PU.
fn waker(parts: &Parts<'_>, task: TaskNo) -> Option<Waker> {
    let pu = parts.queues.pu_of(task)?;
    let takes_turns = parts.takes_turns(parts.tasks[task].job());
    Some(Waker { task, pu, is_sync: takes_turns })
}

/// PU of a woken task that is not pinned; `None` without an earlier PU.
fn chosen_pu(parts: &mut Parts<'_>, task: TaskNo, waker: Option<Waker>) -> Option<PuIdx> {
    let wake_up = WakeUp {
        loads: Loads::new(&parts.pus, &parts.queues),
        targets: &parts.targets,
        averages: &parts.averages,
        now: parts.events.now,
        task,
        previous: parts.queues.pu_of(task)?,
        waker,
    };
    Some(wake_pu(&wake_up, parts.scenario.kernel.wake, &mut parts.wake_history))
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
        enqueue_woken(parts, task, None);
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
