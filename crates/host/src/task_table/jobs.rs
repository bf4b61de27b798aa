//! Jobs in the order of their addition.

use crate::task::TrackedTask;
use colocate_evidence::{JobEnd, JobIdx, TaskId};
use colocate_linux::Pid;
use colocate_linux::handle::ProcessHandle;
use colocate_machine::Nanos;
use std::sync::Arc;

/// Job: a command with its processes and runs.
#[derive(Debug)]
pub struct Job {
    /// Name for messages.
    pub name: String,
    /// First process.
    pub pid: Pid,
    /// Handle of the first process of an attached job; `None` for a launched job.
    pub attached: Option<Arc<ProcessHandle>>,
    /// Further processes of an attached job.
    pub(super) further: Vec<Pid>,
    /// Number of living tasks.
    pub(super) living: usize,
    /// End of the job; `None` while it runs.
    pub end: Option<JobEnd>,
    /// Tasks created, over all its runs.
    pub(super) created: u32,
    /// The order of the first task of its run.
    pub(super) first: u32,
    /// Order of the first task of the run in the plan.
    pub(super) planned: u32,
    /// CPU time of its earlier runs.
    pub(super) cpu_before: Nanos,
    /// CPU time of this run's ended tasks; `None` if unknown for any of its tasks.
    pub(super) cpu_ended: Option<Nanos>,
    /// CPU time of all ended tasks of the job, as far as known.
    pub(super) cpu_known: Nanos,
    /// Instructions of the job's ended tasks.
    pub(super) instructions: u64,
}

impl Job {
    /// Processes of an attached job.
    fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        std::iter::once(self.pid).chain(self.further.iter().copied())
    }

    /// Name of a task of this job, for messages.
    pub(super) fn name_of(&self, task: &str) -> Arc<str> {
        format!("{}/{task}", self.name).into()
    }

    /// Adds the usage of a task that has ended.
    fn add_ended(&mut self, task: &TrackedTask) {
        self.living = self.living.saturating_sub(1);
        self.instructions += task.usage.instructions().unwrap_or(0);
        let time = task.usage.own_cpu_time();
        // The times of earlier runs are in `cpu_before`.
        if task.id.order >= self.first {
            self.cpu_ended = self.cpu_ended.zip(time).map(|(sum, time)| sum + time);
        }
        self.cpu_known += time.unwrap_or(Nanos::ZERO);
    }

    /// Undoes [`Job::add_ended`] for a task that lives after all.
    pub(super) fn remove_ended(&mut self, task: &TrackedTask) {
        self.living += 1;
        let instructions = task.usage.instructions().unwrap_or(0);
        self.instructions = self.instructions.saturating_sub(instructions);
        let time = task.usage.own_cpu_time();
        if task.id.order >= self.first {
            let less = self.cpu_ended.zip(time);
            self.cpu_ended = less.map(|(sum, time)| sum.saturating_sub(time));
        }
        self.cpu_known = self.cpu_known.saturating_sub(time.unwrap_or(Nanos::ZERO));
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    list: Vec<Job>,
    /// Jobs that had no living task at some moment since the last [`Jobs::take_emptied`].
    emptied: Vec<JobIdx>,
}

impl Jobs {
    /// Adds a job whose first process is `pid`.
    pub(super) fn add(&mut self, name: String, pid: Pid) -> JobIdx {
        self.list.push(Job {
            name,
            pid,
            attached: None,
            further: Vec::new(),
            living: 0,
            end: None,
            created: 0,
            first: 0,
            planned: 0,
            cpu_before: Nanos::ZERO,
            cpu_ended: Some(Nanos::ZERO),
            cpu_known: Nanos::ZERO,
            instructions: 0,
        });
        let job = job_idx(self.list.len() - 1);
        self.emptied.push(job);
        job
    }

    /// Job with this index.
    pub fn get(&self, job: JobIdx) -> Option<&Job> {
        self.list.get(job.0 as usize)
    }

    /// Job with this index, to be changed.
    pub(super) fn get_mut(&mut self, job: JobIdx) -> Option<&mut Job> {
        self.list.get_mut(job.0 as usize)
    }

    /// Jobs in the order of their addition.
    pub fn iter(&self) -> std::slice::Iter<'_, Job> {
        self.list.iter()
    }

    /// Last job.
    pub(super) fn last_mut(&mut self) -> Option<(JobIdx, &mut Job)> {
        let job = job_idx(self.list.len().checked_sub(1)?);
        self.list.last_mut().map(|entry| (job, entry))
    }

    /// Processes of attached jobs, each with the job's index.
    pub fn processes(&self) -> impl Iterator<Item = (JobIdx, Pid)> + '_ {
        let jobs = (0..).map(JobIdx).zip(&self.list);
        jobs.flat_map(|(job, entry)| entry.pids().map(move |pid| (job, pid)))
    }

    /// Records the end of a task.
    pub(super) fn end_task(&mut self, task: &TrackedTask) {
        let Some(job) = self.get_mut(task.id.job) else { return };
        job.add_ended(task);
        if job.living == 0 {
            self.emptied.push(task.id.job);
        }
    }

    /// Unfinished jobs without a living task, among the jobs emptied since the last call.
    pub fn take_emptied(&mut self) -> Vec<JobIdx> {
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied
            .retain(|job| self.get(*job).is_some_and(|job| job.living == 0 && job.end.is_none()));
        emptied
    }

    /// Running job with first process `pid`, and the CPU time of its earlier runs.
    pub fn run_of(&self, pid: Pid) -> Option<(JobIdx, Nanos)> {
        let place = self.list.iter().position(|job| job.pid == pid && job.end.is_none())?;
        Some((job_idx(place), self.list[place].cpu_before))
    }

    /// First task of the run of each unfinished job.
    pub(super) fn first_tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        let jobs = (0..).map(JobIdx).zip(&self.list).filter(|(_, entry)| entry.end.is_none());
        jobs.map(|(job, entry)| TaskId { job, order: entry.first })
    }

    /// Records the present tasks as the tasks of a new plan.
    pub fn note_planned(&mut self) {
        self.list.iter_mut().for_each(|job| job.planned = job.first);
    }

    /// Records the end of a job.
    pub fn end(&mut self, end: JobEnd) {
        if let Some(job) = self.get_mut(end.job) {
            job.end = Some(end);
        }
    }

    /// Whether every job has ended.
    pub fn have_ended(&self) -> bool {
        self.list.iter().all(|job| job.end.is_some())
    }
}

fn job_idx(place: usize) -> JobIdx {
    JobIdx(u32::try_from(place).unwrap_or(u32::MAX))
}
