//! Waiting jobs that are stopped as a whole, as by a signal to a process group or a freezer.
//!
//! # Approach
//! - The tasks of a stopped job are on no queue. Time in which they could have run counts as
//!   waiting in the outcome. Schedulers see only waits for a PU, as a kernel counts no others.
//! - Timers run on: a sleeping task is ready when its time has come, and runs when its job
//!   continues.
//! - A stopped job creates no threads: threads that were due are created when it continues.
//! - A job that arrives while the plan has it wait is launched all the same, and stopped before its
//!   first thread has run. That thread is placed, and touches its memory, when the job continues.
//! - Data of a stopped task that others evict from caches has to be fetched again
//!   ([`crate::pollution`]).

use crate::parts::Parts;
use crate::task::TaskState;
use crate::world::moves::{leave_queue, set_target};
use crate::world::wake::{go_on, hold};
use colocate_evidence::JobIdx;

/// Stops `jobs`, given in order, if not yet stopped.
pub(crate) fn stop(parts: &mut Parts<'_>, jobs: &[JobIdx]) {
    for job in 0..parts.jobs.len() {
        if !names(jobs, job) || !parts.jobs[job].stop() {
            continue;
        }
        // Pollution is counted from the first stop on, so all that runs now must be known anew.
        parts.pollution.begin();
        parts.rates.is_stale = true;
        for task in parts.jobs[job].tasks() {
            if parts.tasks[task].state == TaskState::Ready {
                leave_queue(parts, task);
                hold(parts, task);
            }
        }
    }
}

/// Lets all stopped jobs continue but `stopped`, given in order.
pub(crate) fn let_go(parts: &mut Parts<'_>, stopped: &[JobIdx]) {
    for job in 0..parts.jobs.len() {
        if names(stopped, job) || !parts.jobs[job].go_on() {
            continue;
        }
        for task in parts.jobs[job].tasks() {
            if parts.tasks[task].state == TaskState::Stopped {
                set_target(parts, task);
                go_on(parts, task);
            }
        }
        let held = std::mem::take(&mut parts.jobs[job].held_creations);
        let now = parts.events.now;
        held.into_iter().for_each(|task| parts.events.create_at(now, task));
    }
}

/// Whether a job is among `jobs`, given in order.
fn names(jobs: &[JobIdx], job: usize) -> bool {
    jobs.binary_search_by_key(&job, |named| named.0 as usize).is_ok()
}
