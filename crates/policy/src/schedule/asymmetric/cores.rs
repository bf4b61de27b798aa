//! Fast and slow cores, costs of moves between cores, and placement of threads.
//!
//! # Problem
//! Threads for fast cores should get there by few and short moves. The other threads have to be
//! spread over the remaining cores.
//! # Approach
//! A thread on an allowed core stays. A thread that has to move goes to a core under the same
//! last-level cache if possible.
//! # Terms
//! - *Speed* of a core: its kind's capacity over that of the fastest usable kind.
//! - *Fast* core: a core with a speed of at least [`FAST`]; the others are *slow*.
//! - *Domain*: the cores under one last-level cache. A *crossing* is a move out of a domain.
//! - *Refill*: time to fetch the contents of caches again after a move, in seconds.
//! # Algorithm
//! [`Cores::seats`]: a thread on a fast core keeps the core. Then each thread gets a free one of
//! its domain. The rest get the remaining cores, if the move is worth its cost.
//!
//! [`Cores::spread`]: groups of cores take threads one after the other, one thread a core in each
//! round, until all are placed. So no core has two threads more than another of its group. If a
//! group gets fewer threads than it has cores, cores that already have threads come first, then
//! cores in whose domain a thread has to leave a core.
//! # Properties
//! - **One each**: no fast core gets two. -> test `one_each_and_near_first`
//! - **Near first**: as few crossings as possible, by brute force.
//!   -> test `one_each_and_near_first`
//! - **Even**: no core of a group gets two more than another. -> test `even_and_still`
//! - **Still**: threads that were spread are not moved by the same input. -> test `even_and_still`

use super::super::Thread;
use crate::by_id::ById;
use crate::places::UsableMachine;
use colocate_machine::{Bytes, Cache, CacheIdx, CacheKind, CoreKind, Machine, PuIdx};

/// Least speed of a fast core. Chosen: processors with favoured cores of one build, a few percent
/// apart, count as alike. The large cores of three-kind processors (a capacity of 800 to 900 of
/// 1024) are fast.
pub(crate) const FAST: f64 = 0.75;

/// The fastest kind's speed over the others' without known capacities and clocks. Chosen.
pub(crate) const ASSUMED_RATIO: f64 = 1.5;

/// Rate at which caches are refilled, in bytes per second. Chosen: lines of 64 bytes with a latency
/// of 100 ns, three in flight.
pub(crate) const REFILL: f64 = 2e9;

/// Size of a cache of unknown size. Chosen.
pub(crate) const ASSUMED_CACHE: Bytes = Bytes::mib(1);

/// A core with usable PUs.
#[derive(Clone, Debug, PartialEq)]
pub struct AsymmetricCore {
    /// Usable PUs; never empty.
    pub pus: Vec<PuIdx>,
    /// Speed relative to the fastest kind in use, above 0 and up to 1.
    pub speed: f64,
    /// Whether the core is fast.
    pub fast: bool,
    /// Last-level cache; `None` without a cache.
    domain: Option<CacheIdx>,
    /// Seconds to refill the core's own caches.
    own: f64,
    /// Seconds to refill the core's share of the last-level cache.
    shared: f64,
}

/// Gain and cost of a thread's move to another core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Share of the thread's time saved by the move; below 0 if the new core is slower. A thread
    /// that loses its fast core to another thread goes to a slow core, so for a thread on a fast
    /// core the gain is the difference from a slow core.
    pub gain: f64,
    /// Seconds of refill, there and back.
    pub cost: f64,
    /// Whether the move leaves the domain.
    pub crossing: bool,
}

/// The usable cores of a machine.
#[derive(Clone, Debug)]
pub struct Cores {
    /// In logical order.
    pub all: Vec<AsymmetricCore>,
    /// By PU of the machine: place of its core in `all`; `None` if the PU is not usable.
    at: Vec<Option<usize>>,
    /// Places in `all`, fastest kind first, cores of one kind far apart.
    order: Vec<usize>,
    /// Speed of the fastest core over the speed of the slowest, at least 1.
    pub ratio: f64,
}

