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

use crate::scenario::BarrierWait;
use crate::task::{State, TaskNo};
use crate::world::World;

impl World<'_> {
    /// A task arrives at its job's barrier.
    pub(crate) fn arrive(&mut self, task: TaskNo) {
        let job = self.tasks[task].id.job.0 as usize;
        let Some(barrier) = self.scenario.jobs[job].barrier else { return };
        if matches!(barrier.wait, BarrierWait::Turns(_)) {
            return self.hand_on(task);
        }
        self.tasks[task].arrived += 1;
        self.tasks[task].at_barrier = true;
        if self.has_come_together(job) {
            self.meet(job);
        }
        // The last to arrive has opened the barrier, and does not wait.
        if !self.tasks[task].at_barrier {
            return;
        }
        match barrier.wait {
            BarrierWait::Spin(phase) => self.tasks[task].course.spin(phase),
            BarrierWait::Sleep | BarrierWait::Turns(_) => {
                self.leave_queue(task);
                self.tasks[task].state = State::Asleep;
                self.tasks[task].since = self.events.now();
            }
        }
    }

    /// Opens the barrier of a job if all tasks with work left have arrived.
    pub(crate) fn recheck_barrier(&mut self, job: usize) {
        let is_waiting = self.jobs[job].tasks.clone().any(|task| self.tasks[task].at_barrier);
        if is_waiting && self.has_come_together(job) {
            self.meet(job);
        }
    }

    /// The serial part is done.
    pub(crate) fn end_serial(&mut self, task: TaskNo) {
        self.release(self.tasks[task].id.job.0 as usize);
    }

    /// Tasks of a job with work left.
    fn team(&self, job: usize) -> impl Iterator<Item = TaskNo> + '_ {
        self.jobs[job].tasks.clone().filter(|&task| self.tasks[task].has_work())
    }

    /// Whether all tasks with work left wait at the barrier, and none does the serial part.
    fn has_come_together(&self, job: usize) -> bool {
        let serial = self.team(job).any(|task| self.tasks[task].course.is_serial());
        !serial && self.team(job).all(|task| self.tasks[task].at_barrier)
    }

    /// All have arrived: the first task does the job's serial part if any, else all continue.
    fn meet(&mut self, job: usize) {
        let serial = self.scenario.jobs[job].barrier.and_then(|barrier| barrier.serial);
        let first = self.team(job).next();
        match (serial, first) {
            (Some(serial), Some(first)) => {
                self.end_spin(first);
                self.tasks[first].course.begin_serial(serial);
                self.go_on_from_barrier(first);
            }
            _ => self.release(job),
        }
    }

    /// Lets all tasks at the barrier continue.
    fn release(&mut self, job: usize) {
        for task in self.team(job).collect::<Vec<_>>() {
            if std::mem::take(&mut self.tasks[task].at_barrier) {
                self.end_spin(task);
                self.tasks[task].course.go_back();
                self.go_on_from_barrier(task);
            }
        }
    }

    fn go_on_from_barrier(&mut self, task: TaskNo) {
        self.tasks[task].at_barrier = false;
        self.rates.note_change();
        self.wake(task);
    }
}
