//! Figures of a run for reports.

use crate::CreationCounts;
use crate::task::{TaskRecord, TrackedTask};
use crate::workload::HostState;
use colocate_evidence::TaskId;
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_machine::{CpuQuota, Nanos};
use std::collections::BTreeMap;

/// Figures of a run, beside its last observation.
#[derive(Clone, Debug, Default)]
pub struct RunTotals {
    /// Least CPU quota that was found of the jobs' control groups.
    pub quota: Option<CpuQuota>,
    /// What was seen of thread creation.
    pub creations: CreationCounts,
    /// Why thread creation is detected by scanning `/proc`; `None` if the kernel reports it.
    pub creation_without_perf: Option<String>,
    /// Process, thread, places and CPU time of each task that is remembered.
    pub records: BTreeMap<TaskId, TaskRecord>,
    /// Time for which any task was placed.
    pub placed: Nanos,
    /// First process of each job.
    pub first_processes: Vec<Pid>,
    /// Whether the jobs ran already.
    pub is_attached: bool,
    /// Whether every program was left to the kernel for good.
    pub has_given_up: bool,
    /// Most tasks that lived at once.
    pub most_living: usize,
    /// Ended tasks that are in no observation, because there were too many.
    pub forgotten: u64,
    /// Number of times that each job has run to an end.
    pub runs: Vec<u32>,
    /// Instructions of each job in all its runs, as far as its tasks were counted; `None` if nothing is counted.
    pub instructions: Option<Vec<u64>>,
    /// CPU time of each job, without reaped children of its first process.
    pub known_cpu_times: Vec<Nanos>,
    /// Programs that are not watched and have woken watched threads, the most frequent first. Threads of the kernel are left
    /// out.
    pub outside_wakers: Vec<Pid>,
}

/// Records of the remembered tasks.
pub(crate) fn records(work: &HostState) -> BTreeMap<TaskId, TaskRecord> {
    work.table.tasks.remembered().map(|task| (task.id, record(work, task))).collect()
}

fn record(work: &HostState, task: &TrackedTask) -> TaskRecord {
    let at = now();
    let places = task.placement.times.until(at).into_iter();
    TaskRecord {
        pid: task.thread.pid,
        tid: task.thread.tid,
        placed: places.map(|(mark, time)| (work.actuators.mask(mark), time)).collect(),
        followed: task.ended.unwrap_or(at).saturating_sub(task.created),
        cpu_before: task.usage.cpu_before,
    }
}
