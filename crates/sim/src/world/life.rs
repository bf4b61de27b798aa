//! Life of tasks and jobs: creation, sleep, end, and the next run of a job.

use crate::parts::Parts;
use crate::scenario::Method;
use crate::task::{TaskNo, TaskState};
use crate::world::barrier::recheck_barrier;
use crate::world::moves::{leave_queue, set_target};
use crate::world::turns::{await_turn, begin_turns, hand_on_all};
use crate::world::wake::{begin, hold};
use colocate_machine::Nanos;

/// Puts a task to sleep for a time.
pub(crate) fn sleep(parts: &mut Parts<'_>, task: TaskNo, time: Nanos) {
    leave_queue(parts, task);
    parts.tasks[task].enter(TaskState::Asleep, parts.events.now);
    parts.events.wake_at(parts.events.now + time, task);
}

/// Creates a task; holds the task if its job is stopped.
pub(crate) fn create(parts: &mut Parts<'_>, no: TaskNo) {
    if parts.tasks[no].state != TaskState::NotCreated {
        return;
    }
    let job = parts.tasks[no].job();
    // A job that arrives while it has to wait is launched all the same, and stopped before it
    // runs.
    if parts.job_of(no).is_stopped && no != parts.jobs[job].first() {
        parts.jobs[job].held_creations.push(no);
        return;
    }
    parts.jobs[job].launched.get_or_insert(parts.events.now);
    // A new task has no lag, and a whole load.
    parts.queues.forget_lag(no);
    parts.averages.begin(no, parts.events.now);
    if parts.job_of(no).is_stopped {
        hold(parts, no);
        return;
    }
    parts.tasks[no].enter(TaskState::Ready, parts.events.now);
    set_target(parts, no);
    begin(parts, no);
    await_turn(parts, no);
}

/// Ends a task's work of this run; the last task of a job ends or relaunches the job.
pub(crate) fn finish(parts: &mut Parts<'_>, task: TaskNo) {
    // Its last message is sent before its end.
    hand_on_all(parts, task);
    leave_queue(parts, task);
    parts.averages.end(task);
    parts.tasks[task].enter(TaskState::Done, parts.events.now);
    let job = parts.tasks[task].job();
    let ends_run = parts.jobs[job].finish_task(parts.events.now);
    if parts.scenario.method == Method::Leave {
        end_task(parts, task);
    }
    if !ends_run {
        if !parts.takes_turns(job) {
            recheck_barrier(parts, task);
        }
        return;
    }
    let all_done = parts.is_complete();
    match parts.scenario.method {
        Method::Leave => end_job(parts, job, 0),
        Method::Restart if all_done => (0..parts.jobs.len()).for_each(|job| end_job(parts, job, 0)),
        Method::Restart => relaunch(parts, job),
    }
    if all_done {
        parts.ends.is_over = true;
    }
}

/// Launches a job once more, at the earliest a slice after its last launch. New tasks start
/// with the virtual time of their PU's queue: without the delay the next run of a shorter job
/// could go first again, for ever.
fn relaunch(parts: &mut Parts<'_>, job: usize) {
    let at = parts.jobs[job].relaunch(parts.events.now, parts.scenario.kernel.slice);
    begin_turns(parts, job);
    for no in parts.jobs[job].tasks() {
        let thread = no - parts.jobs[job].first();
        parts.tasks[no].course.restart();
        parts.tasks[no].enter(TaskState::NotCreated, parts.events.now);
        let created = at + parts.scenario.jobs[job].threads[thread].born;
        parts.events.create_at(created, no);
    }
}

/// Ends a task for good.
fn end_task(parts: &mut Parts<'_>, task: TaskNo) {
    match parts.tasks[task].state {
        TaskState::Ended => return,
        TaskState::Ready => leave_queue(parts, task),
        _ => {}
    }
    parts.tasks[task].enter(TaskState::Ended, parts.events.now);
}

/// Ends a job with all its tasks, with this exit status.
fn end_job(parts: &mut Parts<'_>, job: usize, status: i32) {
    if !parts.jobs[job].end() {
        return;
    }
    parts.jobs[job].tasks().for_each(|task| end_task(parts, task));
    let tasks = parts.tasks[parts.jobs[job].tasks()].iter();
    let cpu_time = tasks.fold(Nanos::ZERO, |sum, task| sum + task.total.ran);
    parts.ends.end_job(job, parts.events.now, status, cpu_time);
}

/// Kills all remaining jobs, as `timeout -s KILL` would.
pub(crate) fn give_up(parts: &mut Parts<'_>) {
    // Exit status of a shell for a process ended by signal 9.
    const KILLED: i32 = 128 + 9;
    (0..parts.jobs.len()).for_each(|job| end_job(parts, job, KILLED));
    parts.ends.is_over = true;
}
