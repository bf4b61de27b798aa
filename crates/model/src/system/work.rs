//! The search for rates that agree with themselves: what a round works on, and its four steps.
//!
//! Everything stays from one search to the next, and a step looks only at what has changed: a cache is divided
//! anew when its users' speeds are in another proportion, a core is shared anew when its tasks are stalled
//! for another time, a queue's wait moves when it is used more or less. What each part was last given is kept for
//! that, so that many small changes do not go unseen.

use super::parts::Parts;
use super::{CpiStack, NEAR, TaskRate};
use crate::smt::Siblings;
use before::{Before, Seating};
use caches::Group;
use colocate_machine::BytesPerSecond;
use queues::{Asked, Going, Queue};

mod before;
mod caches;
mod queues;
mod seat;

/// A share of a change that is not visible in the end, beside what the search ends with. Chosen: half of it makes
/// no rate more exact, and a search after a small change takes a tenth longer (docs/results/benchmarks.md).
const UNSEEN: f64 = 0.2 * NEAR;

/// What a search works on. Its memory is kept for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    seating: Seating,
    /// By PU.
    before: Vec<Before>,
    /// One a seat.
    tasks: Vec<Task>,
    /// For each task, one for each cache over its PU, and one for lines of other tasks.
    levels: Vec<Level>,
    /// As `Machine::cores`.
    cores: Vec<Core>,
    /// As `Machine::caches`.
    caches: Vec<Group>,
    /// As `Parts::queues`.
    queues: Vec<Queue>,
    /// Address space and task, of tasks that read others' lines or are read.
    spaces: Vec<(u32, usize)>,
    /// As `levels`.
    asked: Vec<Asked>,
    /// One a seat.
    going: Vec<Going>,
    rates: Vec<f64>,
    stalls: Vec<f64>,
    /// How fast each task's window grows; see [`crate::cache`].
    speeds: Vec<f64>,
}

/// A core and its tasks.
#[derive(Clone, Debug, Default)]
struct Core {
    tasks: Vec<usize>,
    siblings: Siblings,
    /// PUs of the tasks that `siblings` are.
    set: Vec<usize>,
    /// For how long the tasks were stalled when it was shared last.
    stalls: Vec<f64>,
    /// Whether nothing changed then.
    settled: bool,
}

/// A number that a round is given and finds anew.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    given: f64,
    found: f64,
    /// The same of the round before.
    before: (f64, f64),
}

impl Steps {
    /// Begins with a number.
    fn from(given: f64) -> Self {
        Self { given, found: given, before: (f64::NAN, f64::NAN) }
    }

    /// Takes what a round has found, and sets what the next one is given: not that, but where it leads to if
    /// it goes on as in the last two rounds (the secant method, Wegstein 1958). Only where that is a little
    /// farther in the same direction or between.
    fn find(&mut self, found: f64) {
        /// Chosen: steeper than this the two rounds say little.
        const STEEPEST: f64 = 0.8;
        let slope = (found - self.before.1) / (self.given - self.before.0);
        self.before = (self.given, found);
        self.found = found;
        let straight = slope.abs() < STEEPEST;
        let more = if straight { slope / (1.0 - slope) * (found - self.given) } else { 0.0 };
        self.given = if found + more > 0.0 { found + more } else { found };
    }
}

/// A task during the search.
#[derive(Clone, Debug, Default)]
struct Task {
    pu: usize,
    clock: f64,
    /// Bytes of a line of its caches.
    line: f64,
    /// Cycles of an access to memory that waits for no other.
    latency: f64,
    /// Bytes of a line from memory.
    far_line: f64,
    /// Cycles of an access to another task's line.
    apart: f64,
    /// Where its part of `levels` begins, and how many caches there are.
    first: usize,
    caches: usize,
    parallel: f64,
    written_back: f64,
    ipc: Steps,
    /// Cycles per instruction in which it is not stalled.
    busy: Steps,
    cpi: CpiStack,
}

impl Task {
    /// Of `levels`: its last cache.
    const fn last(&self) -> usize {
        self.first + self.caches.saturating_sub(1)
    }

    /// Of `levels`: lines of other tasks.
    const fn others(&self) -> usize {
        self.last() + 1
    }
}

/// A task at a cache.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Bytes that it holds there.
    held: f64,
    /// Bytes that it holds there and nearer.
    within: f64,
    /// Misses per instruction.
    misses: f64,
}

impl Work {
    /// Sets the tasks' stalls, but for waits.
    pub fn stall(&mut self, parts: &Parts) {
        for task in &mut self.tasks {
            task.stall(parts, &self.levels);
        }
    }

    /// New rates of all tasks; returns by what share one changed most.
    pub(crate) fn share_cores(&mut self, overlap: f64) -> f64 {
        let Self { tasks, cores, rates, stalls, before, .. } = self;
        let mut change = 0.0_f64;
        for core in cores.iter_mut().filter(|core| !core.tasks.is_empty()) {
            stalls.clear();
            stalls.extend(core.tasks.iter().map(|&t| tasks[t].cpi.stalled()));
            if core.settled && is_same(&core.stalls, stalls) {
                continue;
            }
            rates.clear();
            rates.extend(core.tasks.iter().map(|&t| tasks[t].ipc.given));
            let moved = core.siblings.round(overlap, stalls, rates);
            change = change.max(moved);
            core.settled = moved <= UNSEEN;
            core.stalls.clone_from(stalls);
            for (i, &t) in core.tasks.iter().enumerate() {
                let (task, busy) = (&mut tasks[t], 1.0 / rates[i] - stalls[i]);
                task.ipc.find(rates[i]);
                task.busy.find(busy);
                let before = &mut before[task.pu];
                before.by_chance = core.siblings.by_chance[i];
                (before.ipc, before.busy) = (rates[i], busy);
            }
        }
        change
    }

    /// How task `t` goes on.
    pub fn rate(&self, t: usize) -> TaskRate {
        let task = &self.tasks[t];
        let levels = &self.levels[task.first..][..task.caches];
        let missed = self.levels[task.last()].misses;
        let cpi = CpiStack { siblings: task.busy.found - task.cpi.core, ..task.cpi };
        let ipc = 1.0 / cpi.total();
        let instructions_per_second = ipc * task.clock;
        let bytes = task.far_line * (1.0 + task.written_back);
        TaskRate {
            ipc,
            instructions_per_second,
            cpi,
            misses: levels.iter().map(|level| level.misses).collect(),
            occupancy: levels.iter().map(|level| level.held).collect(),
            memory: BytesPerSecond(instructions_per_second * missed * bytes),
        }
    }

    /// Cycles of ports that an instruction of the task on a PU takes.
    pub(crate) fn port_cycles(&self, pu: usize) -> f64 {
        self.before[pu].port_cycles
    }
}

impl Task {
    fn stall(&mut self, parts: &Parts, levels: &[Level]) {
        let over = &parts.places[self.pu].caches;
        let mut cycles = 0.0;
        for (pair, &cache) in
            levels[self.first..][..self.caches].windows(2).zip(over.iter().skip(1))
        {
            cycles += (pair[0].misses - pair[1].misses) * parts.caches[cache].latency;
        }
        self.cpi.caches = cycles / self.parallel;
        self.cpi.memory = levels[self.last()].misses * self.latency / self.parallel;
    }
}

/// Whether tasks are stalled as long as before, as far as that is visible in the end.
fn is_same(before: &[f64], now: &[f64]) -> bool {
    before.iter().zip(now).all(|(before, now)| (now - before).abs() <= UNSEEN * now)
}
