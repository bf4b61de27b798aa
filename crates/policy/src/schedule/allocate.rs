//! Allocation: the PU of each thread of the chosen jobs.
//!
//! # Problem
//! Threads under one cache share its bandwidth, and PUs of one core share the first cache. A thread
//! with much traffic should be beside a thread with little, at every shared level.
//! # Approach
//! [`balanced`] goes from the last cache towards the cores. It divides the threads of each part of
//! the machine among the caches of the part so that each cache gets about the same number of
//! requests (Feliu et al., IPDPS 2012, Algorithm 2). [`most_with_least`] fills one core after the
//! other with the threads of most and of least traffic (PACT 2013, Algorithm 6).
//! # Terms
//! - *Room*: number of usable PUs under a cache or on a core.
//! - *Shared level*: a level with a cache over more than one usable PU; private levels are skipped.
//! # Algorithm
//! `balanced`, for each shared level from the last: a part with threads `G` and `k` caches of the
//! level has `AVG = Σ TR / k`. Each of its caches begins with `BW = AVG` and its room as `CPU`, and
//! takes the thread with the least `|BW/CPU − TR|`: `BW −= TR`, `CPU −= 1`, until full. Ours: with
//! fewer threads than PUs, a cache takes the share of its PUs, rounded up, as its `CPU`. Averages
//! are over the part; on the published machine the part is the whole machine.
//!
//! `most_with_least`: with fewer threads than PUs, cores get about as many threads each, and the
//! first cores, with most traffic, fewer. With two PUs a core, idle PUs then act as threads without
//! traffic. With more PUs they do not: the thread of most traffic would get a neighbour while other
//! cores are empty.
//!
//! Both leave a thread on the PU where it last ran, or on its core, if among its places: its cache
//! is warm.
//! # Properties
//! - **One each**: no PU gets two threads while there are no more threads than PUs.
//!   -> test `one_each`
//! - **Least most**: with two PUs a core, all taken, no pairing has a smaller greatest sum than
//!   `most_with_least`. -> test `least_most`
//! - **Even**: no cache gets two threads more than its share. -> test `even`
//! - **Spread**: with `most_with_least` no core has two threads more than another one that has
//!   room. -> test `spread`
//! - **As defined**, by slower code. -> test `as_defined`
//! - **Stays**: the same threads with the same rates stay. -> test `stays`
//! - **Unknown is a mean one** -> test `unknown_counts_as_the_mean`

use super::{Allocated, Quantum, QueuedJob, Selected, SelectedJob, Thread};
use crate::places::UsableMachine;
use crate::predict::mean;
use colocate_machine::{Cache, CacheKind, Machine, PuIdx};
use std::cmp::Reverse;

/// Function from a thread to its rate, t/µs; `None` if unknown.
pub type RateFunction<'a> = &'a dyn Fn(&Thread) -> Option<f64>;

/// Rates of the threads, t/µs. An unknown rate is the mean of the known, an inconspicuous rank.
pub(crate) fn rates(threads: &[&Thread], rate: RateFunction<'_>) -> Vec<f64> {
    let rates: Vec<Option<f64>> = threads.iter().map(|thread| rate(thread)).collect();
    let known: Vec<f64> = rates.iter().flatten().copied().collect();
    let mean = mean(&known);
    rates.into_iter().map(|rate| rate.unwrap_or(mean)).collect()
}

/// Threads of the chosen jobs, in the order of choice; at most `most`.
pub fn threads_of<'a>(
    queue: &'a [QueuedJob],
    chosen: &[(usize, Selected)],
    most: usize,
) -> Vec<&'a Thread> {
    chosen.iter().flat_map(|(at, _)| &queue[*at].threads).take(most).collect()
}

/// Choices of a quantum. `pus` are the PUs of the chosen jobs' threads, in the order of
/// [`threads_of`]. Threads beyond `pus` share the same PUs, again from the first.
pub fn choices(
    now: &Quantum<'_>,
    chosen: Vec<(usize, Selected)>,
    pus: &[PuIdx],
    why: impl Fn(&Thread) -> Allocated,
) -> Vec<SelectedJob> {
    // Jobs with more threads than PUs share them.
    let mut next = pus.iter().cycle();
    let choices = chosen.into_iter().map(|(at, selected)| {
        let job = &now.queue[at];
        let threads = job.threads.iter();
        let places = threads.map(|thread| (next.next().copied(), why(thread))).collect();
        SelectedJob { job: job.job, selected, places }
    });
    choices.collect()
}

