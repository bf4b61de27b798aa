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

use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_evidence::JobIdx;

impl World<'_> {
    /// Stops `jobs`, given in order, if not yet stopped.
    pub fn stop(&mut self, jobs: &[JobIdx]) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].stopped || !names(jobs, job) {
                continue;
            }
            self.jobs[job].stopped = true;
            // Pollution is counted from the first stop on, so all that runs now must be known anew.
            self.pollution.begin();
            self.rates.note_change();
            for task in self.jobs[job].tasks.clone() {
                if self.tasks[task].state == State::Ready {
                    self.leave_queue(task);
                    self.hold(task);
                }
            }
        }
    }

    /// Lets all stopped jobs continue but `stopped`, given in order.
    pub fn let_go(&mut self, stopped: &[JobIdx]) {
        for job in 0..self.jobs.len() {
            if names(stopped, job) || !std::mem::take(&mut self.jobs[job].stopped) {
                continue;
            }
            for task in self.jobs[job].tasks.clone() {
                if self.tasks[task].state == State::Stopped {
                    self.set_target(task);
                    self.go_on(task);
                }
            }
            let held = std::mem::take(&mut self.jobs[job].held_creations);
            let now = self.events.now();
            held.into_iter().for_each(|task| self.events.create_at(now, task));
        }
    }

    /// Stops a ready or new task.
    pub fn hold(&mut self, task: TaskNo) {
        self.tasks[task].state = State::Stopped;
        self.tasks[task].since = self.events.now();
        self.tasks[task].stopped_at = self.queues.pu_of(task).map(|pu| self.pollution.so_far(pu));
    }

    /// Lets a stopped task continue: where it ran, or as a new task.
    fn go_on(&mut self, task: TaskNo) {
        self.end_stop(task);
        self.tasks[task].state = State::Ready;
        if self.queues.pu_of(task).is_some() {
            self.enqueue_woken(task);
        } else {
            self.begin(task);
        }
    }

    /// Whether a task's job is stopped.
    pub fn is_stopped(&self, task: TaskNo) -> bool {
        self.jobs[self.tasks[task].id.job.0 as usize].stopped
    }
}

/// Whether a job is among `jobs`, given in order.
fn names(jobs: &[JobIdx], job: usize) -> bool {
    jobs.binary_search_by_key(&job, |named| named.0 as usize).is_ok()
}
