//! Evidence of the simulated machine, as in `colocate_observe::sources`.
//!
//! Each source has an arm in the answer to a request ([`answer`]) and its part of the report of a
//! task ([`report`]).
//! Simulated figures cost nothing, so times, counts and stacks are reported whether they were
//! requested or not.

mod counters;
pub(crate) mod mix;

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
    let refused = match request.source {
        Source::Spinning if hides_spinning => ("the scenario hides it", "let the scenario show it"),
        // Threads at barriers are not woken by a thread.
        Source::WakeUps if !world.parts().has_turns() => {
            ("threads of this scenario do not wake each other", "let threads take turns")
        }
        Source::Sharing => (
            "programs that are described by what they demand have no addresses",
            "`colocate-study replay` simulates recorded accesses",
        ),
        Source::Switches => ("voluntary switches are not simulated", "instructions are known"),
        Source::Phases => {
            ("simulated quanta are as long as requested", "shorter quanta show it sooner")
        }
        source => {
            match source {
                Source::Mix => world.watch_mixes(request.jobs),
                // Counting takes time in each step, so it begins with the first request.
                Source::Pages => world.count_accesses(),
                _ => {}
            }
            let cost = "none".to_owned();
            return Ok(Provider { name: "simulation", cost, limits: Vec::new() });
        }
    };
    Err(Refusal { why: refused.0.to_owned(), remedy: refused.1 })
}

/// Adds the reports of all sources to a task.
pub(crate) fn report(parts: &Parts<'_>, hides_spinning: bool, task: TaskNo, seen: &mut SeenTask) {
    mix::report(parts, task, seen);
    counters::report(parts, task, seen);
    seen.cpu_time = Some(parts.tasks[task].total.ran);
    seen.waited = Some(parts.waited(task));
    if !hides_spinning {
        seen.spun = Some(parts.spun(task));
    }
}

/// Reports on relations of tasks and on pages.
pub(crate) fn reports(parts: &Parts<'_>) -> SourceReports {
    let Parts { tasks, accesses, memory, .. } = parts;
    SourceReports {
        wake_ups: parts.has_turns().then(|| parts.wake_ups.reports(|task| tasks[task].id)),
        // Phases have no addresses, so threads cannot be seen to share data.
        sharing: None,
        pages: accesses.counts.then(|| accesses.page_groups(memory, |task| tasks[task].id)),
        shared_pus: None,
    }
}
