//! The table of jobs, processes and tasks: which live, which created which, and where each is meant to be.
//!
//! Bookkeeping only: nothing here makes a system call.

mod creation;
mod seen;
mod targets;

pub use creation::Creation;

use crate::placed::AnyPlaced;
use crate::runtime::Runtime;
use crate::task::Task;
use colocate_act::journal::Slot;
use colocate_evidence::{JobEnd, JobIdx, PlacementStatus, TaskId};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use colocate_observe::sources::counters::DataLevels;
use creation::OfAny;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Number of ended tasks with records of their own. A longer report is useless, and a program can
/// create millions of threads.
const REMEMBERED: usize = 10_000;
/// Number of remembered ended tasks if all are read every quantum, where the last to end matter,
/// not the first. Chosen: more than end in a quantum, few enough to cost little in each.
const REMEMBERED_LAST: usize = 512;

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
    further: Vec<Pid>,
    /// Number of living tasks.
    living: usize,
    /// End of the job; `None` while it runs.
    pub end: Option<JobEnd>,
    /// Tasks created, over all its runs.
    created: u32,
    /// The order of the first task of its run.
    first: u32,
    /// Order of the first task of the run in the plan.
    planned: u32,
    /// CPU time of its earlier runs.
    cpu_before: Nanos,
    /// CPU time of this run's ended tasks; `None` if unknown for any of its tasks.
    cpu_ended: Option<Nanos>,
    /// CPU time of all ended tasks of the job, as far as known.
    cpu_known: Nanos,
    /// Instructions of the job's ended tasks.
    instructions: u64,
}

impl Job {
    /// Processes of an attached job.
    fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        std::iter::once(self.pid).chain(self.further.iter().copied())
    }

    /// Name of a task of this job, for messages.
    fn name_of(&self, task: &str) -> Arc<str> {
        format!("{}/{task}", self.name).into()
    }
}

/// A living process.
#[derive(Debug)]
pub struct Process {
    /// Job of the process.
    pub job: JobIdx,
    /// Handle for every action on the process; `None` before it was opened, or if it could not be.
    pub handle: Option<Arc<ProcessHandle>>,
    /// Creator, a thread of another process, until the process executes a program.
    pub creator: Option<Tid>,
    /// Runtime of the program: its way of counting PUs.
    pub runtime: Runtime,
    /// Time at which the process will have counted its PUs, on the kernel's clock.
    pub settled_at: Nanos,
    /// Number of postponements of `settled_at`.
    pub postponements: u32,
    /// Time until which colocate kept the first thread on one PU, also before the program began;
    /// zero if never.
    pub narrow_until: Nanos,
    /// Threads created since the program began, without the first thread.
    pub further: u32,
    /// Whether the program creates threads faster than they can be followed.
    pub is_storm: bool,
    /// Whether the process or an ancestor had lost its creator before it was seen.
    pub is_orphan: bool,
    /// CPU time of the children that were reaped before the process was attached.
    pub children_before: Nanos,
    living: BTreeSet<TaskId>,
}

impl Process {
    fn new(job: JobIdx, runtime: Runtime) -> Self {
        Self {
            job,
            handle: None,
            creator: None,
            runtime,
            settled_at: Nanos::ZERO,
            postponements: 0,
            narrow_until: Nanos::ZERO,
            further: 0,
            is_storm: false,
            is_orphan: false,
            children_before: Nanos::ZERO,
            living: BTreeSet::new(),
        }
    }
}

