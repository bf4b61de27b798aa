//! The table of jobs, processes and tasks: which live, which created which, and where each is meant to be.
//!
//! Bookkeeping only: nothing here makes a system call.

mod creation;
mod jobs;
mod processes;
mod seen;
mod targets;
mod tasks;

pub use creation::Creation;
pub use processes::{Process, Processes};
pub use seen::seen;

use crate::placed::AnyPlaced;
use crate::task::TrackedTask;
use colocate_act::journal::Slot;
use colocate_evidence::{JobIdx, PlacementStatus, TaskId};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_observe::sources::counters::DataLevels;
use creation::Inheritable;
use jobs::{Job, Jobs};
use std::ops::AddAssign;
use std::sync::Arc;
use targets::TargetCounts;
use tasks::Tasks;

/// Table of jobs, processes and tasks.
#[derive(Debug, Default)]
pub struct TaskTable {
    /// Jobs, running or ended.
    pub jobs: Jobs,
    /// Living processes.
    pub processes: Processes,
    /// Living tasks, and remembered ended tasks.
    pub tasks: Tasks,
    /// Living tasks by target PU.
    pub targets: TargetCounts,
    /// State that new threads of the current batch of events may inherit.
    pub inheritable: Inheritable,
    /// Levels of caches over the PUs.
    pub levels: DataLevels,
    /// Time for which at least one task was placed.
    pub placed: AnyPlaced,
}

impl TaskTable {
    /// Routes all actions on an attached process through its handle. The handle of a job's first
    /// process is kept for good.
    pub fn hold_given(&mut self, process: &Arc<ProcessHandle>) {
        let pid = process.pid();
        let Some(entry) = self.processes.get_mut(pid) else { return };
        entry.handle = Some(process.clone());
        if let Some(job) = self.jobs.get_mut(entry.job).filter(|job| job.pid == pid) {
            job.attached = Some(process.clone());
        }
    }

    /// Enters a job whose first process is `pid`.
    pub fn add_job(&mut self, name: String, pid: Pid) {
        let job = self.jobs.add(name, pid);
        self.processes.by_pid.insert(pid, Process::new(job, None));
    }

    /// Adds a further process to the job added last.
    pub fn add_process(&mut self, pid: Pid) {
        if let Some((job, entry)) = self.jobs.last_mut() {
            entry.further.push(pid);
            self.processes.by_pid.insert(pid, Process::new(job, None));
        }
    }