impl Cores {
    /// The cores of the PUs `usable`.
    pub fn new(machine: &Machine, usable: &[PuIdx]) -> Self {
        let places = UsableMachine::new(machine, usable);
        let used: Vec<usize> = places.cores.iter().map(|core| core.kind.idx()).collect();
        let speeds = speeds(&machine.kinds, &used);
        let mut at = vec![None; machine.pus.len()];
        let mut all = Vec::with_capacity(used.len());
        for core in &places.cores {
            core.pus.iter().for_each(|pu| at[pu.idx()] = Some(all.len()));
            let speed = speeds[core.kind.idx()];
            let (own, shared) = refill(machine, core.pus[0]);
            let domain = machine.last_level_cache(core.pus[0]);
            let pus = core.pus.clone();
            all.push(AsymmetricCore { pus, speed, fast: speed >= FAST, domain, own, shared });
        }
        let mut order = places.spread_cores();
        // Stable, so cores of one speed stay far apart.
        order.sort_by(|&a, &b| all[b].speed.total_cmp(&all[a].speed));
        // The fastest core has the speed 1.
        let ratio = 1.0 / all.iter().map(|core| core.speed).fold(1.0, f64::min);
        Self { all, at, order, ratio }
    }

    /// Whether all cores are fast.
    pub(crate) fn are_alike(&self) -> bool {
        self.all.iter().all(|core| core.fast)
    }