/// Table of jobs, processes and tasks.
#[derive(Debug, Default)]
pub struct TaskTable {
    jobs: Vec<Job>,
    processes: HashMap<Pid, Process>,
    /// The process whose last task was the last to end, and its job.
    ended_last: Option<(Pid, JobIdx)>,
    tasks: BTreeMap<TaskId, Task>,
    by_tid: HashMap<Tid, TaskId>,
    load: HashMap<PuNr, u32>,
    /// Jobs that had no living task at some moment since the last [`TaskTable::take_emptied`].
    emptied: Vec<JobIdx>,
    /// Living tasks not asleep at their last reading.
    to_read: BTreeSet<TaskId>,
    /// Living tasks asleep at their last reading, each the only thread of its process.
    sleeping_alone: BTreeSet<TaskId>,
    /// State that threads may inherit from any thread of a process, before the events of the
    /// current batch.
    of_any: HashMap<Pid, OfAny>,
    /// Remembered ended tasks, in the order of their ends.
    ended: VecDeque<TaskId>,
    /// Whether the last ended tasks are remembered, and not the first.
    pub keeps_last: bool,
    /// Levels of caches over the PUs.
    pub levels: DataLevels,
    /// Time for which at least one task was placed.
    pub placed: AnyPlaced,
    /// Number of forgotten ended tasks.
    pub forgotten: u64,
    /// Maximum number of tasks alive at once.
    pub most_living: usize,
}

impl TaskTable {
    /// Routes all actions on an attached process through its handle. The handle of a job's first
    /// process is kept for good.
    pub fn hold_given(&mut self, process: &Arc<ProcessHandle>) {
        let pid = process.pid();
        let Some(entry) = self.processes.get_mut(&pid) else { return };
        entry.handle = Some(process.clone());
        let job = self.jobs.get_mut(entry.job.0 as usize).filter(|job| job.pid == pid);
        if let Some(job) = job {
            job.attached = Some(process.clone());
        }
    }

    /// A living process of a job, the first process if alive.
    pub fn process_of(&self, job: JobIdx) -> Option<&Arc<ProcessHandle>> {
        let first = self.handle(self.jobs.get(job.0 as usize)?.pid).filter(|it| it.exists());
        first.or_else(|| {
            let mut of_job = self.processes.values().filter(|process| process.job == job);
            of_job.find_map(|process| process.handle.as_ref().filter(|it| it.exists()))
        })
    }

