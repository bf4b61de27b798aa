//! First step of a round: the rates divide the caches.

use super::{SolverState, TaskAtCache, UNSEEN};
use crate::cache::{Held, Sharer, reach};
use crate::system::PlacedTask;
use crate::system::parts::{CacheFigures, SystemParts};
use colocate_machine::performance::Inclusion;

/// Tasks that share a cache.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheSharers {
    pub users: Vec<User>,
    /// Reach of the content, as the sum of the windows of all users; 0 if unknown.
    window: f64,
    /// Whether the last division was exact and the demands are unchanged.
    settled: bool,
}

impl CacheSharers {
    pub fn clear(&mut self) {
        self.users.clear();
        self.settled = false;
    }

    /// Marks a change of a user's demand.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    pub fn forget(&mut self) {
        self.window = 0.0;
        self.settled = false;
    }
}

/// Task that uses a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    task: usize,
    /// Index in `levels` of the task's nearest cache.
    first: usize,
    /// Index in `levels` of this cache.
    level: usize,
    /// Speed at the last division.
    speed: f64,
    /// Bytes in nearer caches at the last division.
    nearer: f64,
    /// `TaskAtCache::within` set by the last division; a farther inclusive cache may have reduced
    /// it since.
    within: f64,
    held: Held,
    /// Size in bytes of an LRU cache with as many misses, nearer caches included; for other
    /// replacement policies only.
    like: f64,
}

impl User {
    pub const fn new(task: usize, first: usize, level: usize) -> Self {
        let held = Held { bytes: 0.0, growth: 0.0, misses: 0.0 };
        Self { task, first, level, speed: 0.0, nearer: 0.0, within: 0.0, held, like: 0.0 }
    }

    /// Present speed, and bytes in nearer caches.
    fn now(&self, speeds: &[f64], levels: &[TaskAtCache]) -> (f64, f64) {
        let nearer = if self.level > self.first { levels[self.level - 1].within } else { 0.0 };
        (speeds[self.task], nearer)
    }
}

impl SolverState {
    /// Assigns a task an equal part of each of its caches as a start, and computes its misses.
    pub(crate) fn divide_equally(&mut self, parts: &SystemParts, t: usize, seat: &PlacedTask<'_>) {
        let Self { tasks, levels, caches, .. } = self;
        let misses = &seat.demand.misses;
        for (place, &cache) in parts.places[tasks[t].pu].caches.iter().enumerate() {
            let users = caches[cache].users.len();
            let cache = &parts.caches[cache];
            let share = cache.capacity / users as f64;
            let levels = &mut levels[tasks[t].first..][..=place];
            settle(levels, share.min(misses.touched()), None, cache);
            levels[place].misses = misses.at(levels[place].within);
        }
    }

    /// Divides the caches by the rates, nearest first, and computes the misses of each task.
    pub(crate) fn divide_caches<'s>(
        &mut self,
        parts: &SystemParts,
        seats: &[PlacedTask<'s>],
        sharers: &mut Vec<Sharer<'s>>,
    ) {
        let Self { tasks, levels, caches, speeds, .. } = self;
        speeds.clear();
        speeds.extend(tasks.iter().map(|task| task.ipc.given * task.clock * task.line));
        for (group, cache) in caches.iter_mut().zip(&parts.caches) {
            if group.users.is_empty()
                || group.settled && is_same(&group.users, cache, speeds, levels)
            {
                continue;
            }
            sharers.clear();
            for user in &mut group.users {
                (user.speed, user.nearer) = user.now(speeds, levels);
                let exclusive = cache.inclusion == Inclusion::Exclusive;
                sharers.push(Sharer {
                    curve: &seats[user.task].demand.misses,
                    speed: user.speed,
                    elsewhere: if exclusive { user.nearer } else { 0.0 },
                    chance: cache.chance,
                });
            }
            group.settled = divide(cache.capacity, sharers, &mut group.window, &mut group.users);
            for user in &mut group.users {
                let levels = &mut levels[user.first..=user.level];
                let like = (cache.chance > 0.0).then_some(user.like);
                let changed = settle(levels, user.held.bytes, like, cache);
                user.within = levels[user.level - user.first].within;
                for level in &mut levels[changed..] {
                    level.misses = seats[user.task].demand.misses.at(level.within);
                }
            }
        }
        // A task without a cache misses on each access.
        for (task, seat) in tasks.iter().zip(seats).filter(|(task, _)| task.caches == 0) {
            levels[task.first].misses = seat.demand.misses.at(0.0);
        }
    }
}

/// Whether a cache would be divided as before: all users are faster or slower by the same factor,
/// no farther cache has reduced their parts, and an inclusive cache does not reduce nearer parts.
fn is_same(users: &[User], cache: &CacheFigures, speeds: &[f64], levels: &[TaskAtCache]) -> bool {
    let (first, _) = users[0].now(speeds, levels);
    let factor = first / users[0].speed;
    users.iter().all(|user| {
        let (speed, nearer) = user.now(speeds, levels);
        let own = levels[user.level].within;
        // Less now: a farther inclusive cache has removed lines.
        own >= user.within
            && (cache.inclusion != Inclusion::Inclusive || user.nearer <= own)
            && (speed - user.speed * factor).abs() <= UNSEEN * speed
            && (nearer - user.nearer).abs() <= UNSEEN * user.nearer
    })
}

