//! The search for rates that agree with themselves: what a round works on, and its four steps.

use super::parts::Parts;
use super::{CpiStack, NEAR, TaskRate};
use crate::memory::agreed_wait;
use crate::phase::Demand;
use crate::smt::{Shared, Siblings};
use caches::Group;
use colocate_machine::BytesPerSecond;

mod caches;
mod seat;

/// A share of a change that nobody will see in the end.
const UNSEEN: f64 = 0.01 * NEAR;

/// Where a search ended, and another can begin. Zeros say that nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct End {
    /// By PU.
    tasks: Vec<Ended>,
    /// Seconds that an access waits, by queue.
    waits: Vec<f64>,
    /// How far back a cache's content reaches, by cache: the windows of all that share it, added.
    windows: Vec<f64>,
}

/// Where the search for a task's rate ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ended {
    /// Some of the demand's figures, by which it is known again. If another has the same, the next
    /// search begins somewhat farther from its end.
    of: [f64; 3],
    ipc: f64,
    /// The rate if siblings' work meets by chance.
    by_chance: f64,
    /// Cycles per instruction in which it is not stalled.
    busy: f64,
}

impl Ended {
    const fn of(demand: &Demand) -> [f64; 3] {
        [demand.slots, demand.dependent_cycles, demand.parallel_misses]
    }
}

impl End {
    /// Seconds that an access waits at a queue; 0 if nothing is known.
    pub fn waited(&self, queue: usize) -> f64 {
        self.waits.get(queue).copied().unwrap_or(0.0)
    }
}

/// What a search works on. Its memory is kept for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub end: End,
    /// One a seat.
    tasks: Vec<Task>,
    /// For each task, one for each cache over its PU, and one for lines of other tasks.
    levels: Vec<Level>,
    /// As `Machine::cores`.
    cores: Vec<Core>,
    /// As `Machine::caches`.
    caches: Vec<Group>,
    /// By queue: who passes it.
    queues: Vec<Vec<Access>>,
    /// Address space and task, of tasks that read others' lines or are read.
    spaces: Vec<(u32, usize)>,
    rates: Vec<f64>,
    stalls: Vec<f64>,
}

/// A core and its tasks.
#[derive(Clone, Debug, Default)]
struct Core {
    tasks: Vec<usize>,
    siblings: Siblings,
    /// Of what core and what demands `siblings` are.
    shared: Option<Shared>,
    figures: Vec<f64>,
    ports: seat::Ports,
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
    parallel: f64,
    ipc: Steps,
    /// Cycles per instruction in which it is not stalled.
    busy: Steps,
    cpi: CpiStack,
    /// Cycles of an access to memory that waits for nobody.
    latency: f64,
    /// Bytes an access to memory moves.
    bytes: f64,
    /// Where its part of `levels` begins, and how many caches there are.
    first: usize,
    caches: usize,
}