/// Choices for the chosen jobs. `place` returns the PUs of the threads, as many as fit.
pub fn seated(
    now: &Quantum<'_>,
    chosen: Vec<(usize, Selected)>,
    place: impl FnOnce(&[&Thread]) -> Vec<PuIdx>,
    why: impl Fn(&Thread) -> Allocated,
) -> Vec<SelectedJob> {
    let pus = place(&threads_of(now.queue, &chosen, now.pus.len()));
    choices(now, chosen, &pus, why)
}

/// Puts the chosen jobs on PUs far apart, without regard to caches.
pub fn spread(now: &Quantum<'_>, chosen: Vec<(usize, Selected)>) -> Vec<SelectedJob> {
    let order = UsableMachine::new(now.machine, now.pus).spread_pus();
    seated(now, chosen, |threads| in_order(&order, threads), |_| Allocated::Next)
}

/// One of the first PUs of `order` for each thread: its last PU if among them, else the next free.
pub fn in_order(order: &[PuIdx], threads: &[&Thread]) -> Vec<PuIdx> {
    let mut free = order[..threads.len().min(order.len())].to_vec();
    let mut kept: Vec<Option<PuIdx>> = Vec::with_capacity(threads.len());
    for thread in threads {
        let place = free.iter().position(|pu| Some(*pu) == thread.pu);
        kept.push(place.map(|place| free.remove(place)));
    }
    // Only after the threads that stay, so that no other thread gets their PUs.
    let mut next = free.into_iter();
    kept.into_iter().filter_map(|kept| kept.or_else(|| next.next())).collect()
}

/// PUs of threads in groups. The members of a group take PUs of its order, see [`in_order`].
pub(super) fn grouped<'a>(
    threads: &[&Thread],
    groups: impl Iterator<Item = (&'a Vec<usize>, &'a [PuIdx])>,
) -> Vec<PuIdx> {
    let mut found = vec![PuIdx(0); threads.len()];
    for (group, order) in groups {
        let members: Vec<&Thread> = group.iter().map(|&at| threads[at]).collect();
        group.iter().zip(in_order(order, &members)).for_each(|(&at, pu)| found[at] = pu);
    }
    found
}

/// PUs with balanced requests at the shared levels; see the module.
pub fn balanced(machine: &Machine, pus: &[PuIdx], threads: &[&Thread]) -> Vec<PuIdx> {
    let places = UsableMachine::new(machine, pus);
    let all = (0..threads.len()).collect();
    // The last level first: its parts are divided by the next level.
    let mut parts = vec![(places.pus.to_vec(), all)];
    for level in shared_levels(machine, &places.pus) {
        let over = caches_over(machine, level);
        let rates = rates(threads, &|thread| thread.traffic().at(level));
        parts = parts.into_iter().flat_map(|part| divided(part, &over, &rates)).collect();
    }
    let orders: Vec<Vec<PuIdx>> =
        parts.iter().map(|(pus, _)| UsableMachine::new(machine, pus).spread_pus()).collect();
    grouped(threads, parts.iter().map(|(_, threads)| threads).zip(orders.iter().map(Vec::as_slice)))
}

/// Levels with a cache over more than one of the PUs, last level first.
pub(crate) fn shared_levels(machine: &Machine, pus: &[PuIdx]) -> Vec<u8> {
    let mut usable = vec![false; machine.pus.len()];
    pus.iter().for_each(|pu| usable[pu.idx()] = true);
    let shared = data_caches(machine)
        .filter(|cache| cache.pus.iter().filter(|pu| usable[pu.idx()]).nth(1).is_some());
    let mut levels: Vec<u8> = shared.map(|cache| cache.level).collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    levels
}

/// Data and unified caches of the machine.
fn data_caches(machine: &Machine) -> impl Iterator<Item = &Cache> {
    machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction)
}

/// By PU of the machine: number of its first data cache of a level; `usize::MAX` without one.
fn caches_over(machine: &Machine, level: u8) -> Vec<usize> {
    let mut over = vec![usize::MAX; machine.pus.len()];
    for (number, cache) in data_caches(machine).filter(|cache| cache.level == level).enumerate() {
        for pu in &cache.pus {
            // Numbers ascend, so the first cache of several stays.
            over[pu.idx()] = over[pu.idx()].min(number);
        }
    }
    over
}

/// PUs of a part of the machine, and places of the threads to run there.
type MachinePart = (Vec<PuIdx>, Vec<usize>);

