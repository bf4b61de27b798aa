//! A core and the tasks on its PUs: how many instructions a cycle each gets.
//!
//! # Problem
//! Tasks on sibling PUs take the front end's slots and the ports from each other, but not while they are
//! stalled.
//!
//! # Approach
//! While it is not stalled, a task needs slots and cycles of ports, instruction by instruction.
//! What all tasks together can get is bounded by linear constraints; within them, shares rise together
//! until one of them hits a bound (max–min fairness). How often tasks are active at the same time follows
//! from how long each is stalled, and that from its rate: a fixed point.
//!
//! # Terms
//! - `y(t, A)`: rate of task `t` while just the tasks of `A` are active, instructions per cycle.
//! - `x(t)`: its rate over all of the time.
//! - `f(t)`, `D(t, m)`: slots, and cycles of one port of the set `m`, per instruction.
//! - `d(t)`: least cycles per instruction by dependencies, with the part of the window that it has. A
//!   window is divided among the tasks that are there, stalled or not: only a PU without a task gives its
//!   part back.
//! - `s(t)`: cycles per instruction for which it is stalled.
//! - `W`: slots per cycle of the core.
//! - `overlap`: how well siblings use a stall, 0 to 1; see [`Assumptions`].
//!
//! # Constraints
//! - `Σ y(t) f(t) ≤ W`
//! - for every union `S` of port sets: `Σ y(t) Σ over m within S of D(t, m) ≤ |S|`: work that only ports
//!   of `S` can do fits into the cycles of `S`. These are all there is (Hall's theorem for fractional
//!   assignment). A union of parts without a common port is the sum of the bounds on its parts, so only
//!   connected unions are searched.
//! - with `n` sets of threads, each of which has its own slots and ports (`Shared::sets`), a task with siblings has at most `1/n` of
//!   the slots, and of the ports of a union of more than one. Which siblings are in one set is left out.
//! - `y(t) ≤ 1 / d(t)`; and `y(t) ≤ 2 W`, since a slot holds at most two instructions (a fused pair).
//!
//! # Stalls
//! By chance (`overlap` 0): at a time, a task is stalled with probability `x(t) s(t)`, whatever the
//! others do. So while it is active it runs at `e(t) = Σ over A of P(A) y(t, A)`, and
//! `x(t) = 1 / (1 / e(t) + s(t))`; solved by repetition, which rises or falls steadily to the fixed point
//! (each rate grows with how long the others are stalled). This is Eyerman and Eeckhout's view of a core
//! as a job's phases (ASPLOS 2010), with resources in place of their measured stacks.
//! As well as can be (`overlap` 1): work falls into the others' stalls wherever there is room, so a stall
//! only bounds the task's own rate, `x(t) ≤ 1 / (1 / y(t) + s(t))`. Between them: in a straight line.
//!
//! # Properties
//! - **Capacity**: no slot and no port is given twice. → `no_resource_above_capacity`
//! - **Least progress**: a further task never raises the least progress of the others; where all ask for
//!   one and the same resource, it raises no rate. (It can help a third task by slowing down a second
//!   that both compete with, as on a real core.) → `a_further_task_helps_none_at_its_resource`
//! - **Order**: which sibling is which changes nothing. → `permutation_of_siblings`
//! - **Alone**: a task alone has the rate of its own bounds and stalls. → `alone_equals_solo`
//! - **Continuity**: a little more demand changes rates a little; for two tasks with equal progress also
//!   where there was none. (With three, one that begins to use a port that two others fill is held to
//!   their progress at once: that is what max–min fairness says.) → `continuity`
//! - **All of it**: the constraints are those of assigning work to ports. → `tests/max_min.rs`

use crate::assumptions::{Assumptions, Fairness};
use crate::phase::Demand;
use colocate_machine::performance::{CorePerformance, PortSet};

/// What a task needs of the core while it is active, per instruction.
#[derive(Clone, Copy, Debug)]
pub struct Active<'a> {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles of one of the ports of each set.
    pub ports: &'a [(PortSet, f64)],
    /// Least cycles by dependencies, for the window that it has.
    pub dependent_cycles: f64,
}

