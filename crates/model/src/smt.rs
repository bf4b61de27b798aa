//! Rates of the tasks on the PUs of one core, in instructions per cycle.
//!
//! # Problem
//! Tasks on sibling PUs compete for the front end's slots and the ports, but not while they are
//! stalled.
//!
//! # Approach
//! A task that is not stalled needs slots and port cycles, instruction by instruction. Linear
//! constraints bound the rates of all tasks together. Within them, shares rise together until one
//! reaches a bound (max–min fairness). The time that tasks are active together follows from how
//! long each is stalled, and the stalls follow from the rates: a fixed point.
//!
//! # Terms
//! - `y(t, A)`: rate of task `t` while just the tasks of `A` are active, instructions per cycle.
//! - `x(t)`: rate of task `t` over all of the time.
//! - `f(t)`, `D(t, m)`: slots, and cycles of one port of the set `m`, per instruction.
//! - `d(t)`: least cycles per instruction by dependencies, with the task's part of the window. A
//!   window is divided among the tasks present, stalled or not; only a PU without a task releases
//!   its part.
//! - `s(t)`: stall cycles per instruction.
//! - `W`: slots per cycle of the core.
//! - `overlap`: use of a task's stalls by its siblings, 0 to 1; see [`Assumptions`].
//!
//! # Constraints
//! - `Σ y(t) f(t) ≤ W`
//! - for every union `S` of port sets: `Σ y(t) Σ over m within S of D(t, m) ≤ |S|`: work that only
//!   ports of `S` can do fits into the cycles of `S`. There are no other constraints on ports
//!   (Hall's theorem for fractional assignment). A union of parts without a common port is the sum
//!   of the bounds on its parts, so only connected unions are searched.
//! - with `n` sets of threads, each with slots and ports of its own (`SharedResources::sets`), a
//!   task with siblings has at most `1/n` of the slots and of the ports, but all of a port that is
//!   the only one for some work (`SharedResources::whole`). The assignment of siblings to sets is
//!   not modelled.
//! - `y(t) ≤ 1 / d(t)`; and `y(t) ≤ 2 W`, since a slot holds at most two instructions (a fused
//!   pair).
//!
//! # Stalls
//! At random (`overlap` 0): at any time a task is stalled with probability `x(t) s(t)`,
//! independently of the others. While active it runs at `e(t) = Σ over A of P(A) y(t, A)`, and
//! `x(t) = 1 / (1 / e(t) + s(t))`. Repetition rises or falls steadily to the fixed point, since
//! each rate grows with the others' stalls. This is Eyerman and Eeckhout's view of a core as a
//! job's phases (ASPLOS 2010), with resources in place of their measured stacks.
//!
//! Ideal (`overlap` 1): work falls into the others' stalls wherever there is room, so a stall only
//! bounds the task's own rate, `x(t) ≤ 1 / (1 / y(t) + s(t))`. Between the two: linear.
//!
//! # Properties
//! - **Capacity**: no slot and no port is given twice. → `no_resource_above_capacity`
//! - **Least progress**: a further task never raises the least progress of the others; if all tasks
//!   need one and the same resource, it raises no rate. (It can help a third task by slowing down a
//!   second task that both compete with, as on a real core.)
//!   → `a_further_task_helps_none_at_its_resource`
//! - **Order**: the order of siblings changes nothing. → `permutation_of_siblings`
//! - **Alone**: a task alone has the rate of its own bounds and stalls. → `alone_equals_solo`
//! - **Continuity**: a small change of demand changes rates by little; for two tasks with equal
//!   progress also from a demand of 0. (With three, a task that begins to use a port filled by two
//!   others is held to their progress at once, by max–min fairness.) → `continuity`
//! - **Complete**: the constraints are those of assigning work to ports. → `tests/max_min.rs`

use crate::assumptions::{Assumptions, Fairness};
use crate::phase::Demand;
use colocate_machine::performance::{CorePerformance, PortSet};

/// Needs of an active task, per instruction.
#[derive(Clone, Copy, Debug)]
pub struct Active<'a> {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles of one port of each set.
    pub ports: &'a [(PortSet, f64)],
    /// Least cycles by dependencies, with the task's part of the window.
    pub dependent_cycles: f64,
}

