//! Living processes.

use crate::runtime::Runtime;
use colocate_evidence::{JobIdx, TaskId};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A living process.
#[derive(Debug)]
pub struct Process {
    /// Job of the process.
    pub job: JobIdx,
    /// Handle for every action on the process; `None` before it was opened, or if it could not be.
    pub handle: Option<Arc<ProcessHandle>>,
    /// Creator, a thread of another process, until the process executes a program.
    pub creator: Option<Tid>,
    /// Runtime of the program: its way of counting PUs. `None` until it matters: reading it is dear where programs are short.
    pub runtime: Option<Runtime>,
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
    /// Living tasks.
    pub(super) living: BTreeSet<TaskId>,
}

impl Process {
    pub(super) fn new(job: JobIdx, runtime: Option<Runtime>) -> Self {
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

/// All living processes.
#[derive(Debug, Default)]
pub struct Processes {
    pub(super) by_pid: HashMap<Pid, Process>,
    /// The process whose last task was the last to end, and its job.
    pub(super) ended_last: Option<(Pid, JobIdx)>,
}

impl Processes {
    /// Records the end of a task. Returns the only living task of its process, if one is left.
    pub(super) fn end_task(&mut self, pid: Pid, id: TaskId) -> Option<TaskId> {
        let process = self.by_pid.get_mut(&pid)?;
        process.living.remove(&id);
        if process.living.is_empty() {
            self.by_pid.remove(&pid);
            // A thread that takes over in an exec may be reported after this end.
            self.ended_last = Some((pid, id.job));
            return None;
        }
        process.living.first().copied().filter(|_| process.living.len() == 1)
    }

    /// A living process.
    pub fn get(&self, pid: Pid) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    /// A living process, to be changed.
    pub fn get_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid)
    }

    /// All living processes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Process)> {
        self.by_pid.iter_mut().map(|(pid, process)| (*pid, process))
    }

    /// The living processes of a job, lowest number first.
    pub fn of(&self, job: JobIdx) -> Vec<Pid> {
        let of_job = self.by_pid.iter().filter(|(_, process)| process.job == job);
        let mut pids: Vec<Pid> = of_job.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// The handle of a living process.
    pub fn handle(&self, pid: Pid) -> Option<&Arc<ProcessHandle>> {
        self.get(pid)?.handle.as_ref()
    }

    /// Handles of the job's processes, without processes that have none.
    pub fn handles_of(&self, job: JobIdx) -> Vec<Arc<ProcessHandle>> {
        self.of(job).into_iter().filter_map(|pid| self.handle(pid).cloned()).collect()
    }

    /// Handles of the living processes of every job.
    pub fn handles_by_job(&self) -> BTreeMap<JobIdx, Vec<Arc<ProcessHandle>>> {
        let mut handles: BTreeMap<JobIdx, Vec<Arc<ProcessHandle>>> = BTreeMap::new();
        for process in self.by_pid.values() {
            handles.entry(process.job).or_default().extend(process.handle.clone());
        }
        handles
    }

    /// Handle of a living process of a job, of `first` if that is alive.
    pub fn any_of(&self, job: JobIdx, first: Pid) -> Option<&Arc<ProcessHandle>> {
        let of_job = self.by_pid.values().filter(|process| process.job == job);
        let handles = of_job.filter_map(|process| process.handle.as_ref());
        self.handle(first).into_iter().chain(handles).find(|handle| handle.exists())
    }

    /// Living processes with several threads, each with its number of threads.
    pub fn with_threads(&self) -> impl Iterator<Item = (Pid, usize)> + '_ {
        let living = self.by_pid.iter().map(|(pid, process)| (*pid, process.living.len()));
        living.filter(|(_, living)| *living > 1)
    }

    /// The living tasks of a process, in the order of their IDs.
    pub fn living_in(&self, pid: Pid) -> Vec<TaskId> {
        self.get(pid).map(|process| process.living.iter().copied().collect()).unwrap_or_default()
    }
}
