//! Teams of communicating tasks on separate PUs, and a part of the machine for each team.
//!
//! # Algorithm
//! 1. Two tasks are in the same team if wake-ups between distant PUs would cost more than [`SHARE`]
//!    of the sum of their busy times; [`STAYS`] for a pair that is already in the same part.
//! 2. Teams get parts in the order of falling loss. A part needs free cores for the team's busy
//!    time times [`ROOM`]: a last-level cache if possible, else a node or a package. Among several
//!    parts the order is: most wake-ups from tasks placed in the part; most of the team's time
//!    spent in the part, since the team's memory may be there; most room. A part with less than
//!    half of the team's time is taken only if the team loses [`FAR`] of its time. A team stays in
//!    its part while the part has free cores for the busy time.
//! # Properties
//! - **As wide as it needs**: a team that one cache has no cores for gets a node.
//!   -> test `a_part_is_as_wide_as_its_team`
//! - **Does not separate or crowd**: one that no part has cores for is left to the kernel.
//!   -> test `a_part_is_as_wide_as_its_team`
//! - **Apart**: teams do not share a part if there is another one. -> test `teams_have_a_part_each`
//! - **Little moves**: a team begins in the part where it is most.
//!   -> test `a_team_is_where_it_runs`
//! - **Stays**: a team keeps its part. -> test `a_team_stays_where_it_was`

use super::ByTask;
use super::groups::LEAST_GAIN;
use super::traffic::WakeUpTraffic;
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::calibrated::PuDistance;
use colocate_machine::{Machine, PuIdx, SharedPart};
use colocate_model::communication::WakeUpCosts;
use std::collections::BTreeMap;

/// Least loss of a pair in a team, as a part of the sum of their busy times. Chosen: a team is
/// limited to the memory bandwidth and caches of its part, so less is not worth the limit.
const SHARE: f64 = 0.05;
/// Least loss for a pair that is already in the same part. Chosen: communication varies, and is
/// less while the tasks are near.
const STAYS: f64 = 0.02;
/// Least loss of a team, as a part of its time, for a part with less than half of the team's time.
/// Chosen: the team's memory is then elsewhere, on an unknown node.
const FAR: f64 = 0.2;
/// Free cores per busy core of a team in a new part. Chosen: load varies.
const ROOM: f64 = 1.25;
/// Kinds of parts, narrowest first.
const PARTS: [SharedPart; 3] = [SharedPart::Cache, SharedPart::Node, SharedPart::Package];

/// Tasks that communicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Team {
    /// The tasks, in the order of their IDs: two or more.
    pub tasks: Vec<TaskId>,
    /// Partner with the most communication, for each task.
    pub partners: Vec<TaskId>,
    /// Loss at the largest distance against a shared cache, in seconds per second.
    pub gain: f64,
    /// Sum of the tasks' busy shares, in PUs.
    pub busy: f64,
}

/// Part of the machine: the PUs that share a cache, node or package with a PU.
pub type PartAtPu = (SharedPart, PuIdx);

