//! Fast and slow cores, what a move between them costs, and which thread goes to which core.
//!
//! # Problem
//! Threads that should be on fast cores have to get there by few and short ways, and the others have to be spread over
//! what is left.
//! # Approach
//! A thread on a core where it may be stays; one that has to move goes to a core under the same last-level cache if
//! there is one.
//! # Terms
//! - *Speed* of a core: its kind's capacity over that of the fastest kind that may be used.
//! - *Fast* core: one with at least [`FAST`] of that speed; the others are *slow*.
//! - *Domain*: the cores under one last-level cache. A *crossing* leaves it.
//! - *Refill*: the time in which a thread that moved fetches again what it had in caches, in seconds.
//! # Algorithm
//! [`Cores::seats`]: a thread on a fast core keeps it; then each gets a free one of its domain; the others get what is
//! left, if that is worth its cost. [`Cores::spread`]: groups of cores take threads one after the other, one thread a core
//! each time, until all have a place: so no core has two more than another of its group. Where a group gets fewer than it has
//! cores, those cores get one where threads are already, then those in whose domain a thread has to leave a core.
//! # Properties
//! - **One each**: no fast core gets two. -> test `one_each_and_near_first`
//! - **Near first**: as few crossings as possible, by brute force. -> test `one_each_and_near_first`
//! - **Even**: no core of a group gets two more than another. -> test `even_and_still`
//! - **Still**: threads that were spread are not moved by the same input. -> test `even_and_still`

use super::super::Thread;
use super::super::select::float;
use crate::places::Places;
use colocate_machine::{Bytes, CacheIdx, CacheKind, CoreKind, Machine, PuIdx};

/// Least speed of a fast core. Chosen: processors with favoured cores of one build, which are a few percent apart,
/// count as alike, and the large cores of three-kind processors (a capacity of 800 to 900 of 1024) as fast.
pub(crate) const FAST: f64 = 0.75;

/// How much faster the fastest kind is than the others where neither capacities nor clocks are known. Chosen.
pub(crate) const ASSUMED_RATIO: f64 = 1.5;

/// How fast caches are filled again, in bytes per second. Chosen: lines of 64 bytes, each waited for for 100 ns, three at
/// a time.
pub(crate) const REFILL: f64 = 2e9;

/// The size of a cache whose size is unknown. Chosen.
pub(crate) const ASSUMED_CACHE: Bytes = Bytes::mib(1);

/// A core that may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// Its PUs that may be used; never empty.
    pub pus: Vec<PuIdx>,
    /// Its speed, above 0 and up to 1.
    pub speed: f64,
    /// Whether it is fast.
    pub fast: bool,
    /// Its last-level cache; `None` if it has none.
    domain: Option<CacheIdx>,
    /// Seconds to fill its own caches again.
    own: f64,
    /// Seconds to fill its share of the last-level cache again.
    shared: f64,
}

/// What a thread gains and loses by going to another core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The share of its time that it saves there; below 0 where that is slower. A thread on a fast core has to leave it for a
    /// slow one where another thread keeps it, so for them it is what that saves.
    pub gain: f64,
    /// Seconds of refill, there and back.
    pub cost: f64,
    /// Whether it leaves its domain.
    pub crossing: bool,
}

/// The cores of a machine that may be used, as these policies see them.
#[derive(Clone, Debug)]
pub struct Cores {
    /// In logical order.
    pub all: Vec<Core>,
    /// Which core each PU of the machine is on, if it may be used.
    at: Vec<Option<usize>>,
    /// Far apart first, fast before slow.
    order: Vec<usize>,
    /// By how much a fast core is faster than a slow one: that of the fastest over that of the slowest.
    pub ratio: f64,
}

