//! Rotation of spare fast cores among the threads of parallel phases.
//!
//! # Problem
//! A parallel phase ends when its slowest thread is done, so fast cores do not shorten it if the
//! same threads have them all the time. But each exchange of two threads costs both the contents of
//! their caches.
//! # Approach
//! The thread with the most time on fast cores makes room for the thread with the least, as seldom
//! as is best for a phase of the expected length. Two threads exchange their PUs and are left to
//! the kernel there.
//! # Terms
//! - *Sharer*: a thread whose job is in a parallel phase. *Holder*: a sharer on a shared fast core.
//!   *Challenger*: a sharer on a slow core.
//! - *Had*: time for which a sharer was runnable on a fast core while a sharer.
//! - `L`: expected length of the phase; `n`: number of sharers; `f`: number of shared fast cores,
//!   at most `n`; `g`: share of its time that a thread saves on a fast core; `c`: seconds of refill
//!   there and back.
//! # Algorithm
//! 1. A fast core without a thread, or only with a sleeping one, goes to the challenger that had
//!    least, if the rest of its phase is worth the refill: `left · g ≥ c`.
//! 2. A holder and a challenger exchange PUs if the holder had at least `m` more, with a tolerance
//!    of half a quantum. Holders that had most come first, challengers that had least come first,
//!    under the holder's last-level cache if there are any. At the end of a phase threads differ by
//!    at most `m`, so by `m/2` in the mean, and others wait for `g · m/2`. A thread changes once in
//!    `2m` on fast cores, and has `L · f/n` on fast cores: a refill of `c · L · f/(n · 2m)`. The
//!    sum is least at `m = √(c · L · f / (n · g))`, where it is `√(c · L · g · f/n)`.
//! 3. No thread changes unless the gain of the phase exceeds this sum. With `x = f/n` and
//!    `r = 1/(1 − g)` the gain is `L · x(r − 1) / (1 + x(r − 1))`: a thread on fast cores for `x`
//!    of its time against a thread that never is.
//!
//! Ours: steps 2 and 3. The published policy shares evenly (remembered); its rate of changes is not
//! known.
//! # Properties
//! - **Even**: no sharer that is there all the time gets ahead by more than the margin and two
//!   quanta. -> test `shares_are_even`
//! - **Seldom**: the dearer, the longer between changes. -> test `turns_by_hand`
//! - **No loss**: phases that are too short for the refill are left alone.
//!   -> test `short_phases_are_left_alone`
//! - **Same load**: no PU has more threads afterwards than before, but fast ones that were idle.
//!   -> test `exchanges_keep_loads`
//! - **Near first** -> test `near_first`
//! - **Sleepers keep nothing** -> test `sleepers_make_room_for_sharers`

use super::super::Thread;
use super::super::asymmetric::cores::{Cores, Move};
use crate::by_id::ById;
use colocate_evidence::TaskId;
use colocate_machine::{Nanos, PuIdx};

/// A thread of a parallel phase.
#[derive(Clone, Copy, Debug)]
pub struct Sharer<'a> {
    /// The thread.
    pub thread: &'a Thread,
    /// Expected length of the job's phase, in seconds.
    pub expected: f64,
    /// Expected remaining length of the phase, in seconds.
    pub left: f64,
}

/// Move of a sharer to another PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Place among the sharers.
    pub sharer: usize,
    /// Target PU.
    pub to: PuIdx,
    /// Whether the target is on a fast core.
    pub fast: bool,
}

/// Quanta for which the time of a thread that is no longer a sharer is kept. Chosen: most serial
/// phases are shorter, and a job that creates threads all the time does not fill the memory.
const REMEMBERED: u64 = 100;

/// Time of threads on fast cores.
#[derive(Clone, Debug, Default)]
pub struct FastCoreTime {
    known: ById<TaskId, Had>,
    /// Quanta so far.
    quanta: u64,
}

/// Time of a thread on fast cores while a sharer.
#[derive(Clone, Copy, Debug)]
struct Had {
    seconds: f64,
    /// Number of the last quantum as a sharer.
    last: u64,
}

/// Input and state of one quantum.
struct SharingRound<'a> {
    cores: &'a Cores,
    sharers: &'a [Sharer<'a>],
    /// By sharer: seconds on fast cores.
    had: Vec<f64>,
    /// Half a quantum, in seconds: the mean excess of a turn, which ends with a quantum.
    half: f64,
    /// Weight of a refill.
    cost: f64,
    /// Shared fast cores per sharer, at most 1.
    each: f64,
    /// By sharer: whether its new PU is chosen.
    done: Vec<bool>,
}

