//! Tasks that communicate and do not share a PU, in teams, and a part of the machine for each team.
//!
//! # Algorithm
//! 1. Tasks are in one team whose wake-ups from afar would cost a pair more than [`SHARE`] of the time for which both are busy.
//! 2. Each team, the one with most to lose first, gets a part of the machine that has a core for all of its time, and [`ROOM`]
//!    beyond: one under a last-level cache if there is one, else a node or a package. Of several the one with most wake-ups from
//!    tasks that have a PU there, then the one with most room. A team stays in its part while it has a core for all of its time.
//! # Properties
//! - **As wide as it needs**: a team that one cache has no cores for gets a node. -> test `a_part_is_as_wide_as_its_team`
//! - **Does not separate or crowd**: one that no part has cores for is left to the kernel. -> test `a_part_is_as_wide_as_its_team`
//! - **Apart**: teams do not share a part if there is another one. -> test `teams_have_a_part_each`
//! - **Stays**: a team keeps its part. -> test `a_team_stays_where_it_was`

use super::groups::LEAST_GAIN;
use super::traffic::Traffic;
use crate::TaskId;
use crate::places::Places;
use colocate_machine::calibrated::Pair;
use colocate_machine::{PuIdx, Shared};
use colocate_model::communication::WakeUpCosts;
use std::collections::BTreeMap;

/// The part of the time for which both are busy. Chosen: a team in a part has only the memory bandwidth and the caches of that,
/// so less is not worth it.
const SHARE: f64 = 0.05;
/// So many cores for each that a team keeps busy are free in a part that it is put in. Chosen: its load varies.
const ROOM: f64 = 1.25;
/// The parts that a team may be put in, narrowest first.
const PARTS: [Shared; 3] = [Shared::Cache, Shared::Node, Shared::Package];

/// Tasks that communicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Team {
    /// The tasks, in the order of their IDs: two or more.
    pub tasks: Vec<TaskId>,
    /// With which other one each communicates most.
    pub partners: Vec<TaskId>,
    /// Seconds a second that they lose as far apart as can be.
    pub gain: f64,
    /// How many PUs they keep busy.
    pub busy: f64,
}

/// Where a team is: what it shares, with which PU.
pub type Part = (Shared, PuIdx);

/// The teams of tasks that may be in one.
#[must_use]
pub fn teams(
    traffic: &Traffic,
    costs: &WakeUpCosts,
    places: &Places<'_>,
    may_be: impl Fn(TaskId) -> bool,
) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    let saved = farthest(places, costs) - costs.of(Pair::SameCache);
    if saved <= 0.0 {
        return teams;
    }
    let mut most: BTreeMap<TaskId, (f64, TaskId)> = BTreeMap::new();
    let mut of: BTreeMap<TaskId, usize> = BTreeMap::new();
    for ((a, b), pair) in traffic.pairs() {
        let gain = pair.per_second * saved;
        let least = SHARE * (traffic.busy(a) + traffic.busy(b));
        if gain < least.max(LEAST_GAIN) || !may_be(a) || !may_be(b) {
            continue;
        }
        let mut team = |task: TaskId, other: TaskId| {
            let most = most.entry(task).or_insert((0.0, other));
            if most.0 < gain {
                *most = (gain, other);
            }
            *of.entry(task).or_insert_with(|| {
                let (tasks, partners, busy) = (vec![task], Vec::new(), traffic.busy(task));
                teams.push(Team { tasks, partners, gain: 0.0, busy });
                teams.len() - 1
            })
        };
        let (a, b) = (team(a, b), team(b, a));
        let (to, from) = (a.min(b), a.max(b));
        teams[to].gain += gain;
        if to != from {
            let joined = std::mem::take(&mut teams[from].tasks);
            let Team { gain, busy, .. } = teams[from];
            joined.iter().for_each(|task| {
                of.insert(*task, to);
            });
            teams[to].tasks.extend(joined);
            teams[to].gain += gain;
            teams[to].busy += busy;
        }
    }
    teams.retain(|team| !team.tasks.is_empty());
    for team in &mut teams {
        team.tasks.sort_unstable();
        team.partners = team.tasks.iter().map(|task| most[task].1).collect();
    }
    teams.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.tasks.cmp(&b.tasks)));
    teams
}

/// What a wake-up costs at most between usable PUs.
fn farthest(places: &Places<'_>, costs: &WakeUpCosts) -> f64 {
    let machine = places.machine;
    let package = |pu: PuIdx| machine.cores[machine.core_of(pu).idx()].package;
    let Some(&first) = places.pus.first() else { return 0.0 };
    let cache = machine.last_level_cache(first);
    costs.of(if places.pus.iter().any(|pu| package(*pu) != package(first)) {
        Pair::OtherPackage
    } else if places.pus.iter().any(|pu| machine.last_level_cache(*pu) != cache) {
        Pair::OtherCache
    } else {
        Pair::SameCache
    })
}

/// A part of the machine with some of the usable PUs.
struct Candidate {
    part: Part,
    pus: Vec<PuIdx>,
}