/// Resources of a core that siblings share, and the rule of sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedResources {
    /// Front-end slots per cycle.
    pub width: f64,
    /// Whether the window is divided among the tasks present.
    pub divided: bool,
    /// Sets of threads among which slots and ports are split while there are siblings: each thread
    /// can use its set's part only. 1 for a core without such sets.
    pub sets: f64,
    /// Ports that are not split among the sets of threads.
    pub whole: PortSet,
    /// Quantity that siblings share equally.
    pub fairness: Fairness,
}

impl SharedResources {
    /// Core of the kind `core` under `assumptions`, with at least one slot.
    #[must_use]
    pub fn new(core: &CorePerformance, assumptions: &Assumptions) -> Self {
        Self {
            // An assumption may take off as much as a narrow core has.
            width: (core.width + assumptions.width).max(1.0),
            divided: core.divided,
            sets: f64::from(core.thread_sets),
            whole: only_ones(core),
            fairness: assumptions.fairness,
        }
    }
}

/// Ports of `core` that are the only one for some kind of work: no thread set can have one of its own.
fn only_ones(core: &CorePerformance) -> PortSet {
    let alone = core.units.iter().map(|unit| unit.ports).filter(|ports| ports.len() == 1);
    alone.fold(PortSet::default(), PortSet::union)
}

/// Relative tolerance; sums of a dozen products are exact to about 1e-15.
const NEAR: f64 = 1e-12;

/// Most tasks for which all sets of active tasks are searched: 256 sets. No core has more PUs; for
/// more tasks, stalls count as ideally used.
const SETS_UP_TO: usize = 8;

/// Rates of tasks active at the same time, in instructions per cycle, in the order of `tasks`.
#[must_use]
pub fn rates(width: f64, fairness: Fairness, tasks: &[Active<'_>]) -> Vec<f64> {
    let mut bounds = Bounds::default();
    bounds.set(width, tasks, |t| tasks[t].dependent_cycles);
    let most = (0..tasks.len()).map(|t| bounds.most(t, tasks[t].dependent_cycles, Of::Core));
    let most: Vec<f64> = most.collect();
    let steps = most.iter().zip(tasks).map(|(&most, task)| step(fairness, most, task.slots));
    let steps: Vec<f64> = steps.collect();
    let mut rates = vec![0.0; tasks.len()];
    bounds.fill(&most, &steps, &mut vec![true; tasks.len()], &mut rates);
    rates
}

/// Increment of a task's rate while all rates rise. As in the bound on a rate, an instruction
/// counts as half a slot at least.
fn step(fairness: Fairness, most: f64, slots: f64) -> f64 {
    match fairness {
        Fairness::Progress => most,
        // Few slots must not give a task an unbounded step.
        Fairness::Slots => 1.0 / slots.max(0.5),
    }
}

/// Tasks on a core, prepared to compute their rates; reuses its memory when set anew.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    fairness: Option<Fairness>,
    bounds: Bounds,
    slots: Vec<f64>,
    /// Rate of each task alone on the core and never stalled, in instructions per cycle.
    pub alone: Vec<f64>,
    /// Rate of each task alone with its part of the window.
    most: Vec<f64>,
    steps: Vec<f64>,
    /// `y(t, A)`, by set of active tasks (bit `t` is task `t`), then by task.
    sets: Vec<f64>,
    /// `x(t)` at `overlap` 0, kept between rounds: a start near the result saves rounds.
    pub(crate) by_chance: Vec<f64>,
    /// `x(t)` at `overlap` 1.
    filled: Vec<f64>,
    free: Vec<bool>,
    most_filled: Vec<f64>,
    folded: Vec<f64>,
}

impl Siblings {
    /// Tasks with `demands` on a core.
    #[must_use]
    pub fn new(core: SharedResources, demands: &[&Demand]) -> Self {
        let mut new = Self::default();
        new.set(core, demands);
        new
    }