/// Teams of the tasks for which `may_be` is true. `before`: previous parts. A task with an unknown
/// busy share is in no team.
#[must_use]
pub fn teams(
    traffic: &WakeUpTraffic,
    costs: &WakeUpCosts,
    places: &UsableMachine<'_>,
    before: &BTreeMap<TaskId, PartAtPu>,
    may_be: impl Fn(TaskId) -> bool,
) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    // A part is at best a shared cache: anything closer is the kernel's choice and not counted.
    let saved = farthest(places, costs) - costs.of(PuDistance::SameCache);
    if saved <= 0.0 {
        return teams;
    }
    let mut most: ByTask<(f64, TaskId)> = ByTask::default();
    let mut of: ByTask<usize> = ByTask::default();
    for ((a, b), pair) in traffic.pairs() {
        let gain = pair.per_second * saved;
        if gain < LEAST_GAIN || !may_be(a) || !may_be(b) {
            continue;
        }
        let (Some(busy_a), Some(busy_b)) = (traffic.known_busy(a), traffic.known_busy(b)) else {
            continue;
        };
        // Both unknown would be equal, too.
        let stays = before.contains_key(&a) && before.get(&a) == before.get(&b);
        let least = if stays { STAYS } else { SHARE } * (busy_a + busy_b);
        if gain < least {
            continue;
        }
        let [a, b] = [(a, b), (b, a)].map(|(task, other)| {
            let most = most.entry(task).or_insert((0.0, other));
            if most.0 < gain {
                *most = (gain, other);
            }
            *of.entry(task).or_insert_with(|| {
                let busy = traffic.busy(task);
                teams.push(Team { tasks: vec![task], partners: Vec::new(), gain: 0.0, busy });
                teams.len() - 1
            })
        });
        let to = a.min(b);
        let from = a.max(b);
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

/// Largest cost of a wake-up between usable PUs, in seconds.
fn farthest(places: &UsableMachine<'_>, costs: &WakeUpCosts) -> f64 {
    let machine = places.machine;
    let Some(&first) = places.pus.first() else { return 0.0 };
    let cache = machine.last_level_cache(first);
    let package = machine.cores[machine.core_of(first).idx()].package;
    costs.of(if places.cores.iter().any(|it| machine.cores[it.core.idx()].package != package) {
        PuDistance::OtherPackage
    } else if places.pus.iter().any(|pu| machine.last_level_cache(*pu) != cache) {
        PuDistance::OtherCache
    } else {
        PuDistance::SameCache
    })
}

/// Part of the machine with some of the usable PUs.
struct PartCandidate {
    part: PartAtPu,
    pus: Vec<PuIdx>,
    /// Indexes of the cores of `pus`.
    cores: Vec<usize>,
}

impl PartCandidate {
    fn new(shared: SharedPart, pus: Vec<PuIdx>, machine: &Machine) -> Self {
        let mut cores: Vec<usize> = pus.iter().map(|pu| machine.core_of(*pu).idx()).collect();
        // `pus` are in logical order, so the PUs of a core are adjacent.
        cores.dedup();
        Self { part: (shared, pus[0]), pus, cores }
    }

    /// Free cores of the part, by the free share of each core of the machine.
    fn room(&self, free: &[f64]) -> f64 {
        self.cores.iter().map(|core| free[*core]).sum()
    }

    /// Sum of the values of the part's PUs.
    fn sum(&self, by_pu: &BTreeMap<PuIdx, f64>) -> f64 {
        self.pus.iter().map(|pu| by_pu.get(pu).copied().unwrap_or(0.0)).sum()
    }
}

/// Parts of a kind with several usable PUs, but not all.
fn candidates(places: &UsableMachine<'_>, shared: SharedPart) -> Vec<PartCandidate> {
    let mut parts = places.machine.parts(shared);
    parts.iter_mut().for_each(|pus| pus.retain(|pu| places.pus.binary_search(pu).is_ok()));
    // All usable PUs would be no restriction.
    parts.retain(|pus| pus.len() > 1 && pus.len() < places.pus.len());
    parts.into_iter().map(|pus| PartCandidate::new(shared, pus, places.machine)).collect()
}

/// Current placement and load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    /// Previous parts of teams.
    pub parts: &'a BTreeMap<TaskId, PartAtPu>,
    /// Tasks pinned to a PU.
    pub seats: &'a BTreeMap<TaskId, PuIdx>,
    /// PU of the last run of each team task.
    pub ran: &'a BTreeMap<TaskId, PuIdx>,
    /// Load of tasks without a team, by PU.
    pub load: &'a BTreeMap<PuIdx, f64>,
}

/// Part of each team; `None`: not pinned.
#[must_use]
pub(crate) fn parts(
    teams: &[Team],
    traffic: &WakeUpTraffic,
    places: &UsableMachine<'_>,
    now: Now<'_>,
) -> Vec<Option<PartAtPu>> {
    if teams.is_empty() {
        return Vec::new();
    }
    let mut free = vec![0.0; places.machine.cores.len()];
    // Cores without a usable PU keep 0: they have no room for a team.
    places.cores.iter().for_each(|usable| free[usable.core.idx()] = 1.0);
    for (pu, busy) in now.load {
        let free = &mut free[places.machine.core_of(*pu).idx()];
        // The load of siblings together may exceed one core.
        *free = (*free - busy).max(0.0);
    }
    let all: Vec<PartCandidate> = PARTS.iter().flat_map(|part| candidates(places, *part)).collect();
    let mut chosen = Vec::with_capacity(teams.len());
    for team in teams {
        // Teams are sorted by loss, so the team with most to lose chooses first.
        let part = choose(team, &all, &free, traffic, now);
        if let Some(part) = part {
            // Assumes that the kernel spreads the team evenly over the free time of the part.
            let left = 1.0 - team.busy / part.room(&free).max(team.busy);
            part.cores.iter().for_each(|core| free[*core] *= left);
        }
        chosen.push(part.map(|part| part.part));
    }
    chosen
}

