//! The search for rates that agree with themselves: what a round works on, and its four steps.

use super::parts::{Parts, parallel};
use super::{CpiStack, Seat, TaskRate, zero};
use crate::cache::{Sharer, reach};
use crate::memory::agreed_wait;
use crate::smt::Siblings;
use colocate_machine::BytesPerSecond;
use colocate_machine::performance::Inclusion;

/// Where a search ended, and another can begin. Zeros say that nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct End {
    /// Rates by PU.
    ipc: Vec<f64>,
    /// Seconds that an access waits, by queue.
    waits: Vec<f64>,
    /// How many seconds back a cache's content reaches, by cache.
    reaches: Vec<f64>,
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
    /// Tasks of each core that has any; those of core `i` are the first `counts[i]`.
    siblings: Vec<Siblings>,
    by_core: Vec<(usize, usize)>,
    /// Cache, task and level, by cache.
    by_cache: Vec<(usize, usize, usize)>,
    /// By queue.
    accesses: Vec<Access>,
    stalls: Vec<f64>,
    rates: Vec<f64>,
}

/// A task during the search.
#[derive(Clone, Debug, Default)]
struct Task {
    pu: usize,
    clock: f64,
    /// Bytes of a line of its caches.
    line: f64,
    parallel: f64,
    ipc: f64,
    cpi: CpiStack,
    /// Cycles of an access to memory that waits for nobody.
    latency: f64,
    /// Bytes an access to memory moves.
    bytes: f64,
    /// Where its part of `levels` begins, and how many caches there are.
    first: usize,
    caches: usize,
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

/// Accesses of a task that pass a queue.
#[derive(Clone, Copy, Debug)]
struct Access {
    queue: usize,
    task: usize,
    /// Of `levels`: whose misses they are.
    level: usize,
    /// How many of these misses pass the queue.
    share: f64,
    bytes: f64,
}

impl Work {
    /// Begins where another search ended, or knowing nothing.
    pub fn begin_at(&mut self, parts: &Parts, other: Option<&End>) {
        match other {
            Some(other) => self.end.clone_from(other),
            None => self.end = End::default(),
        }
        self.end.ipc.resize(parts.places.len(), 0.0);
        self.end.waits.resize(parts.queues.len(), 0.0);
        self.end.reaches.resize(parts.caches.len(), 0.0);
    }

    /// Takes in who is where.
    pub fn seat(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        self.by_core.clear();
        self.by_cache.clear();
        self.levels.clear();
        self.accesses.clear();
        self.tasks.clear();
        for (t, seat) in seats.iter().enumerate() {
            self.sit(parts, t, seat);
        }
        self.by_core.sort_unstable();
        self.by_cache.sort_unstable();
        self.set_cores(parts, seats);
        for (t, seat) in seats.iter().enumerate() {
            self.go_to_memory(parts, t, seat);
            if seat.demand.shared_lines > 0.0 {
                self.go_to_others(parts, t, seats);
            }
        }
        self.accesses.sort_by_key(|access| access.queue);
    }

    fn sit(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let place = &parts.places[seat.pu.idx()];
        self.by_core.push((place.core, t));
        let caches = place.caches.iter().enumerate();
        self.by_cache.extend(caches.map(|(level, &cache)| (cache, t, level)));
        self.tasks.push(Task {
            pu: seat.pu.idx(),
            clock: place.clock,
            line: parts.ways[place.node][place.node].line,
            first: self.levels.len(),
            caches: place.caches.len(),
            ..Task::default()
        });
        self.levels.resize(self.levels.len() + place.caches.len() + 1, Level::default());
    }

    /// Sets up the cores and each task's rate to begin with.
    fn set_cores(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        let mut demands = Vec::new();
        let groups = self.by_core.chunk_by(|a, b| a.0 == b.0);
        for (place, tasks) in groups.enumerate() {
            let core = parts.cores[tasks[0].0];
            demands.clear();
            demands.extend(tasks.iter().map(|&(_, t)| seats[t].demand));
            if place == self.siblings.len() {
                self.siblings.push(Siblings::default());
            }
            let siblings = &mut self.siblings[place];
            siblings.set(core, &demands);
            #[allow(clippy::cast_precision_loss)] // a core has few PUs
            let count = if core.divided { tasks.len() as f64 } else { 1.0 };
            for (i, &(_, t)) in tasks.iter().enumerate() {
                let task = &mut self.tasks[t];
                task.parallel = parallel(demands[i].parallel_misses, count);
                task.cpi.core = 1.0 / siblings.alone(i);
                let before = self.end.ipc[task.pu];
                task.ipc = if before > 0.0 { before } else { siblings.alone(i) };
                task.cpi.stalls = demands[i].stall_cycles;
            }
        }
    }