impl Cores {
    /// The part of `machine` that `usable` names.
    pub fn new(machine: &Machine, usable: &[PuIdx]) -> Self {
        let places = Places::new(machine, usable);
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
            all.push(Core { pus, speed, fast: speed >= FAST, domain, own, shared });
        }
        let mut order = places.spread_cores();
        order.sort_by(|&a, &b| all[b].speed.total_cmp(&all[a].speed));
        let ratio = 1.0 / all.iter().map(|core| core.speed).fold(1.0, f64::min);
        Self { all, at, order, ratio }
    }

    /// Whether all are fast.
    pub(crate) fn are_alike(&self) -> bool {
        self.all.iter().all(|core| core.fast)
    }

    /// Places of the fast cores, far apart first, the fastest kind before others.
    pub fn fast(&self) -> impl Iterator<Item = usize> + '_ {
        self.order.iter().copied().filter(|&core| self.all[core].fast)
    }

    /// The core where a thread last ran, if it may be used.
    pub fn of(&self, thread: &Thread) -> Option<usize> {
        *self.at.get(thread.pu?.idx())?
    }

    /// What it means for a thread to go to a core; nothing is lost by a thread that never ran, or ran where no thread may.
    pub fn migration(&self, thread: &Thread, to: usize) -> Move {
        let Some(from) = self.of(thread).filter(|&from| from != to) else {
            return Move { gain: 0.0, cost: 0.0, crossing: false };
        };
        let (from, to) = (&self.all[from], &self.all[to]);
        let crossing = from.domain.is_none() || from.domain != to.domain;
        let fill = |core: &Core| core.own + if crossing { core.shared } else { 0.0 };
        let slow = if from.fast { 1.0 / self.ratio } else { from.speed };
        Move { gain: 1.0 - slow / to.speed, cost: fill(from) + fill(to), crossing }
    }

    /// A fast core for each thread, which are no more than there are `free` ones; `None` for those for which the way to what is
    /// left is not worth it.
    pub fn seats(
        &self,
        threads: &[&Thread],
        free: &[usize],
        worth: &dyn Fn(usize, Move) -> bool,
    ) -> Vec<Option<usize>> {
        let mut free = free.to_vec();
        let mut seats: Vec<Option<usize>> = vec![None; threads.len()];
        let near = |at: usize, core: usize| match self.of(threads[at]) {
            None => true,
            Some(from) if from == core => true,
            Some(_) => !self.migration(threads[at], core).crossing,
        };
        let is_there = |at: usize, core: usize| self.of(threads[at]) == Some(core);
        let passes: [&dyn Fn(usize, usize) -> bool; 3] = [&is_there, &near, &|_, _| true];
        for may in passes {
            for (at, seat) in seats.iter_mut().enumerate().filter(|(_, seat)| seat.is_none()) {
                let can = |&core: &usize| {
                    let stays = is_there(at, core);
                    may(at, core) && (stays || worth(at, self.migration(threads[at], core)))
                };
                let place = free.iter().position(can);
                *seat = place.map(|place| free.remove(place));
            }
        }
        seats
    }

    /// The PU of a core for a thread that has it for itself: where it is, else the first.
    pub(crate) fn pu_for(&self, thread: &Thread, core: usize) -> PuIdx {
        let pus = &self.all[core].pus;
        thread.pu.filter(|pu| pus.contains(pu)).unwrap_or(pus[0])
    }

    /// Groups of cores in the order in which threads are spread that have no business on the `taken` cores: the first PU of
    /// all others, their second ones, and only then siblings on taken cores.
    pub(crate) fn groups_beside(&self, taken: &[(usize, PuIdx)]) -> Vec<Vec<usize>> {
        let is_taken = |core: usize| taken.iter().any(|(taken, _)| *taken == core);
        let width = self.all.iter().map(|core| core.pus.len()).max().unwrap_or(0);
        let with = |from: &dyn Fn(usize) -> usize, n: usize| -> Vec<usize> {
            self.order.iter().copied().filter(|&core| from(core) > n).collect()
        };
        let others = |core: usize| if is_taken(core) { 0 } else { self.all[core].pus.len() };
        let siblings = |core: usize| if is_taken(core) { self.all[core].pus.len() - 1 } else { 0 };
        let beside = (0..width).map(|n| with(&others, n));
        beside.chain((0..width).map(|n| with(&siblings, n))).filter(|g| !g.is_empty()).collect()
    }

    /// The same where fast cores come before slow ones, siblings last.
    pub(crate) fn groups_fast_first(&self) -> Vec<Vec<usize>> {
        let width = self.all.iter().map(|core| core.pus.len()).max().unwrap_or(0);
        let of = |fast: bool, n: usize| -> Vec<usize> {
            let is = |&core: &usize| self.all[core].fast == fast && self.all[core].pus.len() > n;
            self.order.iter().copied().filter(is).collect()
        };
        (0..width).flat_map(|n| [of(true, n), of(false, n)]).filter(|g| !g.is_empty()).collect()
    }

    /// A PU for each thread, group by group and again from the first when all are full; PUs of `taken` are not used.
    /// No thread gets one where there are no groups.
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

    /// How many threads each core gets of so many; `there` is how many it has.
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

    /// So many cores of a group: first those that have threads more than they are to have, then those in whose domains there are such.
    fn nearest(
        &self,
        group: &[usize],
        count: usize,
        wanted: &[usize],
        there: &[usize],
    ) -> Vec<usize> {
        let mut chosen: Vec<usize> = group.to_vec();
        chosen.sort_by_key(|&core| wanted[core] >= there[core]);
        let stay = chosen.iter().filter(|&&core| wanted[core] < there[core]).count();
        if stay >= count {
            chosen.truncate(count);
            return chosen;
        }
        let others = chosen.split_off(stay);
        let domains = self.all.iter().filter_map(|core| core.domain).map(CacheIdx::idx).max();
        let mut over = vec![0_usize; domains.map_or(0, |most| most + 1)];
        let domain = |core: usize| self.all[core].domain.map(CacheIdx::idx);
        for core in 0..self.all.len() {
            let stays = wanted[core] + usize::from(chosen.contains(&core));
            let leaves = there[core].saturating_sub(stays);
            domain(core).iter().for_each(|&domain| over[domain] += leaves);
        }
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for core in others {
            match domain(core).filter(|&domain| over[domain] > 0) {
                Some(domain) => {
                    over[domain] -= 1;
                    near.push(core);
                }
                None => far.push(core),
            }
        }
        chosen.extend(near.into_iter().chain(far).take(count - stay));
        chosen
    }

    /// The core of each thread: its own as far as that takes one more, else one of its domain, else the next.
    fn kept_and_moved(
        &self,
        cores: &[Option<usize>],
        groups: &[Vec<usize>],
        mut left: Vec<usize>,
    ) -> Vec<Option<usize>> {
        let mut take = |core: usize| {
            let room = left[core] > 0;
            left[core] -= usize::from(room);
            room
        };
        let mut on: Vec<Option<usize>> =
            cores.iter().map(|core| core.filter(|&core| take(core))).collect();
        let mut order: Vec<usize> = Vec::new();
        let mut listed = vec![false; self.all.len()];
        for &core in groups.iter().flatten() {
            if !std::mem::replace(&mut listed[core], true) {
                order.push(core);
            }
        }
        for near in [true, false] {
            for (place, from) in on.iter_mut().zip(cores).filter(|(place, _)| place.is_none()) {
                let domain = from.and_then(|from| self.all[from].domain);
                let fits =
                    |core: &usize| !near || (domain.is_some() && self.all[*core].domain == domain);
                *place = order.iter().copied().filter(fits).find(|&core| take(core));
            }
        }
        on
    }

    /// The PU of each thread: its own as far as others of its core are no emptier, else the emptiest.
    fn on_pus(
        &self,
        threads: &[&Thread],
        on: &[Option<usize>],
        taken: &[(usize, PuIdx)],
    ) -> Vec<Option<PuIdx>> {
        let mut load = vec![0_usize; self.at.len()];
        let is_taken = |pu: PuIdx| taken.iter().any(|(_, taken)| *taken == pu);
        let mut found = vec![None; threads.len()];
        let mut members = vec![0_usize; self.all.len()];
        on.iter().flatten().for_each(|&core| members[core] += 1);
        for keeping in [true, false] {
            for (at, core) in on.iter().enumerate() {
                let Some(core) = core.filter(|_| found[at].is_none()) else { continue };
                let pus = self.all[core].pus.iter().copied().filter(|pu| !is_taken(*pu));
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

/// By kind: capacity or clock over the greatest of the kinds that are used. Where one of these has neither, the last
/// kind is the fastest, and all others are slower by [`ASSUMED_RATIO`].
fn speeds(kinds: &[CoreKind], used: &[usize]) -> Vec<f64> {
    let relative = |of: &dyn Fn(&CoreKind) -> Option<f64>| -> Option<Vec<f64>> {
        let known: Option<Vec<f64>> = used.iter().map(|&kind| of(&kinds[kind])).collect();
        let most = known?.into_iter().fold(0.0, f64::max);
        (most > 0.0).then(|| kinds.iter().map(|kind| of(kind).unwrap_or(0.0) / most).collect())
    };
    let last = used.iter().max().copied();
    let ranked = |kind: usize| if Some(kind) == last { 1.0 } else { 1.0 / ASSUMED_RATIO };
    let capacity = |kind: &CoreKind| kind.capacity.filter(|&c| c > 0).map(f64::from);
    relative(&capacity)
        .or_else(|| relative(&clock))
        .unwrap_or_else(|| (0..kinds.len()).map(ranked).collect())
}

/// The highest clock rate of a kind, in hertz.
#[allow(clippy::cast_precision_loss)] // clock rates are far below 2^53 Hz
pub(super) fn clock(kind: &CoreKind) -> Option<f64> {
    kind.max_frequency.map(|rate| rate.0 as f64)
}

/// Seconds to fill the caches over a PU again that its core has for itself, and its share of the last one.
#[allow(clippy::cast_precision_loss)] // cache sizes are far below 2^53 bytes
fn refill(machine: &Machine, pu: PuIdx) -> (f64, f64) {
    let last = machine.last_level_cache(pu);
    let seconds = |place: usize| {
        let cache = &machine.caches[place];
        let mut cores: Vec<_> = cache.pus.iter().map(|&pu| machine.core_of(pu)).collect();
        cores.dedup();
        let size = cache.size.unwrap_or(ASSUMED_CACHE);
        size.0 as f64 / float(cores.len().max(1)) / REFILL
    };
    let over = machine.caches.iter().enumerate();
    let own = over
        .filter(|(_, cache)| cache.kind != CacheKind::Instruction && cache.pus.contains(&pu))
        .filter(|(place, _)| last.is_none_or(|last| last.idx() != *place))
        .fold(0.0, |sum, (place, _)| sum + seconds(place));
    (own, last.map_or(0.0, |last| seconds(last.idx())))
}

#[cfg(test)]
mod tests;
