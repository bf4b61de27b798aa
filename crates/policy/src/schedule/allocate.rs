//! Allocation: which PU each thread of the chosen jobs gets.
//!
//! # Problem
//! Threads under one cache share its bandwidth, and PUs of one core share the first cache: who asks much
//! should be beside who asks little, at every level that is shared.
//! # Approach
//! [`balanced`] goes from the last cache towards the cores and divides the threads of each part of the
//! machine among its caches so that each gets about the same number of requests (Feliu et al., IPDPS 2012,
//! Algorithm 2). [`most_with_least`] fills one core after the other with the thread that asks most and the
//! one that asks least (PACT 2013, Algorithm 6).
//! # Terms
//! - *Room*: usable PUs under a cache or on a core, a count.
//! - *Shared level*: one with a cache over more than one usable PU; private levels are skipped.
//! # Algorithm
//! `balanced`, for each shared level from the last: a part with threads `G` and `k` caches of the level has
//! `AVG = Σ TR / k`. Each of its caches begins with `BW = AVG` and its room as `CPU`, and takes the thread
//! with the least `|BW/CPU − TR|`: `BW −= TR`, `CPU −= 1`, until it is full.
//!
//! Ours, where the source says nothing: with fewer threads than PUs, a cache takes as many as are its share
//! of the PUs, rounded up, and its `CPU` is that. The averages are those of the part, not of the machine;
//! on the published machine, with one shared level, that is the same.
//!
//! `most_with_least`: idle PUs count as threads that ask for nothing, so that with fewer threads than PUs
//! who asks most is alone.
//!
//! Both leave a thread on the PU where it last ran, or on its core, if that is among its places: nothing
//! else changes by that, and its cache is warm.
//! # Properties
//! - **One each**: no PU gets two threads while there are no more threads than PUs. -> test `one_each`
//! - **Least most**: with two PUs a core, all taken, no pairing has a smaller greatest sum than
//!   `most_with_least`. -> test `least_most`
//! - **Even**: no cache gets two threads more than its share. -> test `even`
//! - **Stays**: the same threads with the same rates stay. -> test `stays`

use super::select::float;
use super::{Allocated, Choice, Quantum, Queued, Selected, Thread};
use crate::places::Places;
use colocate_machine::{CacheKind, Machine, PuIdx};

/// A thread's rate, t/µs.
pub type Rate<'a> = &'a dyn Fn(&Thread) -> f64;

/// Threads of the chosen jobs in the order in which they were chosen; at most `most`.
#[must_use]
pub fn threads_of<'a>(
    queue: &'a [Queued],
    chosen: &[(usize, Selected)],
    most: usize,
) -> Vec<&'a Thread> {
    chosen.iter().flat_map(|(at, _)| &queue[*at].threads).take(most).collect()
}

/// The choices of a quantum: `pus` are the places of [`threads_of`] the chosen jobs. Threads beyond them
/// take turns on the same PUs.
#[must_use]
pub fn choices(
    now: &Quantum<'_>,
    chosen: Vec<(usize, Selected)>,
    pus: &[PuIdx],
    why: impl Fn(&Thread) -> Allocated,
) -> Vec<Choice> {
    let mut next = pus.iter().cycle();
    let mut choice = |(at, selected): (usize, Selected)| {
        let job = &now.queue[at];
        let place = |thread| (next.next().copied(), why(thread));
        Choice { job: job.job, selected, places: job.threads.iter().map(place).collect() }
    };
    chosen.into_iter().map(&mut choice).collect()
}

/// The PUs in `order`, one each, except that who last ran on one of those that are needed keeps it.
#[must_use]
pub fn in_order(order: &[PuIdx], threads: &[&Thread]) -> Vec<PuIdx> {
    let needed = &order[..threads.len().min(order.len())];
    stay(threads, needed)
}