/// What of a core siblings share, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// Front-end slots per cycle.
    pub width: f64,
    /// Whether the window is divided among the tasks that are there.
    pub divided: bool,
    /// Sets of threads that slots and ports are split among while there are siblings: each reaches its set's part of them. 1 where
    /// any reaches all.
    pub sets: f64,
    /// What siblings get an equal part of.
    pub fairness: Fairness,
}

impl Shared {
    /// A core of this kind under these assumptions; it has one slot at least.
    #[must_use]
    pub fn new(core: &CorePerformance, assumptions: &Assumptions) -> Self {
        Self {
            width: (core.width + assumptions.width).max(1.0),
            divided: core.divided,
            sets: f64::from(core.thread_sets),
            fairness: assumptions.fairness,
        }
    }
}

/// Relative; sums of a dozen products are exact to about 1e-15.
const NEAR: f64 = 1e-12;

/// Tasks for which all sets of active ones are searched: 256 sets. More PUs has no core; for more, stalls
/// are taken as filled as well as can be.
const SETS_UP_TO: usize = 8;

/// Connected unions that are searched. Cores with hundreds of them are not known (at most 255 for eight
/// ports); a table that has more is cut, which leaves out bounds on many ports at once.
const UNIONS: usize = 1024;

/// Rates of tasks that are active at the same time, in instructions per cycle, in their order.
#[must_use]
pub fn rates(width: f64, fairness: Fairness, tasks: &[Active<'_>]) -> Vec<f64> {
    let mut bounds = Bounds::default();
    bounds.set(width, tasks, |t| tasks[t].dependent_cycles);
    let most = (0..tasks.len()).map(|t| bounds.most(t, tasks[t].dependent_cycles, 1.0));
    let most: Vec<f64> = most.collect();
    let step = |t: usize| step(fairness, most[t], tasks[t].slots);
    let steps: Vec<f64> = (0..tasks.len()).map(step).collect();
    let mut rates = vec![0.0; tasks.len()];
    bounds.fill(&most, &steps, &mut vec![true; tasks.len()], &mut rates);
    rates
}

/// By how much a task's rate rises while all rise. As for its most, an instruction counts as half a slot at
/// least.
fn step(fairness: Fairness, most: f64, slots: f64) -> f64 {
    match fairness {
        Fairness::Progress => most,
        Fairness::Slots => 1.0 / slots.max(0.5),
    }
}

/// The tasks on a core, ready to say at what rates they go on; keeps its memory when it is set anew.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    fairness: Option<Fairness>,
    bounds: Bounds,
    slots: Vec<f64>,
    /// Rate of each task alone on the core, never stalled, in instructions per cycle.
    pub alone: Vec<f64>,
    /// The same with its part of the window.
    most: Vec<f64>,
    steps: Vec<f64>,
    /// `y(t, A)`, by set of active tasks (bit `t` is task `t`), then by task.
    sets: Vec<f64>,
    /// `x(t)` if work meets by chance, from round to round; rounds begun where others ended are fewer.
    pub(crate) by_chance: Vec<f64>,
    /// `x(t)` if stalls are filled as well as can be.
    filled: Vec<f64>,
    free: Vec<bool>,
    most_filled: Vec<f64>,
    folded: Vec<f64>,
}

impl Siblings {
    /// The tasks with `demands` on a core.
    #[must_use]
    pub fn new(core: Shared, demands: &[&Demand]) -> Self {
        let mut new = Self::default();
        new.set(core, demands);
        new
    }

    /// Other tasks on another core, in the same memory.
    pub fn set(&mut self, core: Shared, demands: &[&Demand]) {
        let count = demands.len();
        let parts = if core.divided { count } else { 1 };
        let sets = if count > 1 { core.sets } else { 1.0 };
        self.fairness = Some(core.fairness);
        self.bounds.set_demands(core.width, sets, demands);
        refill(&mut self.slots, demands.iter().map(|demand| demand.slots));
        let bounds = &self.bounds;
        let most = |t: usize, parts, sets| bounds.most(t, demands[t].least_cycles(parts), sets);
        refill(&mut self.alone, (0..count).map(|t| most(t, 1, 1.0)));
        refill(&mut self.most, (0..count).map(|t| most(t, parts, sets)));
        let steps = self.most.iter().zip(&self.slots);
        refill(&mut self.steps, steps.map(|(&most, &slots)| step(core.fairness, most, slots)));
        refill(&mut self.by_chance, self.most.iter().copied());
        refill(&mut self.filled, self.most.iter().copied());
        refill(&mut self.most_filled, self.most.iter().copied());
        self.free.clear();
        self.free.resize(count, false);
        self.set_sets(count);
    }

