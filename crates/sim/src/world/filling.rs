//! Waiting jobs that fill idle PUs, as under SCHED_IDLE.
//!
//! # Approach
//! - The tasks of fillers go where the kernel puts them, and weigh [`FILLER`](crate::queues::FILLER)
//!   in place of [`NORMAL`](crate::queues::NORMAL): their virtual time passes faster, and their
//!   deadline is later, by that ratio.
//! - A normal task that comes to a PU where a filler runs is next at once.
//! - When threads are balanced or wake up, a PU with only fillers counts as idle; a filler is only
//!   moved to a PU without tasks.
//! - A job that has not run yet is stopped, as without filling. So are all fillers in a quantum
//!   that measures a job on cores of its own ([`colocate_policy::Plan::measures`]).
//! # Properties
//! - **Little is taken**: beside a thread that computes, a filler gets its share by weight, and a
//!   slice each time that it comes to the PU. -> tests `a_filler_gets_its_weight`,
//!   `little_is_taken`
//! - **Idle PUs are filled**: while a filler could run, no PU is idle that it may use. -> test
//!   `idle_pus_are_filled`, and rule 5 of every simulation
//! # What is left out
//! Slices of their own (fillers have the 3 ms of others); the balance of fillers between busy PUs.

use crate::parts::Parts;
use crate::task::{TaskNo, TaskState};
use crate::world::moves::{join_queue, leave_queue};
use colocate_engine::Meanwhile;
use colocate_evidence::JobIdx;
use colocate_policy::Plan;

/// Fillers among the waiting jobs; the rest is stopped.
pub(crate) fn fillers(
    parts: &Parts<'_>,
    meanwhile: Meanwhile,
    waiting: &[JobIdx],
    plan: &Plan,
) -> Vec<JobIdx> {
    if meanwhile == Meanwhile::Stop || plan.measures() {
        return Vec::new();
    }
    waiting.iter().copied().filter(|&job| has_run(parts, job)).collect()
}

/// Whether a task of a job has run before.
fn has_run(parts: &Parts<'_>, job: JobIdx) -> bool {
    let job = parts.jobs.get(job.0 as usize);
    job.is_some_and(|job| job.tasks().any(|task| parts.queues.pu_of(task).is_some()))
}

/// Makes the tasks of exactly the jobs `fillers`, in order, fillers.
pub(crate) fn have_fill(parts: &mut Parts<'_>, fillers: &[JobIdx]) {
    for job in 0..parts.jobs.len() {
        // Jobs of a plan are in order.
        let fills = fillers.binary_search_by_key(&job, |filler| filler.0 as usize).is_ok();
        for task in parts.jobs[job].tasks() {
            if parts.queues.is_filler(task) != fills {
                set_fills(parts, task, fills);
            }
        }
    }
}

/// Makes a task a filler or a normal task. A queued task leaves its queue with the old weight
/// and comes back with the new: the sums of virtual times are by weight.
fn set_fills(parts: &mut Parts<'_>, task: TaskNo, fills: bool) {
    let queued = parts.tasks[task].state == TaskState::Ready && parts.queues.has(task);
    if let Some(pu) = parts.queues.pu_of(task).filter(|_| queued) {
        leave_queue(parts, task);
        parts.queues.set_filler(task, fills);
        join_queue(parts, task, pu);
    } else {
        parts.queues.set_filler(task, fills);
    }
}
