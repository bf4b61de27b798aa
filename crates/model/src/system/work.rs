//! State of the search for consistent rates, and the four steps of a round.
//!
//! The state stays from one search to the next, and a step processes changes only. A cache is
//! divided anew if the ratios of its users' speeds change, a core is shared anew if its tasks'
//! stalls change, and a queue's wait moves with its use. The last input of each part is kept for
//! this comparison, so that many small changes are not missed.

use super::parts::SystemParts;
use super::{CpiStack, NEAR, TaskRate};
use crate::smt::Siblings;
use before::{Before, Seating};
use caches::CacheSharers;
use colocate_machine::BytesPerSecond;
use queues::{AccessQueue, Going, LevelRequests};

mod before;
mod caches;
mod queues;
mod seat;

/// Relative change that does not affect the result, derived from the search's tolerance. Chosen:
/// half of it makes no rate more exact, and a search after a small change takes a tenth longer
/// (docs/results/benchmarks.md).
const UNSEEN: f64 = 0.2 * NEAR;

/// State of a search; its memory is reused.
#[derive(Clone, Debug, Default)]
pub(super) struct SolverState {
    seating: Seating,
    /// Last results, by PU.
    before: Vec<Before>,
    /// Tasks in the order of the seats.
    tasks: Vec<SolverTask>,
    /// For each task: one entry for each cache above its PU, and one for lines of other tasks.
    levels: Vec<TaskAtCache>,
    /// Indexed as `Machine::cores`.
    cores: Vec<CoreTasks>,
    /// Indexed as `Machine::caches`.
    caches: Vec<CacheSharers>,
    /// Indexed as `SystemParts::queues`.
    queues: Vec<AccessQueue>,
    /// Address space and index of tasks that read lines of others, or whose lines are read.
    spaces: Vec<(u32, usize)>,
    /// Indexed as `levels`.
    asked: Vec<LevelRequests>,
    /// In the order of the seats.
    going: Vec<Going>,
    rates: Vec<f64>,
    stalls: Vec<f64>,
    /// Growth of each task's window; see [`crate::cache`].
    speeds: Vec<f64>,
}

/// Core with its tasks.
#[derive(Clone, Debug, Default)]
struct CoreTasks {
    tasks: Vec<usize>,
    siblings: Siblings,
    /// PUs of the tasks in `siblings`.
    set: Vec<usize>,
    /// Stall cycles of the tasks when the core was last shared.
    stalls: Vec<f64>,
    /// Whether the last sharing changed no rate.
    settled: bool,
}

/// Number in the fixed-point search: the input of a round, and its result.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    given: f64,
    found: f64,
    /// Input and result of the previous round.
    before: (f64, f64),
}

impl Steps {
    /// Starts with an input.
    fn from(given: f64) -> Self {
        // The first slope is NaN, so the first round is not extrapolated.
        Self { given, found: given, before: (f64::NAN, f64::NAN) }
    }

    /// Takes the result of a round and sets the input of the next: the extrapolation of the last
    /// two rounds (the secant method, Wegstein 1958), if it lies a little farther in the same
    /// direction or in between.
    fn find(&mut self, found: f64) {
        /// Chosen: beyond this slope the two rounds say little.
        const STEEPEST: f64 = 0.8;
        let slope = (found - self.before.1) / (self.given - self.before.0);
        self.before = (self.given, found);
        self.found = found;
        let straight = slope.abs() < STEEPEST;
        let more = if straight { slope / (1.0 - slope) * (found - self.given) } else { 0.0 };
        // Rates and cycles are above 0.
        self.given = if found + more > 0.0 { found + more } else { found };
    }
}

/// Task during the search.
#[derive(Clone, Debug, Default)]
struct SolverTask {
    pu: usize,
    clock: f64,
    /// Size of a line in the task's caches, in bytes.
    line: f64,
    /// Cycles of an access to memory without waits.
    latency: f64,
    /// Size of a line from memory, in bytes.
    far_line: f64,
    /// Cycles of an access to another task's line.
    apart: f64,
    /// Start of the task's part of `levels`, and number of its caches.
    first: usize,
    caches: usize,
    parallel: f64,
    written_back: f64,
    ipc: Steps,
    /// Cycles per instruction without stalls.
    busy: Steps,
    cpi: CpiStack,
}

impl SolverTask {
    /// Index in `levels` of the task's last cache.
    const fn last(&self) -> usize {
        // A task without a cache still has an entry at `first`: all its accesses miss there.
        self.first + self.caches.saturating_sub(1)
    }

    /// Index in `levels` of the lines of other tasks.
    const fn others(&self) -> usize {
        self.last() + 1
    }
}

/// Task at a cache.
#[derive(Clone, Copy, Debug, Default)]
struct TaskAtCache {
    /// Occupancy in bytes.
    held: f64,
    /// Bytes held in this cache and nearer caches.
    within: f64,
    /// Misses per instruction.
    misses: f64,
}

impl SolverState {
    /// Computes the tasks' stalls without waits.
    pub fn stall(&mut self, parts: &SystemParts) {
        for task in &mut self.tasks {
            task.stall(parts, &self.levels);
        }
    }

    /// Computes new rates of all tasks; returns the largest relative change.
    pub(crate) fn share_cores(&mut self, overlap: f64) -> f64 {
        let Self { tasks, cores, rates, stalls, before, .. } = self;
        let mut change = 0.0_f64;
        for core in cores.iter_mut().filter(|core| !core.tasks.is_empty()) {
            stalls.clear();
            stalls.extend(core.tasks.iter().map(|&t| tasks[t].cpi.stalled()));
            // The same stalls give the same rates.
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
                let busy = 1.0 / rates[i] - stalls[i];
                let task = &mut tasks[t];
                task.ipc.find(rates[i]);
                task.busy.find(busy);
                let before = &mut before[task.pu];
                before.by_chance = core.siblings.by_chance[i];
                before.ipc = rates[i];
                before.busy = busy;
            }
        }
        change
    }

    /// Rate of task `t`.
    pub fn rate(&self, t: usize) -> TaskRate {
        let task = &self.tasks[t];
        let levels = &self.levels[task.first..][..task.caches];
        let missed = self.levels[task.last()].misses;
        // The busy cycles beyond those alone are caused by siblings.
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

    /// Port cycles per instruction of the task on a PU.
    pub(crate) fn port_cycles(&self, pu: usize) -> f64 {
        self.before[pu].port_cycles
    }
}

impl SolverTask {
    /// Computes the stalls at caches and memory.
    fn stall(&mut self, parts: &SystemParts, levels: &[TaskAtCache]) {
        let over = &parts.places[self.pu].caches;
        let mut cycles = 0.0;
        // Misses of one level that hit in the next take the latency of the next.
        for (pair, &cache) in
            levels[self.first..][..self.caches].windows(2).zip(over.iter().skip(1))
        {
            cycles += (pair[0].misses - pair[1].misses) * parts.caches[cache].latency;
        }
        self.cpi.caches = cycles / self.parallel;
        self.cpi.memory = levels[self.last()].misses * self.latency / self.parallel;
    }
}

/// Whether stalls are the same as before, within [`UNSEEN`].
fn is_same(before: &[f64], now: &[f64]) -> bool {
    before.iter().zip(now).all(|(before, now)| (now - before).abs() <= UNSEEN * now)
}
