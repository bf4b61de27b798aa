//! Allocation as it is defined, everything searched for each thread: the fast one is compared with
//! it.

use super::super::Thread;
use super::{RateFunction, in_order, on_cores};
use crate::places::UsableMachine;
use colocate_machine::{Cache, CacheKind, Machine, PuIdx};
use std::cmp::Reverse;

/// As [`super::shared_levels`].
pub(crate) fn shared_levels(machine: &Machine, pus: &[PuIdx]) -> Vec<u8> {
    let is_shared = |level: &u8| {
        let shared = |cache: &Cache| cache.pus.iter().filter(|pu| pus.contains(pu)).count() > 1;
        data_caches(machine, *level).any(shared)
    };
    (1..=u8::MAX).rev().filter(is_shared).collect()
}

fn data_caches(machine: &Machine, level: u8) -> impl Iterator<Item = &Cache> {
    let data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    data.filter(move |cache| cache.level == level)
}

/// PUs, and the threads that are to run there.
type ReferencePart = (Vec<PuIdx>, Vec<usize>);

/// As [`super::balanced`].
pub fn balanced(machine: &Machine, pus: &[PuIdx], threads: &[&Thread]) -> Vec<PuIdx> {
    let mut parts: Vec<ReferencePart> = vec![(pus.to_vec(), (0..threads.len()).collect())];
    for level in shared_levels(machine, pus) {
        parts = parts.into_iter().flat_map(|part| divided(machine, part, level, threads)).collect();
    }
    let mut found = vec![PuIdx(0); threads.len()];
    for (pus, members) in parts {
        let of_part: Vec<&Thread> = members.iter().map(|&at| threads[at]).collect();
        let order = UsableMachine::new(machine, &pus).spread_pus();
        for (at, pu) in members.into_iter().zip(in_order(&order, &of_part)) {
            found[at] = pu;
        }
    }
    found
}

/// The caches of a level one after the other, each with the PUs that none before it had, and last
/// the PUs under none.
fn divided(
    machine: &Machine,
    (mut pus, mut waiting): ReferencePart,
    level: u8,
    threads: &[&Thread],
) -> Vec<ReferencePart> {
    let mut rooms: Vec<Vec<PuIdx>> = Vec::new();
    for cache in data_caches(machine, level) {
        let (under, others) = pus.iter().partition(|pu| cache.pus.contains(pu));
        rooms.push(under);
        pus = others;
    }
    rooms.push(pus);
    rooms.retain(|room| !room.is_empty());
    // All threads show traffic to a level, or none does.
    let rate = |at: usize| threads[at].traffic().at(level).unwrap_or(0.0);
    let all = waiting.iter().fold(0.0, |sum, &at| sum + rate(at));
    let average = all / rooms.len() as f64;
    let mut left: usize = rooms.iter().map(Vec::len).sum();
    let mut parts = Vec::new();
    for room in rooms {
        let share = (waiting.len() * room.len()).div_ceil(left);
        left -= room.len();
        let (mut traffic, mut taken) = (average, Vec::new());
        for still in (1..=share.min(waiting.len())).rev() {
            let wanted = traffic / still as f64;
            let mut best = 0;
            for place in 1..waiting.len() {
                if (wanted - rate(waiting[place])).abs() < (wanted - rate(waiting[best])).abs() {
                    best = place;
                }
            }
            taken.push(waiting.remove(best));
            traffic -= rate(*taken.last().expect("one was just taken"));
        }
        parts.push((room, taken));
    }
    parts
}

/// As [`super::most_with_least`] where no core has more than two usable PUs: those that no thread
/// gets are taken by threads without traffic.
pub(crate) fn most_with_least(
    machine: &Machine,
    pus: &[PuIdx],
    threads: &[&Thread],
    rate: RateFunction<'_>,
) -> Vec<PuIdx> {
    let places = UsableMachine::new(machine, pus);
    let mut waiting: Vec<Option<usize>> = (0..threads.len()).map(Some).collect();
    waiting.resize(places.pus.len().max(threads.len()), None);
    let asked =
        |at: &Option<usize>| at.map_or(f64::NEG_INFINITY, |at| rate(threads[at]).expect("known"));
    waiting.sort_by(|a, b| asked(a).total_cmp(&asked(b)));
    let mut groups = Vec::new();
    for core in &places.cores {
        let mut group = Vec::new();
        group.extend(waiting.pop().flatten());
        if core.pus.len() == 2 {
            group.extend(waiting.remove(0));
        }
        groups.push(group);
    }
    on_cores(&places, threads, &groups, &vec![0; groups.len()])
}

/// Which core each group gets, by a table of all groups and all cores.
pub fn cores_of(
    places: &UsableMachine<'_>,
    threads: &[&Thread],
    groups: &[Vec<usize>],
) -> Vec<Option<usize>> {
    let (cores, machine) = (&places.cores, places.machine);
    let was_there = |group: usize, core: usize| {
        let here = |at: &&usize| {
            threads[**at].pu.is_some_and(|pu| machine.core_of(pu) == cores[core].core)
        };
        groups[group].iter().filter(here).count()
    };
    let mut table = Vec::new();
    for group in 0..groups.len() {
        let alike = |core: &usize| cores[*core].pus.len() == cores[group].pus.len();
        let with = |core| (Reverse(was_there(group, core)), group, core);
        table.extend((0..cores.len()).filter(alike).map(with));
    }
    table.sort_unstable();
    let (mut of, mut free) = (vec![None; groups.len()], vec![true; cores.len()]);
    for (_, group, core) in table {
        if of[group].is_none() && free[core] {
            (of[group], free[core]) = (Some(core), false);
        }
    }
    of
}
