//! Groups of tasks that gain by sharing a PU, and a PU for each group.
//!
//! # Algorithm
//! 1. Take pairs by falling gain. Join the groups of both tasks, unless the joined group needs more
//!    than [`FULL`] of a PU, or the pair gains less than [`LEAST_GAIN`].
//! 2. Give each group a PU: first groups that had a PU, then by falling busy share. Each group gets
//!    the PU with the least cost: time beyond the PU's capacity, time that ungrouped tasks find on
//!    no PU, busy siblings, and wake-ups from placed groups by distance; among equals the least
//!    loaded PU. A group stays on its PU unless another PU costs [`LEAST_GAIN`] less.
//! 3. A group is on all PUs of its PU's cache, else core, if that costs at most [`LEAST_GAIN`] more
//!    ([`as_good`]).
//! # Properties
//! - **One PU is the last resort**: a group is no nearer than it gains by.
//!   -> test `a_part_that_is_as_good_is_wider_than_a_pu`
//! - **Takes turns or not**: a pair that runs at the same time is not joined.
//!   -> test `a_pair_that_computes_is_not_joined`
//! - **No PU is crowded**: a group needs no more than [`FULL`]. -> test
//!   `a_star_is_joined_as_far_as_a_pu_goes`
//! - **Apart**: groups do not share a PU since tasks that the kernel may move ran on the other one.
//!   -> test `tasks_of_no_group_make_room`
//! - **Stays**: a group keeps its PU while that is about as good as any.
//!   -> test `a_group_stays_where_it_was`

use super::traffic::{Two, WakeUpTraffic};
use super::{ByTask, TaskSet};
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::calibrated::PuDistance;
use colocate_machine::{CacheIdx, Machine, PuIdx, SharedPart};
use colocate_model::communication::{Exchange, WakeUpCosts};
use std::collections::BTreeMap;

/// Largest busy share of a group on a PU. Chosen above 1: a woken task waits until its waker
/// sleeps, and both count as runnable meanwhile.
const FULL: f64 = 1.3;
/// Least gain worth a change, in seconds per second. Chosen: less is lost in the noise of other
/// programs.
pub(crate) const LEAST_GAIN: f64 = 0.01;
/// Cost of a fully busy sibling PU, as a part of the group's time. Chosen: SMT siblings get some
/// two thirds of a core each.
const SIBLING: f64 = 0.3;

/// Cost of time that ungrouped tasks find on no PU, as a part of that time. Chosen just below 1: an
/// ungrouped task is balanced over all PUs, whereas a group waits for its PU.
const MOVABLE: f64 = 0.9;

/// Tasks that share a PU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PuGroup {
    /// The tasks, in the order of their IDs: two or more.
    pub tasks: Vec<TaskId>,
    /// Gain by sharing a PU, in seconds per second.
    pub gain: f64,
    /// Sum of the tasks' busy shares, in PUs.
    pub busy: f64,
    /// Share of the time in which its tasks were seen to run at the same time, summed over pairs.
    pub both_run: f64,
    /// Seconds for which wake-ups of its pairs have been counted, the longest.
    pub counted_for: f64,
    /// Wake-ups per second among its tasks.
    pub per_second: f64,
}

impl PuGroup {
    fn add(&mut self, pair: &Exchange, gain: f64) {
        self.gain += gain;
        self.both_run += pair.both_run;
        self.counted_for = self.counted_for.max(pair.counted_for);
    }

    fn join(&mut self, other: Self) {
        self.tasks.extend(other.tasks);
        self.gain += other.gain;
        self.busy += other.busy;
        self.both_run += other.both_run;
        self.counted_for = self.counted_for.max(other.counted_for);
    }
}

