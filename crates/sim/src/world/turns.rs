//! Threads of a job that take turns: each does its part, wakes the next, and sleeps until its next
//! turn.
//!
//! # Approach
//! A client and its server, or the stages of a pipeline: turns stand for the messages between them.
//! A thread with two turns continues without sleep. A thread that has done its work passes its
//! turns on and is left out. A server, the first thread of its job, passes each turn back to the client
//! that it came from.
//!
//! A woken thread gets a PU as every other, and then makes no progress until the wake-up is over.
//! Its cost depends on the waker's PU. A woken thread that had to wait for its PU pays the cost of
//! the same PU.
//! # Properties
//! - **As often as they take turns**: wake-ups are counted with their time and place. -> test
//!   `a_pair_far_apart_and_together`
//! - **No deadlock**: as long as a thread has work left, one has its turn. -> test
//!   `threads_that_end_hand_on_their_turn`

use crate::parts::Parts;
use crate::scenario::BarrierWait;
use crate::task::{TaskNo, TaskState};
use crate::woken::Woken;
use crate::world::moves::leave_queue;
use crate::world::wake::wake;
use colocate_machine::calibrated::PuDistance;
use colocate_machine::{Nanos, PuIdx};

/// Deals the turns of a job to its threads, evenly; of a served job one to each but the server.
pub(crate) fn begin_turns(parts: &mut Parts<'_>, job: usize) {
    let Some(barrier) = parts.scenario.jobs[job].barrier else { return };
    let threads = u32::try_from(parts.jobs[job].tasks().len()).unwrap_or(u32::MAX);
    parts.jobs[job].requests.clear();
    for (order, task) in (0..).zip(parts.jobs[job].tasks()) {
        parts.teams[task].arrived = 0;
        parts.teams[task].turns = match barrier.wait {
            BarrierWait::Turns(turns) => turns / threads + u32::from(order < turns % threads),
            BarrierWait::Served => u32::from(order > 0 || threads == 1),
            BarrierWait::Sleep | BarrierWait::Spin(_) => 0,
        };
    }
}

/// Puts a task without a turn to sleep, where threads take turns.
pub(crate) fn await_turn(parts: &mut Parts<'_>, task: TaskNo) {
    let takes_turns = parts.takes_turns(parts.tasks[task].job());
    if takes_turns && parts.teams[task].turns == 0 {
        leave_queue(parts, task);
        parts.teams[task].waits = true;
        parts.tasks[task].enter(TaskState::Asleep, parts.events.now);
    }
}

/// Passes a turn to the next thread: the task has done its part.
pub(crate) fn hand_on(parts: &mut Parts<'_>, task: TaskNo) {
    if pass_turn(parts, task) {
        await_turn(parts, task);
    }
}

/// Passes all turns to the next thread: the task has done all its work. The turn of a client is over
/// with it, but for the last client's.
pub(crate) fn hand_on_all(parts: &mut Parts<'_>, task: TaskNo) {
    let job = parts.tasks[task].job();
    let mut clients = parts.jobs[job].tasks().skip(1).filter(|&client| client != task);
    let is_client = parts.is_served(job) && task != parts.jobs[job].first();
    if is_client && clients.any(|client| parts.tasks[client].has_work()) {
        parts.teams[task].turns = 0;
    }
    for _ in 0..parts.teams[task].turns {
        pass_turn(parts, task);
    }
}

/// Passes a turn to the next thread, and wakes a waiting thread. Whether there is a next thread.
fn pass_turn(parts: &mut Parts<'_>, task: TaskNo) -> bool {
    let Some(next) = take_next(parts, task) else { return false };
    parts.teams[task].turns -= 1;
    parts.teams[next].turns += 1;
    if parts.teams[next].go_on() {
        let on = parts.queues.pu_of(task);
        parts.wake_ups.begin(next, Woken { by: task, at: parts.events.now, on });
        parts.rates.is_stale = true;
        wake(parts, next, Some(task));
    }
    true
}

/// The thread that gets a task's turn: a client's is a request to the server, a server's an answer.
fn take_next(parts: &mut Parts<'_>, task: TaskNo) -> Option<TaskNo> {
    let job = parts.tasks[task].job();
    if !parts.is_served(job) {
        return next_in_turn(parts, task);
    }
    let server = parts.jobs[job].first();
    if task != server {
        let is_served = parts.tasks[server].has_work();
        parts.jobs[job].requests.extend(is_served.then_some(task));
        return is_served.then_some(server);
    }
    // The last client's request may outlast the client.
    let client = parts.jobs[job].requests.pop_front()?;
    parts.tasks[client].has_work().then_some(client)
}

/// The next thread of the same job with work left; `None` for the last.
fn next_in_turn(parts: &Parts<'_>, task: TaskNo) -> Option<TaskNo> {
    let all = parts.job_of(task).tasks();
    (task + 1..all.end).chain(all.start..task).find(|&task| parts.tasks[task].has_work())
}

/// Counts a wake-up, and charges its cost, when the woken task gets a PU.
pub(crate) fn note_wake_up(parts: &mut Parts<'_>, task: TaskNo, pu: PuIdx) {
    let Some(woken) = parts.wake_ups.take(task) else { return };
    let waited = parts.events.now - woken.at;
    let machine = parts.platform.machine;
    let pair = woken.on.filter(|_| waited == Nanos::ZERO);
    let pair = pair.and_then(|on| PuDistance::of(machine, parts.pus.os(on), parts.pus.os(pu)));
    let seconds = parts.scenario.kernel.wake_ups.of(pair.unwrap_or(PuDistance::SamePu));
    parts.tasks[task].delay(seconds);
    parts.wake_ups.add(task, woken, pu, waited + nanos(seconds));
}

/// Adds time to all running pairs of threads with consecutive turns.
pub(crate) fn note_both_ran(parts: &mut Parts<'_>, time: Nanos) {
    for job in 0..parts.jobs.len() {
        if !parts.takes_turns(job) {
            continue;
        }
        for (task, next) in pairs(parts, job) {
            if parts.queues.runs(task) && parts.queues.runs(next) {
                parts.wake_ups.add_both_ran(task, next, time);
            }
        }
    }
}

/// Pairs of threads of a job with consecutive turns.
fn pairs(parts: &Parts<'_>, job: usize) -> Vec<(TaskNo, TaskNo)> {
    let tasks = parts.jobs[job].tasks();
    if parts.is_served(job) {
        return tasks.clone().skip(1).map(|client| (client, tasks.start)).collect();
    }
    // Two threads follow each other both ways, but are one pair.
    let last = if tasks.len() == 2 { tasks.start + 1 } else { tasks.end };
    let followed = |task| Some((task, next_in_turn(parts, task)?));
    (tasks.start..last).filter_map(followed).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}
