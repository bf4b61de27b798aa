//! The outcome of a simulation so far.

use crate::outcome::{JobOutcome, Outcome, TaskOutcome};
use crate::parts::Parts;
use crate::tally::SimulationSums;
use crate::task::SimulatedTask;
use colocate_machine::Nanos;

/// Outcome until now; times alone are not filled in.
pub(crate) fn outcome(parts: &Parts<'_>, tally: &SimulationSums) -> Outcome {
    let Parts { platform, scenario, .. } = parts;
    let started = parts.jobs.iter().filter_map(|job| job.launched).min();
    let seconds = (parts.events.now - started.unwrap_or_default()).as_secs_f64();
    let jobs = parts.jobs.iter().zip(&scenario.jobs).map(|(job, spec)| JobOutcome {
        name: spec.name.clone(),
        launched: job.launched,
        done: job.done,
        runs: job.runs,
        alone: None,
    });
    let created = parts.tasks.iter().filter(|task| task.created.is_some());
    Outcome {
        machine: platform.machine.name.clone(),
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        assumptions: platform.assumptions,
        lasted: parts.events.now,
        complete: parts.is_complete(),
        jobs: jobs.collect(),
        tasks: created.map(|task| task_outcome(task, parts.events.now)).collect(),
        together: tally.together.clone(),
        used: tally.used(platform, &parts.demands, seconds),
        spans: tally.spans.clone(),
    }
}

fn task_outcome(task: &SimulatedTask, now: Nanos) -> TaskOutcome {
    let total = task.total;
    TaskOutcome {
        id: task.id,
        name: task.name.to_owned(),
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
