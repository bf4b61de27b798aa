//! Pairs of busy tasks that share a core.
//!
//! Tasks are paired as by the policy `mix`, and stay on their cores as far as the pairs allow: the
//! data in the caches of a core keeps its value when another task ends or begins.

use crate::places::UsableMachine;
use crate::plan::{PlaceReason, Task};
use crate::policies::mix;
use crate::predict;
use colocate_evidence::TaskId;
use colocate_machine::{CoreIdx, KindIdx, PuIdx};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Least advantage over random pairs for pinning, in unit clashes per core. Chosen: pairs of
/// SMT-Bench's kernels differ by some tenths.
const WORTH: f64 = 0.02;

/// Task, PU and reason.
pub(super) type AssignedTask = (TaskId, PuIdx, PlaceReason);

/// Busy tasks that share cores.
#[derive(Debug, Default)]
pub(super) struct BusyPairs {
    /// Tasks of the decision, sorted.
    pub tasks: Vec<TaskId>,
    pub pus: Vec<PuIdx>,
    /// Placement; empty if the advantage is below [`WORTH`].
    pub seats: Vec<AssignedTask>,
    pub predicted: Option<String>,
}

impl BusyPairs {
    /// Pairs `tasks`, sorted by ID, on the cores of `free`; `before` are the previous seats.
    pub fn of(free: &UsableMachine<'_>, tasks: &[&Task], before: &[AssignedTask]) -> Self {
        let ids = tasks.iter().map(|task| task.id).collect();
        let left = Self { tasks: ids, pus: free.pus.clone(), ..Self::default() };
        // A core for each task, or too many tasks: nothing to pair.
        if tasks.len() <= free.cores.len() || tasks.len() > free.pus.len() {
            return left;
        }
        let choices = mix::place(free, tasks).choices;
        let on: Option<Vec<PuIdx>> = choices.iter().map(|choice| choice.pu).collect();
        let Some(on) = on.filter(|on| {
            predict::better_than_chance(free, tasks, on).is_some_and(|by| by >= WORTH)
        }) else {
            return left;
        };
        let was: BTreeMap<TaskId, PuIdx> = before.iter().map(|seat| (seat.0, seat.1)).collect();
        let was: Vec<Option<PuIdx>> = tasks.iter().map(|task| was.get(&task.id).copied()).collect();
        let predicted = predict::sentence(free, tasks, &on);
        let seats = tasks.iter().zip(kept(free, &on, &was)).zip(choices);
        let seats = seats.map(|((task, pu), choice)| (task.id, pu, choice.why)).collect();
        Self { seats, predicted, ..left }
    }
}