    fn go_to_memory(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let place = &parts.places[seat.pu.idx()];
        let task = &mut self.tasks[t];
        let last = task.first + task.caches.saturating_sub(1);
        for (level, &cache) in place.caches.iter().enumerate().skip(1) {
            if let Some(queue) = parts.caches[cache].queue {
                let (level, share, bytes) = (task.first + level - 1, 1.0, task.line);
                self.accesses.push(Access { queue, task: t, level, share, bytes });
            }
        }
        let ways = &parts.ways[place.node];
        let pages = |node: usize| seat.pages.get(node).copied().unwrap_or(0.0).max(0.0);
        let sum: f64 = (0..ways.len()).map(pages).sum();
        task.bytes = 0.0;
        for (node, way) in ways.iter().enumerate() {
            let local = if node == place.node { 1.0 } else { 0.0 };
            let share = if sum > 0.0 { pages(node) / sum } else { local };
            if share <= 0.0 {
                continue;
            }
            let bytes = way.line * (1.0 + seat.demand.written_back);
            task.latency += share * way.latency * task.clock;
            task.bytes += share * bytes;
            let pass = |&queue| Access { queue, task: t, level: last, share, bytes };
            self.accesses.extend(way.queues.iter().map(pass));
        }
    }

    /// Lines that other tasks of the address space have changed: those of all of them equally often, one
    /// at a time. Each comes from the nearest cache that both share; where there is none it takes as long as
    /// from memory of the other's node, and passes the same links.
    fn go_to_others(&mut self, parts: &Parts, t: usize, seats: &[Seat<'_>]) {
        let seat = &seats[t];
        let here = &parts.places[seat.pu.idx()];
        let is_other = |&(other, them): &(usize, &Seat<'_>)| other != t && them.space == seat.space;
        let others = || seats.iter().enumerate().filter(is_other).map(|(_, them)| them);
        let count = others().count();
        if count == 0 {
            return;
        }
        #[allow(clippy::cast_precision_loss)] // far fewer than 2^53 tasks
        let share = 1.0 / count as f64;
        let task = &mut self.tasks[t];
        let level = task.first + task.caches;
        self.levels[level].misses = seat.demand.shared_lines;
        let mut cycles = 0.0;
        for them in others() {
            let there = &parts.places[them.pu.idx()];
            let common = here.caches.iter().find(|cache| there.caches.contains(cache));
            if let Some(&cache) = common {
                cycles += parts.caches[cache].latency;
                continue;
            }
            let way = &parts.ways[here.node][there.node];
            cycles += way.latency * task.clock;
            for &queue in way.queues.iter().filter(|&&queue| queue >= parts.controllers) {
                self.accesses.push(Access { queue, task: t, level, share, bytes: way.line });
            }
        }
        task.cpi.communication = seat.demand.shared_lines * cycles * share / task.parallel;
    }

    /// Divides the caches by the rates, and finds out what each task misses.
    pub fn divide_caches<'s>(
        &mut self,
        parts: &Parts,
        seats: &[Seat<'s>],
        sharers: &mut Vec<Sharer<'s>>,
    ) {
        let Self { tasks, levels, by_cache, end: End { reaches, .. }, .. } = self;
        for users in by_cache.chunk_by(|a, b| a.0 == b.0) {
            let cache = &parts.caches[users[0].0];
            let exclusive = cache.inclusion == Inclusion::Exclusive;
            sharers.clear();
            sharers.extend(users.iter().map(|&(_, t, level)| {
                let nearer =
                    level.checked_sub(1).map_or(0.0, |n| levels[tasks[t].first + n].within);
                Sharer {
                    curve: &seats[t].demand.misses,
                    speed: tasks[t].ipc * tasks[t].clock * tasks[t].line,
                    elsewhere: if exclusive { nearer } else { 0.0 },
                }
            }));
            let time = match &sharers[..] {
                [_] => f64::INFINITY,
                several => reach(cache.capacity, several, reaches[users[0].0]),
            };
            reaches[users[0].0] = time;
            for (&(_, t, level), sharer) in users.iter().zip(&*sharers) {
                let held = match time {
                    f64::INFINITY => sharer.alone(cache.capacity),
                    time => sharer.held(time),
                };
                let mine = &mut levels[tasks[t].first..][..=level];
                settle(mine, held, cache.inclusion);
            }
        }
        for (t, task) in tasks.iter().enumerate() {
            let curve = &seats[t].demand.misses;
            for level in &mut levels[task.first..][..task.caches.max(1)] {
                level.misses = curve.at(level.within);
            }
        }
    }

    /// Sets the tasks' stalls, but for waits.
    pub fn stall(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        for (task, seat) in self.tasks.iter_mut().zip(seats) {
            let caches = &parts.places[seat.pu.idx()].caches;
            let levels = &self.levels[task.first..];
            let mut cycles = 0.0;
            for (level, &cache) in caches.iter().enumerate().skip(1) {
                let hits = levels[level - 1].misses - levels[level].misses;
                cycles += hits * parts.caches[cache].latency;
            }
            let missed = levels[task.caches.saturating_sub(1)].misses;
            task.cpi.caches = cycles / task.parallel;
            task.cpi.memory = missed * task.latency / task.parallel;
        }
    }

    /// Lets waits and the rates of those who wait agree, one queue after the other.
    pub fn wait(&mut self, parts: &Parts) {
        let Self { tasks, levels, accesses, end: End { waits, .. }, .. } = self;
        // Cycles per instruction with all waits, where what a task does beside waiting stays the same.
        let cpi = &mut self.stalls;
        zero(cpi, tasks.len());
        for (cpi, task) in cpi.iter_mut().zip(&mut *tasks) {
            *cpi = (1.0 / task.ipc).max(task.cpi.core + task.cpi.stalled() - task.cpi.queues);
        }
        for passing in accesses.chunk_by(|a, b| a.queue == b.queue) {
            let index = passing[0].queue;
            let queue = &parts.queues[index];
            let (mut used, mut fall) = (0.0, 0.0);
            for access in passing {
                let task = &tasks[access.task];
                let often = levels[access.level].misses * access.share;
                let share =
                    task.clock * often * access.bytes / (queue.bandwidth * cpi[access.task]);
                used += share;
                fall += share * often * task.clock / (task.parallel * cpi[access.task]);
            }
            let wait = agreed_wait(queue.scale, waits[index], used, fall);
            for access in passing {
                let task = &tasks[access.task];
                let often = levels[access.level].misses * access.share;
                cpi[access.task] += often * task.clock / task.parallel * (wait - waits[index]);
            }
            waits[index] = wait;
        }
        tasks.iter_mut().for_each(|task| task.cpi.queues = 0.0);
        for access in accesses {
            let task = &mut tasks[access.task];
            let often = levels[access.level].misses * access.share;
            task.cpi.queues += often * task.clock / task.parallel * waits[access.queue];
        }
    }

    /// New rates of all tasks; returns by what share one changed most.
    pub fn share_cores(&mut self, overlap: f64) -> f64 {
        let mut change = 0.0_f64;
        let groups = self.by_core.chunk_by(|a, b| a.0 == b.0);
        for (tasks, siblings) in groups.zip(&mut self.siblings) {
            self.stalls.clear();
            self.stalls.extend(tasks.iter().map(|&(_, t)| self.tasks[t].cpi.stalled()));
            self.rates.clear();
            self.rates.extend(tasks.iter().map(|&(_, t)| self.tasks[t].ipc));
            change = change.max(siblings.round(overlap, &self.stalls, &mut self.rates));
            for ((&(_, t), &rate), &stalls) in tasks.iter().zip(&self.rates).zip(&self.stalls) {
                let task = &mut self.tasks[t];
                task.ipc = rate;
                task.cpi.siblings = 1.0 / rate - stalls - task.cpi.core;
                self.end.ipc[task.pu] = rate;
            }
        }
        change
    }

    /// How task `t` goes on.
    pub fn rate(&self, t: usize) -> TaskRate {
        let task = &self.tasks[t];
        let levels = &self.levels[task.first..][..task.caches];
        let missed = self.levels[task.first + task.caches.saturating_sub(1)].misses;
        let instructions_per_second = task.ipc * task.clock;
        TaskRate {
            ipc: task.ipc,
            instructions_per_second,
            cpi: task.cpi,
            misses: levels.iter().map(|level| level.misses).collect(),
            occupancy: levels.iter().map(|level| level.held).collect(),
            memory: BytesPerSecond(instructions_per_second * missed * task.bytes),
        }
    }

    /// Used shares of controllers, links and caches.
    pub fn used(&self, parts: &Parts) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let mut used = vec![0.0; parts.queues.len()];
        for access in &self.accesses {
            let task = &self.tasks[access.task];
            let often = task.ipc * task.clock * self.levels[access.level].misses * access.share;
            used[access.queue] += often * access.bytes / parts.queues[access.queue].bandwidth;
        }
        let caches = parts.caches.iter().map(|cache| cache.queue.map_or(0.0, |q| used[q]));
        let caches = caches.collect();
        let links = used[parts.controllers..][..parts.links].to_vec();
        used.truncate(parts.controllers);
        (used, links, caches)
    }
}

/// Writes down what a task holds of the cache that is last in `levels`, and what that means for the nearer
/// ones: an inclusive cache takes from them what it loses itself.
fn settle(levels: &mut [Level], held: f64, inclusion: Inclusion) {
    let Some((last, nearer)) = levels.split_last_mut() else { return };
    let before = nearer.last().map_or(0.0, |level| level.within);
    last.held = held;
    last.within = match inclusion {
        Inclusion::Exclusive => before + held,
        Inclusion::Neither => before.max(held),
        Inclusion::Inclusive => held,
    };
    if inclusion == Inclusion::Inclusive {
        for level in nearer {
            level.within = level.within.min(held);
            level.held = level.held.min(held);
        }
    }
}
