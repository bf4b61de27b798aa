//! Policies that decide once, one file each.

mod auto;
mod communication;
mod compact;
pub mod fixed;
mod instruction;
mod mix;
mod os;
mod random;
mod round_robin;
mod scatter;
mod symbiosis_model;

use crate::evidence::Evidence;
use crate::places::UsableMachine;
use crate::plan::{Decision, DefaultPlacement, PlaceReason, Plan, Task};
use crate::predict;
use crate::row::PolicyRow;
use colocate_evidence::{Source, SourceSet};
use colocate_machine::PuIdx;

/// PU and reason of a task, before time-sharing is noted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PuChoice {
    pub pu: Option<PuIdx>,
    pub why: PlaceReason,
}

/// One choice per task, in task order, and the placement of later tasks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    pub choices: Vec<PuChoice>,
    pub default_placement: DefaultPlacement,
}

/// Evidence for policies that use instruction mixes.
pub(crate) const MIX: SourceSet = SourceSet::of(&[Source::Mix]);

/// Policies that decide once, or both once and each quantum.
pub(crate) static ROWS: &[&PolicyRow] = &[
    &os::ROW,
    &auto::ROW,
    &round_robin::ROW,
    &scatter::ROW,
    &compact::ROW,
    &random::ROW,
    &instruction::ROW,
    &mix::ROW,
    &communication::ROW,
    &communication::STATIC,
    &symbiosis_model::ROW,
];

/// Plan of a policy that decides once.
///
/// Independent of the order of usable PUs and tasks. Every task gets a decision, in the order of
/// IDs; of tasks with the same ID only the first counts. Only usable PUs are given, and no PU gets
/// two tasks more than another, except under `os`. Without usable PUs every task is left to the
/// kernel.
pub(crate) fn planned(
    evidence: &Evidence<'_>,
    place: impl FnOnce(&UsableMachine<'_>, &[&Task]) -> Placement,
) -> Plan {
    let machine = evidence.now.machine;
    let places = UsableMachine::new(machine, evidence.now.pus);
    let tasks = evidence.tasks();
    let mut tasks: Vec<&Task> = tasks.iter().collect();
    tasks.sort_by_key(|task| task.id);
    tasks.dedup_by_key(|task| task.id);
    let mut placement =
        if places.pus.is_empty() { os::place(tasks.len()) } else { place(&places, &tasks) };
    note_sharing(&mut placement.choices, machine.pus.len());
    // No prediction unless every task has a PU.
    let seats: Option<Vec<PuIdx>> = placement.choices.iter().map(|choice| choice.pu).collect();
    let decisions = tasks.iter().zip(placement.choices).map(|(task, choice)| Decision {
        task: task.id,
        name: task.name.as_str().into(),
        place: choice.pu.map(|pu| places.nr(pu)).into(),
        why: choice.why,
    });
    Plan {
        pus: places.nrs(&places.pus),
        predicted: seats.and_then(|seats| predict::sentence(&places, &tasks, &seats)),
        decisions: decisions.collect(),
        default_placement: placement.default_placement,
        ..evidence.empty_plan()
    }
}

/// Plan of a policy that fills PUs in a fixed order, `name`, again and again if tasks are more.
fn in_order(
    evidence: &Evidence<'_>,
    name: &str,
    order: impl FnOnce(&UsableMachine<'_>, usize) -> Vec<PuIdx>,
) -> Plan {
    planned(evidence, |places, tasks| {
        let order = order(places, tasks.len());
        let pus = order.iter().cycle().take(tasks.len());
        let why = PlaceReason::NextInOrder { order: name.to_owned() };
        Placement {
            choices: pus.map(|&pu| PuChoice { pu: Some(pu), why: why.clone() }).collect(),
            default_placement: DefaultPlacement::FillInOrder { pus: places.nrs(&order) },
        }
    })
}

/// Marks every task on a PU with several tasks as time-shared.
fn note_sharing(choices: &mut [PuChoice], pus: usize) {
    let mut on_pu = vec![0_u32; pus];
    for pu in choices.iter().filter_map(|choice| choice.pu) {
        on_pu[pu.idx()] += 1;
    }
    for choice in choices {
        if let Some(tasks) = choice.pu.map(|pu| on_pu[pu.idx()]).filter(|&tasks| tasks > 1) {
            let then = Box::new(std::mem::replace(&mut choice.why, PlaceReason::LeftToKernel));
            choice.why = PlaceReason::TimeShared { tasks, then };
        }
    }
}

/// A core of its own for every task; for at most as many tasks as usable cores.
///
/// Distant cores come first, fast kinds before slow kinds. On hybrid machines busier tasks choose
/// before idler tasks.
fn own_cores(places: &UsableMachine<'_>, tasks: &[&Task]) -> Placement {
    let mut by_turn: Vec<usize> = (0..tasks.len()).collect();
    if places.is_hybrid() {
        // Stable: equal weights keep the order of IDs.
        by_turn.sort_by(|&a, &b| tasks[b].weight().total_cmp(&tasks[a].weight()));
    }
    let mut choices = vec![PuChoice { pu: None, why: PlaceReason::OwnCore }; tasks.len()];
    for (task, core) in by_turn.into_iter().zip(places.spread_cores()) {
        choices[task].pu = Some(places.cores[core].pus[0]);
    }
    Placement { choices, default_placement: spread_default(places) }
}

/// Default placement of policies that use mixes: the PU with the fewest tasks, cores before
/// siblings, far apart first.
fn spread_default(places: &UsableMachine<'_>) -> DefaultPlacement {
    DefaultPlacement::FillInOrder { pus: places.nrs(&places.spread_pus()) }
}