    /// Sets other tasks on another core, in the same memory.
    pub fn set(&mut self, core: SharedResources, demands: &[&Demand]) {
        let count = demands.len();
        // PUs without a task release their part of the window.
        let parts = if core.divided { count } else { 1 };
        // A thread without siblings reaches all slots and ports.
        let split = Split { sets: if count > 1 { core.sets } else { 1.0 }, whole: core.whole };
        self.fairness = Some(core.fairness);
        self.bounds.set_demands(core.width, split, demands);
        refill(&mut self.slots, demands.iter().map(|demand| demand.slots));
        let bounds = &self.bounds;
        let alone = |t: usize| bounds.most(t, demands[t].least_cycles(1), Of::Core);
        refill(&mut self.alone, (0..count).map(alone));
        let part = |t: usize| bounds.most(t, demands[t].least_cycles(parts), Of::ThreadSet);
        refill(&mut self.most, (0..count).map(part));
        let steps = self.most.iter().zip(&self.slots);
        refill(&mut self.steps, steps.map(|(&most, &slots)| step(core.fairness, most, slots)));
        // Rounds start from above, since stalls only lower a rate, and fall to the fixed point.
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
        // `2^count` sets of active tasks, each with a rate for every task.
        self.sets.resize(count << count, 0.0);
        // `chunks_exact_mut` takes no 0.
        for (set, rates) in self.sets.chunks_exact_mut(count.max(1)).enumerate() {
            // A task without active siblings has its most.
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

    /// One round towards the rates of tasks with `stalls` stall cycles per instruction. Sets
    /// `rates` and returns the largest relative change of a rate since the previous round.
    ///
    /// Rounds continue from the previous result, also after small changes of stalls.
    ///
    /// # Panics
    /// If `stalls` or `rates` has fewer entries than there are tasks.
    pub fn round(&mut self, overlap: f64, stalls: &[f64], rates: &mut [f64]) -> f64 {
        // No sets are computed for more than `SETS_UP_TO` tasks.
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
            // A rate that stays 0 would give 0 / 0.
            let moved = (rate - rates[t]).abs() / rate.max(f64::MIN_POSITIVE);
            // `max` ignores NaN, which must not end the search.
            change = change.max(if moved.is_nan() { f64::INFINITY } else { moved });
            rates[t] = rate;
        }
        change
    }

    /// Rates of tasks with `stalls` stall cycles per instruction, by rounds until nothing changes.
    ///
    /// # Panics
    /// If `stalls` has fewer entries than there are tasks.
    #[must_use]
    pub fn with_stalls(&mut self, overlap: f64, stalls: &[f64]) -> Vec<f64> {
        /// Each round brings two tasks closer by a factor of at least about four, as measured in
        /// the tests; eight tasks that stall almost always need the most rounds.
        const ROUNDS: usize = 500;
        let mut rates = vec![0.0; self.alone.len()];
        for _ in 0..ROUNDS {
            if self.round(overlap, stalls, &mut rates) < NEAR {
                break;
            }
        }
        rates
    }

    /// `e(t)`: rate of an active task, as the mean over all sets of active siblings.
    fn active_by_chance(&mut self, task: usize, stalls: &[f64]) -> f64 {
        let count = self.alone.len();
        let Self { sets, by_chance, folded, most, .. } = self;
        if count == 2 {
            // A shortcut for the general case below; `sets` holds {}, {0}, {1}, {0, 1}.
            let other = 1 - task;
            let idle = idle(by_chance[other], stalls[other]);
            return idle * most[task] + (1.0 - idle) * sets[6 + task];
        }
        let below = (1 << task) - 1;
        refill(
            folded,
            (0..1 << (count - 1)).map(|others| {
                // The bits of the other tasks, spread to make room for the bit of this task.
                let set = others & below | (others & !below) << 1 | 1 << task;
                sets[set * count + task]
            }),
        );
        // Fold one sibling after the other, from the last: it is active in the upper half of the sets.
        for other in (0..count).rev().filter(|&other| other != task) {
            let idle = idle(by_chance[other], stalls[other]);
            let half = folded.len() / 2;
            for set in 0..half {
                folded[set] = idle * folded[set] + (1.0 - idle) * folded[half + set];
            }
            folded.truncate(half);
        }
        folded[0]
    }

    /// Computes `x(t)` at `overlap` 1.
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

/// Rate of a task with the rate `active` between its stalls.
fn stalled(active: f64, stall_cycles: f64) -> f64 {
    1.0 / (1.0 / active + stall_cycles)
}

/// Probability that a task is stalled.
fn idle(rate: f64, stall_cycles: f64) -> f64 {
    // A rate of the round before may be too high for the present stalls.
    (rate * stall_cycles).min(1.0)
}
fn refill(vector: &mut Vec<f64>, with: impl Iterator<Item = f64>) {
    vector.clear();
    vector.extend(with);
}

/// Split of a core among its sets of threads.
#[derive(Clone, Copy, Debug)]
struct Split {
    sets: f64,
    /// Ports that are not split.
    whole: PortSet,
}

impl Split {
    const NONE: Self = Self { sets: 1.0, whole: PortSet(0) };

    /// Part of `ports` that one set of threads has, 0 to 1.
    fn part(self, ports: PortSet) -> f64 {
        let whole = f64::from((ports.0 & self.whole.0).count_ones());
        let all = f64::from(ports.len());
        (whole + (all - whole) / self.sets) / all
    }
}

/// Whose resources a task can use.
#[derive(Clone, Copy, Debug)]
enum Of {
    Core,
    ThreadSet,
}

/// Linear bounds on the rates of tasks, all of the form `Σ weight(t) · y(t) ≤ 1`.
#[derive(Clone, Debug, Default)]
struct Bounds {
    width: f64,
    tasks: usize,
    /// Weights by task, one row for each bound.
    weights: Vec<f64>,
    /// Part of each row's resource that one set of threads has, 0 to 1.
    parts: Vec<f64>,
    sets: Vec<PortSet>,
    sets_before: Vec<PortSet>,
    unions: Vec<PortSet>,
    /// By task: an upper bound on its rate.
    reach: Vec<f64>,
}

impl Bounds {
    fn set_demands(&mut self, width: f64, split: Split, demands: &[&Demand]) {
        let sets = demands.iter().flat_map(|demand| demand.ports.iter().map(|(set, _)| *set));
        self.set_unions(sets);
        self.set_weights(
            width,
            split,
            demands.len(),
            |t| (demands[t].slots, demands[t].ports.as_slice()),
            |t| demands[t].least_cycles(1),
        );
    }

    fn set(&mut self, width: f64, tasks: &[Active<'_>], least: impl Fn(usize) -> f64) {
        self.set_unions(tasks.iter().flat_map(|task| task.ports.iter().map(|(set, _)| *set)));
        let ask = |t: usize| (tasks[t].slots, tasks[t].ports);
        self.set_weights(width, Split::NONE, tasks.len(), ask, least);
    }

    /// Computes all connected unions of `sets`, unless the sets are those of the last call.
    fn set_unions(&mut self, sets: impl Iterator<Item = PortSet>) {
        std::mem::swap(&mut self.sets, &mut self.sets_before);
        self.sets.clear();
        for set in sets.filter(|set| !set.is_empty()) {
            if let Err(place) = self.sets.binary_search(&set) {
                self.sets.insert(place, set);
            }
        }
        // The unions depend on the sets only.
        if self.sets == self.sets_before {
            return;
        }
        crate::ports::set_unions(&mut self.unions, &self.sets);
    }

    /// Computes the front end's bound, and those bounds on ports that all tasks together could
    /// reach. `ask` returns a task's slots and port cycles, `least` its least cycles by
    /// dependencies with the whole window.
    fn set_weights<'a>(
        &mut self,
        width: f64,
        split: Split,
        tasks: usize,
        ask: impl Fn(usize) -> (f64, &'a [(PortSet, f64)]),
        least: impl Fn(usize) -> f64,
    ) {
        self.width = width;
        self.tasks = tasks;
        self.weights.clear();
        self.weights.extend((0..tasks).map(|t| ask(t).0 / width));
        self.parts.clear();
        self.parts.push(1.0 / split.sets);
        // A divisor of 0 gives infinity, which bounds nothing; twice the width always is a bound.
        let most = (0..tasks).map(|t| (1.0 / least(t)).min(1.0 / self.weights[t]).min(2.0 * width));
        refill(&mut self.reach, most);
        for &union in &self.unions {
            let row = self.weights.len();
            let mut reach = 0.0;
            for t in 0..tasks {
                let within = ask(t).1.iter().filter(|(set, _)| set.is_subset(union));
                // `fold`, not `sum`: the sum of nothing is −0, and 1 / −0 is −∞.
                let cycles = within.fold(0.0, |sum, (_, cycles)| sum + cycles);
                let weight = cycles / f64::from(union.len());
                self.weights.push(weight);
                reach += weight * self.reach[t];
            }
            // A bound out of reach for the whole core may be within reach of a thread set's part.
            let part = split.part(union);
            if reach <= part {
                self.weights.truncate(row);
            } else {
                self.parts.push(part);
            }
        }
    }

    /// Weights of each bound.
    fn bounds(&self) -> impl Iterator<Item = &[f64]> {
        // `chunks_exact` takes no 0.
        self.weights.chunks_exact(self.tasks.max(1))
    }

    /// Largest rate of a task that has all `of` the resources, with `least` cycles by dependencies.
    fn most(&self, task: usize, least: f64, of: Of) -> f64 {
        let rates = self.bounds().zip(&self.parts).map(|(bound, part)| match of {
            Of::Core => 1.0 / bound[task],
            Of::ThreadSet => part / bound[task],
        });
        let by_bounds = rates.fold(2.0 * self.width, f64::min);
        by_bounds.min(1.0 / least)
    }

    /// Raises the rates of the `free` tasks together, each by its step, and stops tasks at a full
    /// bound. At the end no task is free. The rates of other tasks stay.
    fn fill(&self, most: &[f64], steps: &[f64], free: &mut [bool], rates: &mut [f64]) {
        if self.all_have_most(most, free, rates) {
            return;
        }
        while free.contains(&true) {
            let mut length = f64::INFINITY;
            for bound in self.bounds() {
                let mut used = 0.0;
                let mut rising = 0.0;
                for t in 0..self.tasks {
                    used += bound[t] * rates[t];
                    rising += if free[t] { bound[t] * steps[t] } else { 0.0 };
                }
                if rising > 0.0 {
                    // Rounding may have used slightly more than there is.
                    length = length.min((1.0 - used).max(0.0) / rising);
                }
            }
            for t in (0..self.tasks).filter(|&t| free[t]) {
                // Rounding may leave a rate slightly above its most.
                length = length.min((most[t] - rates[t]).max(0.0) / steps[t]);
            }
            for t in (0..self.tasks).filter(|&t| free[t]) {
                rates[t] += length * steps[t];
            }
            // Only NaN or infinite input yields a step without an end.
            if !length.is_finite() || !self.hold(most, free, rates) {
                break;
            }
        }
    }

    /// Gives every free task its most if all bounds allow, the most frequent case.
    fn all_have_most(&self, most: &[f64], free: &mut [bool], rates: &mut [f64]) -> bool {
        let fits = self.bounds().all(|bound| {
            let rates = (0..self.tasks).map(|t| if free[t] { most[t] } else { rates[t] });
            bound.iter().zip(rates).fold(0.0, |used, (weight, rate)| used + weight * rate) <= 1.0
        });
        if fits {
            for t in 0..self.tasks {
                rates[t] = if free[t] { most[t] } else { rates[t] };
            }
            free.fill(false);
        }
        fits
    }

    /// Stops every task at a full bound or at its most; returns whether any was stopped.
    fn hold(&self, most: &[f64], free: &mut [bool], rates: &[f64]) -> bool {
        let before = free.iter().filter(|&&free| free).count();
        for t in 0..self.tasks {
            free[t] &= rates[t] < most[t] * (1.0 - NEAR);
        }
        for bound in self.bounds() {
            let used: f64 = bound.iter().zip(rates).map(|(weight, rate)| weight * rate).sum();
            if used >= 1.0 - NEAR {
                for t in 0..self.tasks {
                    // Tasks with a weight in the full bound cannot rise.
                    free[t] &= bound[t] <= 0.0;
                }
            }
        }
        free.iter().filter(|&&free| free).count() < before
    }
}

#[cfg(test)]
mod tests;