/// Requests of the shared levels balanced; see the module.
#[must_use]
pub fn balanced(machine: &Machine, pus: &[PuIdx], threads: &[&Thread]) -> Vec<PuIdx> {
    let places = Places::new(machine, pus);
    let all = (0..threads.len()).collect();
    let mut parts = vec![Part { pus: places.pus().to_vec(), threads: all }];
    for level in shared_levels(machine, places.pus()) {
        let rate = |at: usize| threads[at].traffic().at(level);
        parts = parts.into_iter().flat_map(|part| divided(machine, part, level, &rate)).collect();
    }
    let mut found = vec![PuIdx(0); threads.len()];
    for part in parts {
        let members: Vec<&Thread> = part.threads.iter().map(|&at| threads[at]).collect();
        let spread = Places::new(machine, &part.pus).spread_pus();
        for (&at, pu) in part.threads.iter().zip(in_order(&spread, &members)) {
            found[at] = pu;
        }
    }
    found
}

/// Levels with a cache over more than one of the PUs, the last first.
#[must_use]
pub fn shared_levels(machine: &Machine, pus: &[PuIdx]) -> Vec<u8> {
    let under =
        |cache: &colocate_machine::Cache| cache.pus.iter().filter(|pu| pus.contains(pu)).count();
    let data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let mut levels: Vec<u8> =
        data.filter(|cache| under(cache) > 1).map(|cache| cache.level).collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    levels
}

/// A part of the machine and the threads that are to run there.
struct Part {
    pus: Vec<PuIdx>,
    threads: Vec<usize>,
}

/// The part's caches of the level, and PUs without one, each with its threads.
fn divided(machine: &Machine, part: Part, level: u8, rate: &dyn Fn(usize) -> f64) -> Vec<Part> {
    let rooms = rooms(machine, &part.pus, level);
    let mut waiting = part.threads;
    let total = waiting.iter().map(|&at| rate(at)).fold(0.0, |sum, each| sum + each);
    let average = total / float(rooms.len());
    let mut pus_left = part.pus.len();
    let mut parts = Vec::with_capacity(rooms.len());
    for pus in rooms {
        let share = (waiting.len() * pus.len()).div_ceil(pus_left);
        pus_left -= pus.len();
        parts.push(Part { pus, threads: nearest(&mut waiting, share, average, rate) });
    }
    parts
}

/// Takes `count` threads out of those that wait, whose rates together are near `traffic`.
fn nearest(
    waiting: &mut Vec<usize>,
    count: usize,
    mut traffic: f64,
    rate: &dyn Fn(usize) -> f64,
) -> Vec<usize> {
    let mut taken = Vec::with_capacity(count);
    for left in (1..=count).rev() {
        let wanted = traffic / float(left);
        let distance = |at: usize| (wanted - rate(at)).abs();
        let places = 0..waiting.len();
        let near = places.min_by(|&a, &b| distance(waiting[a]).total_cmp(&distance(waiting[b])));
        let Some(place) = near else { break };
        let at = waiting.remove(place);
        traffic -= rate(at);
        taken.push(at);
    }
    taken
}

/// The PUs by their data cache of the level; those without one together, last.
fn rooms(machine: &Machine, pus: &[PuIdx], level: u8) -> Vec<Vec<PuIdx>> {
    let of_level = |cache: &&colocate_machine::Cache| {
        cache.level == level && cache.kind != CacheKind::Instruction
    };
    let mut rest = pus.to_vec();
    let mut rooms: Vec<Vec<PuIdx>> = Vec::new();
    for cache in machine.caches.iter().filter(of_level) {
        let (under, other) = rest.iter().partition(|pu| cache.pus.contains(pu));
        rest = other;
        rooms.push(under);
    }
    rooms.push(rest);
    rooms.retain(|pus| !pus.is_empty());
    rooms
}

/// One core after the other gets who asks most and who asks least by `rate`; see the module.
#[must_use]
pub fn most_with_least(
    machine: &Machine,
    pus: &[PuIdx],
    threads: &[&Thread],
    rate: Rate<'_>,
) -> Vec<PuIdx> {
    let places = Places::new(machine, pus);
    let mut sorted: Vec<Option<usize>> = (0..threads.len()).map(Some).collect();
    sorted.resize(places.pus().len().max(threads.len()), None);
    let key = |at: &Option<usize>| at.map_or(f64::NEG_INFINITY, |at| rate(threads[at]));
    sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let mut ends = std::collections::VecDeque::from(sorted);
    let groups: Vec<Vec<usize>> = places
        .cores()
        .iter()
        .map(|core| {
            let turn =
                |n: usize| if n.is_multiple_of(2) { ends.pop_back() } else { ends.pop_front() };
            (0..core.pus.len()).filter_map(turn).flatten().collect()
        })
        .collect();
    on_cores(&places, threads, &groups)
}

