//! What is counted of tasks, and which jobs have reached their targets by it.

use super::LinuxHost;
use colocate_engine::JobEnd;
use colocate_observe::Pid;
use colocate_policy::{JobIdx, TaskId};

impl LinuxHost {
    /// Opens the counters of a newborn.
    pub(super) fn count_newborn(&mut self, id: TaskId, pid: Pid) {
        let held = self.held.get(id.job.0 as usize).and_then(Option::as_ref);
        let waits = held.is_some_and(|held| held.pid() == pid);
        if let Some(task) = self.tasks.task(id) {
            self.counters_of_tasks.born(task, waits);
        }
        self.notes.extend(self.counters_of_tasks.trouble());
    }

    /// Asks a last time what a task has done.
    pub(super) fn count_ended(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.task(id) {
            self.counters_of_tasks.ended(task);
        }
    }

    /// Notes which jobs have reached their targets, by what was last read.
    pub(super) fn note_reached(&mut self) {
        if self.targets.instructions().is_none() {
            return;
        }
        let at = self.clock();
        for (job, instructions) in (0..).map(JobIdx).zip(self.tasks.instructions()) {
            let cpu_time = || self.tasks.cpu_time(job);
            let end = || JobEnd { job, at, status: 0, cpu_time: cpu_time() };
            self.targets.counted(job, instructions, end);
        }
    }
}