/// Groups with a gain.
#[must_use]
pub fn groups(traffic: &WakeUpTraffic, costs: &WakeUpCosts) -> Vec<PuGroup> {
    let mut pairs: Vec<(Two, f64, &Exchange)> = traffic
        .pairs()
        .map(|(two, pair)| (two, pair.gain_together(costs), pair))
        .filter(|(_, gain, _)| *gain >= LEAST_GAIN)
        .collect();
    // By pair among equal gains, so that equal evidence gives equal groups.
    pairs.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut groups: Vec<PuGroup> = Vec::new();
    let mut of: ByTask<usize> = ByTask::default();
    for ((a, b), gain, pair) in pairs {
        let [a, b] = [a, b].map(|task| {
            *of.entry(task).or_insert_with(|| {
                let busy = traffic.busy(task);
                groups.push(PuGroup { tasks: vec![task], busy, ..PuGroup::default() });
                groups.len() - 1
            })
        });
        // Already joined through pairs with larger gains.
        if a == b {
            groups[a].add(pair, gain);
        } else if groups[a].busy + groups[b].busy <= FULL {
            let to = a.min(b);
            // The emptied group stays in the list until the end, so that indexes in `of` stay
            // valid.
            let joined = std::mem::take(&mut groups[a.max(b)]);
            joined.tasks.iter().for_each(|task| {
                of.insert(*task, to);
            });
            groups[to].join(joined);
            groups[to].add(pair, gain);
        }
    }
    for ((a, b), pair) in traffic.pairs() {
        if let Some(group) = of.get(&a).filter(|group| of.get(&b) == Some(group)) {
            groups[*group].per_second += pair.per_second;
        }
    }
    groups.retain(|group| group.tasks.len() > 1);
    groups.iter_mut().for_each(|group| group.tasks.sort_unstable());
    groups
}

/// Tasks that lose by wake-ups between distant PUs.
#[must_use]
pub(crate) fn communicating(traffic: &WakeUpTraffic, costs: &WakeUpCosts) -> TaskSet {
    let dearest = costs.most() - costs.of(PuDistance::SamePu);
    let pairs = traffic.pairs().filter(|(_, pair)| pair.per_second * dearest >= LEAST_GAIN);
    pairs.flat_map(|((a, b), _)| [a, b]).collect()
}

/// PU of each group. `before`: previous PUs. `bound`: load per PU of tasks with an affinity mask of
/// their own. `load`: load of further ungrouped tasks, by the PU of their last run.
#[must_use]
pub(crate) fn seats(
    groups: &[PuGroup],
    traffic: &WakeUpTraffic,
    costs: &WakeUpCosts,
    places: &UsableMachine<'_>,
    before: &BTreeMap<TaskId, PuIdx>,
    load: &BTreeMap<PuIdx, f64>,
    bound: &BTreeMap<PuIdx, f64>,
) -> Vec<PuIdx> {
    let mut crowd = Crowd::of(places, load);
    // Bound tasks cannot move away from a group, unlike `load`.
    bound.iter().for_each(|(pu, busy)| crowd.add(*pu, *busy));
    let was: Vec<Option<PuIdx>> = groups
        .iter()
        .map(|group| group.tasks.iter().find_map(|task| before.get(task).copied()))
        .collect();
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|&a, &b| {
        let by_busy = groups[b].busy.total_cmp(&groups[a].busy);
        was[b].is_some().cmp(&was[a].is_some()).then(by_busy).then(a.cmp(&b))
    });
    let between = rates_between(groups, traffic);
    let mut apart = Apart::new(places.machine, costs);
    let mut seats: Vec<Option<PuIdx>> = vec![None; groups.len()];
    for group in order {
        let partners = between[group].iter();
        // Groups without a PU yet do not pull; they are placed near this group later.
        let partners = partners.filter_map(|(other, rate)| Some((seats[*other]?, *rate)));
        apart.set(partners);
        let busy = groups[group].busy;
        let costs = places.pus.iter().map(|&pu| (crowd.cost(pu, busy, &apart), pu));
        let best = costs.min_by(|a, b| {
            a.0.total_cmp(&b.0).then(crowd.wanted(a.1).total_cmp(&crowd.wanted(b.1)))
        });
        // Without usable PUs no group gets one.
        let Some((least, mut pu)) = best else { break };
        if let Some(was) = was[group].filter(|was| places.pus.contains(was))
            && crowd.cost(was, busy, &apart) <= least + LEAST_GAIN
        {
            pu = was;
        }
        crowd.add(pu, busy);
        seats[group] = Some(pu);
    }
    seats.into_iter().flatten().collect()
}