    fn set_sets(&mut self, count: usize) {
        self.sets.clear();
        if count > SETS_UP_TO {
            return;
        }
        self.sets.resize(count << count, 0.0);
        for (set, rates) in self.sets.chunks_exact_mut(count.max(1)).enumerate() {
            if set.is_power_of_two() {
                let only = set.trailing_zeros() as usize;
                rates[only] = self.most[only];
                continue;
            }
            for (t, free) in self.free.iter_mut().enumerate() {
                *free = set >> t & 1 == 1;
            }
            self.bounds.fill(&self.most, &self.steps, &mut self.free, rates);
        }
    }

    /// One round towards the rates of tasks that are stalled for `stalls` cycles per instruction: sets
    /// `rates`, and returns by what share one of them changed most since the round before.
    ///
    /// Rounds go on where the last one ended, also after stalls have changed a little.
    ///
    /// # Panics
    /// If `stalls` or `rates` has fewer entries than there are tasks.
    pub fn round(&mut self, overlap: f64, stalls: &[f64], rates: &mut [f64]) -> f64 {
        let overlap = if self.sets.is_empty() { 1.0 } else { overlap };
        if overlap > 0.0 {
            self.fill_stalls(stalls);
        }
        let mut change = 0.0_f64;
        for t in 0..self.alone.len() {
            if overlap < 1.0 {
                self.by_chance[t] = stalled(self.active_by_chance(t, stalls), stalls[t]);
            }
            let rate = (1.0 - overlap) * self.by_chance[t] + overlap * self.filled[t];
            let moved = (rate - rates[t]).abs() / rate.max(f64::MIN_POSITIVE);
            change = change.max(if moved.is_nan() { f64::INFINITY } else { moved });
            rates[t] = rate;
        }
        change
    }

    /// Rates of tasks that are stalled for `stalls` cycles per instruction: rounds until nothing changes.
    ///
    /// # Panics
    /// If `stalls` has fewer entries than there are tasks.
    #[must_use]
    pub fn with_stalls(&mut self, overlap: f64, stalls: &[f64]) -> Vec<f64> {
        /// Each round brings two tasks closer by a factor of at least about four, as measured in the
        /// tests; eight tasks that all but always stall need the most.
        const ROUNDS: usize = 500;
        let mut rates = vec![0.0; self.alone.len()];
        for _ in 0..ROUNDS {
            if self.round(overlap, stalls, &mut rates) < NEAR {
                break;
            }
        }
        rates
    }

    /// `e(t)`: the task's rate while it is active, over all sets of others that are active with it.
    fn active_by_chance(&mut self, task: usize, stalls: &[f64]) -> f64 {
        let count = self.alone.len();
        let Self { sets, by_chance, folded, most, .. } = self;
        let idle = |t: usize| (by_chance[t] * stalls[t]).min(1.0);
        if count == 2 {
            // The same as below; `sets` holds {}, {0}, {1}, {0, 1}.
            let idle = idle(1 - task);
            return idle * most[task] + (1.0 - idle) * sets[6 + task];
        }
        let below = (1 << task) - 1;
        let rate = |others: usize| {
            let set = others & below | (others & !below) << 1 | 1 << task;
            sets[set * count + task]
        };
        refill(folded, (0..1 << (count - 1)).map(rate));
        // One other task after the other, from the last: in the upper half of the sets it is active.
        for other in (0..count).rev().filter(|&other| other != task) {
            let (idle, half) = (idle(other), folded.len() / 2);
            for set in 0..half {
                folded[set] = idle * folded[set] + (1.0 - idle) * folded[half + set];
            }
            folded.truncate(half);
        }
        folded[0]
    }