impl FastCoreTime {
    /// Moves for the next quantum. `shared` are fast cores; `busy` is true for cores with a thread
    /// that does not sleep; `took` is the length of the last quantum; `cost` is the weight of a
    /// refill.
    pub fn turns(
        &mut self,
        cores: &Cores,
        sharers: &[Sharer<'_>],
        (shared, busy): (&[usize], &[bool]),
        took: Nanos,
        cost: f64,
    ) -> Vec<Change> {
        let had = self.note(cores, sharers, took.as_secs_f64());
        let each = shared.len() as f64 / sharers.len().max(1) as f64;
        let done = vec![false; sharers.len()];
        let half = took.as_secs_f64() / 2.0;
        // A thread has at most one fast core at a time.
        let mut round = SharingRound { cores, sharers, had, half, cost, each: each.min(1.0), done };
        round.changes(shared, busy)
    }

    /// Takes in the sharers' cores in the last quantum. Returns the seconds of each sharer on fast
    /// cores. Time missed by a thread that was no sharer is not made up for.
    fn note(&mut self, cores: &Cores, sharers: &[Sharer<'_>], took: f64) -> Vec<f64> {
        let now = self.quanta + 1;
        // Of the threads that were sharers in the last quantum too.
        let mut least = f64::INFINITY;
        let mut found = Vec::with_capacity(sharers.len());
        for sharer in sharers {
            let known = self.known.get(&sharer.thread.id).copied();
            let stayed = known.is_some_and(|had| had.last == self.quanta);
            let mut seconds = known.map_or(0.0, |had| had.seconds);
            if stayed {
                let on_fast = cores.of(sharer.thread).is_some_and(|core| cores.all[core].fast);
                // A thread of unknown state counts as runnable all the time.
                let share = sharer.thread.runnable.unwrap_or(1.0);
                seconds += if on_fast { took * share } else { 0.0 };
                least = least.min(seconds);
            }
            found.push(seconds);
        }
        // Without such a thread all times begin at 0.
        let least = if least.is_finite() { least } else { 0.0 };
        let had: Vec<f64> = found.into_iter().map(|seconds: f64| seconds.max(least)).collect();
        for (sharer, &seconds) in sharers.iter().zip(&had) {
            self.known.insert(sharer.thread.id, Had { seconds, last: now });
        }
        self.known.retain(|_, had| had.last + REMEMBERED >= now);
        self.quanta = now;
        had
    }
}

impl SharingRound<'_> {
    /// Moves to idle fast cores, then exchanges of holders and challengers.
    fn changes(&mut self, shared: &[usize], busy: &[bool]) -> Vec<Change> {
        let cores = self.cores;
        let on: Vec<Option<usize>> =
            self.sharers.iter().map(|sharer| cores.of(sharer.thread)).collect();
        let mut waiting: Vec<usize> = (0..self.sharers.len())
            .filter(|&at| on[at].is_some_and(|core| !cores.all[core].fast))
            .collect();
        // Least time on fast cores first.
        waiting.sort_by(|&a, &b| self.had[a].total_cmp(&self.had[b]));
        let mut found = Vec::new();
        for &core in shared.iter().filter(|core| !busy[**core]) {
            let fitting = self.first(&waiting, core, |at, migration| {
                self.sharers[at].left * migration.gain >= self.cost * migration.cost
                    // Where moves cost nothing, a move without a gain would pass the test before.
                    && migration.gain > 0.0
            });
            let Some(at) = fitting else { continue };
            // The core is idle, so any of its PUs will do.
            let to = cores.all[core].pus[0];
            self.done[at] = true;
            found.push(Change { sharer: at, to, fast: true });
        }
        let mut holders: Vec<usize> = (0..self.sharers.len())
            .filter(|&at| on[at].is_some_and(|core| shared.contains(&core)))
            .collect();
        // Most time on fast cores first.
        holders.sort_by(|&a, &b| self.had[b].total_cmp(&self.had[a]));
        for holder in holders {
            let Some(core) = on[holder] else { continue };
            let fitting =
                self.first(&waiting, core, |at, migration| self.is_due(holder, at, migration));
            let Some(at) = fitting else { continue };
            let pus = [holder, at].map(|at| self.sharers[at].thread.pu);
            // The PUs are exchanged, so the load of each stays.
            let [Some(fast), Some(slow)] = pus else { continue };
            self.done[at] = true;
            self.done[holder] = true;
            found.push(Change { sharer: at, to: fast, fast: true });
            found.push(Change { sharer: holder, to: slow, fast: false });
        }
        found
    }

    /// The first waiting sharer for which the move to a core is right, of the core's domain if any
    /// sharer waits there, else of all. Only the first sharer of either is considered.
    fn first(
        &self,
        waiting: &[usize],
        core: usize,
        may: impl Fn(usize, Move) -> bool,
    ) -> Option<usize> {
        let left = waiting.iter().copied().filter(|&at| !self.done[at]);
        let mut moves = left.map(|at| (at, self.cores.migration(self.sharers[at].thread, core)));
        // Only the first thread of each kind is asked: the threads behind it have had more time.
        let near = moves.clone().find(|(_, migration)| !migration.crossing);
        let near = near.filter(|&(at, migration)| may(at, migration));
        let found = near.or_else(|| moves.next().filter(|&(at, migration)| may(at, migration)));
        found.map(|(at, _)| at)
    }

    /// Whether a challenger and a holder are to exchange PUs.
    fn is_due(&self, holder: usize, challenger: usize, migration: Move) -> bool {
        let Sharer { expected, .. } = self.sharers[challenger];
        let ahead = self.had[holder] - self.had[challenger];
        let cost = self.cost * migration.cost;
        // A turn ends with a quantum, so half a quantum more or less is the same.
        let enough = (margin(expected, self.each, cost, migration.gain) - self.half).max(self.half);
        pays(expected, self.each, cost, migration.gain) && ahead > 0.0 && ahead >= enough
    }
}

/// `m`, the lead in seconds on fast cores at which a holder makes room; see the module.
fn margin(expected: f64, each: f64, cost: f64, gain: f64) -> f64 {
    (cost * expected * each / gain).sqrt()
}

/// Whether the gain of a phase from sharing exceeds the cost of the changes; see the module.
fn pays(expected: f64, each: f64, cost: f64, gain: f64) -> bool {
    // At a gain of 1 the slow core would stand still, and `faster` would be infinite.
    if gain <= 0.0 || gain >= 1.0 {
        return false;
    }
    let faster = each * (1.0 / (1.0 - gain) - 1.0);
    let saved = expected * faster / (1.0 + faster);
    saved > (cost * expected * gain * each).sqrt()
}

#[cfg(test)]
mod tests;
