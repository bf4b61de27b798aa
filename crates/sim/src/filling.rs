//! Jobs that a plan has wait and that fill idle PUs meanwhile, as under SCHED_IDLE.
//!
//! # Approach
//! - Their tasks go where the kernel puts them, and weigh [`FILLER`](crate::task::FILLER) where others weigh
//!   [`NORMAL`](crate::task::NORMAL): their virtual time goes on so many times as fast, and so far is their deadline away.
//! - A task that is none of them and comes to a PU where one runs runs next at once.
//! - When threads are balanced or wake up, a PU that only fillers use counts as idle; a filler itself is only moved to one
//!   that no task uses.
//! - A job that has not run yet is stopped, as without filling, and so are all in a quantum that measures a job on cores
//!   of its own ([`colocate_policy::Plan::measures`]).
//! # Properties
//! - **Little is taken**: beside a thread that computes, a filler gets its share by weight, and a slice each time that it
//!   comes to the PU. -> tests `a_filler_gets_its_weight`, `little_is_taken`
//! - **Idle PUs are filled**: while a filler could run, no PU is idle that it may use. -> test `idle_pus_are_filled`, and
//!   rule 5 of every simulation
//! # What is left out
//! Slices are those of others (3 ms); the balance of fillers between PUs that all are busy.

use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_engine::Meanwhile;
use colocate_evidence::JobIdx;
use colocate_policy::Plan;

impl World<'_> {
    /// Of the jobs that a plan has wait, those that fill idle PUs; the others are stopped.
    pub fn fillers(&self, waiting: &[JobIdx], plan: &Plan) -> Vec<JobIdx> {
        if self.meanwhile == Meanwhile::Stop || plan.measures() {
            return Vec::new();
        }
        let has_run = |job: &&JobIdx| {
            let tasks = self.jobs.get(job.0 as usize).map(|job| job.tasks.clone());
            tasks.into_iter().flatten().any(|task| self.tasks[task].pu.is_some())
        };
        waiting.iter().filter(has_run).copied().collect()
    }

    /// Has these jobs fill idle PUs, and no others.
    pub(crate) fn have_fill(&mut self, fillers: &[JobIdx]) {
        for job in 0..self.jobs.len() {
            let fills = fillers.binary_search_by_key(&job, |filler| filler.0 as usize).is_ok();
            for task in self.jobs[job].tasks.clone() {
                if self.tasks[task].fills != fills {
                    self.set_fills(task, fills);
                }
            }
        }
    }

    /// A task on a queue leaves it with its old weight and comes back with the new one.
    fn set_fills(&mut self, task: TaskNo, fills: bool) {
        let queued = self.tasks[task].state == State::Ready && self.is_queued(task);
        if let Some(pu) = self.tasks[task].pu.filter(|_| queued) {
            self.leave_queue(task);
            self.tasks[task].fills = fills;
            self.join_queue(task, pu);
        } else {
            self.tasks[task].fills = fills;
        }
    }
}
