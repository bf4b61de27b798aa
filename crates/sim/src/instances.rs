//! Jobs and tasks of a scenario, before the first event.

use crate::course::Course;
use crate::job::Job;
use crate::platform::Demands;
use crate::region::{Region, Use};
use crate::scenario::{Fetch, Scenario};
use crate::task::Task;
use colocate_evidence::{JobIdx, TaskId};

/// All tasks and jobs, none created yet.
pub(crate) fn instantiate(scenario: &Scenario, demands: &Demands) -> (Vec<Task>, Vec<Job>) {
    let mut tasks = Vec::new();
    let mut jobs = Vec::new();
    for (job, spec) in (0..).zip(&scenario.jobs) {
        let start = tasks.len();
        for (order, thread) in (0..).zip(&spec.threads) {
            let work = demands.work(&thread.course, thread.work);
            let id = TaskId { job: JobIdx(job), order };
            let course = Course::new(thread.course.clone(), work);
            tasks.push(Task::new(id, format!("{}/{}", spec.name, thread.name), course));
        }
        jobs.push(Job::new(start..tasks.len(), spec.arrives));
    }
    (tasks, jobs)
}

/// Regions of memory of all jobs, and the uses by task, the private region last; none on a machine
/// without nodes.
pub(crate) fn regions(
    scenario: &Scenario,
    nodes: usize,
    jobs: &[Job],
    tasks: usize,
) -> (Vec<Region>, Vec<Vec<Use>>) {
    let mut uses = vec![Vec::new(); tasks];
    let mut regions = Vec::new();
    if nodes == 0 {
        return (regions, uses);
    }
    for (job, spec) in scenario.jobs.iter().enumerate() {
        let first = jobs[job].first();
        for memory in &spec.memory {
            let mut region = Region::new(job, memory.bytes, memory.pages, memory.groups, nodes);
            for user in &memory.users {
                let task = first + user.thread;
                region.users.push(task);
                uses[task].push(Use {
                    region: regions.len(),
                    share: user.share,
                    writes: user.writes,
                    during: user.during,
                    fetch: user.fetch,
                    seconds: vec![0.0; nodes],
                });
            }
            region.users.sort_unstable();
            region.users.dedup();
            regions.push(region);
        }
        // A task's own memory comes last, and takes the accesses that shared memory leaves.
        for (thread, task) in spec.threads.iter().zip(first..) {
            let mut own = Region::new(job, thread.resident, thread.pages, 1, nodes);
            own.users.push(task);
            uses[task].push(Use {
                region: regions.len(),
                // The rest of its accesses, whatever this says; see `Use::share`.
                share: 1.0,
                writes: 0.5,
                during: None,
                fetch: Fetch::No,
                seconds: vec![0.0; nodes],
            });
            regions.push(own);
        }
    }
    (regions, uses)
}
