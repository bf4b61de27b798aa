//! Usage of jobs between two observations, for the guard.

use crate::lookup::{TaskLookup, by_job};
use colocate_evidence::JobIdx;
use colocate_evidence::{Observation, SeenTask};
use colocate_machine::Nanos;
use colocate_policy::schedule::JobUsage;
use std::collections::BTreeMap;

/// Counts of one job's threads.
#[derive(Default)]
struct JobSums {
    /// CPU time of the threads whose CPU time is known; `None` without such a thread.
    cpu: Option<Nanos>,
    instructions: u64,
    uncounted: bool,
    switches: u64,
    unknown_switches: bool,
}

/// Error by which CPU times may be too long. Chosen: the kernel's longest clock tick.
const TICK: Nanos = Nanos::from_millis(10);

/// Usage of each job with a thread that existed in the quantum, in the order of the jobs.
///
/// Threads that ended before they could be read are left out: they did little. So are threads that are read for the first time
/// and have run for longer than they were followed: usage before a program was attached to is not of this quantum.
pub fn job_usage(before: &Observation, after: &Observation) -> Vec<JobUsage> {
    let mut jobs: BTreeMap<JobIdx, JobSums> = BTreeMap::new();
    let mut before = TaskLookup::through(&before.tasks);
    for (job, tasks) in by_job(&after.tasks) {
        let mut sums = None;
        for task in tasks {
            let earlier = before.find(task.id);
            let unseen = task.cpu_time.is_none() && !task.alive();
            let followed = after.at.saturating_sub(task.created) + TICK;
            let is_older = earlier.is_none() && task.cpu_time.is_some_and(|time| time > followed);
            if earlier.is_none_or(SeenTask::alive) && !unseen && !is_older {
                sums.get_or_insert_with(JobSums::default).add(task, earlier);
            }
        }
        jobs.extend(sums.map(|sums| (job, sums)));
    }
    jobs.into_iter().map(|(job, sums)| sums.usage(job)).collect()
}

impl JobSums {
    fn usage(&self, job: JobIdx) -> JobUsage {
        JobUsage {
            job,
            cpu_time: self.cpu,
            instructions: (!self.uncounted).then_some(self.instructions),
            switches: (!self.unknown_switches).then_some(self.switches),
        }
    }

    fn add(&mut self, task: &SeenTask, before: Option<&SeenTask>) {
        let Some(now) = task.cpu_time else { return };
        let used = now.saturating_sub(before.and_then(|task| task.cpu_time).unwrap_or(Nanos::ZERO));
        self.cpu = Some(self.cpu.unwrap_or(Nanos::ZERO) + used);
        let then = before.and_then(|task| task.instructions).unwrap_or(0);
        match task.instructions {
            Some(now) => self.instructions += now.saturating_sub(then),
            // A thread that did not run has no instructions to miss.
            None => self.uncounted |= used > Nanos::ZERO,
        }
        let then = before.and_then(|task| task.switches).unwrap_or(0);
        match task.switches {
            Some(now) => self.switches += now.saturating_sub(then),
            None => self.unknown_switches |= used > Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::Scripted;
    use colocate_machine::Nanos;

    /// The second job begins and ends between two observations. Its CPU time could not be read, which does not hide
    /// the first one.
    #[test]
    fn an_unread_thread_is_left_out() {
        let mut host = Scripted::new(2);
        let before = host.observation(&[0]);
        host.advance();
        let mut after = host.observation(&[0, 1]);
        (after.tasks[1].cpu_time, after.tasks[1].ended) = (None, Some(Nanos(50)));
        let found = job_usage(&before, &after);
        assert_eq!(found.iter().map(|did| did.job).collect::<Vec<_>>(), [JobIdx(0)]);
        assert_eq!(found[0].cpu_time, Some(Nanos(100)));
        after.tasks[1].ended = None;
        assert_eq!(job_usage(&before, &after)[1].cpu_time, None, "it lives, and is unknown");
    }

    /// The second job ran for an hour before it was attached to: from the second observation on it counts.
    #[test]
    fn what_was_before_is_not_of_this_quantum() {
        let mut host = Scripted::new(2);
        let before = host.observation(&[0]);
        host.advance();
        let mut after = host.observation(&[0, 1]);
        let hour = Nanos::from_secs(3600);
        (after.tasks[1].cpu_time, after.tasks[1].switches) = (Some(hour), Some(9_000_000));
        let jobs = |found: Vec<JobUsage>| found.iter().map(|did| did.job).collect::<Vec<_>>();
        assert_eq!(jobs(job_usage(&before, &after)), [JobIdx(0)]);
        let mut later = after.clone();
        later.tasks[1].cpu_time = Some(hour + Nanos(70));
        assert_eq!(job_usage(&after, &later)[0].cpu_time, Some(Nanos(70)));
    }
}