    /// `x(t)` if work falls into others' stalls wherever there is room.
    fn fill_stalls(&mut self, stalls: &[f64]) {
        let fairness = self.fairness.unwrap_or(Fairness::Progress);
        for (t, &stall_cycles) in stalls.iter().enumerate().take(self.alone.len()) {
            self.most_filled[t] = stalled(self.most[t], stall_cycles);
            self.steps[t] = step(fairness, self.most_filled[t], self.slots[t]);
        }
        self.filled.fill(0.0);
        self.free.fill(true);
        self.bounds.fill(&self.most_filled, &self.steps, &mut self.free, &mut self.filled);
    }
}

/// Rate of a task that has the rate `active` between its stalls.
fn stalled(active: f64, stall_cycles: f64) -> f64 {
    1.0 / (1.0 / active + stall_cycles)
}

fn refill(vector: &mut Vec<f64>, with: impl Iterator<Item = f64>) {
    vector.clear();
    vector.extend(with);
}

/// Linear bounds on the rates of tasks, all of the form `Σ weight(t) · y(t) ≤ 1`.
#[derive(Clone, Debug, Default)]
struct Bounds {
    width: f64,
    tasks: usize,
    /// One row a bound.
    weights: Vec<f64>,
    /// By row: whether it is of what thread sets split, which one port is not.
    split: Vec<bool>,
    sets: Vec<PortSet>,
    sets_before: Vec<PortSet>,
    unions: Vec<PortSet>,
    /// By task: no less than the most that it can have.
    reach: Vec<f64>,
}

impl Bounds {
    fn set_demands(&mut self, width: f64, thread_sets: f64, demands: &[&Demand]) {
        let sets = demands.iter().flat_map(|demand| demand.ports.iter().map(|(set, _)| *set));
        self.set_unions(sets);
        let ask = |t: usize| (demands[t].slots, demands[t].ports.as_slice());
        self.set_weights(width, thread_sets, demands.len(), ask, |t| demands[t].least_cycles(1));
    }