/// Part of a team; `None`: not pinned.
fn choose<'a>(
    team: &Team,
    all: &'a [PartCandidate],
    free: &[f64],
    traffic: &WakeUpTraffic,
    now: Now<'_>,
) -> Option<&'a PartCandidate> {
    let had = now.parts.get(&team.tasks[0]);
    // Without the reserve of `ROOM`, so that a team does not leave on small changes of load.
    let stays = all.iter().find(|it| had == Some(&it.part) && it.room(free) >= team.busy);
    let fitting: Vec<&PartCandidate> =
        all.iter().filter(|part| part.room(free) >= team.busy * ROOM).collect();
    if stays.is_some() || fitting.is_empty() {
        return stays;
    }
    let called = calls(team, traffic, now.seats);
    let spent = spent(team, traffic, now.ran);
    PARTS.into_iter().find_map(|shared| {
        // From the last: `max_by` takes the last of several equal parts, the first is wanted.
        let parts = fitting.iter().copied().rev().filter(|part| part.part.0 == shared);
        parts.filter(|it| team.gain >= team.busy * FAR || it.sum(&spent) >= team.busy / 2.0).max_by(
            |a, b| {
                let calls = a.sum(&called).total_cmp(&b.sum(&called));
                let spends = a.sum(&spent).total_cmp(&b.sum(&spent));
                calls.then(spends).then(a.room(free).total_cmp(&b.room(free)))
            },
        )
    })
}

/// Busy shares of a team's tasks, by the PU of the last run.
fn spent(
    team: &Team,
    traffic: &WakeUpTraffic,
    ran: &BTreeMap<TaskId, PuIdx>,
) -> BTreeMap<PuIdx, f64> {
    let mut spent = BTreeMap::new();
    for task in &team.tasks {
        if let Some(pu) = ran.get(task) {
            *spent.entry(*pu).or_default() += traffic.busy(*task);
        }
    }
    spent
}

