//! Jobs that a plan has wait: stopped as a whole, as a signal to a process group or a freezer does it.
//!
//! # Approach
//! - The tasks of a stopped job are on no queue. Time that they could have run counts as waiting in the outcome;
//!   schedulers get waits for a PU alone, as a kernel counts no others.
//! - Timers run on: a task that sleeps is ready when its time has come, and runs when its job goes on.
//! - A stopped job creates no threads: those that were due are created when it goes on.
//! - A job that arrives while the plan has it wait is launched all the same, and stopped before its first
//!   thread has run. That thread is placed, and touches its memory, when the job goes on.
//! - What others bring into the caches meanwhile, a stopped task has to bring in again ([`crate::pollution`]).

use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_evidence::JobIdx;
use std::cmp::Reverse;

impl World<'_> {
    /// Stops those of the jobs that go on.
    pub fn stop(&mut self, jobs: &[JobIdx]) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].stopped || !names(jobs, job) {
                continue;
            }
            self.jobs[job].stopped = true;
            // What runs beside it counts from now on.
            (self.pollution.needed, self.stale) = (true, true);
            for task in self.jobs[job].tasks.clone() {
                if self.tasks[task].state == State::Ready {
                    self.leave_queue(task);
                    self.hold(task);
                }
            }
        }
    }

    /// Lets all stopped jobs go on but these.
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
            self.creations.extend(held.into_iter().map(|task| Reverse((self.now, task))));
        }
    }

    /// A task of a stopped job could run from now on.
    pub fn hold(&mut self, task: TaskNo) {
        self.tasks[task].state = State::Stopped;
        self.tasks[task].since = self.now;
        self.tasks[task].stopped_at = self.tasks[task].pu.map(|pu| self.pollution.so_far(pu));
    }

    fn go_on(&mut self, task: TaskNo) {
        self.end_stop(task);
        self.tasks[task].state = State::Ready;
        if self.tasks[task].pu.is_some() {
            self.enqueue_woken(task);
        } else {
            self.begin(task);
        }
    }

    pub fn is_stopped(&self, task: TaskNo) -> bool {
        self.jobs[self.tasks[task].id.job.0 as usize].stopped
    }
}

/// Whether a job is one of these, which are in order.
fn names(jobs: &[JobIdx], job: usize) -> bool {
    jobs.binary_search_by_key(&job, |named| named.0 as usize).is_ok()
}