    /// Places of the fast cores in `all`, fastest kind first, cores of one kind far apart.
    pub fn fast(&self) -> impl Iterator<Item = usize> + '_ {
        self.order.iter().copied().filter(|&core| self.all[core].fast)
    }

    /// Place of the thread's last core; `None` if it never ran or its PU is not usable.
    pub fn of(&self, thread: &Thread) -> Option<usize> {
        *self.at.get(thread.pu?.idx())?
    }

    /// Gain and cost of a thread's move to core `to`; 0 for a thread without a usable last core.
    pub fn migration(&self, thread: &Thread, to: usize) -> Move {
        let Some(from) = self.of(thread).filter(|&from| from != to) else {
            return Move { gain: 0.0, cost: 0.0, crossing: false };
        };
        let from = &self.all[from];
        let to = &self.all[to];
        // Two cores without a cache are not under the same one.
        let crossing = from.domain.is_none() || from.domain != to.domain;
        let slow = if from.fast { 1.0 / self.ratio } else { from.speed };
        let refill = |core: &AsymmetricCore| core.own + if crossing { core.shared } else { 0.0 };
        let cost = refill(from) + refill(to);
        Move { gain: 1.0 - slow / to.speed, cost, crossing }
    }

    /// One of the `free` cores for each thread; there are at least as many as threads. `None` for a
    /// thread for which no move to a remaining core is `worth` its cost.
    pub fn seats(
        &self,
        threads: &[&Thread],
        free: &[usize],
        worth: &dyn Fn(usize, Move) -> bool,
    ) -> Vec<Option<usize>> {
        let mut free = free.to_vec();
        let mut seats: Vec<Option<usize>> = vec![None; threads.len()];
        // First threads that stay, then moves within a domain, then crossings: a thread that moves
        // must not take the core of a thread that could stay or come from nearer by.
        for (may_move, may_cross) in [(false, false), (true, false), (true, true)] {
            for (at, seat) in seats.iter_mut().enumerate().filter(|(_, seat)| seat.is_none()) {
                let place = free.iter().position(|&core| {
                    let migration = self.migration(threads[at], core);
                    let may = may_move && (may_cross || !migration.crossing);
                    self.of(threads[at]) == Some(core) || may && worth(at, migration)
                });
                *seat = place.map(|place| free.remove(place));
            }
        }
        seats
    }

    /// The PU of a core for a thread alone on the core: the thread's last PU, else the first.
    pub(crate) fn pu_for(&self, thread: &Thread, core: usize) -> PuIdx {
        let pus = &self.all[core].pus;
        thread.pu.filter(|pu| pus.contains(pu)).unwrap_or(pus[0])
    }

    /// Groups of cores for [`Self::spread`], for threads beside those on the `taken` cores: the
    /// first PUs of all other cores, then their second PUs and so on, last the siblings on taken
    /// cores.
    pub(crate) fn groups_beside(&self, taken: &[(usize, PuIdx)]) -> Vec<Vec<usize>> {
        let is_taken = |at: usize| taken.iter().any(|(taken, _)| *taken == at);
        let mut groups = self.groups_of(|at| if is_taken(at) { 0 } else { self.all[at].pus.len() });
        // One PU of a taken core has its thread.
        groups
            .extend(self.groups_of(|at| if is_taken(at) { self.all[at].pus.len() - 1 } else { 0 }));
        groups
    }

    /// The cores with a first PU, the cores with a second PU and so on; `pus` is a count by core.
    fn groups_of(&self, pus: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
        let most = (0..self.all.len()).map(&pus).max().unwrap_or(0);
        let groups =
            (0..most).map(|n| self.order.iter().copied().filter(|&core| pus(core) > n).collect());
        groups.collect()
    }

    /// Groups of cores for [`Self::spread`]: fast cores before slow cores, siblings last.
    pub(crate) fn groups_fast_first(&self) -> Vec<Vec<usize>> {
        let width = self.all.iter().map(|core| core.pus.len()).max().unwrap_or(0);
        let mut groups = Vec::new();
        for n in 0..width {
            let cores = self.order.iter().copied().filter(|&core| self.all[core].pus.len() > n);
            let (fast, slow): (Vec<_>, Vec<_>) = cores.partition(|&core| self.all[core].fast);
            groups.extend([fast, slow].into_iter().filter(|group| !group.is_empty()));
        }
        groups
    }

    /// A PU for each thread, group by group, and again from the first group when all are full. PUs
    /// of `taken` are not used. `None` for all threads without groups.
    pub fn spread(
        &self,
        threads: &[&Thread],
        groups: &[Vec<usize>],
        taken: &[(usize, PuIdx)],
    ) -> Vec<Option<PuIdx>> {
        let mut there = vec![0_usize; self.all.len()];
        let cores: Vec<Option<usize>> = threads.iter().map(|thread| self.of(thread)).collect();
        cores.iter().flatten().for_each(|&core| there[core] += 1);
        let wanted = self.targets(groups, threads.len(), &there);
        let on = self.kept_and_moved(&cores, groups, wanted);
        self.on_pus(threads, &on, taken)
    }

    /// Number of threads for each core, `threads` in all. `there` is the present number.
    fn targets(&self, groups: &[Vec<usize>], threads: usize, there: &[usize]) -> Vec<usize> {
        let mut wanted = vec![0_usize; there.len()];
        let mut left = threads;
        for group in groups.iter().cycle() {
            if group.len() >= left {
                let nearest = self.nearest(group, left, &wanted, there);
                nearest.into_iter().for_each(|core| wanted[core] += 1);
                break;
            }
            group.iter().for_each(|&core| wanted[core] += 1);
            left -= group.len();
        }
        wanted
    }

    /// `count` cores of a group: first those with more threads than `wanted`, then those in whose
    /// domains a thread has to leave a core.
    fn nearest(
        &self,
        group: &[usize],
        count: usize,
        wanted: &[usize],
        there: &[usize],
    ) -> Vec<usize> {
        let mut chosen: Vec<usize> = group.to_vec();
        // Stable: cores that are alike stay in the order of the group.
        // `false` comes first: cores with more threads than wanted.
        chosen.sort_by_key(|&core| wanted[core] >= there[core]);
        let stay = chosen.iter().filter(|&&core| wanted[core] < there[core]).count();
        if stay >= count {
            chosen.truncate(count);
            return chosen;
        }
        let others = chosen.split_off(stay);
        // Threads that have to leave their cores.
        let mut stays = wanted.to_vec();
        chosen.iter().for_each(|&core| stays[core] += 1);
        let mut over: ById<CacheIdx, usize> = ById::default();
        for (core, it) in self.all.iter().enumerate() {
            let leaves = there[core].saturating_sub(stays[core]);
            it.domain.iter().for_each(|domain| *over.entry(*domain).or_default() += leaves);
        }
        let (near, far): (Vec<_>, Vec<_>) = others.into_iter().partition(|&core| {
            let left = self.all[core].domain.and_then(|domain| over.get_mut(&domain));
            left.is_some_and(take)
        });
        chosen.extend(near.into_iter().chain(far).take(count - stay));
        chosen
    }

    /// Core of each thread: its own if a place is `left`, else one of its domain, else the next.
    fn kept_and_moved(
        &self,
        cores: &[Option<usize>],
        groups: &[Vec<usize>],
        mut left: Vec<usize>,
    ) -> Vec<Option<usize>> {
        let mut on: Vec<Option<usize>> =
            cores.iter().map(|core| core.filter(|&core| take(&mut left[core]))).collect();
        // Each core once, at its first place in the groups.
        let mut listed = vec![false; self.all.len()];
        let mut order: Vec<usize> = groups.iter().flatten().copied().collect();
        order.retain(|&core| !std::mem::replace(&mut listed[core], true));
        for near in [true, false] {
            for (place, from) in on.iter_mut().zip(cores).filter(|(place, _)| place.is_none()) {
                let domain = from.and_then(|from| self.all[from].domain);
                let order = order.iter().copied();
                let mut fitting = order
                    .filter(|&core| !near || domain.is_some() && self.all[core].domain == domain);
                *place = fitting.find(|&core| take(&mut left[core]));
            }
        }
        on
    }

    /// PU of each thread on its core: its last if no fuller than an even share, or the emptiest.
    fn on_pus(
        &self,
        threads: &[&Thread],
        on: &[Option<usize>],
        taken: &[(usize, PuIdx)],
    ) -> Vec<Option<PuIdx>> {
        let mut load = vec![0_usize; self.at.len()];
        let mut found = vec![None; threads.len()];
        let mut members = vec![0_usize; self.all.len()];
        on.iter().flatten().for_each(|&core| members[core] += 1);
        // First threads that stay on their PUs, so that a moved thread takes none of these.
        for keeping in [true, false] {
            for (at, core) in on.iter().enumerate() {
                let Some(core) = core.filter(|_| found[at].is_none()) else { continue };
                let pus = self.all[core].pus.iter().copied();
                let pus = pus.filter(|pu| !taken.iter().any(|(_, taken)| taken == pu));
                // Threads of the core on its fullest PU, if even.
                // All PUs of a core may be taken.
                let most = members[core].div_ceil(pus.clone().count().max(1));
                let pu = if keeping {
                    pus.clone().find(|pu| Some(*pu) == threads[at].pu && load[pu.idx()] < most)
                } else {
                    pus.min_by_key(|pu| load[pu.idx()])
                };
                pu.iter().for_each(|pu| load[pu.idx()] += 1);
                found[at] = pu;
            }
        }
        found
    }
}