/// Divides a cache of `capacity` bytes among `users`. `window` is the reach of the content in the
/// last round and is updated. Returns whether the division is exact.
///
/// Near the result a round makes one step of Newton's method only, with a linear change of the
/// occupancies.
fn divide(capacity: f64, sharers: &[Sharer<'_>], window: &mut f64, users: &mut [User]) -> bool {
    /// Chosen: the error of the linear step is at most its square, and another round follows.
    const NEAR_ENOUGH: f64 = 0.02;
    /// Its square is a hundredth of the search's tolerance.
    const EXACT: f64 = 1e-3;
    let all: f64 = sharers.iter().map(|sharer| sharer.alone(f64::INFINITY)).sum();
    let by_use = sharers.iter().all(|sharer| sharer.chance <= 0.0);
    // No competition: each holds all that it touches, or the whole cache.
    // Under other policies than LRU, a single task in a full cache has more misses than its curve.
    if all <= capacity || by_use && sharers.len() == 1 {
        for (user, sharer) in users.iter_mut().zip(sharers) {
            user.held.bytes = sharer.alone(capacity);
            user.like = sharer.curve.touched();
        }
        return true;
    }
    let speed: f64 = sharers.iter().map(|sharer| sharer.speed).sum();
    // The sum of windows, not the time, is kept: it stays when all speeds change alike.
    let mut time = *window / speed;
    if time <= 0.0 {
        time = guess(capacity, sharers);
    }
    let missing = look_back(capacity, sharers, time, users);
    let growth: f64 = users.iter().map(|user| user.held.growth).sum();
    let step = missing / growth;
    let near = missing.abs() <= NEAR_ENOUGH * capacity && step.is_finite();
    if near && by_use {
        for user in users {
            // A step back may exceed what is held.
            user.held.bytes = (user.held.bytes + user.held.growth * step).max(0.0);
        }
        time += step;
    } else if near && time + step > 0.0 {
        time += step;
        // Other policies need the misses at the new time for `User::like`.
        look_back(capacity, sharers, time, users);
    } else {
        time = reach(capacity, sharers, time);
        look_back(capacity, sharers, time, users);
    }
    *window = time * speed;
    // `reach` ends at the exact division; the linear step is exact only if it is short.
    !near || missing.abs() <= EXACT * capacity
}

/// Rough reach of a cache's content in seconds, assuming equal occupancies. Too long rather than
/// too short: tasks miss more while they hold less.
fn guess(capacity: f64, sharers: &[Sharer<'_>]) -> f64 {
    let share = capacity / sharers.len() as f64;
    let growths = sharers.iter().map(|it| it.curve.at(share + it.elsewhere) * it.speed);
    capacity / growths.sum::<f64>()
}

/// Computes the shares for the last `time` seconds; returns the bytes missing to `capacity`.
fn look_back(capacity: f64, sharers: &[Sharer<'_>], time: f64, users: &mut [User]) -> f64 {
    let mut missing = capacity;
    for (user, sharer) in users.iter_mut().zip(sharers) {
        user.held = sharer.after(time);
        missing -= user.held.bytes;
        if sharer.chance > 0.0 {
            user.like = sharer.curve.size_for(user.held.misses);
        }
    }
    missing
}

/// Records a task's occupancy `held` of `cache`, the last in `levels`. An inclusive cache also
/// removes its evicted lines from nearer caches. Returns the index of the first level changed.
///
/// `like`: size in bytes of an LRU cache with as many misses, nearer caches included, for other
/// replacement policies.
fn settle(levels: &mut [TaskAtCache], held: f64, like: Option<f64>, cache: &CacheFigures) -> usize {
    let Some((last, nearer)) = levels.split_last_mut() else { return 0 };
    let before = nearer.last().map_or(0.0, |level| level.within);
    last.held = held;
    last.within = match (cache.inclusion, like) {
        (Inclusion::Exclusive, None) => before + held,
        // An inclusive cache holds all content of the nearer caches.
        (Inclusion::Inclusive, None) => held,
        // The cache may hold the content of nearer caches as well.
        (Inclusion::Neither, None) => before.max(held),
        (Inclusion::Inclusive, Some(like)) => like,
        (Inclusion::Exclusive | Inclusion::Neither, Some(like)) => before.max(like),
    };
    let within = last.within;
    let mut changed = nearer.len();
    if cache.inclusion == Inclusion::Inclusive {
        for (place, level) in nearer.iter_mut().enumerate().filter(|(_, at)| at.within > within) {
            level.within = within;
            level.held = level.held.min(within);
            changed = changed.min(place);
        }
    }
    changed
}