/// Groups of threads on the cores; `groups[n]` fits on the `n`-th usable core, and another group takes that
/// core only if both have the same room. A group goes where most of it last ran.
#[must_use]
pub fn on_cores(places: &Places<'_>, threads: &[&Thread], groups: &[Vec<usize>]) -> Vec<PuIdx> {
    let cores = places.cores();
    let machine = places.machine();
    let was_there = |group: usize, core: usize| {
        let here = |at: &&usize| {
            threads[**at].pu.is_some_and(|pu| machine.core_of(pu) == cores[core].core)
        };
        groups[group].iter().filter(here).count()
    };
    let mut known = Vec::new();
    for group in 0..groups.len() {
        let alike = |core: &usize| cores[*core].pus.len() == cores[group].pus.len();
        let with = |core| (std::cmp::Reverse(was_there(group, core)), group, core);
        known.extend((0..cores.len()).filter(alike).map(with));
    }
    known.sort_unstable();
    let mut core_of = vec![None; groups.len()];
    let mut free = vec![true; cores.len()];
    for (_, group, core) in known {
        if core_of[group].is_none() && free[core] {
            (core_of[group], free[core]) = (Some(core), false);
        }
    }
    let mut found = vec![PuIdx(0); threads.len()];
    for (group, core) in groups.iter().zip(core_of) {
        let Some(core) = core else { continue };
        let members: Vec<&Thread> = group.iter().map(|&at| threads[at]).collect();
        for (&at, pu) in group.iter().zip(in_order(&cores[core].pus, &members)) {
            found[at] = pu;
        }
    }
    found
}

