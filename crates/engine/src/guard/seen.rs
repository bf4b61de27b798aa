//! What jobs did between two looks, as the guard wants it.

use crate::host::{SeenTask, Snapshot};
use crate::walk::Walk;
use colocate_machine::Nanos;
use colocate_policy::JobIdx;
use colocate_policy::schedule::Did;
use std::collections::BTreeMap;

/// What was counted of one job's threads.
#[derive(Default)]
struct Sums {
    /// CPU time of the threads of which it is known; `None` if of none.
    cpu: Option<Nanos>,
    instructions: u64,
    uncounted: bool,
}

/// What each job did that has a thread which was there in the quantum, in the order of the jobs.
///
/// Threads that ended before anybody could look at them are left out: they did little.
pub fn did(before: &Snapshot, after: &Snapshot) -> Vec<Did> {
    let mut jobs: BTreeMap<JobIdx, Sums> = BTreeMap::new();
    let mut before = Walk::through(&before.tasks);
    for tasks in after.tasks.chunk_by(|one, next| one.id.job == next.id.job) {
        let mut sums = None;
        for task in tasks {
            let earlier = before.find(task.id);
            if earlier.is_none_or(SeenTask::alive) {
                sums.get_or_insert_with(Sums::default).add(task, earlier);
            }
        }
        jobs.extend(sums.map(|sums| (tasks[0].id.job, sums)));
    }
    let did = |(job, sums): (JobIdx, Sums)| Did {
        job,
        cpu_time: sums.cpu,
        instructions: (!sums.uncounted).then_some(sums.instructions),
    };
    jobs.into_iter().map(did).collect()
}

impl Sums {
    fn add(&mut self, task: &SeenTask, before: Option<&SeenTask>) {
        let Some(now) = task.cpu_time else { return };
        let used = now.saturating_sub(before.and_then(|task| task.cpu_time).unwrap_or(Nanos::ZERO));
        self.cpu = Some(self.cpu.unwrap_or(Nanos::ZERO) + used);
        let then = before.and_then(|task| task.instructions).unwrap_or(0);
        match task.instructions {
            Some(now) => self.instructions += now.saturating_sub(then),
            None => self.uncounted |= used > Nanos::ZERO,
        }
    }
}