/// Keeps the pairs but permutes equivalent cores, so that many tasks stay on their core.
fn kept(free: &UsableMachine<'_>, on: &[PuIdx], was: &[Option<PuIdx>]) -> Vec<PuIdx> {
    let machine = free.machine;
    let mut stay: BTreeMap<(CoreIdx, CoreIdx), usize> = BTreeMap::new();
    for (now, was) in on.iter().zip(was) {
        if let Some(was) = was {
            *stay.entry((machine.core_of(*now), machine.core_of(*was))).or_default() += 1;
        }
    }
    let mut wishes: Vec<_> = stay.into_iter().collect();
    // Greedy: the exchange that keeps most tasks in place first.
    wishes.sort_by_key(|&(cores, tasks)| (Reverse(tasks), cores));
    let of: BTreeMap<CoreIdx, (KindIdx, usize)> =
        free.cores.iter().map(|core| (core.core, (core.kind, core.pus.len()))).collect();
    let mut to = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for ((from, wanted), _) in wishes {
        // Only cores of the same kind and size are interchangeable.
        let is_as_good = of.get(&from) == of.get(&wanted);
        if is_as_good && !to.contains_key(&from) && taken.insert(wanted) {
            to.insert(from, wanted);
        }
    }
    let mut rest: BTreeMap<(KindIdx, usize), Vec<CoreIdx>> = BTreeMap::new();
    // Reversed, so that `pop` below takes the first core.
    for (core, alike) in of.iter().rev().filter(|(core, _)| !taken.contains(core)) {
        rest.entry(*alike).or_default().push(*core);
    }
    for (core, alike) in &of {
        // Of each kind as many cores are left as lack a target: the default is not used.
        to.entry(*core).or_insert_with(|| rest.get_mut(alike).and_then(Vec::pop).unwrap_or(*core));
    }
    let target: Vec<CoreIdx> = on.iter().map(|now| to[&machine.core_of(*now)]).collect();
    // Tasks that can stay take their PU first; the rest fill the other siblings.
    let mut seats: Vec<Option<PuIdx>> = was
        .iter()
        .zip(&target)
        .map(|(was, to)| was.filter(|pu| machine.core_of(*pu) == *to && free.pus.contains(pu)))
        .collect();
    let mut full: BTreeSet<PuIdx> = seats.iter().flatten().copied().collect();
    for (seat, to) in seats.iter_mut().zip(target) {
        let of_core = free.pus.iter().filter(|pu| machine.core_of(**pu) == to);
        *seat = seat.or_else(|| of_core.copied().find(|pu| full.insert(*pu)));
    }
    seats.into_iter().zip(on).map(|(seat, now)| seat.unwrap_or(*now)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{letters, machine};

    fn seated(
        machine: &colocate_machine::Machine,
        names: &str,
        before: &[AssignedTask],
    ) -> Vec<AssignedTask> {
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let tasks = letters(names, "A f80, B f80, C f80, D f80, W b80, X b80, Y b80, Z b80");
        let mut tasks: Vec<&Task> = tasks.iter().collect();
        tasks.sort_by_key(|task| task.id);
        BusyPairs::of(&UsableMachine::new(machine, &pus), &tasks, before).seats
    }

    /// The first of four that multiply beside four that branch ends.
    #[test]
    fn all_others_stay_when_one_ends() {
        let machine = machine("core:4 pu:2");
        let before = seated(&machine, "ABCDWXYZ", &[]);
        let after = seated(&machine, "BCDWXYZ", &before);
        let moved =
            |seat: &&AssignedTask| !before.iter().any(|old| old.0 == seat.0 && old.1 == seat.1);
        assert_eq!((after.len(), after.iter().filter(moved).count()), (7, 0));
    }

    /// Three PUs of two cores are left of four; the second task was on the lost one.
    #[test]
    fn a_lost_pu_is_left() {
        let machine = machine("core:2 pu:2");
        let tasks = letters("AWX", "A f80, W b80, X b80");
        let tasks: Vec<&Task> = tasks.iter().collect();
        let left = [PuIdx(0), PuIdx(2), PuIdx(3)];
        let before: Vec<AssignedTask> = tasks
            .iter()
            .zip([0, 1, 2])
            .map(|(it, pu)| (it.id, PuIdx(pu), PlaceReason::OwnCore))
            .collect();
        let seats = BusyPairs::of(&UsableMachine::new(&machine, &left), &tasks, &before).seats;
        assert_eq!(seats.len(), 3);
        assert!(seats.iter().all(|seat| left.contains(&seat.1)), "{seats:?}");
    }

    /// Partners are as under `mix` for any earlier placement, and no PU has two tasks.
    #[test]
    fn partners_are_those_of_mix() {
        let machine = machine("core:3 pu:2 + core:2 pu:2 slow");
        let from_nothing = seated(&machine, "ABCDWXYZ", &[]);
        let mut turned = from_nothing.clone();
        for number in 0..turned.len() {
            turned[number].1 = from_nothing[(number + 3) % from_nothing.len()].1;
        }
        let after = seated(&machine, "ABCDWXYZ", &turned);
        let partners = |seats: &[AssignedTask]| -> BTreeSet<Vec<TaskId>> {
            let on = |core: usize| seats.iter().filter(move |seat| seat.1.idx() / 2 == core);
            (0..5).map(|core| on(core).map(|seat| seat.0).collect()).collect()
        };
        assert_eq!(partners(&after), partners(&from_nothing));
        assert_eq!(after.iter().map(|seat| seat.1).collect::<BTreeSet<_>>().len(), after.len());
    }
}
