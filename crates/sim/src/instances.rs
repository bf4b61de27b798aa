//! Jobs and tasks of a scenario, before the first event.

use crate::platform::{Demands, Platform};
use crate::region::{Region, Use};
use crate::scenario::{Fetch, Scenario};
use crate::task::{Counted, Course, State, Task, TaskNo, Totals};
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::Nanos;
use std::collections::BTreeMap;
use std::ops::Range;

/// State of a job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its tasks, by place in the list of all tasks.
    pub tasks: Range<TaskNo>,
    /// Tasks with work left in this run.
    pub busy: usize,
    /// Time of the first launch.
    pub launched: Option<Nanos>,
    /// Time of this run's launch.
    pub run_launched: Nanos,
    /// Time of the first end of its work.
    pub done: Option<Nanos>,
    /// Finished runs.
    pub runs: u32,
    /// Whether the job has ended for good.
    pub over: bool,
    /// Whether the job is stopped, by a plan.
    pub stopped: bool,
    /// Whether the instructions of its tasks are counted by phase, for their mix.
    pub watched: bool,
    /// Tasks whose creation fell due during the stop.
    pub held_creations: Vec<TaskNo>,
}

/// All tasks and jobs, none created yet.
pub(crate) fn instantiate(
    platform: &Platform<'_>,
    scenario: &Scenario,
    demands: &Demands,
) -> (Vec<Task>, Vec<Job>) {
    let nodes = platform.machine().nodes.len();
    let mut tasks = Vec::new();
    let mut jobs = Vec::new();
    for (job, spec) in (0..).zip(&scenario.jobs) {
        let start = tasks.len();
        for (order, thread) in (0..).zip(&spec.threads) {
            let work = demands.work(&thread.course, thread.work);
            tasks.push(Task {
                id: TaskId { job: JobIdx(job), order },
                name: format!("{}/{}", spec.name, thread.name),
                state: State::NotCreated,
                course: Course::new(thread.course.clone(), work),
                refill_s: 0.0,
                occupancy: Vec::new(),
                stopped_at: None,
                arrived: 0,
                at_barrier: false,
                turns: 0,
                woken: None,
                uses: Vec::new(),
                stays_on: None,
                pages: vec![0.0; nodes],
                pages_version: 0,
                next_scan: Nanos(u64::MAX),
                since: Nanos::ZERO,
                created: None,
                ended: None,
                total: Totals::default(),
                watched: BTreeMap::new(),
                counted: Counted { accesses: Some(0.0), ..Counted::default() },
            });
        }
        let busy = tasks.len() - start;
        jobs.push(Job {
            tasks: start..tasks.len(),
            busy,
            launched: None,
            run_launched: spec.arrives,
            done: None,
            runs: 0,
            over: false,
            stopped: false,
            watched: false,
            held_creations: Vec::new(),
        });
    }
    (tasks, jobs)
}

/// Regions of memory of all jobs. Adds to each task its uses, the private region last; none on a
/// machine without nodes.
pub(crate) fn regions(
    scenario: &Scenario,
    nodes: usize,
    jobs: &[Job],
    tasks: &mut [Task],
) -> Vec<Region> {
    let mut regions = Vec::new();
    if nodes == 0 {
        return regions;
    }
    for (job, spec) in scenario.jobs.iter().enumerate() {
        let first = jobs[job].tasks.start;
        for memory in &spec.memory {
            let mut region = Region::new(job, memory.bytes, memory.pages, memory.groups, nodes);
            for user in &memory.users {
                let task = first + user.thread;
                region.users.push(task);
                tasks[task].uses.push(Use {
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
            tasks[task].uses.push(Use {
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
    regions
}