/// Divides a part by its caches of a level; PUs without a cache are the last part. `over` is from
/// [`caches_over`], `rates` is by thread.
fn divided(part: MachinePart, over: &[usize], rates: &[f64]) -> Vec<MachinePart> {
    let (pus, mut waiting) = part;
    let rooms = rooms(pus, over);
    let total = waiting.iter().map(|&at| rates[at]).fold(0.0, |sum, each| sum + each);
    let average = total / rooms.len() as f64;
    let mut pus_left = rooms.iter().map(Vec::len).sum();
    let mut parts = Vec::with_capacity(rooms.len());
    for pus in rooms {
        // The share of the PUs, rounded up: with fewer threads than PUs no part gets too many.
        let share = (waiting.len() * pus.len()).div_ceil(pus_left);
        pus_left -= pus.len();
        parts.push((pus, nearest(&mut waiting, share, average, rates)));
    }
    parts
}

/// Takes `count` of the waiting threads with a total rate near `traffic`.
fn nearest(waiting: &mut Vec<usize>, count: usize, mut traffic: f64, rates: &[f64]) -> Vec<usize> {
    let mut taken = Vec::with_capacity(count);
    for left in (1..=count).rev() {
        // An even share of what is left: after a thread of high rate, lower rates are wanted.
        let wanted = traffic / left as f64;
        let distances = waiting.iter().map(|&at| (wanted - rates[at]).abs()).enumerate();
        let Some((place, _)) = distances.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        let at = waiting.remove(place);
        traffic -= rates[at];
        taken.push(at);
    }
    taken
}

/// The PUs by their cache in `over`; PUs without a cache last, together.
fn rooms(mut pus: Vec<PuIdx>, over: &[usize]) -> Vec<Vec<PuIdx>> {
    pus.sort_by_key(|pu| over[pu.idx()]);
    pus.chunk_by(|a, b| over[a.idx()] == over[b.idx()]).map(<[PuIdx]>::to_vec).collect()
}

/// Fills one core after the other with the threads of highest and of lowest `rate`; see the module.
pub(crate) fn most_with_least(
    machine: &Machine,
    pus: &[PuIdx],
    threads: &[&Thread],
    rate: RateFunction<'_>,
) -> Vec<PuIdx> {
    let places = UsableMachine::new(machine, pus);
    let rates = rates(threads, rate);
    let mut sorted: Vec<usize> = (0..threads.len()).collect();
    sorted.sort_by(|&a, &b| rates[a].total_cmp(&rates[b]));
    let mut ends = std::collections::VecDeque::from(sorted);
    let groups = members(&places, threads.len()).into_iter().map(|count| {
        let ends = (0..count)
            .map(|n| if n.is_multiple_of(2) { ends.pop_back() } else { ends.pop_front() });
        ends.flatten().collect()
    });
    let groups: Vec<Vec<usize>> = groups.collect();
    on_cores(&places, threads, &groups, &vec![0; groups.len()])
}

/// Number of threads for each usable core: as even as room allows, the first cores fewer.
fn members(places: &UsableMachine<'_>, threads: usize) -> Vec<usize> {
    let cores = &places.cores;
    let mut members = vec![0; cores.len()];
    let mut left = threads;
    for round in 0..places.width() {
        // Without cores the width is 0, and this line is not reached.
        let last = cores.len() - 1;
        // The first ones are the first to get a thread, and the last to get a second one.
        let order = (0..cores.len()).map(|at| if round == 0 { at } else { last - at });
        for core in order.filter(|&core| round < cores[core].pus.len()).take(left) {
            members[core] += 1;
            left -= 1;
        }
    }
    members
}

/// PUs of the threads in `groups`. `groups[n]` fits on the `n`-th usable core; another group takes
/// this core only if both have the same room and class. A group goes to the core where most of its
/// members last ran.
pub(crate) fn on_cores(
    places: &UsableMachine<'_>,
    threads: &[&Thread],
    groups: &[Vec<usize>],
    classes: &[usize],
) -> Vec<PuIdx> {
    let cores = &places.cores;
    let are_alike =
        |a: usize, b: usize| cores[a].pus.len() == cores[b].pus.len() && classes[a] == classes[b];
    let mut core_of = vec![None; groups.len()];
    let mut free = vec![true; cores.len()];
    for (_, group, core) in by_members(places, threads, groups) {
        if core_of[group].is_none() && free[core] && are_alike(core, group) {
            core_of[group] = Some(core);
            free[core] = false;
        }
    }
    // Groups that were nowhere take the remaining cores in order.
    for (group, core) in core_of.iter_mut().enumerate().filter(|(_, core)| core.is_none()) {
        *core = (0..cores.len()).find(|&at| free[at] && are_alike(at, group));
        core.iter().for_each(|&at| free[at] = false);
    }
    let seated = groups.iter().zip(core_of);
    grouped(threads, seated.filter_map(|(group, core)| Some((group, &cores[core?].pus[..]))))
}