/// A place in `room` for each thread: its last one if it is there and free, else the next.
fn stay(threads: &[&Thread], room: &[PuIdx]) -> Vec<PuIdx> {
    let mut free = room.to_vec();
    let mut kept: Vec<Option<PuIdx>> = Vec::with_capacity(threads.len());
    for thread in threads {
        let place = free.iter().position(|pu| Some(*pu) == thread.pu);
        kept.push(place.map(|place| free.remove(place)));
    }
    let mut next = free.into_iter();
    kept.into_iter().filter_map(|kept| kept.or_else(|| next.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::traffic;
    use super::*;
    use crate::testing::machine;
    use proptest::prelude::*;

    /// One thread a rate, which is its traffic to caches of level 1 and 3.
    fn threads(rates: &[f64]) -> Vec<Queued> {
        traffic(rates.iter().map(|&rate| ([Some(rate), None, Some(rate), None], rate)))
    }

    fn refs(queue: &[Queued]) -> Vec<&Thread> {
        queue.iter().flat_map(|job| &job.threads).collect()
    }

    fn all(machine: &Machine) -> Vec<PuIdx> {
        machine.all_pus().collect()
    }

    fn by_l1(thread: &Thread) -> f64 {
        thread.traffic().at(1)
    }

    fn numbers(pus: &[PuIdx]) -> Vec<u32> {
        pus.iter().map(|pu| pu.0).collect()
    }

    /// Two caches of two cores. AVG = (20 + 2 + 16 + 6)/2 = 22. The first begins with 22/2 = 11: 16 and 6
    /// are 5 off, and 16 comes first; 6 are left for one: 6. The second gets 20 and 2.
    #[test]
    fn balanced_by_hand() {
        let machine = machine("l3:2 core:2");
        let queue = threads(&[20.0, 2.0, 16.0, 6.0]);
        assert_eq!(numbers(&balanced(&machine, &all(&machine), &refs(&queue))), [2, 3, 0, 1]);
    }

    /// Five threads: caches with four PUs each get three and two.
    #[test]
    fn fewer_threads_than_pus() {
        let machine = machine("l3:2 core:4");
        let queue = threads(&[1.0; 5]);
        let found = balanced(&machine, &all(&machine), &refs(&queue));
        assert_eq!(found.iter().filter(|pu| pu.0 < 4).count(), 3);
    }

    /// 9 with 1, 7 with 2, and 5 with 3.
    #[test]
    fn most_with_least_by_hand() {
        let machine = machine("core:3 pu:2");
        let queue = threads(&[1.0, 9.0, 5.0, 7.0, 2.0, 3.0]);
        let found = most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1);
        assert_eq!(numbers(&found), [1, 0, 4, 2, 3, 5]);
    }

    /// Three threads on two cores of two: who asks most is alone.
    #[test]
    fn idle_pus_ask_nothing() {
        let machine = machine("core:2 pu:2");
        let queue = threads(&[1.0, 9.0, 5.0]);
        let found = most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1);
        assert_eq!(numbers(&found), [3, 0, 2]);
    }

    #[test]
    fn stays() {
        let machine = machine("l3:2 core:2 pu:2");
        let mut queue = threads(&[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        for way in [
            &(|threads: &[&Thread]| balanced(&machine, &all(&machine), threads))
                as &dyn Fn(&[&Thread]) -> Vec<PuIdx>,
            &|threads| most_with_least(&machine, &all(&machine), threads, &by_l1),
        ] {
            // Turned round, so that keeping places is not the order's doing.
            let mut first = way(&refs(&queue));
            first.reverse();
            for (job, pu) in queue.iter_mut().rev().zip(&first) {
                job.threads[0].pu = Some(*pu);
            }
            first.reverse();
            assert_eq!(way(&refs(&queue)), first);
        }
    }

    /// All ways to put threads together in twos, the least greatest sum.
    fn least_greatest(rates: &mut Vec<f64>) -> f64 {
        let Some(first) = rates.pop() else { return 0.0 };
        let mut best = f64::INFINITY;
        for at in 0..rates.len() {
            let other = rates.swap_remove(at);
            best = best.min(least_greatest(rates).max(first + other));
            rates.push(other);
            let last = rates.len() - 1;
            rates.swap(at, last);
        }
        rates.push(first);
        best
    }

    proptest! {
        #[test]
        fn least_most(rates in prop::collection::vec(0.0_f64..100.0, 8)) {
            let machine = machine("core:4 pu:2");
            let queue = threads(&rates);
            let found = most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1);
            let mut sums = [0.0; 4];
            for (pu, rate) in found.iter().zip(&rates) {
                sums[machine.core_of(*pu).idx()] += rate;
            }
            let most = sums.into_iter().fold(0.0, f64::max);
            let best = least_greatest(&mut rates.clone());
            prop_assert!(most <= best * (1.0 + 1e-12), "{most} where {best} is possible");
        }

        #[test]
        fn one_each(
            rates in prop::collection::vec(0.0_f64..100.0, 1..=16),
            last in prop::collection::vec(prop::option::of(0_u32..16), 16),
            spec in prop::sample::select(vec!["l3:2 core:4 pu:2", "core:16", "l3:4 core:1 pu:4", "pack:2 l3:2 core:2 pu:2"]),
        ) {
            let machine = machine(spec);
            let mut queue = threads(&rates);
            for (job, last) in queue.iter_mut().zip(last) {
                job.threads[0].pu = last.map(PuIdx);
            }
            for found in [
                balanced(&machine, &all(&machine), &refs(&queue)),
                most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1),
            ] {
                prop_assert_eq!(found.len(), rates.len());
                let mut once = found.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), found.len());
            }
        }

        #[test]
        fn even(rates in prop::collection::vec(0.0_f64..100.0, 1..=16)) {
            let machine = machine("l3:4 core:2 pu:2");
            let queue = threads(&rates);
            let found = balanced(&machine, &all(&machine), &refs(&queue));
            for cache in 0..4 {
                let here = found.iter().filter(|pu| pu.0 / 4 == cache).count();
                prop_assert!(here <= rates.len().div_ceil(4), "{found:?}");
            }
        }
    }
}