impl Task {
    /// Of `levels`: its last cache.
    const fn last(&self) -> usize {
        self.first + self.caches.saturating_sub(1)
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

/// Accesses of a task that pass a queue: a share of its misses of one level.
#[derive(Clone, Copy, Debug)]
struct Access {
    task: u32,
    /// Of `levels`.
    level: u32,
    /// Cycles that a miss costs for each second that it waits.
    delay: f64,
    /// Share of the queue that is used by such a cycle in each cycle.
    load: f64,
    /// `delay` of the misses of an instruction.
    cycles: f64,
}

impl Work {
    /// Begins where another search ended, or knowing nothing.
    pub fn begin_at(&mut self, parts: &Parts, other: Option<&End>) {
        match other {
            Some(other) => self.end.clone_from(other),
            None => self.end = End::default(),
        }
        self.end.tasks.resize(parts.places.len(), Ended::default());
        self.end.waits.resize(parts.queues.len(), 0.0);
        self.end.windows.resize(parts.caches.len(), 0.0);
    }

    /// Sets the tasks' stalls, but for waits.
    pub fn stall(&mut self, parts: &Parts) {
        for task in &mut self.tasks {
            let levels = &self.levels[task.first..][..task.caches];
            let over = &parts.places[task.pu].caches;
            let mut cycles = 0.0;
            for (pair, &cache) in levels.windows(2).zip(over.iter().skip(1)) {
                cycles += (pair[0].misses - pair[1].misses) * parts.caches[cache].latency;
            }
            task.cpi.caches = cycles / task.parallel;
            task.cpi.memory = self.levels[task.last()].misses * task.latency / task.parallel;
        }
    }

    /// Lets waits and the rates of those who wait agree, one queue after the other.
    ///
    /// What a task does beside waiting stays the same here, so its rate is `1 / (rest + waits)`.
    pub fn wait(&mut self, parts: &Parts) {
        let Self { tasks, levels, queues, rates, end: End { waits, .. }, .. } = self;
        rates.clear();
        rates.extend(tasks.iter_mut().map(|task| {
            task.cpi.queues = 0.0;
            task.busy.given + task.cpi.stalled()
        }));
        for (passing, wait) in queues.iter_mut().zip(&*waits) {
            for access in passing {
                access.cycles = levels[access.level as usize].misses * access.delay;
                rates[access.task as usize] += access.cycles * wait;
            }
        }
        rates.iter_mut().for_each(|cpi| *cpi = 1.0 / *cpi);
        for ((passing, queue), wait) in queues.iter().zip(&parts.queues).zip(waits) {
            if passing.is_empty() {
                *wait = 0.0;
                continue;
            }
            let (mut used, mut fall) = (0.0, 0.0);
            for access in passing {
                let cycles = access.cycles * rates[access.task as usize];
                used += cycles * access.load;
                fall += cycles * access.load * cycles;
            }
            let agreed = agreed_wait(queue.scale, *wait, used, fall);
            for access in passing {
                let rate = &mut rates[access.task as usize];
                let longer = *rate * access.cycles * (agreed - *wait);
                // Division takes longer than all the rest, and near the end nothing changes any more.
                if longer.abs() > UNSEEN {
                    *rate /= 1.0 + longer;
                }
                tasks[access.task as usize].cpi.queues += access.cycles * agreed;
            }
            *wait = agreed;
        }
    }

    /// New rates of all tasks; returns by what share one changed most.
    pub fn share_cores(&mut self, overlap: f64) -> f64 {
        let Self { tasks, cores, rates, stalls, end, .. } = self;
        let mut change = 0.0_f64;
        for core in cores.iter_mut().filter(|core| !core.tasks.is_empty()) {
            stalls.clear();
            stalls.extend(core.tasks.iter().map(|&t| tasks[t].cpi.stalled()));
            rates.clear();
            rates.extend(core.tasks.iter().map(|&t| tasks[t].ipc.given));
            change = change.max(core.siblings.round(overlap, stalls, rates));
            for (i, &t) in core.tasks.iter().enumerate() {
                let (task, busy) = (&mut tasks[t], 1.0 / rates[i] - stalls[i]);
                task.ipc.find(rates[i]);
                task.busy.find(busy);
                task.cpi.siblings = busy - task.cpi.core;
                let by_chance = core.siblings.by_chance(i);
                let of = end.tasks[task.pu].of;
                end.tasks[task.pu] = Ended { of, ipc: rates[i], by_chance, busy };
            }
        }
        change
    }

    /// How task `t` goes on.
    pub fn rate(&self, t: usize) -> TaskRate {
        let task = &self.tasks[t];
        let levels = &self.levels[task.first..][..task.caches];
        let missed = self.levels[task.last()].misses;
        let instructions_per_second = task.ipc.found * task.clock;
        TaskRate {
            ipc: task.ipc.found,
            instructions_per_second,
            cpi: task.cpi,
            misses: levels.iter().map(|level| level.misses).collect(),
            occupancy: levels.iter().map(|level| level.held).collect(),
            memory: BytesPerSecond(instructions_per_second * missed * task.bytes),
        }
    }

    /// Used shares of controllers, links and caches.
    pub fn used(&self, parts: &Parts) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let load = |access: &Access| {
            access.cycles * access.load * self.tasks[access.task as usize].ipc.found
        };
        let queue = |passing: &Vec<Access>| passing.iter().map(load).fold(0.0, |a, b| a + b);
        let mut used: Vec<f64> = self.queues.iter().map(queue).collect();
        let caches = parts.caches.iter().map(|cache| cache.queue.map_or(0.0, |q| used[q]));
        let caches = caches.collect();
        let links = used[parts.controllers..][..parts.links].to_vec();
        used.truncate(parts.controllers);
        (used, links, caches)
    }
}