/// Number of members of each group that last ran on each core, most first: number, group, core.
fn by_members(
    places: &UsableMachine<'_>,
    threads: &[&Thread],
    groups: &[Vec<usize>],
) -> Vec<(Reverse<usize>, usize, usize)> {
    let mut known = Vec::new();
    for (group, members) in groups.iter().enumerate() {
        let last_cores = members.iter().filter_map(|&at| {
            let core = places.machine.pus.get(threads[at].pu?.idx())?.core;
            places.cores.binary_search_by_key(&core, |usable| usable.core).ok()
        });
        let mut were: Vec<usize> = last_cores.collect();
        were.sort_unstable();
        let runs = were.chunk_by(|a, b| a == b);
        // `Reverse`: most members first, then by group and core, so that the order is definite.
        known.extend(runs.map(|same| (Reverse(same.len()), group, same[0])));
    }
    known.sort_unstable();
    known
}

#[cfg(test)]
mod reference_tests;

#[cfg(test)]
mod tests {
    use super::super::testing::traffic;
    use super::*;
    use crate::testing::machine;
    use proptest::prelude::*;

    /// One thread a rate, which is its traffic to caches of level 1 and 3.
    fn threads(rates: &[f64]) -> Vec<QueuedJob> {
        traffic(rates.iter().map(|&rate| ([Some(rate), None, Some(rate), None], rate)))
    }

    fn refs(queue: &[QueuedJob]) -> Vec<&Thread> {
        queue.iter().flat_map(|job| &job.threads).collect()
    }

    fn all(machine: &Machine) -> Vec<PuIdx> {
        machine.all_pus().collect()
    }

    fn by_l1(thread: &Thread) -> Option<f64> {
        thread.traffic().at(1)
    }

    fn numbers(pus: &[PuIdx]) -> Vec<u32> {
        pus.iter().map(|pu| pu.0).collect()
    }

    /// Two caches of two cores. AVG = (20 + 2 + 16 + 6)/2 = 22. The first begins with 22/2 = 11: 16
    /// and 6 are 5 off, and 16 comes first; 6 are left for one: 6. The second gets 20 and 2.
    #[test]
    fn balanced_by_hand() {
        let machine = machine("l3:2 core:2");
        let queue = threads(&[20.0, 2.0, 16.0, 6.0]);
        assert_eq!(numbers(&balanced(&machine, &all(&machine), &refs(&queue))), [2, 3, 0, 1]);
    }

    /// 9 and 1 share a core, and the unknown one, a mean one with 5, the other with 5.
    #[test]
    fn unknown_counts_as_the_mean() {
        let machine = machine("core:2 pu:2");
        let queue = threads(&[0.0, 9.0, 5.0, 1.0]);
        let rate = |thread: &Thread| by_l1(thread).filter(|rate| *rate > 0.0);
        let found = numbers(&most_with_least(&machine, &all(&machine), &refs(&queue), &rate));
        assert_eq!([found[1] / 2, found[3] / 2], [0, 0]);
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

    /// Three threads on two cores of two: the one with most traffic is alone.
    #[test]
    fn idle_pus_ask_nothing() {
        let machine = machine("core:2 pu:2");
        let queue = threads(&[1.0, 9.0, 5.0]);
        let found = most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1);
        assert_eq!(numbers(&found), [3, 0, 2]);
    }