    fn set(&mut self, width: f64, tasks: &[Active<'_>], least: impl Fn(usize) -> f64) {
        self.set_unions(tasks.iter().flat_map(|task| task.ports.iter().map(|(set, _)| *set)));
        let ask = |t: usize| (tasks[t].slots, tasks[t].ports);
        self.set_weights(width, 1.0, tasks.len(), ask, least);
    }

    /// Every connected union of `sets`; those of the last time if they are the same sets.
    fn set_unions(&mut self, sets: impl Iterator<Item = PortSet>) {
        std::mem::swap(&mut self.sets, &mut self.sets_before);
        self.sets.clear();
        for set in sets.filter(|set| !set.is_empty()) {
            if let Err(place) = self.sets.binary_search(&set) {
                self.sets.insert(place, set);
            }
        }
        if self.sets == self.sets_before {
            return;
        }
        self.unions.clear();
        self.unions.extend_from_slice(&self.sets);
        let mut next = 0;
        while next < self.unions.len() {
            let union = self.unions[next];
            for &set in &self.sets {
                let with = union.union(set);
                if union.0 & set.0 != 0 && with != union && !self.unions.contains(&with) {
                    self.unions.push(with);
                }
            }
            if self.unions.len() >= UNIONS {
                break;
            }
            next += 1;
        }
    }

    /// The front end's bound, and those of ports that all tasks together could reach; `ask` gives a task's
    /// slots and cycles of ports, `least` its cycles by dependencies with the whole window.
    fn set_weights<'a>(
        &mut self,
        width: f64,
        thread_sets: f64,
        tasks: usize,
        ask: impl Fn(usize) -> (f64, &'a [(PortSet, f64)]),
        least: impl Fn(usize) -> f64,
    ) {
        (self.width, self.tasks) = (width, tasks);
        self.weights.clear();
        self.weights.extend((0..tasks).map(|t| ask(t).0 / width));
        self.split.clear();
        self.split.push(true);
        let most = |t: usize| (1.0 / least(t)).min(1.0 / self.weights[t]).min(2.0 * width);
        refill(&mut self.reach, (0..tasks).map(most));
        for &union in &self.unions {
            let row = self.weights.len();
            let mut reach = 0.0;
            for t in 0..tasks {
                let within = ask(t).1.iter().filter(|(set, _)| set.is_subset(union));
                // Not `sum`: that of nothing is −0, and 1 / −0 is −∞.
                let cycles = within.fold(0.0, |sum, (_, cycles)| sum + cycles);
                let weight = cycles / f64::from(union.len());
                self.weights.push(weight);
                reach += weight * self.reach[t];
            }
            // What all together can have may be more than a thread set's part.
            let split = union.len() > 1;
            if reach <= if split { 1.0 / thread_sets } else { 1.0 } {
                self.weights.truncate(row);
            } else {
                self.split.push(split);
            }
        }
    }

    /// The weights of each bound.
    fn bounds(&self) -> impl Iterator<Item = &[f64]> {
        self.weights.chunks_exact(self.tasks.max(1))
    }

    /// The most that a task can have: alone, with `least` cycles by dependencies, of one of `thread_sets`.
    fn most(&self, task: usize, least: f64, thread_sets: f64) -> f64 {
        let weights = self.bounds().zip(&self.split);
        let weights =
            weights.map(|(bound, &split)| bound[task] * if split { thread_sets } else { 1.0 });
        let by_bounds = weights.map(|weight| 1.0 / weight).fold(2.0 * self.width, f64::min);
        by_bounds.min(1.0 / least)
    }

    /// Raises the rates of the `free` tasks together, each by its step, and stops those that a bound holds;
    /// in the end none is free. The others' rates stay as they are.
    fn fill(&self, most: &[f64], steps: &[f64], free: &mut [bool], rates: &mut [f64]) {
        if self.all_have_most(most, free, rates) {
            return;
        }
        while free.contains(&true) {
            let mut length = f64::INFINITY;
            for bound in self.bounds() {
                let (mut used, mut rising) = (0.0, 0.0);
                for t in 0..self.tasks {
                    used += bound[t] * rates[t];
                    rising += if free[t] { bound[t] * steps[t] } else { 0.0 };
                }
                if rising > 0.0 {
                    length = length.min((1.0 - used).max(0.0) / rising);
                }
            }
            for t in (0..self.tasks).filter(|&t| free[t]) {
                length = length.min((most[t] - rates[t]).max(0.0) / steps[t]);
            }
            for t in (0..self.tasks).filter(|&t| free[t]) {
                rates[t] += length * steps[t];
            }
            // A step that nothing ends can only come of numbers that are none.
            if !length.is_finite() || !self.hold(most, free, rates) {
                break;
            }
        }
    }

    /// Gives every free task the most that it can use, if there is room for that; most often there is.
    fn all_have_most(&self, most: &[f64], free: &mut [bool], rates: &mut [f64]) -> bool {
        let fits = self.bounds().all(|bound| {
            let rate = |t: usize| if free[t] { most[t] } else { rates[t] };
            (0..self.tasks).fold(0.0, |used, t| used + bound[t] * rate(t)) <= 1.0
        });
        if fits {
            for t in 0..self.tasks {
                rates[t] = if free[t] { most[t] } else { rates[t] };
            }
            free.fill(false);
        }
        fits
    }

    /// Holds every task that a full bound names, or that has all that it can use; says whether there was
    /// one.
    fn hold(&self, most: &[f64], free: &mut [bool], rates: &[f64]) -> bool {
        let before = free.iter().filter(|&&free| free).count();
        for t in 0..self.tasks {
            free[t] &= rates[t] < most[t] * (1.0 - NEAR);
        }
        for bound in self.bounds() {
            let used: f64 = bound.iter().zip(rates).map(|(weight, rate)| weight * rate).sum();
            if used >= 1.0 - NEAR {
                for t in 0..self.tasks {
                    free[t] &= bound[t] <= 0.0;
                }
            }
        }
        free.iter().filter(|&&free| free).count() < before
    }
}

#[cfg(test)]
mod tests;
