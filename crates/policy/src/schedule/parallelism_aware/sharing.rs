//! Fast cores that no serial phase needs, shared by the threads of parallel phases.
//!
//! # Problem
//! A parallel phase ends when its slowest thread is done, so fast cores that the same threads have
//! all the time shorten it by nothing. But each exchange of two threads costs both what they had in
//! their caches.
//! # Approach
//! The thread that has been on fast cores for longest makes room for the one that has been there
//! for the least time, as seldom as is best for a phase of the expected length. Two threads
//! exchange their PUs and are left to the kernel there.
//! # Terms
//! - *Sharer*: a thread whose job is in a parallel phase. *Holder*: a sharer on a fast core that is
//!   shared. *Challenger*: one on a slow core.
//! - *Had*: time for which a sharer was runnable on a fast core while it was one.
//! - `L`: expected length of the phase; `n`: sharers; `f`: fast cores that are shared, at most `n`;
//!   `g`: the share of its time that a thread saves on a fast core; `c`: seconds of refill there
//!   and back.
//! # Algorithm
//! 1. A fast core without a thread, or only with one that sleeps, goes to the challenger that had
//!    least, if what is left of its phase is worth the refill: `left · g ≥ c`.
//! 2. A holder and a challenger exchange PUs if the holder had at least `m` more, half a quantum
//!    being nothing: holders that had most first, challengers that had least first, of those under
//!    the holder's last-level cache if there are any. At the end of a phase threads differ by `m`
//!    at most, so by `m/2` in the mean, and others wait for `g · m/2`. A thread changes once in
//!    `2m` on fast cores, of which each has `L · f/n`: that is `c · L · f/(n · 2m)` of refill. The
//!    sum is least at `m = √(c · L · f / (n · g))`, and is `√(c · L · g · f/n)` there.
//! 3. No thread changes unless the phase gains more by that than this sum: with `x = f/n` and
//!    `r = 1/(1 − g)`, what is `L · x(r − 1) / (1 + x(r − 1))`, the time of a thread that is on
//!    fast cores for `x` of it beside one that never is.
//!
//! Ours: steps 2 and 3. The published policy shares evenly (remembered); how often it changes is
//! not known.
//! # Properties
//! - **Even**: no sharer that is there all the time gets ahead by more than the margin and two
//!   quanta. -> test `shares_are_even`
//! - **Seldom**: the dearer, the longer between changes. -> test `turns_by_hand`
//! - **No loss**: phases that are too short for the refill are left alone. -> test
//!   `short_phases_are_left_alone`
//! - **Same load**: no PU has more threads afterwards than before, but fast ones that were idle. ->
//!   test `exchanges_keep_loads`
//! - **Near first** -> test `near_first`
//! - **Sleepers keep nothing** -> test `sleepers_make_room_for_sharers`

use super::super::Thread;
use super::super::asymmetric::cores::{Cores, Move};
use super::super::select::float;
use super::super::sorted::Sorted;
use colocate_evidence::TaskId;
use colocate_machine::{Nanos, PuIdx};

/// A thread of a parallel phase.
#[derive(Clone, Copy, Debug)]
pub struct Sharer<'a> {
    /// Which.
    pub thread: &'a Thread,
    /// How long its job's phase is expected to last, in seconds.
    pub expected: f64,
    /// How much of that is left.
    pub left: f64,
}

/// A thread that goes to another PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place among the sharers.
    pub sharer: usize,
    /// Where it goes.
    pub to: PuIdx,
    /// Whether that is a fast core.
    pub fast: bool,
}

/// For so many quanta it is remembered what a thread had that is no sharer any more. Chosen: serial
/// phases are mostly shorter, and of a job that creates threads all the time not too many are kept.
const REMEMBERED: u64 = 100;

/// Which threads had fast cores for how long.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    known: Sorted<TaskId, Had>,
    /// Quanta so far.
    quanta: u64,
}

#[derive(Clone, Copy, Debug)]
struct Had {
    seconds: f64,
    /// The last quantum in which it was a sharer.
    last: u64,
}

/// The cores of a quantum and how they are shared.
struct Round<'a> {
    cores: &'a Cores,
    sharers: &'a [Sharer<'a>],
    had: Vec<f64>,
    /// By how much longer than needed a quantum makes a turn, in seconds.
    half: f64,
    cost: f64,
    /// Shared fast cores for each sharer, at most 1.
    each: f64,
    /// Whether a sharer has its new place.
    done: Vec<bool>,
}

