//! The policies, one file each, and the one entry to them.

pub mod compact;
pub mod instruction;
pub mod mix;
pub mod os;
pub mod random;
pub mod round_robin;
pub mod scatter;
pub mod symbiosis_model;

use crate::kind::PolicyKind;
use crate::places::Places;
use crate::plan::{self, Decision, Newborn, Plan, Task, Why};
use crate::predict;
use colocate_machine::{Machine, Performance, PuIdx};

/// Where one task goes, and why, before time-sharing is noted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub pu: Option<PuIdx>,
    pub why: Why,
}

/// One choice a task, in the tasks' order, and what becomes of later ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    pub choices: Vec<Choice>,
    pub newborn: Newborn,
}

/// Says where each of `tasks` should run on the PUs `usable` of `machine`.
///
/// Pure and deterministic: the same arguments give the same plan, whatever the order of `usable` and
/// of `tasks`. Every task gets a decision, in the order of IDs; of tasks with the same ID only the
/// first counts. No PU outside `usable` is given, and no PU gets two tasks more than another, except
/// under `os`. If no PU is usable, every task is left to the kernel.
#[must_use]
pub fn plan(policy: &PolicyKind, machine: &Machine, usable: &[PuIdx], tasks: &[Task]) -> Plan {
    plan_on(policy, machine, None, usable, tasks)
}

/// As [`plan()`], on a machine of which it is known how fast its parts are.
///
/// Only `symbiosis-model` looks at that; without it, it is `mix`.
#[must_use]
pub fn plan_on(
    policy: &PolicyKind,
    machine: &Machine,
    performance: Option<&Performance>,
    usable: &[PuIdx],
    tasks: &[Task],
) -> Plan {
    let places = Places::new(machine, usable);
    let mut tasks: Vec<&Task> = tasks.iter().collect();
    tasks.sort_by_key(|task| task.id);
    tasks.dedup_by_key(|task| task.id);
    let mut placement = place(*policy, &places, performance, &tasks);
    note_sharing(&mut placement.choices, machine.pus.len());
    let seats: Option<Vec<PuIdx>> = placement.choices.iter().map(|choice| choice.pu).collect();
    Plan {
        version: plan::VERSION,
        machine: machine.name.clone(),
        pus: places.nrs(places.pus()),
        policy: policy.to_string(),
        predicted: seats.and_then(|seats| predict::sentence(&places, &tasks, &seats)),
        decisions: tasks
            .iter()
            .zip(placement.choices)
            .map(|(t, c)| decide(&places, t, c))
            .collect(),
        newborn: placement.newborn,
        slowdowns: None,
    }
}

fn place(
    policy: PolicyKind,
    places: &Places<'_>,
    performance: Option<&Performance>,
    tasks: &[&Task],
) -> Placement {
    if places.pus().is_empty() {
        return os::place(tasks.len());
    }
    match policy {
        PolicyKind::Os => os::place(tasks.len()),
        PolicyKind::RoundRobin => round_robin::place(places, tasks.len()),
        PolicyKind::Scatter => scatter::place(places, tasks.len()),
        PolicyKind::Compact => compact::place(places, tasks.len()),
        PolicyKind::Random { seed } => random::place(places, tasks.len(), seed),
        PolicyKind::Instruction { key } => instruction::place(places, tasks, key),
        PolicyKind::Mix => mix::place(places, tasks),
        PolicyKind::SymbiosisModel => symbiosis_model::place(places, performance, tasks),
    }
}

fn decide(places: &Places<'_>, task: &Task, choice: Choice) -> Decision {
    Decision {
        task: task.id,
        name: task.name.as_str().into(),
        place: choice.pu.map(|pu| places.nr(pu)).into(),
        why: choice.why,
    }
}

/// Fills `order` from its start, again and again if there are more tasks than PUs.
fn fill(places: &Places<'_>, order: &[PuIdx], tasks: usize, why: &Why) -> Placement {
    let next = order.iter().cycle().take(tasks);
    Placement {
        choices: next.map(|&pu| Choice { pu: Some(pu), why: why.clone() }).collect(),
        newborn: Newborn::FillInOrder { pus: places.nrs(order) },
    }
}

/// Says of every task on a PU with several that it takes turns.
fn note_sharing(choices: &mut [Choice], pus: usize) {
    let mut on_pu = vec![0_u32; pus];
    for pu in choices.iter().filter_map(|choice| choice.pu) {
        on_pu[pu.idx()] += 1;
    }
    for choice in choices {
        if let Some(tasks) = choice.pu.map(|pu| on_pu[pu.idx()]).filter(|&tasks| tasks > 1) {
            let then = Box::new(std::mem::replace(&mut choice.why, Why::LeftToKernel));
            choice.why = Why::TimeShared { tasks, then };
        }
    }
}

/// A core of its own for every task; only for at most as many tasks as usable cores.
///
/// Cores far apart come first, fast kinds before slow ones; where kinds differ, busier tasks choose
/// before idler ones.
fn own_cores(places: &Places<'_>, tasks: &[&Task], why: impl Fn(&Task) -> Why) -> Placement {
    let mut by_turn: Vec<usize> = (0..tasks.len()).collect();
    if places.is_hybrid() {
        by_turn.sort_by(|&a, &b| tasks[b].weight().total_cmp(&tasks[a].weight()));
    }
    let mut choices = vec![Choice { pu: None, why: Why::OwnCore }; tasks.len()];
    for (task, core) in by_turn.into_iter().zip(places.spread_cores()) {
        choices[task] = Choice { pu: Some(places.cores()[core].pus[0]), why: why(tasks[task]) };
    }
    Placement { choices, newborn: spread_newborn(places) }
}

/// What a policy that looks at mixes does with a task whose mix nobody knows: least used PU, cores
/// before siblings, far apart first.
fn spread_newborn(places: &Places<'_>) -> Newborn {
    Newborn::FillInOrder { pus: places.nrs(&places.spread_pus()) }
}