/// Wake-ups per second between a team and pinned tasks, by PU.
fn calls(
    team: &Team,
    traffic: &WakeUpTraffic,
    seats: &BTreeMap<TaskId, PuIdx>,
) -> BTreeMap<PuIdx, f64> {
    let mut calls = BTreeMap::new();
    for ((a, b), pair) in traffic.pairs() {
        let other = match [a, b].map(|task| team.tasks.binary_search(&task).is_ok()) {
            [true, false] => b,
            [false, true] => a,
            // Both tasks in the team, or neither: no call from outside.
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
    use crate::testing::machine;
    use colocate_evidence::JobIdx;
    use colocate_model::communication::Exchange;

    /// Two packages, each a node with two caches over two cores of two PUs.
    const SPEC: &str = "pack:2 l3:2 core:2 pu:2";

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// Pairs of tasks with how often they wake each other a second.
    fn traffic(pairs: &[(u32, u32, f64)], busy: &[f64]) -> WakeUpTraffic {
        let exchange = |&(a, b, per_second): &(u32, u32, f64)| {
            (
                (task(a), task(b)),
                Exchange { per_second, wait: 30e-6, both_run: 0.5, ..Exchange::default() },
            )
        };
        let busy = (0..).map(task).zip(busy.iter().copied());
        WakeUpTraffic::of(pairs.iter().map(exchange), busy)
    }

    struct Given<'a> {
        pairs: &'a [(u32, u32, f64)],
        busy: &'a [f64],
        before: &'a [(u32, PartAtPu)],
        seats: &'a [(u32, u32)],
        ran: &'a [(u32, u32)],
        load: &'a [(u32, f64)],
    }

    /// The tasks of a team, and its part.
    type Put = (Vec<u32>, Option<(SharedPart, u32)>);

    fn put(spec: &str, given: &Given<'_>) -> Vec<Put> {
        let machine = machine(spec);
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(&machine, &pus);
        let traffic = traffic(given.pairs, given.busy);
        let seats: BTreeMap<TaskId, PuIdx> =
            given.seats.iter().map(|(order, pu)| (task(*order), PuIdx(*pu))).collect();
        let costs = WakeUpCosts::default();
        let before: BTreeMap<TaskId, PartAtPu> =
            given.before.iter().map(|(order, part)| (task(*order), *part)).collect();
        let may_be = |task| !seats.contains_key(&task);
        let teams = teams(&traffic, &costs, &places, &before, may_be);
        let load = given.load.iter().map(|(pu, load)| (PuIdx(*pu), *load)).collect();
        let ran = given.ran.iter().map(|(order, pu)| (task(*order), PuIdx(*pu))).collect();
        let now = Now { parts: &before, seats: &seats, ran: &ran, load: &load };
        let parts = parts(&teams, &traffic, &places, now);
        let tasks = teams.iter().map(|team| team.tasks.iter().map(|task| task.order).collect());
        tasks.zip(parts.into_iter().map(|part| part.map(|(shared, pu)| (shared, pu.0)))).collect()
    }

    const NONE: Given<'static> =
        Given { pairs: &[], busy: &[], before: &[], seats: &[], ran: &[], load: &[] };
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
        assert_eq!(part(0.4), Some((SharedPart::Cache, 0)), "1.6 of 2 cores");
        assert_eq!(part(0.5), Some((SharedPart::Node, 0)), "2 of 4 cores, with room");
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
        let cache = |pu| Some((SharedPart::Cache, pu));
        assert_eq!(found, [(vec![2, 3], cache(0)), (vec![0, 1], cache(4)), (vec![4, 5], cache(8))]);
        let busy_there = Given { pairs: PAIR, busy: &[0.7; 2], load: &[(1, 0.9)], ..NONE };
        assert_eq!(put(SPEC, &busy_there)[0].1, cache(4), "another task has a core");
    }

    #[test]
    fn a_team_stays_where_it_was() {
        let part = |busy: &[f64], before| {
            put(SPEC, &Given { pairs: PAIR, busy, before: &[(0, before)], ..NONE })[0].1
        };
        let third = (SharedPart::Cache, PuIdx(8));
        assert_eq!(part(&[0.95; 2], third), Some((SharedPart::Cache, 8)), "1.9 of 2 cores");
        assert_eq!(part(&[1.05; 2], third), Some((SharedPart::Node, 0)));
        assert_eq!(
            part(&[0.5; 2], (SharedPart::Node, PuIdx(12))),
            Some((SharedPart::Cache, 0)),
            "no such part"
        );
    }

    /// 2 has PU 13.
    #[test]
    fn a_team_is_near_those_that_have_a_pu() {
        let pairs = [(0, 1, 2e4), (1, 2, 1e4)];
        let given = Given { pairs: &pairs, busy: &[0.5; 3], seats: &[(2, 13)], ..NONE };
        assert_eq!(put(SPEC, &given), [(vec![0, 1], Some((SharedPart::Cache, 12)))]);
    }

    /// One is on each package, and the busier one on the second. Where they lose little, that is where most of their time is spent.
    #[test]
    fn a_team_is_where_it_runs() {
        let part = |rate, busy: [f64; 2], ran| {
            let (pairs, busy) = (&[(0, 1, rate)], &busy);
            put(SPEC, &Given { pairs, busy, ran, ..NONE })[0].1
        };
        let apart = &[(0, 2), (1, 14)];
        assert_eq!(part(2e4, [0.7, 0.8], apart), Some((SharedPart::Cache, 12)));
        assert_eq!(part(4e3, [0.7, 0.8], apart), Some((SharedPart::Cache, 12)));
        assert_eq!(part(2e4, [0.7, 0.8], &[]), Some((SharedPart::Cache, 0)));
        assert_eq!(part(4e3, [0.7, 0.8], &[]), None, "its memory may be anywhere");
    }

    #[test]
    fn only_usable_pus_count() {
        let machine = machine(SPEC);
        let pus = [0, 1, 4, 5, 6].map(PuIdx);
        let places = UsableMachine::new(&machine, &pus);
        let traffic = traffic(PAIR, &[0.4; 2]);
        let (costs, before) = (WakeUpCosts::default(), BTreeMap::new());
        let teams = teams(&traffic, &costs, &places, &before, |_| true);
        let (none, load) = (BTreeMap::new(), BTreeMap::new());
        let now = Now { parts: &before, seats: &none, ran: &none, load: &load };
        let found = parts(&teams, &traffic, &places, now);
        assert_eq!(found, [Some((SharedPart::Cache, PuIdx(4)))]);
    }
}
