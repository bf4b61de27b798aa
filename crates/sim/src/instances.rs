//! Jobs and tasks of a scenario, before the first event.

use crate::course::TaskProgress;
use crate::job::SimulatedJob;
use crate::platform::Demands;
use crate::region::{MemoryRegion, RegionUse};
use crate::scenario::{Fetch, Scenario};
use crate::task::SimulatedTask;
use colocate_evidence::{JobIdx, TaskId};

/// All tasks and jobs, none created yet.
pub(crate) fn instantiate(
    scenario: &Scenario,
    demands: &Demands,
) -> (Vec<SimulatedTask>, Vec<SimulatedJob>) {
    let mut tasks = Vec::new();
    let mut jobs = Vec::new();
    for (job, spec) in (0..).zip(&scenario.jobs) {
        let start = tasks.len();
        for (order, thread) in (0..).zip(&spec.threads) {
            let work = demands.work(&thread.course, thread.work);
            let id = TaskId { job: JobIdx(job), order };
            let course = TaskProgress::new(thread.course.clone(), work);
            tasks.push(SimulatedTask::new(id, format!("{}/{}", spec.name, thread.name), course));
        }
        jobs.push(SimulatedJob::new(start..tasks.len(), spec.arrives));
    }
    (tasks, jobs)
}

/// Regions of memory of all jobs, and the uses by task, the private region last; none on a machine
/// without nodes.
pub(crate) fn regions(
    scenario: &Scenario,
    nodes: usize,
    jobs: &[SimulatedJob],
    tasks: usize,
) -> (Vec<MemoryRegion>, Vec<Vec<RegionUse>>) {
    let mut uses = vec![Vec::new(); tasks];
    let mut regions = Vec::new();
    if nodes == 0 {
        return (regions, uses);
    }
    for (job, spec) in scenario.jobs.iter().enumerate() {
        let first = jobs[job].first();
        for memory in &spec.memory {
            let mut region =
                MemoryRegion::new(job, memory.bytes, memory.pages, memory.groups, nodes);
            for user in &memory.users {
                let task = first + user.thread;
                region.users.push(task);
                uses[task].push(RegionUse {
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
            let mut own = MemoryRegion::new(job, thread.resident, thread.pages, 1, nodes);
            own.users.push(task);
            uses[task].push(RegionUse {
                region: regions.len(),
                // The rest of its accesses, whatever this says; see `RegionUse::share`.
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