/// The parts of one kind that have several usable PUs, but not all.
fn candidates(places: &Places<'_>, shared: Shared) -> Vec<Candidate> {
    let mut parts: Vec<Candidate> = Vec::new();
    let mut seen = vec![false; places.machine.pus.len()];
    for &pu in &places.pus {
        if seen[pu.idx()] {
            continue;
        }
        let mut pus = places.machine.sharing(shared, pu);
        pus.retain(|pu| places.pus.binary_search(pu).is_ok());
        pus.iter().for_each(|pu| seen[pu.idx()] = true);
        if pus.len() > 1 && pus.len() < places.pus.len() {
            parts.push(Candidate { part: (shared, pu), pus });
        }
    }
    parts
}

/// A part for each of the teams, which had `before`; `None` where the kernel is to choose. `seats` has tasks that have a PU, and
/// `load` what tasks of no team want of each PU.
#[must_use]
pub(crate) fn parts(
    teams: &[Team],
    traffic: &Traffic,
    places: &Places<'_>,
    before: &BTreeMap<TaskId, Part>,
    seats: &BTreeMap<TaskId, PuIdx>,
    load: &BTreeMap<PuIdx, f64>,
) -> Vec<Option<Part>> {
    if teams.is_empty() {
        return Vec::new();
    }
    let core = |pu: &PuIdx| places.machine.core_of(*pu).idx();
    let mut free = vec![0.0; places.machine.cores.len()];
    places.cores.iter().for_each(|usable| free[usable.core.idx()] = 1.0);
    load.iter().for_each(|(pu, busy)| free[core(pu)] = (free[core(pu)] - busy).max(0.0));
    let all: Vec<Candidate> = PARTS.iter().flat_map(|part| candidates(places, *part)).collect();
    let cores_of = |part: &Candidate| {
        let mut cores: Vec<usize> = part.pus.iter().map(core).collect();
        cores.dedup();
        cores
    };
    let room = |free: &[f64], part: &Candidate| -> f64 {
        cores_of(part).into_iter().map(|core| free[core]).sum()
    };
    let choose = |team: &Team, free: &[f64]| -> Option<usize> {
        let had = |part: &Candidate| before.get(&team.tasks[0]) == Some(&part.part);
        let stays = all.iter().position(|part| had(part) && room(free, part) >= team.busy);
        let called = calls(team, traffic, seats);
        let called = |part: &Candidate| -> f64 {
            part.pus.iter().map(|pu| called.get(pu).copied().unwrap_or(0.0)).sum()
        };
        let best = |shared| {
            let fits = |at: &usize| room(free, &all[*at]) >= team.busy * ROOM;
            let kind = (0..all.len()).filter(|at| all[*at].part.0 == shared).filter(fits);
            kind.max_by(|&a, &b| {
                let called = called(&all[a]).total_cmp(&called(&all[b]));
                let roomy = room(free, &all[a]).total_cmp(&room(free, &all[b]));
                called.then(roomy).then(b.cmp(&a))
            })
        };
        stays.or_else(|| PARTS.into_iter().find_map(best))
    };
    let mut chosen = Vec::with_capacity(teams.len());
    for team in teams {
        let part = choose(team, &free);
        if let Some(part) = part {
            let left = 1.0 - team.busy / room(&free, &all[part]).max(team.busy);
            cores_of(&all[part]).into_iter().for_each(|core| free[core] *= left);
        }
        chosen.push(part.map(|part| all[part].part));
    }
    chosen
}

