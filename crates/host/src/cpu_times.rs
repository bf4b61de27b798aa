//! CPU times of jobs in this run, for reports.
//!
//! The kernel reports the time of a process with that of its children when it is waited for. A job that was attached to is not
//! waited for, and a program that is killed has not waited for its children. So a job has what its tasks used as they were last
//! read, or what its living tasks used and their processes have waited for, whichever is more.

use crate::task::TrackedTask;
use crate::workload::HostState;
use colocate_evidence::JobIdx;
use colocate_linux::proc::stat;
use colocate_linux::run_time::RunTime;
use colocate_machine::Nanos;

impl HostState {
    /// Excludes earlier CPU time of attached programs from this run.
    pub(crate) fn begin_attached(&mut self) {
        let proc = &self.actuators.proc;
        for task in self.table.tasks.living_mut() {
            let time = RunTime::open(proc, task.thread.pid, task.thread.tid).ok();
            task.usage.cpu_before = time.and_then(|time| time.read()).unwrap_or(Nanos::ZERO);
        }
        for (pid, process) in self.table.processes.iter_mut() {
            process.children_before = stat::children_time(proc, pid).unwrap_or(Nanos::ZERO);
        }
    }

    /// CPU time of each job, without reaped children of its first process.
    pub fn known_cpu_times(&self) -> Vec<Nanos> {
        let of_tasks = self.table.known_cpu_times().into_iter();
        let jobs = (0..).map(JobIdx).zip(of_tasks);
        jobs.map(|(job, of_tasks)| of_tasks.max(self.of_living(job))).collect()
    }

    /// CPU time of a job's living tasks and of the reaped children of its processes. A child that
    /// was attached and has ended since counts with all its time.
    fn of_living(&self, job: JobIdx) -> Nanos {
        let tasks = || self.table.tasks.remembered().filter(|task| task.id.job == job);
        let living = tasks()
            .filter(|task| task.ended.is_none())
            .map(|task: &TrackedTask| task.usage.own_cpu_time().unwrap_or(Nanos::ZERO));
        // The kernel's sum of reaped children has what they used before they were attached.
        let before = tasks().filter(|task| task.ended.is_some()).map(|it| it.usage.cpu_before);
        let pids = self.table.processes.of(job).into_iter();
        let waited = pids.filter_map(|pid| {
            let time = stat::children_time(&self.actuators.proc, pid)?;
            Some(time.saturating_sub(self.table.processes.get(pid)?.children_before))
        });
        sum(living.chain(waited)).saturating_sub(sum(before))
    }
}

fn sum(times: impl Iterator<Item = Nanos>) -> Nanos {
    times.fold(Nanos::ZERO, |sum, time| sum + time)
}
