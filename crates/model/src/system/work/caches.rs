//! The first step of a round: the rates divide the caches.

use super::{Level, UNSEEN, Work};
use crate::cache::{Held, Sharer, reach};
use crate::system::Seat;
use crate::system::parts::{Cache, Parts};
use colocate_machine::performance::Inclusion;

/// The tasks that share a cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub users: Vec<User>,
    /// How far back its content reaches: the windows of all its users, added; 0 if that is not known.
    window: f64,
    /// Whether it was divided, its users demand what they did then, and what is held was exact.
    settled: bool,
}

impl Group {
    pub fn clear(&mut self) {
        self.users.clear();
        self.settled = false;
    }

    /// One of its users does something else.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    pub fn forget(&mut self) {
        (self.window, self.settled) = (0.0, false);
    }
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    task: usize,
    /// Of `levels`: its nearest cache, and this one.
    first: usize,
    level: usize,
    /// Its speed, and its bytes in nearer caches, when the cache was divided last.
    speed: f64,
    nearer: f64,
    /// What was written down of it then; a farther cache may have taken some of it since.
    within: f64,
    held: Held,
    /// Bytes of a cache with LRU in which it would miss as often, nearer ones included; only where lines go
    /// by chance.
    like: f64,
}

impl User {
    pub const fn new(task: usize, first: usize, level: usize) -> Self {
        let held = Held { bytes: 0.0, growth: 0.0, misses: 0.0 };
        Self { task, first, level, speed: 0.0, nearer: 0.0, within: 0.0, held, like: 0.0 }
    }

    /// Its speed now, and its bytes in nearer caches.
    fn now(&self, speeds: &[f64], levels: &[Level]) -> (f64, f64) {
        let nearer = if self.level > self.first { levels[self.level - 1].within } else { 0.0 };
        (speeds[self.task], nearer)
    }
}

impl Work {
    /// Gives a task an equal part of each of its caches where nothing better is known, and finds out what it misses.
    pub(crate) fn divide_equally(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let Self { tasks, levels, caches, .. } = self;
        let misses = &seat.demand.misses;
        for (place, &cache) in parts.places[tasks[t].pu].caches.iter().enumerate() {
            let (users, cache) = (caches[cache].users.len(), &parts.caches[cache]);
            #[allow(clippy::cast_precision_loss)] // a cache has few PUs
            let share = cache.capacity / users as f64;
            let levels = &mut levels[tasks[t].first..][..=place];
            settle(levels, share.min(misses.touched()), None, cache);
            levels[place].misses = misses.at(levels[place].within);
        }
    }

    /// Divides the caches by the rates, nearest first, and finds out what each task misses.
    pub(crate) fn divide_caches<'s>(
        &mut self,
        parts: &Parts,
        seats: &[Seat<'s>],
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
        // A task without any cache misses always.
        for (task, seat) in tasks.iter().zip(seats).filter(|(task, _)| task.caches == 0) {
            levels[task.first].misses = seat.demand.misses.at(0.0);
        }
    }
}

/// Whether a cache would be divided as it was: all are faster or slower by the same factor, no farther cache
/// has taken anything from it, and if it is inclusive it has nothing to take from nearer ones.
fn is_same(users: &[User], cache: &Cache, speeds: &[f64], levels: &[Level]) -> bool {
    let (first, _) = users[0].now(speeds, levels);
    let factor = first / users[0].speed;
    users.iter().all(|user| {
        let (speed, nearer) = user.now(speeds, levels);
        let own = levels[user.level].within;
        own >= user.within
            && (cache.inclusion != Inclusion::Inclusive || user.nearer <= own)
            && (speed - user.speed * factor).abs() <= UNSEEN * speed
            && (nearer - user.nearer).abs() <= UNSEEN * user.nearer
    })
}

/// Divides a cache of `capacity` bytes among `users`; `window` is how far back the content reached in
/// the last round, and is set to what it is now. Says whether what is held is exact.
///
/// Near the end a round moves the window by one step of Newton's method only, and what is held in a
/// straight line.
fn divide(capacity: f64, sharers: &[Sharer<'_>], window: &mut f64, users: &mut [User]) -> bool {
    /// Chosen: its square is what a straight line is wrong by at most, and then there is another round.
    const NEAR_ENOUGH: f64 = 0.02;
    /// Its square is a hundredth of what the search ends with.
    const EXACT: f64 = 1e-3;
    let all: f64 = sharers.iter().map(|sharer| sharer.alone(f64::INFINITY)).sum();
    let by_use = sharers.iter().all(|sharer| sharer.chance <= 0.0);
    if all <= capacity || by_use && sharers.len() == 1 {
        for (user, sharer) in users.iter_mut().zip(sharers) {
            user.held.bytes = sharer.alone(capacity);
            user.like = sharer.curve.touched();
        }
        return true;
    }
    let speed: f64 = sharers.iter().map(|sharer| sharer.speed).sum();
    let mut time = *window / speed;
    if time <= 0.0 {
        time = guess(capacity, sharers);
    }
    let missing = look_back(capacity, sharers, time, users);
    let growth: f64 = users.iter().map(|user| user.held.growth).sum();
    let step = missing / growth;
    let near = missing.abs() <= NEAR_ENOUGH * capacity && step.is_finite();
    if near && by_use {
        let straight = |held: Held| (held.bytes + held.growth * step).max(0.0);
        users.iter_mut().for_each(|user| user.held.bytes = straight(user.held));
        time += step;
    } else if near && time + step > 0.0 {
        time += step;
        look_back(capacity, sharers, time, users);
    } else {
        time = reach(capacity, sharers, time);
        look_back(capacity, sharers, time, users);
    }
    *window = time * speed;
    !near || missing.abs() <= EXACT * capacity
}

/// About how many seconds back the content of a cache reaches, if all hold as much of it: too many rather than
/// too few, since they miss more while they hold less.
fn guess(capacity: f64, sharers: &[Sharer<'_>]) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a cache has few PUs
    let share = capacity / sharers.len() as f64;
    let growth = |it: &Sharer<'_>| it.curve.at(share + it.elsewhere) * it.speed;
    capacity / sharers.iter().map(growth).sum::<f64>()
}

/// Sets what is held of the last `time` seconds; says how many bytes are missing to `capacity`.
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

/// Writes down what a task holds of `cache`, the last in `levels`, and what that means for the nearer ones:
/// an inclusive cache takes from them what it loses itself. Says from which one on they have changed.
///
/// `like`: bytes of a cache with LRU, nearer ones included, in which it would miss as often, where this one has
/// something else.
fn settle(levels: &mut [Level], held: f64, like: Option<f64>, cache: &Cache) -> usize {
    let Some((last, nearer)) = levels.split_last_mut() else { return 0 };
    let before = nearer.last().map_or(0.0, |level| level.within);
    last.held = held;
    last.within = match (cache.inclusion, like) {
        (Inclusion::Exclusive, None) => before + held,
        (Inclusion::Inclusive, None) => held,
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