    /// Records a new run of a job with first process `pid`; `cpu_before` is the CPU time of the
    /// earlier runs.
    pub fn restart(&mut self, job: JobIdx, pid: Pid, cpu_before: Nanos) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.pid = pid;
            entry.first = entry.created;
            entry.cpu_before = cpu_before;
            entry.cpu_ended = Some(Nanos::ZERO);
            self.processes.by_pid.insert(pid, Process::new(job, None));
        }
    }

    /// CPU time of a job over all its runs; `None` if unknown for any of its tasks.
    pub fn cpu_time(&self, job: JobIdx) -> Option<Nanos> {
        let entry = self.jobs.get(job)?;
        let of_run = TaskId { job, order: entry.first }..=TaskId { job, order: u32::MAX };
        let living = self.tasks.range(of_run).filter(|task| task.ended.is_none());
        let mut times = living.map(|task| task.usage.own_cpu_time());
        let known = entry.cpu_before + entry.cpu_ended?;
        times.try_fold(known, |sum, time| Some(sum + time?))
    }

    /// CPU time of each job's tasks, as far as read.
    pub fn known_cpu_times(&self) -> Vec<Nanos> {
        self.sum_by_job(|job| job.cpu_known, |task| task.usage.own_cpu_time())
    }

    /// Instructions of each job so far, over its counted tasks.
    pub fn instructions(&self) -> Vec<u64> {
        self.sum_by_job(|job| job.instructions, |task| task.usage.instructions())
    }

    /// Sum of each job's ended and living tasks.
    fn sum_by_job<T: AddAssign>(
        &self,
        ended: impl Fn(&Job) -> T,
        living: impl Fn(&TrackedTask) -> Option<T>,
    ) -> Vec<T> {
        let mut all: Vec<T> = self.jobs.iter().map(ended).collect();
        for task in self.tasks.all_living() {
            if let Some(value) = living(task) {
                all[task.id.job.0 as usize] += value;
            }
        }
        all
    }

    /// Notes whether and where a task is placed from `at` on, by its status.
    pub fn note_placed(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let is_placed = task.ended.is_none() && task.placement.status == PlacementStatus::Placed;
        let place = Some(task.thread.mark).filter(|mark| is_placed && mark.is_put());
        self.placed.note(&mut task.placement.times, at, place);
    }

    /// Whether a task is the first of its job's run, or has taken over from the first.
    pub fn begins_run(&self, id: TaskId) -> bool {
        let both = self.jobs.get(id.job).zip(self.tasks.get(id));
        both.is_some_and(|(job, task)| task.thread.pid == job.pid && task.thread.is_first())
    }

    /// Routes all actions on a task's process through `handle`; `None` forbids every action.
    pub fn hold(&mut self, id: TaskId, handle: Option<Arc<ProcessHandle>>) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.thread.process.clone_from(&handle);
        if let Some(process) = self.processes.get_mut(task.thread.pid) {
            process.handle = handle;
        }
    }

    /// Updates the sleep state of a task from its last reading.
    pub fn note_sleep(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id).filter(|task| task.ended.is_none()) else { return };
        let process = self.processes.get(task.thread.pid);
        let is_alone = process.is_none_or(|process| process.living.len() <= 1);
        if !task.usage.sleeps {
            self.tasks.sleeping_alone.remove(&id);
            self.tasks.to_read.insert(id);
        } else if self.tasks.to_read.remove(&id) && is_alone {
            self.tasks.sleeping_alone.insert(id);
        }
    }

    /// Sets a task's new name.
    pub fn rename(&mut self, id: TaskId, name: &str) {
        if let Some((job, task)) = self.jobs.get(id.job).zip(self.tasks.get_mut(id)) {
            task.name = job.name_of(name);
        }
    }

    /// Records the end of a thread; returns its journal slot, if any.
    pub fn ended(&mut self, tid: Tid, at: Nanos) -> Option<Slot> {
        let task = self.tasks.end(tid)?;
        self.targets.remove(task.placement.target);
        task.ended = Some(at);
        // Its descriptor is not kept for what is only remembered.
        task.thread.process = None;
        if task.placement.status == PlacementStatus::Settling {
            task.placement.status = PlacementStatus::Missed;
        }
        // The times continue in the task that has taken over.
        if task.goes_on {
            task.usage.cpu_time = Some(Nanos::ZERO);
            task.usage.waited = Some(Nanos::ZERO);
        }
        let id = task.id;
        let slot = task.thread.slot.take();
        self.jobs.end_task(task);
        // Its times are those of its process now.
        if let Some(last) = self.processes.end_task(task.thread.pid, id) {
            self.tasks.to_read.insert(last);
        }
        self.note_placed(id, at);
        self.tasks.remember(id);
        slot
    }

    /// First threads of unfinished jobs that were reported as ended and have no successor.
    pub fn maybe_lost(&self) -> Vec<TaskId> {
        let first = self.jobs.first_tasks().filter_map(|id| self.tasks.get(id));
        let ended = first.filter(|task| task.ended.is_some());
        let lost = ended.filter(|task| self.tasks.living(task.thread.tid).is_none());
        lost.map(|task| task.id).collect()
    }

    /// Marks a task as alive despite the report of its end. It may be another thread of its process
    /// after an exec without an event.
    pub fn revive(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let (pid, tid) = (task.thread.pid, task.thread.tid);
        let Some(ended) = task.ended else { return };
        let recent = self.inheritable.of(&self.tasks, &self.processes, pid, ended).recent;
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.ended = None;
        task.thread.recent = recent;
        let target = std::mem::take(&mut task.placement.target);
        if let Some(job) = self.jobs.get_mut(id.job) {
            job.remove_ended(task);
        }
        let process = self.processes.by_pid.entry(pid);
        process.or_insert_with(|| Process::new(id.job, None)).living.insert(id);
        self.tasks.make_living(tid, id);
        self.set_target(id, target);
    }
}

#[cfg(test)]
mod tests;