impl Sharing {
    /// Which threads change PUs: `shared` are fast cores, `busy` says by core where a thread is
    /// that does not sleep, `took` is how long the last quantum took, and refills count `cost`
    /// times.
    pub fn turns(
        &mut self,
        cores: &Cores,
        sharers: &[Sharer<'_>],
        (shared, busy): (&[usize], &[bool]),
        took: Nanos,
        cost: f64,
    ) -> Vec<Change> {
        let had = self.note(cores, sharers, took.as_secs_f64());
        let each = float(shared.len()) / float(sharers.len().max(1));
        let done = vec![false; sharers.len()];
        let half = took.as_secs_f64() / 2.0;
        let mut round = Round { cores, sharers, had, half, cost, each: each.min(1.0), done };
        round.changes(shared, busy)
    }

    /// Takes in where sharers were in the last quantum, and returns what they had. What a thread
    /// missed that was no sharer then is not made up for.
    fn note(&mut self, cores: &Cores, sharers: &[Sharer<'_>], took: f64) -> Vec<f64> {
        let (now, before) = (self.quanta + 1, self.quanta);
        let mut least = f64::INFINITY;
        let of = |sharer: &Sharer<'_>| {
            let known = self.known.get(&sharer.thread.id);
            let mut had = known.copied().unwrap_or(Had { seconds: 0.0, last: 0 });
            let stayed = known.is_some() && had.last == before;
            if stayed {
                let on_fast = cores.of(sharer.thread).is_some_and(|core| cores.all[core].fast);
                let share = sharer.thread.runnable.unwrap_or(1.0);
                had.seconds += if on_fast { took * share } else { 0.0 };
                least = least.min(had.seconds);
            }
            (had.seconds, stayed)
        };
        let found: Vec<(f64, bool)> = sharers.iter().map(of).collect();
        let least = if least.is_finite() { least } else { 0.0 };
        let had = |&(had, stayed): &(f64, bool)| if stayed { had } else { had.max(least) };
        let had: Vec<f64> = found.iter().map(had).collect();
        let noted = |(sharer, &seconds): (&Sharer<'_>, &f64)| {
            (sharer.thread.id, Had { seconds, last: now })
        };
        self.known.set(sharers.iter().zip(&had).map(noted));
        self.known.retain(|_, had| had.last + REMEMBERED >= now);
        self.quanta = now;
        had
    }
}

impl Round<'_> {
    fn changes(&mut self, shared: &[usize], busy: &[bool]) -> Vec<Change> {
        let cores = self.cores;
        let on: Vec<Option<usize>> =
            self.sharers.iter().map(|sharer| cores.of(sharer.thread)).collect();
        let mut waiting: Vec<usize> = (0..self.sharers.len())
            .filter(|&at| on[at].is_some_and(|core| !cores.all[core].fast))
            .collect();
        waiting.sort_by(|&a, &b| self.had[a].total_cmp(&self.had[b]));
        let mut found = Vec::new();
        for &core in shared.iter().filter(|core| !busy[**core]) {
            let worth = |at: usize, migration: Move| {
                self.sharers[at].left * migration.gain >= self.cost * migration.cost
                    && migration.gain > 0.0
            };
            let Some(at) = self.first(&waiting, core, worth) else { continue };
            let to = cores.all[core].pus[0];
            self.done[at] = true;
            found.push(Change { sharer: at, to, fast: true });
        }
        let is_shared = |at: &usize| on[*at].is_some_and(|core| shared.contains(&core));
        let mut holders: Vec<usize> = (0..self.sharers.len()).filter(is_shared).collect();
        holders.sort_by(|&a, &b| self.had[b].total_cmp(&self.had[a]));
        for holder in holders {
            let Some(core) = on[holder] else { continue };
            let ahead = |at: usize, migration: Move| self.is_due(holder, at, migration);
            let Some(at) = self.first(&waiting, core, ahead) else { continue };
            let pus = [holder, at].map(|at| self.sharers[at].thread.pu);
            let [Some(fast), Some(slow)] = pus else { continue };
            self.done[at] = true;
            self.done[holder] = true;
            found.push(Change { sharer: at, to: fast, fast: true });
            found.push(Change { sharer: holder, to: slow, fast: false });
        }
        found
    }

    /// The first of those that wait that may go to a core: under its last-level cache, else from
    /// anywhere.
    fn first(
        &self,
        waiting: &[usize],
        core: usize,
        may: impl Fn(usize, Move) -> bool,
    ) -> Option<usize> {
        let migration = |at: usize| self.cores.migration(self.sharers[at].thread, core);
        let left = || waiting.iter().copied().filter(|&at| !self.done[at]);
        let near = left().find(|&at| !migration(at).crossing).filter(|&at| may(at, migration(at)));
        near.or_else(|| left().next().filter(|&at| may(at, migration(at))))
    }

    /// Whether a challenger and a holder change PUs.
    fn is_due(&self, holder: usize, challenger: usize, migration: Move) -> bool {
        let Sharer { expected, .. } = self.sharers[challenger];
        let ahead = self.had[holder] - self.had[challenger];
        let cost = self.cost * migration.cost;
        let enough = (margin(expected, self.each, cost, migration.gain) - self.half).max(self.half);
        pays(expected, self.each, cost, migration.gain) && ahead > 0.0 && ahead >= enough
    }
}

/// By how much more time on fast cores, in seconds, a thread is relieved; see the module for the
/// terms.
fn margin(expected: f64, each: f64, cost: f64, gain: f64) -> f64 {
    (cost * expected * each / gain).sqrt()
}

/// Whether a phase gains more from sharing than changes cost it.
fn pays(expected: f64, each: f64, cost: f64, gain: f64) -> bool {
    if gain <= 0.0 || gain >= 1.0 {
        return false;
    }
    let faster = each * (1.0 / (1.0 - gain) - 1.0);
    let saved = expected * faster / (1.0 + faster);
    saved > (cost * expected * gain * each).sqrt()
}

#[cfg(test)]
mod tests;