/// Widest part of the machine around the PU of a group in which its wake-ups cost no more than the
/// group gains there, where its tasks can run at the same time; `None` if one PU is best.
#[must_use]
pub(crate) fn as_good(
    group: &PuGroup,
    pu: PuIdx,
    costs: &WakeUpCosts,
    places: &UsableMachine<'_>,
) -> Option<SharedPart> {
    let parts = [
        (SharedPart::Cache, PuDistance::SameCache, 0.0),
        (SharedPart::Core, PuDistance::Siblings, SIBLING),
    ];
    let is_part = |part| {
        let pus = places.machine.sharing(part, pu);
        let usable = pus.iter().filter(|pu| places.pus.binary_search(pu).is_ok()).count();
        // All usable PUs would be no restriction.
        usable > 1 && usable < places.pus.len()
    };
    let found = parts.into_iter().find(|&(part, distance, slower)| {
        let dearer = costs.of(distance) - costs.of(PuDistance::SamePu);
        let gains = group.both_run * (1.0 - slower);
        group.per_second * dearer <= gains + LEAST_GAIN && is_part(part)
    });
    found.map(|(part, ..)| part)
}

/// Load of the PUs, in PUs: pinned load of groups and bound tasks, and movable load, which the
/// kernel balances.
struct Crowd<'a> {
    machine: &'a Machine,
    groups: Vec<f64>,
    /// Movable load, by the PU of the last run.
    others: Vec<f64>,
    /// Capacity left by the pinned load, in PUs.
    spare: f64,
    movable: f64,
}

impl<'a> Crowd<'a> {
    fn of(places: &UsableMachine<'a>, load: &BTreeMap<PuIdx, f64>) -> Self {
        let mut others = vec![0.0; places.machine.pus.len()];
        load.iter().for_each(|(pu, busy)| others[pu.idx()] += busy);
        let groups = vec![0.0; others.len()];
        let spare = places.pus.len() as f64;
        Self { machine: places.machine, groups, others, spare, movable: load.values().sum() }
    }

    /// Cost of a further group of `busy` on `pu`, in seconds per second.
    fn cost(&self, pu: PuIdx, busy: f64, apart: &Apart) -> f64 {
        let core = &self.machine.cores[apart.spots[pu.idx()].core];
        let beside = core.pus.iter().filter(|sibling| **sibling != pu);
        // A PU cannot be more than fully busy, however many tasks want it.
        let siblings: f64 = beside.map(|sibling| self.wanted(*sibling).min(1.0)).sum();
        self.with(pu, busy) + SIBLING * siblings * busy.min(1.0) + apart.at(pu)
    }

    fn wanted(&self, pu: PuIdx) -> f64 {
        self.groups[pu.idx()] + self.others[pu.idx()]
    }

    /// Part of `spare` that a further group of `busy` takes on `pu`.
    fn takes(&self, pu: PuIdx, busy: f64) -> f64 {
        // Groups alone may want more than the PU has.
        busy.min((1.0 - self.groups[pu.idx()]).max(0.0))
    }

    /// Waiting time in seconds per second if a further group of `busy` is on `pu`: of the group
    /// itself, and of movable tasks that find no spare time on any PU.
    fn with(&self, pu: PuIdx, busy: f64) -> f64 {
        let takes = self.takes(pu, busy);
        busy - takes + MOVABLE * (self.movable - (self.spare - takes)).max(0.0)
    }

