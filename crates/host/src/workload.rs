//! The programs and their threads, with the machine that they run on and the actuators that change them.

use crate::notes::Notes;
use crate::runtime::Runtimes;
use crate::task_table::TaskTable;
use colocate_act::actuators::Actuators;
use colocate_evidence::{JobEnd, JobIdx, QuantumEnd};
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_machine::{Machine, Nanos, PuNr};
use std::io;

/// State that the parts of the host act on.
pub(crate) struct HostState {
    pub machine: Machine,
    pub usable: Vec<PuNr>,
    pub table: TaskTable,
    pub actuators: Actuators,
    pub notes: Notes,
    pub runtimes: Runtimes,
    /// Whether the jobs ran already.
    pub is_attached: bool,
    /// Time at which the programs were released, on the kernel's clock; `None` before.
    pub launched: Option<Nanos>,
    /// Reason to end the quantum before its time.
    pub pending_end: Option<QuantumEnd>,
}

impl HostState {
    /// Time since the launch; zero before.
    pub fn clock(&self) -> Nanos {
        self.launched.map_or(Nanos::ZERO, |launch| now().saturating_sub(launch))
    }

    /// A line on a job.
    pub fn note_on(&mut self, job: JobIdx, what: &str) {
        let name = self.table.jobs.get(job).map_or("", |job| job.name.as_str());
        self.notes.push(format!("job {} ({name}) {what}", job.0));
    }

    /// Reports a failed action on a job, once per job.
    pub fn report_failure(&mut self, job: JobIdx, what: &'static str, result: io::Result<()>) {
        let Err(why) = result else { return };
        if self.notes.is_first(job, what) {
            let name = self.table.jobs.get(job).map_or("", |job| job.name.as_str());
            self.notes.push(format!("cannot {what} job {} ({name}): {why}", job.0));
        }
    }

    /// Writes processes to the journal for the guardian: by their first thread, or by another
    /// thread after the first one's end.
    pub fn note_all(&mut self, pids: &[Pid]) {
        for pid in pids {
            let first = self.table.tasks.living(pid.first_thread());
            let any = || self.table.processes.living_in(*pid).first().copied();
            if let Some(task) = first.or_else(any).and_then(|id| self.table.tasks.get_mut(id)) {
                self.actuators.note(&mut task.thread);
            }
        }
    }

    /// The jobs that have not ended.
    pub fn running_jobs(&self) -> Vec<JobIdx> {
        let running = self.table.jobs.iter().zip(0..).filter(|(job, _)| job.end.is_none());
        running.map(|(_, job)| JobIdx(job)).collect()
    }

    /// How a job that has not ended would end now.
    pub fn end_now(&self, job: JobIdx) -> JobEnd {
        JobEnd { job, at: self.clock(), status: 0, cpu_time: self.table.cpu_time(job) }
    }
}