/// Wake-ups a second between a team and tasks that have a PU, by that.
fn calls(team: &Team, traffic: &Traffic, seats: &BTreeMap<TaskId, PuIdx>) -> BTreeMap<PuIdx, f64> {
    let mut calls = BTreeMap::new();
    let is_of = |task: &TaskId| team.tasks.binary_search(task).is_ok();
    for ((a, b), pair) in traffic.pairs() {
        let other = match (is_of(&a), is_of(&b)) {
            (true, false) => b,
            (false, true) => a,
            _ => continue,
        };
        if let Some(pu) = seats.get(&other) {
            *calls.entry(*pu).or_default() += pair.per_second;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobIdx;
    use crate::testing::machine;
    use colocate_model::communication::Exchange;

    /// Two packages, each a node with two caches over two cores of two PUs.
    const SPEC: &str = "pack:2 l3:2 core:2 pu:2";

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// Pairs of tasks with how often they wake each other a second.
    fn traffic(pairs: &[(u32, u32, f64)], busy: &[f64]) -> Traffic {
        let exchange = |&(a, b, per_second): &(u32, u32, f64)| {
            ((task(a), task(b)), Exchange { per_second, wait: 30e-6, both_run: 0.5 })
        };
        let busy = (0..).map(task).zip(busy.iter().copied());
        Traffic::of(pairs.iter().map(exchange), busy)
    }

    struct Given<'a> {
        pairs: &'a [(u32, u32, f64)],
        busy: &'a [f64],
        before: &'a [(u32, Part)],
        seats: &'a [(u32, u32)],
        load: &'a [(u32, f64)],
    }

    /// The tasks of a team, and its part.
    type Put = (Vec<u32>, Option<(Shared, u32)>);

    fn put(spec: &str, given: &Given<'_>) -> Vec<Put> {
        let machine = machine(spec);
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = Places::new(&machine, &pus);
        let traffic = traffic(given.pairs, given.busy);
        let seats: BTreeMap<TaskId, PuIdx> =
            given.seats.iter().map(|(order, pu)| (task(*order), PuIdx(*pu))).collect();
        let costs = WakeUpCosts::default();
        let teams = teams(&traffic, &costs, &places, |task| !seats.contains_key(&task));
        let before = given.before.iter().map(|(order, part)| (task(*order), *part)).collect();
        let load = given.load.iter().map(|(pu, load)| (PuIdx(*pu), *load)).collect();
        let parts = parts(&teams, &traffic, &places, &before, &seats, &load);
        let tasks = teams.iter().map(|team| team.tasks.iter().map(|task| task.order).collect());
        tasks.zip(parts.into_iter().map(|part| part.map(|(shared, pu)| (shared, pu.0)))).collect()
    }

    const NONE: Given<'static> =
        Given { pairs: &[], busy: &[], before: &[], seats: &[], load: &[] };
    const PAIR: &[(u32, u32, f64)] = &[(0, 1, 20_000.0)];

    #[test]
    fn a_part_is_as_wide_as_its_team() {
        let chain = [(0, 1, 2e4), (1, 2, 2e4), (2, 3, 2e4)];
        let part = |busy| {
            let given = Given { pairs: &chain, busy: &[busy; 4], ..NONE };
            let found = put(SPEC, &given);
            assert_eq!((found.len(), &found[0].0[..]), (1, &[0, 1, 2, 3][..]));
            found[0].1
        };
        assert_eq!(part(0.4), Some((Shared::Cache, 0)), "1.6 of 2 cores");
        assert_eq!(part(0.5), Some((Shared::Node, 0)), "2 of 4 cores, with room");
        assert_eq!(part(0.9), None, "3.6 of 4 cores");
        let one_cache = put("l3:1 core:8", &Given { pairs: &chain, busy: &[0.4; 4], ..NONE });
        assert!(one_cache.is_empty());
    }

    /// 1,000 wake-ups a second cost 30 ms from afar, where two threads are busy for 1.2 s.
    #[test]
    fn what_computes_is_in_no_team() {
        let with = |rate, busy| put(SPEC, &Given { pairs: &[(0, 1, rate)], busy, ..NONE });
        assert!(with(1_000.0, &[0.6, 0.6]).is_empty());
        assert_eq!(with(3_000.0, &[0.6, 0.6]).len(), 1);
        assert!(with(200.0, &[0.01, 0.01]).is_empty(), "little is lost");
    }

    #[test]
    fn teams_have_a_part_each() {
        let pairs = [(0, 1, 2e4), (2, 3, 3e4), (4, 5, 1e4)];
        let found = put(SPEC, &Given { pairs: &pairs, busy: &[0.7; 6], ..NONE });
        let cache = |pu| Some((Shared::Cache, pu));
        assert_eq!(found, [(vec![2, 3], cache(0)), (vec![0, 1], cache(4)), (vec![4, 5], cache(8))]);
        let busy_there = Given { pairs: PAIR, busy: &[0.7; 2], load: &[(1, 0.9)], ..NONE };
        assert_eq!(put(SPEC, &busy_there)[0].1, cache(4), "another task has a core");
    }

    #[test]
    fn a_team_stays_where_it_was() {
        let part = |busy: &[f64], before| {
            put(SPEC, &Given { pairs: PAIR, busy, before: &[(0, before)], ..NONE })[0].1
        };
        let third = (Shared::Cache, PuIdx(8));
        assert_eq!(part(&[0.95; 2], third), Some((Shared::Cache, 8)), "1.9 of 2 cores");
        assert_eq!(part(&[1.05; 2], third), Some((Shared::Node, 0)));
        assert_eq!(
            part(&[0.5; 2], (Shared::Node, PuIdx(12))),
            Some((Shared::Cache, 0)),
            "no such part"
        );
    }

    /// 2 has PU 13.
    #[test]
    fn a_team_is_near_those_that_have_a_pu() {
        let pairs = [(0, 1, 2e4), (1, 2, 1e4)];
        let given = Given { pairs: &pairs, busy: &[0.5; 3], seats: &[(2, 13)], ..NONE };
        assert_eq!(put(SPEC, &given), [(vec![0, 1], Some((Shared::Cache, 12)))]);
    }

    #[test]
    fn only_usable_pus_count() {
        let machine = machine(SPEC);
        let pus = [0, 1, 4, 5, 6].map(PuIdx);
        let places = Places::new(&machine, &pus);
        let traffic = traffic(PAIR, &[0.7; 2]);
        let teams = teams(&traffic, &WakeUpCosts::default(), &places, |_| true);
        let none = BTreeMap::new();
        let found = parts(&teams, &traffic, &places, &BTreeMap::new(), &none, &BTreeMap::new());
        assert_eq!(found, [Some((Shared::Cache, PuIdx(4)))]);
    }
}