    /// Enters a job whose first process is `pid`.
    pub fn add_job(&mut self, name: String, pid: Pid, runtime: Runtime) {
        let job = job_idx(self.jobs.len());
        self.jobs.push(Job {
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
        self.enter(pid, job, runtime);
        self.emptied.push(job);
    }

    /// Adds a further process to the job added last.
    pub fn add_process(&mut self, pid: Pid, runtime: Runtime) {
        let Some(job) = self.jobs.last_mut() else { return };
        job.further.push(pid);
        let job = job_idx(self.jobs.len() - 1);
        self.enter(pid, job, runtime);
    }

    /// Processes of attached jobs, each with the job's index.
    pub fn given(&self) -> impl Iterator<Item = (usize, Pid)> + '_ {
        self.jobs
            .iter()
            .enumerate()
            .flat_map(|(place, job)| job.pids().map(move |pid| (place, pid)))
    }

    /// Unfinished jobs without a living task, among the jobs emptied since the last call.
    pub fn take_emptied(&mut self) -> Vec<JobIdx> {
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.retain(|job| {
            self.jobs.get(job.0 as usize).is_some_and(|job| job.living == 0 && job.end.is_none())
        });
        emptied
    }

    fn enter(&mut self, pid: Pid, job: JobIdx, runtime: Runtime) {
        self.processes.insert(pid, Process::new(job, runtime));
    }

    /// Records a new run of a job with first process `pid`; `cpu_before` is the CPU time of the
    /// earlier runs.
    pub fn restart(&mut self, job: JobIdx, pid: Pid, runtime: Runtime, cpu_before: Nanos) {
        if let Some(entry) = self.jobs.get_mut(job.0 as usize) {
            entry.pid = pid;
            entry.first = entry.created;
            entry.cpu_before = cpu_before;
            entry.cpu_ended = Some(Nanos::ZERO);
            self.enter(pid, job, runtime);
        }
    }

    /// Running job with first process `pid`, and the CPU time of its earlier runs.
    pub fn run_of(&self, pid: Pid) -> Option<(JobIdx, Nanos)> {
        let place = self.jobs.iter().position(|job| job.pid == pid && job.end.is_none())?;
        Some((job_idx(place), self.jobs[place].cpu_before))
    }

    /// CPU time of a job over all its runs; `None` if unknown for any of its tasks.
    pub fn cpu_time(&self, job: JobIdx) -> Option<Nanos> {
        let entry = self.jobs.get(job.0 as usize)?;
        let of_run = TaskId { job, order: entry.first }..=TaskId { job, order: u32::MAX };
        let living = self.tasks.range(of_run).filter(|(_, task)| task.ended.is_none());
        let mut times = living.map(|(_, task)| task.usage.own_cpu_time());
        let known = entry.cpu_before + entry.cpu_ended?;
        times.try_fold(known, |sum, time| Some(sum + time?))
    }

    /// CPU time of each job's tasks, as far as read.
    pub fn known_cpu_times(&self) -> Vec<Nanos> {
        let mut all: Vec<Nanos> = self.jobs.iter().map(|job| job.cpu_known).collect();
        for task in self.by_tid.values().filter_map(|id| self.tasks.get(id)) {
            let sum = &mut all[task.id.job.0 as usize];
            *sum += task.usage.own_cpu_time().unwrap_or(Nanos::ZERO);
        }
        all
    }

    /// Notes whether and where a task is placed from `at` on, by its status.
    pub fn note_placed(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let is_placed = task.ended.is_none() && task.placement.status == PlacementStatus::Placed;
        let place = Some(task.thread.mark).filter(|mark| is_placed && mark.is_put());
        self.placed.note(&mut task.placement.times, at, place);
    }

    /// All remembered tasks in the order of their IDs.
    pub fn remembered(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// Instructions of each job so far, over its counted tasks.
    pub fn instructions(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.jobs.iter().map(|job| job.instructions).collect();
        for task in self.by_tid.values().filter_map(|id| self.tasks.get(id)) {
            all[task.id.job.0 as usize] += task.usage.instructions().unwrap_or(0);
        }
        all
    }

    /// Whether a task is the first of its job's run, or has taken over from the first.
    pub fn begins_run(&self, id: TaskId) -> bool {
        let both = self.jobs.get(id.job.0 as usize).zip(self.tasks.get(&id));
        both.is_some_and(|(job, task)| task.thread.pid == job.pid && task.thread.is_first())
    }

    /// Records the present tasks as the tasks of a new plan.
    pub fn is_planned(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.planned = job.first);
    }

    /// Jobs in the order of their addition.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Records the end of a job.
    pub fn end_job(&mut self, end: JobEnd) {
        if let Some(job) = self.jobs.get_mut(end.job.0 as usize) {
            job.end = Some(end);
        }
    }

    /// Whether every job has ended.
    pub fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.end.is_some())
    }

    /// The living processes of a job, lowest number first.
    pub fn processes_of(&self, job: JobIdx) -> Vec<Pid> {
        let of_job = self.processes.iter().filter(|(_, process)| process.job == job);
        let mut pids: Vec<Pid> = of_job.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Handles of the job's processes, without processes that have none.
    pub fn handles_of(&self, job: JobIdx) -> Vec<Arc<ProcessHandle>> {
        let pids = self.processes_of(job);
        pids.iter().filter_map(|pid| self.processes.get(pid)?.handle.clone()).collect()
    }

    /// The handle of a living process.
    pub fn handle(&self, pid: Pid) -> Option<&Arc<ProcessHandle>> {
        self.processes.get(&pid)?.handle.as_ref()
    }

    /// Routes all actions on a task's process through `handle`; `None` forbids every action.
    pub fn hold(&mut self, id: TaskId, handle: Option<Arc<ProcessHandle>>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.thread.process.clone_from(&handle);
        if let Some(process) = self.processes.get_mut(&task.thread.pid) {
            process.handle = handle;
        }
    }

    /// The living processes of every job.
    pub fn handles_by_job(&self) -> BTreeMap<JobIdx, Vec<Arc<ProcessHandle>>> {
        let mut handles: BTreeMap<JobIdx, Vec<Arc<ProcessHandle>>> = BTreeMap::new();
        for process in self.processes.values() {
            handles.entry(process.job).or_default().extend(process.handle.clone());
        }
        handles
    }

    /// A living process.
    pub fn process(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// All living processes.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Process)> {
        self.processes.iter_mut().map(|(pid, process)| (*pid, process))
    }

    /// CPU time of the children that a living process had reaped before it was attached.
    pub fn children_before(&self, pid: Pid) -> Option<Nanos> {
        Some(self.processes.get(&pid)?.children_before)
    }

    /// A living task by its thread.
    pub fn living(&self, tid: Tid) -> Option<TaskId> {
        self.by_tid.get(&tid).copied()
    }

    /// The threads of all living tasks with their IDs.
    pub fn all_living(&self) -> impl Iterator<Item = (Tid, TaskId)> + '_ {
        self.by_tid.iter().map(|(tid, id)| (*tid, *id))
    }

    /// The living tasks of a job, in the order of their IDs.
    pub fn living_of(&mut self, job: JobIdx) -> impl Iterator<Item = &mut Task> {
        let of_job = TaskId { job, order: 0 }..=TaskId { job, order: u32::MAX };
        let tasks = self.tasks.range_mut(of_job).map(|(_, task)| task);
        tasks.filter(|task| task.ended.is_none())
    }

    /// At most `most` living tasks after the task `after`, in the order of their IDs.
    pub fn living_after(&self, after: Option<TaskId>, most: usize) -> Vec<TaskId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = self.tasks.range((after, Bound::Unbounded)).map(|(_, task)| task);
        tasks.filter(|task| task.ended.is_none()).map(|task| task.id).take(most).collect()
    }

    /// All living tasks, in the order of their IDs.
    pub fn living_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.values_mut().filter(|task| task.ended.is_none())
    }

    /// Number of remembered tasks.
    pub fn kept_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Living processes with several threads, each with its number of threads.
    pub fn with_threads(&self) -> impl Iterator<Item = (Pid, usize)> + '_ {
        let living = self.processes.iter().map(|(pid, process)| (*pid, process.living.len()));
        living.filter(|(_, living)| *living > 1)
    }

    /// The living tasks of a process, in the order of their IDs.
    pub fn living_in(&self, pid: Pid) -> Vec<TaskId> {
        let process = self.processes.get(&pid).into_iter();
        process.flat_map(|process| process.living.iter().copied()).collect()
    }

    /// Tasks of process `pid` asleep at their last reading.
    pub fn sleeping_of(&self, pid: Pid) -> Vec<TaskId> {
        let mut all = self.living_in(pid);
        all.retain(|id| !self.to_read.contains(id));
        all
    }

    /// Living tasks asleep at their last reading and alone in their processes, in the order of
    /// their IDs.
    pub fn sleeping_alone(&self) -> Vec<TaskId> {
        self.sleeping_alone.iter().copied().collect()
    }

    /// Living tasks not asleep at their last reading, in the order of their IDs.
    pub fn to_read(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.to_read.iter().copied()
    }

    /// Tasks of [`TaskTable::to_read()`] that did not sleep at their last reading.
    pub fn runnable(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.to_read().filter(|id| self.tasks.get(id).is_some_and(|task| !task.usage.sleeps))
    }

    /// Updates the sleep state of a task from its last reading.
    pub fn note_sleep(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.ended.is_none()) else { return };
        let living = self.processes.get(&task.thread.pid).map_or(0, |process| process.living.len());
        if !task.usage.sleeps {
            self.sleeping_alone.remove(&id);
            self.to_read.insert(id);
        } else if self.to_read.remove(&id) && living <= 1 {
            self.sleeping_alone.insert(id);
        }
    }

    /// Task with this ID; `None` if forgotten.
    pub fn task(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&id)
    }

    /// Sets a task's new name.
    pub fn rename(&mut self, id: TaskId, name: &str) {
        let job = self.jobs.get(id.job.0 as usize);
        if let Some((job, task)) = job.zip(self.tasks.get_mut(&id)) {
            task.name = job.name_of(name);
        }
    }

    /// Records the end of a thread; returns its journal slot, if any.
    pub fn ended(&mut self, tid: Tid, at: Nanos) -> Option<Slot> {
        let id = self.by_tid.remove(&tid)?;
        self.to_read.remove(&id);
        self.sleeping_alone.remove(&id);
        self.set_load(id, None);
        let task = self.tasks.get_mut(&id)?;
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
        let slot = task.thread.slot.take();
        let pid = task.thread.pid;
        let job = &mut self.jobs[id.job.0 as usize];
        job.living = job.living.saturating_sub(1);
        if job.living == 0 {
            self.emptied.push(id.job);
        }
        job.instructions += task.usage.instructions().unwrap_or(0);
        // The times of earlier runs are in `cpu_before`.
        if id.order >= job.first {
            let time = task.usage.own_cpu_time();
            job.cpu_ended = job.cpu_ended.zip(time).map(|(sum, time)| sum + time);
        }
        job.cpu_known += task.usage.own_cpu_time().unwrap_or(Nanos::ZERO);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.living.remove(&id);
            match process.living.first() {
                None => {
                    self.processes.remove(&pid);
                    // A thread that takes over in an exec may be reported after this end.
                    self.ended_last = Some((pid, id.job));
                }
                // Its times are those of its process now.
                Some(last) if process.living.len() == 1 => drop(self.to_read.insert(*last)),
                Some(_) => {}
            }
        }
        self.note_placed(id, at);
        self.remember(id);
        slot
    }

    /// Remembers an ended task; above [`REMEMBERED`] another ended task is forgotten.
    fn remember(&mut self, id: TaskId) {
        let forgotten = match (self.keeps_last, self.ended.len()) {
            (true, REMEMBERED_LAST..) => {
                self.ended.push_back(id);
                self.ended.pop_front()
            }
            (false, REMEMBERED..) => Some(id),
            _ => {
                self.ended.push_back(id);
                None
            }
        };
        if let Some(id) = forgotten {
            // One that lives after all is not forgotten.
            if self.tasks.get(&id).is_some_and(|task| task.ended.is_some()) {
                self.tasks.remove(&id);
                self.forgotten += 1;
            }
        }
    }

    /// First threads of unfinished jobs that were reported as ended and have no successor.
    pub fn maybe_lost(&self) -> Vec<TaskId> {
        let running = self.jobs.iter().enumerate().filter(|(_, job)| job.end.is_none());
        let first = running.map(|(place, job)| TaskId { job: job_idx(place), order: job.first });
        first
            .filter(|id| {
                self.tasks.get(id).is_some_and(|task| {
                    task.ended.is_some() && self.living(task.thread.tid).is_none()
                })
            })
            .collect()
    }

    /// Marks a task as alive despite the report of its end. It may be another thread of its process
    /// after an exec without an event.
    pub fn revive(&mut self, id: TaskId) {
        let task = self.tasks.get(&id);
        let Some((pid, Some(ended))) = task.map(|task| (task.thread.pid, task.ended)) else {
            return;
        };
        let OfAny { recent, .. } = self.of_any(pid, ended);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.ended = None;
        task.thread.recent = recent;
        self.by_tid.insert(task.thread.tid, id);
        let target = std::mem::take(&mut task.placement.target);
        // It is counted among the living again.
        let job = &mut self.jobs[id.job.0 as usize];
        job.living += 1;
        job.instructions = job.instructions.saturating_sub(task.usage.instructions().unwrap_or(0));
        if id.order >= job.first {
            let less = job.cpu_ended.zip(task.usage.own_cpu_time());
            job.cpu_ended = less.map(|(sum, time)| sum.saturating_sub(time));
        }
        let known = task.usage.own_cpu_time().unwrap_or(Nanos::ZERO);
        job.cpu_known = job.cpu_known.saturating_sub(known);
        let process = Process::new(id.job, Runtime::Plain);
        self.processes.entry(pid).or_insert(process).living.insert(id);
        self.to_read.insert(id);
        self.set_target(id, target);
    }
}

fn job_idx(place: usize) -> JobIdx {
    JobIdx(u32::try_from(place).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