    /// Four threads have a core each, with four PUs or eight. Of six the two with most traffic are
    /// alone.
    #[test]
    fn no_core_is_empty_beside_a_full_one() {
        let found = |spec: &str, rates: &[f64]| {
            let (machine, queue) = (machine(spec), threads(rates));
            let found = most_with_least(&machine, &all(&machine), &refs(&queue), &by_l1);
            found.iter().map(|&pu| machine.core_of(pu).0).collect::<Vec<_>>()
        };
        assert_eq!(found("core:4 pu:4", &[1.0, 2.0, 3.0, 4.0]), [3, 2, 1, 0]);
        assert_eq!(found("core:4 pu:8", &[1.0, 2.0, 3.0, 4.0]), [3, 2, 1, 0]);
        assert_eq!(found("core:4 pu:4", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [2, 3, 3, 2, 1, 0]);
    }

    #[test]
    fn stays() {
        let machine = machine("l3:2 core:2 pu:2");
        let mut queue = threads(&[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        for migration in [
            &(|threads: &[&Thread]| balanced(&machine, &all(&machine), threads))
                as &dyn Fn(&[&Thread]) -> Vec<PuIdx>,
            &|threads| most_with_least(&machine, &all(&machine), threads, &by_l1),
        ] {
            // Turned round, so that keeping places is not the order's doing.
            let mut first = migration(&refs(&queue));
            first.reverse();
            for (job, pu) in queue.iter_mut().rev().zip(&first) {
                job.threads[0].pu = Some(*pu);
            }
            first.reverse();
            assert_eq!(migration(&refs(&queue)), first);
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

    /// A machine of parts of which some have caches of their own, also two over the same PUs.
    fn odd_machine(caches: &[(u8, u32, u32)]) -> Machine {
        let mut machine = machine("pack:2 l3:2 core:2 pu:2 + l3:1 core:3 pu:1");
        machine.caches.retain(|cache| cache.pus.len() != 3);
        for &(level, first, end) in caches {
            let pus = (first..end.max(first)).map(PuIdx).collect();
            machine.caches.push(Cache { level, kind: CacheKind::Unified, size: None, pus });
        }
        machine
    }

    proptest! {
        /// Some PUs may not be used, threads were anywhere, and several have the same rate.
        #[test]
        fn as_defined(
            caches in prop::collection::vec((1_u8..5, 0_u32..19, 0_u32..=19), 0..12),
            usable in prop::collection::vec(prop::bool::weighted(0.8), 19),
            jobs in prop::collection::vec((0_u8..9, prop::option::of(0_u32..19)), 1..19),
            order in Just((0_usize..19).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let machine = odd_machine(&caches);
            let pus: Vec<PuIdx> = machine.all_pus().filter(|pu| usable[pu.idx()]).collect();
            prop_assume!(!pus.is_empty());
            let rates: Vec<f64> = jobs.iter().map(|(rate, _)| f64::from(*rate)).collect();
            let mut queue = threads(&rates);
            for (job, (_, last)) in queue.iter_mut().zip(&jobs) {
                job.threads[0].pu = last.map(PuIdx);
            }
            let mut refs = refs(&queue);
            refs.truncate(pus.len());
            prop_assert_eq!(shared_levels(&machine, &pus), reference_tests::shared_levels(&machine, &pus));
            let found = balanced(&machine, &pus, &refs);
            prop_assert_eq!(found, reference_tests::balanced(&machine, &pus, &refs));
            let found = most_with_least(&machine, &pus, &refs, &by_l1);
            prop_assert_eq!(found, reference_tests::most_with_least(&machine, &pus, &refs, &by_l1));

            let places = UsableMachine::new(&machine, &pus);
            let mut next = order.into_iter().filter(|at| *at < refs.len());
            let some = |core: &crate::places::UsableCore| next.by_ref().take(core.pus.len()).collect();
            let groups: Vec<Vec<usize>> = places.cores.iter().map(some).collect();
            let found = on_cores(&places, &refs, &groups, &vec![0; groups.len()]);
            for (group, core) in groups.iter().zip(reference_tests::cores_of(&places, &refs, &groups)) {
                let pus = &places.cores[core.expect("a core for each")].pus;
                prop_assert!(group.iter().all(|&at| pus.contains(&found[at])));
            }
        }

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

        /// Some PUs may not be used.
        #[test]
        fn spread(
            usable in prop::collection::vec(any::<bool>(), 16),
            rates in prop::collection::vec(0.0_f64..100.0, 1..=16),
            spec in prop::sample::select(vec!["core:4 pu:4", "core:2 pu:8", "core:8 pu:2"]),
        ) {
            let machine = machine(spec);
            let pus: Vec<PuIdx> = machine.all_pus().filter(|pu| usable[pu.idx()]).collect();
            let queue = threads(&rates);
            let mut refs = refs(&queue);
            refs.truncate(pus.len());
            let found = most_with_least(&machine, &pus, &refs, &by_l1);
            let places = UsableMachine::new(&machine, &pus);
            let has = |core: &crate::places::UsableCore| {
                found.iter().filter(|pu| core.pus.contains(pu)).count()
            };
            let most = places.cores.iter().map(has).max().unwrap_or(0);
            for core in &places.cores {
                prop_assert!(has(core) + 1 >= most.min(core.pus.len() + 1), "{found:?}");
            }
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
