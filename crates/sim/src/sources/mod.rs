//! Evidence of the simulated machine: a file for each source, as in `colocate_observe::sources`.
//!
//! Each source has an answer to a request ([`answer`]) and a report of a task ([`report`]).
//! Simulated figures cost nothing, so times, counts and stacks are reported whether they were
//! requested or not.

mod counters;
pub(crate) mod mix;
mod run_states;
mod spinning;
mod wake_ups;

use crate::parts::Parts;
use crate::task::TaskNo;
use crate::world::World;
use colocate_engine::Request;
use colocate_evidence::{Provider, Refusal, SeenTask, Source, SourceReports};

/// Begins to provide a source. Returns its provider, or a refusal.
pub(crate) fn answer(
    world: &mut World<'_>,
    hides_spinning: bool,
    request: &Request<'_>,
) -> Result<Provider, Refusal> {
    match request.source {
        Source::Mix => world.watch_mixes(request.jobs),
        Source::Spinning => return spinning::answer(hides_spinning),
        Source::WakeUps => return wake_ups::answer(&world.parts),
        Source::Sharing => return sharing(),
        Source::Switches => return switches(),
        // Counting takes time in each step, so it begins with the first request.
        Source::Pages => world.parts.accesses.counts = true,
        Source::Phases => return run_states::at_once(),
        Source::Counters | Source::Stacks | Source::RunStates => {}
    }
    Ok(known())
}

/// Adds the reports of all sources to a task.
pub(crate) fn report(parts: &Parts<'_>, hides_spinning: bool, task: TaskNo, seen: &mut SeenTask) {
    mix::report(parts, task, seen);
    counters::report(parts, task, seen);
    run_states::report(parts, task, seen);
    if !hides_spinning {
        spinning::report(parts, task, seen);
    }
}

/// Reports on relations of tasks and on pages.
pub(crate) fn reports(parts: &Parts<'_>) -> SourceReports {
    let Parts { tasks, accesses, memory, .. } = parts;
    SourceReports {
        wake_ups: parts.takes_turns().then(|| parts.wake_ups.reports(|task| tasks[task].id)),
        // Phases have no addresses, so threads cannot be seen to share data.
        sharing: None,
        pages: accesses.counts.then(|| accesses.page_groups(memory, |task| tasks[task].id)),
    }
}

fn known() -> Provider {
    Provider { name: "simulation", cost: "none".to_owned(), limits: Vec::new() }
}

fn sharing() -> Result<Provider, Refusal> {
    Err(Refusal {
        why: "programs that are described by what they demand have no addresses".to_owned(),
        remedy: "`colocate-study replay` simulates recorded accesses",
    })
}

fn switches() -> Result<Provider, Refusal> {
    Err(Refusal {
        why: "voluntary switches are not simulated".to_owned(),
        remedy: "instructions are known",
    })
}