    fn add(&mut self, pu: PuIdx, busy: f64) {
        self.spare -= self.takes(pu, busy);
        self.groups[pu.idx()] += busy;
    }
}

/// Cost of a group's wake-ups on each candidate PU. `base` is the cost from another package; the
/// tables hold the (negative) differences for the same package, cache, core and PU.
struct Apart {
    costs: [f64; PuDistance::ALL.len()],
    /// By PU.
    spots: Vec<Spot>,
    /// PUs with non-zero entries.
    with: Vec<PuIdx>,
    base: f64,
    package: Vec<f64>,
    /// The last entry is for PUs without a cache, always 0.
    cache: Vec<f64>,
    core: Vec<f64>,
    pu: Vec<f64>,
}

/// Position of a PU in the machine.
#[derive(Clone, Copy)]
struct Spot {
    package: usize,
    cache: usize,
    core: usize,
}

impl Apart {
    fn new(machine: &Machine, costs: &WakeUpCosts) -> Self {
        let none = machine.caches.len();
        let spots = machine.all_pus().map(|pu| {
            let core = machine.core_of(pu).idx();
            let cache = machine.last_level_cache(pu).map_or(none, CacheIdx::idx);
            Spot { package: machine.cores[core].package.idx(), cache, core }
        });

        Self {
            costs: PuDistance::ALL.map(|pair| costs.of(pair)),
            spots: spots.collect(),
            with: Vec::new(),
            base: 0.0,
            package: vec![0.0; machine.packages.len()],
            cache: vec![0.0; none + 1],
            core: vec![0.0; machine.cores.len()],
            pu: vec![0.0; machine.pus.len()],
        }
    }

    /// Replaces the partners: pairs of a PU and wake-ups per second.
    fn set(&mut self, partners: impl Iterator<Item = (PuIdx, f64)>) {
        // Only entries that were set: the tables are as large as the machine.
        for pu in self.with.drain(..) {
            let Spot { package, cache, core } = self.spots[pu.idx()];
            self.package[package] = 0.0;
            self.cache[cache] = 0.0;
            self.core[core] = 0.0;
            self.pu[pu.idx()] = 0.0;
        }
        self.base = 0.0;
        let none = self.cache.len() - 1;
        let [same_pu, siblings, same_cache, other_cache, other_package] = self.costs;
        for (pu, rate) in partners {
            let Spot { package, cache, core } = self.spots[pu.idx()];
            self.with.push(pu);
            self.base += rate * other_package;
            self.package[package] += rate * (other_cache - other_package);
            if cache != none {
                self.cache[cache] += rate * (same_cache - other_cache);
            }
            // A PU without a cache goes straight from `other_cache` to `siblings`.
            let near = if cache == none { other_cache } else { same_cache };
            self.core[core] += rate * (siblings - near);
            self.pu[pu.idx()] += rate * (same_pu - siblings);
        }
    }

    /// Cost of all wake-ups on `pu`, in seconds per second.
    fn at(&self, pu: PuIdx) -> f64 {
        let Spot { package, cache, core } = self.spots[pu.idx()];
        self.base + self.package[package] + self.cache[cache] + self.core[core] + self.pu[pu.idx()]
    }
}

