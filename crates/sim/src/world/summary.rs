//! The outcome of a simulation so far.

use crate::outcome::{JobOutcome, Outcome, TaskOutcome};
use crate::task::Task;
use crate::world::World;
use colocate_machine::Nanos;

impl World<'_> {
    /// Outcome until now; times alone are not filled in.
    pub fn outcome(&self) -> Outcome {
        let (platform, scenario) = (self.platform, self.scenario);
        let started = self.jobs.iter().filter_map(|job| job.launched).min();
        let seconds = (self.events.now() - started.unwrap_or_default()).as_secs_f64();
        let jobs = self.jobs.iter().zip(&scenario.jobs).map(|(job, spec)| JobOutcome {
            name: spec.name.clone(),
            launched: job.launched,
            done: job.done,
            runs: job.runs,
            alone: None,
        });
        let created = self.tasks.iter().filter(|task| task.created.is_some());
        Outcome {
            machine: platform.machine().name.clone(),
            scenario: scenario.name.clone(),
            seed: scenario.seed,
            assumptions: platform.assumptions(),
            lasted: self.events.now(),
            complete: self.jobs.iter().all(|job| job.done.is_some()),
            jobs: jobs.collect(),
            tasks: created.map(|task| task_outcome(task, self.events.now())).collect(),
            together: self.tally.together.clone(),
            used: self.tally.used(platform, &self.demands, seconds),
            spans: self.tally.spans.clone(),
        }
    }
}

fn task_outcome(task: &Task, now: Nanos) -> TaskOutcome {
    let total = task.total;
    TaskOutcome {
        id: task.id,
        name: task.name.clone(),
        created: task.created.unwrap_or(now),
        ended: task.ended.unwrap_or(now),
        ran: total.ran,
        spun: total.spun,
        // Only schedulers get the two apart; see `super::stop`.
        waited: total.waited + total.stopped,
        slept: total.slept,
        instructions: total.instructions,
        cycles: total.cycles,
        alone: nanos(total.alone_s),
        memory_bytes: total.memory_bytes,
        far_instructions: total.far_instructions,
        moves: total.moves,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}