/// Takes one of the places left. False if none is.
fn take(left: &mut usize) -> bool {
    let room = *left > 0;
    *left -= usize::from(room);
    room
}

/// Speed of each kind: its capacity, or else its clock, over the greatest of the kinds in use. If a
/// kind in use has neither, the last kind is the fastest and all others are slower by
/// [`ASSUMED_RATIO`].
fn speeds(kinds: &[CoreKind], used: &[usize]) -> Vec<f64> {
    relative(kinds, used, capacity).or_else(|| relative(kinds, used, clock)).unwrap_or_else(|| {
        let last = used.iter().max().copied();
        let all = 0..kinds.len();
        all.map(|kind| if Some(kind) == last { 1.0 } else { 1.0 / ASSUMED_RATIO }).collect()
    })
}

/// By kind: its value over the greatest of the kinds in use; `None` if one of these has none.
fn relative(
    kinds: &[CoreKind],
    used: &[usize],
    of: fn(&CoreKind) -> Option<f64>,
) -> Option<Vec<f64>> {
    let known: Option<Vec<f64>> = used.iter().map(|&kind| of(&kinds[kind])).collect();
    let most = known?.into_iter().fold(0.0, f64::max);
    // Kinds that are not in use may lack a value; their speed is never read.
    (most > 0.0).then(|| kinds.iter().map(|kind| of(kind).unwrap_or(0.0) / most).collect())
}

/// Capacity of a kind, relative to others; `None` if unknown or 0.
fn capacity(kind: &CoreKind) -> Option<f64> {
    kind.capacity.filter(|&capacity| capacity > 0).map(f64::from)
}

/// Highest clock rate of a kind, in hertz; `None` if unknown.
pub(super) fn clock(kind: &CoreKind) -> Option<f64> {
    kind.max_frequency.map(|rate| rate.0 as f64)
}

/// Seconds to refill the own caches of a PU's core, and its share of the last-level cache.
fn refill(machine: &Machine, pu: PuIdx) -> (f64, f64) {
    let last = machine.last_level_cache(pu);
    let over = machine.caches.iter().enumerate();
    let own = over
        .filter(|(_, cache)| cache.kind != CacheKind::Instruction && cache.pus.contains(&pu))
        .filter(|(place, _)| last.is_none_or(|last| last.idx() != *place))
        .fold(0.0, |sum, (_, cache)| sum + seconds_to_fill(machine, cache));
    (own, last.map_or(0.0, |last| seconds_to_fill(machine, &machine.caches[last.idx()])))
}

/// Seconds to fill one core's share of a cache.
fn seconds_to_fill(machine: &Machine, cache: &Cache) -> f64 {
    let mut cores: Vec<_> = cache.pus.iter().map(|&pu| machine.core_of(pu)).collect();
    // PUs are in logical order, so the PUs of a core are adjacent.
    cores.dedup();
    let size = cache.size.unwrap_or(ASSUMED_CACHE);
    size.0 as f64 / cores.len().max(1) as f64 / REFILL
}

#[cfg(test)]
mod tests;