/// Partner groups of each group, with wake-ups per second; a partner may be repeated.
fn rates_between(groups: &[PuGroup], traffic: &WakeUpTraffic) -> Vec<Vec<(usize, f64)>> {
    let of: ByTask<usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.tasks.iter().map(move |task| (*task, at)))
        .collect();
    let mut between = vec![Vec::new(); groups.len()];
    for ((a, b), pair) in traffic.pairs() {
        let (Some(&a), Some(&b)) = (of.get(&a), of.get(&b)) else { continue };
        if a != b {
            between[a].push((b, pair.per_second));
            between[b].push((a, pair.per_second));
        }
    }
    between
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use colocate_evidence::JobIdx;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// Pairs of tasks with how often they wake each other a second, after 30 µs; and how busy tasks are.
    fn traffic(pairs: &[(u32, u32, f64, f64)], busy: &[f64]) -> WakeUpTraffic {
        let exchange = |&(a, b, per_second, both_run): &(u32, u32, f64, f64)| {
            (
                (task(a), task(b)),
                Exchange { per_second, wait: 30e-6, both_run, ..Exchange::default() },
            )
        };
        let busy = (0..).map(task).zip(busy.iter().copied());
        WakeUpTraffic::of(pairs.iter().map(exchange), busy)
    }

    /// Added up level by level it is what each pair of PUs costs.
    #[test]
    fn apart_is_what_pairs_of_pus_cost() {
        let costs = WakeUpCosts::default();
        for spec in ["pack:2 l3:2 core:2 pu:2", "core:3 pu:2", "pack:2 node:2 l3:2 core:2"] {
            let machine = machine(spec);
            let nr = |pu: PuIdx| machine.pus[pu.idx()].os;
            let partners: Vec<(PuIdx, f64)> =
                machine.all_pus().step_by(2).zip([1e3, 2e4]).collect();
            let mut apart = Apart::new(&machine, &costs);
            apart.set(machine.all_pus().map(|pu| (pu, 1.0)));
            apart.set(partners.iter().copied());
            for pu in machine.all_pus() {
                let pair = |at: PuIdx| PuDistance::of(&machine, nr(pu), nr(at)).unwrap();
                let expected: f64 =
                    partners.iter().map(|(at, rate)| rate * costs.of(pair(*at))).sum();
                assert!((apart.at(pu) - expected).abs() < 1e-9, "{spec} {pu:?}");
            }
        }
    }

    fn joined(pairs: &[(u32, u32, f64, f64)], busy: &[f64]) -> Vec<Vec<u32>> {
        let groups = groups(&traffic(pairs, busy), &WakeUpCosts::default());
        groups.iter().map(|group| group.tasks.iter().map(|task| task.order).collect()).collect()
    }

    #[test]
    fn a_pair_that_computes_is_not_joined() {
        assert_eq!(joined(&[(0, 1, 10_000.0, 0.0)], &[0.5, 0.5]), [[0, 1]]);
        assert!(joined(&[(0, 1, 10_000.0, 0.3)], &[0.6, 0.6]).is_empty());
        assert!(joined(&[(0, 1, 100.0, 0.0)], &[0.5, 0.5]).is_empty());
    }

    /// A client and four workers, each of which wants a third of a PU: two join it.
    #[test]
    fn a_star_is_joined_as_far_as_a_pu_goes() {
        let pairs: Vec<_> = (1..5).map(|worker| (0, worker, 5_000.0, 0.0)).collect();
        let found = joined(&pairs, &[0.5, 0.35, 0.35, 0.35, 0.35]);
        assert_eq!(found, [[0, 1, 2]]);
    }

    /// Default costs: a wake-up takes 4 µs more on a sibling and 16 on another core of the cache. Times of which both run count
    /// there as a gain.
    #[test]
    fn a_part_that_is_as_good_is_wider_than_a_pu() {
        use SharedPart::{Cache, Core};
        let two_caches = "l3:2 core:2 pu:2";
        let cases = [
            (two_caches, 10_000.0, 0.0, None),
            (two_caches, 1_000.0, 0.0, Some(Core)),
            (two_caches, 500.0, 0.0, Some(Cache)),
            (two_caches, 3_000.0, 0.05, Some(Cache)),
            ("core:2 pu:2", 500.0, 0.0, Some(Core)),
            ("core:2", 500.0, 0.0, None),
        ];
        for (spec, per_second, both_run, expected) in cases {
            let machine = machine(spec);
            let pus: Vec<PuIdx> = machine.all_pus().collect();
            let places = UsableMachine::new(&machine, &pus);
            let traffic = traffic(&[(0, 1, per_second, both_run)], &[0.5, 0.5]);
            let costs = WakeUpCosts::default();
            let [group] = groups(&traffic, &costs).try_into().unwrap();
            let found = as_good(&group, PuIdx(0), &costs, &places);
            assert_eq!(found, expected, "{spec} {per_second} {both_run}");
        }
    }

    #[test]
    fn two_pairs_are_two_groups() {
        let pairs = [(0, 1, 9_000.0, 0.0), (2, 3, 8_000.0, 0.0), (1, 2, 400.0, 0.0)];
        assert_eq!(joined(&pairs, &[0.5; 4]), [[0, 1], [2, 3]]);
    }

    fn seated(
        spec: &str,
        pairs: &[(u32, u32, f64, f64)],
        before: &[(u32, u32)],
        [load, bound]: [&[(u32, f64)]; 2],
    ) -> Vec<u32> {
        let machine = machine(spec);
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(&machine, &pus);
        let (traffic, costs) = (traffic(pairs, &[0.5; 8]), WakeUpCosts::default());
        let pu = |number: u32| PuIdx::new(number as usize);
        let before = before.iter().map(|(order, at)| (task(*order), pu(*at))).collect();
        let load = load.iter().map(|(at, load)| (pu(*at), *load)).collect();
        let bound = bound.iter().map(|(at, load)| (pu(*at), *load)).collect();
        let groups = groups(&traffic, &costs);
        let seats = seats(&groups, &traffic, &costs, &places, &before, &load, &bound);
        seats.iter().map(|pu| pu.0).collect()
    }

    const NONE: [&[(u32, f64)]; 2] = [&[], &[]];
    const TWO_PAIRS: &[(u32, u32, f64, f64)] = &[(0, 1, 9_000.0, 0.0), (2, 3, 8_000.0, 0.0)];

    #[test]
    fn groups_get_a_pu_each() {
        assert_eq!(seated("core:2", TWO_PAIRS, &[], NONE), [0, 1]);
        assert_eq!(seated("core:2 pu:2", TWO_PAIRS, &[], NONE), [0, 2], "a core each");
        assert_eq!(
            seated("core:2", &TWO_PAIRS[..1], &[], [&[(0, 1.0)], &[]]),
            [1],
            "another task has PU 0"
        );
    }

    /// Both last ran on PU 0, and can run on either.
    #[test]
    fn tasks_of_no_group_make_room() {
        assert_eq!(seated("core:2", TWO_PAIRS, &[], [&[(0, 1.2)], &[]]), [1, 0]);
        assert_eq!(seated("core:2", TWO_PAIRS, &[], [&[], &[(0, 1.2)]]), [1, 1], "they cannot");
    }

    #[test]
    fn a_group_stays_where_it_was() {
        assert_eq!(seated("core:4", TWO_PAIRS, &[(2, 0), (3, 0)], NONE), [1, 0]);
        let one = &TWO_PAIRS[..1];
        assert_eq!(seated("core:2", one, &[(0, 0)], [&[(0, 1.0)], &[]]), [0], "the other leaves");
        assert_eq!(seated("core:2", one, &[(0, 0)], [&[], &[(0, 1.0)]]), [1], "it cannot");
    }

    /// The second pair wakes the first one: it gets the PU under the same cache.
    #[test]
    fn groups_that_communicate_are_near() {
        let pairs = [(0, 1, 9_000.0, 0.0), (2, 3, 8_000.0, 0.0), (1, 2, 500.0, 0.0)];
        let load = &[(0, 0.5), (1, 0.5), (2, 0.5)];
        assert_eq!(seated("l3:2 core:4", &pairs, &[(0, 5)], [load, &[]]), [5, 4]);
    }
}
