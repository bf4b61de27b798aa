//! The search for rates that agree with themselves: what a round works on, and its four steps.

use super::parts::{Parts, parallel};
use super::{CpiStack, Seat, TaskRate};
use crate::cache::{Sharer, reach};
use crate::memory::agreed_wait;
use crate::smt::Siblings;
use colocate_machine::BytesPerSecond;
use colocate_machine::performance::Inclusion;

/// Where a search ended, and another can begin. Zeros say that nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct End {
    /// Rate and busy cycles by PU.
    tasks: Vec<(f64, f64)>,
    /// Seconds that an access waits, by queue.
    waits: Vec<f64>,
    /// How far back a cache's content reaches, by cache: the windows of all that share it, added.
    windows: Vec<f64>,
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
    /// By core: its tasks, and what they make of it.
    cores: Vec<(Vec<usize>, Siblings)>,
    /// By cache: tasks, and which of their caches it is.
    caches: Vec<Vec<(usize, usize)>>,
    /// By queue: who passes it.
    queues: Vec<Vec<Access>>,
    /// Address space and task, of tasks that read others' lines or are read.
    spaces: Vec<(u32, usize)>,
    rates: Vec<f64>,
    stalls: Vec<f64>,
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
    /// Share of the queue that is used by a miss in a cycle.
    load: f64,
    /// Cycles that a miss costs for each second that it waits.
    delay: f64,
}

impl Work {
    /// Begins where another search ended, or knowing nothing.
    pub fn begin_at(&mut self, parts: &Parts, other: Option<&End>) {
        match other {
            Some(other) => self.end.clone_from(other),
            None => self.end = End::default(),
        }
        self.end.tasks.resize(parts.places.len(), (0.0, 0.0));
        self.end.waits.resize(parts.queues.len(), 0.0);
        self.end.windows.resize(parts.caches.len(), 0.0);
    }

    /// Takes in who is where.
    pub fn seat(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        self.cores.resize_with(parts.cores.len(), Default::default);
        self.caches.resize_with(parts.caches.len(), Vec::new);
        self.queues.resize_with(parts.queues.len(), Vec::new);
        self.cores.iter_mut().for_each(|(tasks, _)| tasks.clear());
        self.caches.iter_mut().for_each(Vec::clear);
        self.queues.iter_mut().for_each(Vec::clear);
        self.levels.clear();
        self.tasks.clear();
        for (t, seat) in seats.iter().enumerate() {
            self.sit(parts, t, seat);
        }
        self.set_cores(parts, seats);
        for (t, seat) in seats.iter().enumerate() {
            self.go_to_memory(parts, t, seat);
        }
        self.go_to_others(parts, seats);
    }

    fn sit(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let place = &parts.places[seat.pu.idx()];
        self.cores[place.core].0.push(t);
        for (level, &cache) in place.caches.iter().enumerate() {
            self.caches[cache].push((t, level));
        }
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

    /// Task `t` passes a queue with a share of its misses of one of `levels`.
    fn pass(
        &mut self,
        parts: &Parts,
        t: usize,
        queue: usize,
        level: usize,
        share: f64,
        bytes: f64,
    ) {
        let task = &self.tasks[t];
        let often = share * task.clock;
        #[allow(clippy::cast_possible_truncation)] // a machine has fewer than 2^32 PUs and caches
        self.queues[queue].push(Access {
            task: t as u32,
            level: level as u32,
            load: often * bytes / parts.queues[queue].bandwidth,
            delay: often / task.parallel,
        });
    }

    /// Sets up the cores and each task's rate to begin with.
    fn set_cores(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        let mut demands = Vec::new();
        for (core, (tasks, siblings)) in parts.cores.iter().zip(&mut self.cores) {
            if tasks.is_empty() {
                continue;
            }
            demands.clear();
            demands.extend(tasks.iter().map(|&t| seats[t].demand));
            siblings.set(*core, &demands);
            #[allow(clippy::cast_precision_loss)] // a core has few PUs
            let count = if core.divided { tasks.len() as f64 } else { 1.0 };
            for (i, &t) in tasks.iter().enumerate() {
                let task = &mut self.tasks[t];
                task.parallel = parallel(demands[i].parallel_misses, count);
                task.cpi.core = 1.0 / siblings.alone(i);
                let (ipc, busy) = self.end.tasks[task.pu];
                task.ipc = if ipc > 0.0 { ipc } else { siblings.alone(i) };
                task.cpi.siblings = (busy - task.cpi.core).max(0.0);
                if ipc > 0.0 {
                    siblings.begin_at(i, ipc);
                }
                task.cpi.stalls = demands[i].stall_cycles;
            }
        }
    }

    fn go_to_memory(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let place = &parts.places[seat.pu.idx()];
        let (first, last, line) = (self.tasks[t].first, self.tasks[t].last(), self.tasks[t].line);
        for (level, &cache) in place.caches.iter().enumerate().skip(1) {
            if let Some(queue) = parts.caches[cache].queue {
                self.pass(parts, t, queue, first + level - 1, 1.0, line);
            }
        }
        let ways = &parts.ways[place.node];
        let pages = |node: usize| seat.pages.get(node).copied().unwrap_or(0.0).max(0.0);
        let sum: f64 = (0..ways.len()).map(pages).sum();
        for (node, way) in ways.iter().enumerate() {
            let local = if node == place.node { 1.0 } else { 0.0 };
            let share = if sum > 0.0 { pages(node) / sum } else { local };
            if share <= 0.0 {
                continue;
            }
            let bytes = way.line * (1.0 + seat.demand.written_back);
            self.tasks[t].latency += share * way.latency * place.clock;
            self.tasks[t].bytes += share * bytes;
            for &queue in &way.queues {
                self.pass(parts, t, queue, last, share, bytes);
            }
        }
    }

    /// Lines that other tasks of the address space have changed.
    fn go_to_others(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        if seats.iter().all(|seat| seat.demand.shared_lines <= 0.0) {
            return;
        }
        let mut spaces = std::mem::take(&mut self.spaces);
        spaces.clear();
        spaces.extend(seats.iter().enumerate().map(|(t, seat)| (seat.space, t)));
        spaces.sort_unstable();
        for space in spaces.chunk_by(|a, b| a.0 == b.0) {
            let reads = |t: usize| space.len() > 1 && seats[t].demand.shared_lines > 0.0;
            for &(_, t) in space.iter().filter(|(_, t)| reads(*t)) {
                self.read_from(parts, seats, t, space);
            }
        }
        self.spaces = spaces;
    }

    /// Task `t` reads lines of all others of its address space, equally often, and one at a time. Each comes
    /// from the nearest cache that both share; where there is none it takes as long as from memory of the
    /// other's node, and passes the same links.
    fn read_from(&mut self, parts: &Parts, seats: &[Seat<'_>], t: usize, space: &[(u32, usize)]) {
        let here = &parts.places[seats[t].pu.idx()];
        let level = self.tasks[t].first + self.tasks[t].caches;
        self.levels[level].misses = seats[t].demand.shared_lines;
        #[allow(clippy::cast_precision_loss)] // far fewer than 2^53 tasks
        let share = 1.0 / (space.len() - 1) as f64;
        let mut cycles = 0.0;
        for &(_, other) in space.iter().filter(|(_, other)| *other != t) {
            let there = &parts.places[seats[other].pu.idx()];
            if let Some(&cache) = here.caches.iter().find(|cache| there.caches.contains(cache)) {
                cycles += parts.caches[cache].latency;
                continue;
            }
            let way = &parts.ways[here.node][there.node];
            cycles += way.latency * here.clock;
            for &queue in way.queues.iter().filter(|&&queue| queue >= parts.controllers) {
                self.pass(parts, t, queue, level, share, way.line);
            }
        }
        let task = &mut self.tasks[t];
        task.cpi.communication = seats[t].demand.shared_lines * cycles * share / task.parallel;
    }

    /// Divides the caches by the rates, and finds out what each task misses.
    pub fn divide_caches<'s>(
        &mut self,
        parts: &Parts,
        seats: &[Seat<'s>],
        sharers: &mut Vec<Sharer<'s>>,
        held: &mut Vec<(f64, f64)>,
    ) {
        let Self { tasks, levels, caches, end: End { windows, .. }, .. } = self;
        for ((users, cache), window) in caches.iter().zip(&parts.caches).zip(windows) {
            if users.is_empty() {
                continue;
            }
            let exclusive = cache.inclusion == Inclusion::Exclusive;
            sharers.clear();
            sharers.extend(users.iter().map(|&(t, level)| {
                let nearer = level.checked_sub(1).map(|nearer| levels[tasks[t].first + nearer]);
                Sharer {
                    curve: &seats[t].demand.misses,
                    speed: tasks[t].ipc * tasks[t].clock * tasks[t].line,
                    elsewhere: nearer.filter(|_| exclusive).map_or(0.0, |nearer| nearer.within),
                }
            }));
            divide(cache.capacity, sharers, window, held);
            for (&(t, level), &(bytes, _)) in users.iter().zip(&*held) {
                settle(&mut levels[tasks[t].first..][..=level], bytes, cache.inclusion);
            }
        }
        for (task, seat) in tasks.iter().zip(seats) {
            for level in &mut levels[task.first..][..task.caches.max(1)] {
                level.misses = seat.demand.misses.at(level.within);
            }
        }
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
            let rest = task.cpi.core + task.cpi.siblings + task.cpi.stalled() - task.cpi.queues;
            task.cpi.queues = 0.0;
            rest
        }));
        for (passing, wait) in queues.iter().zip(&*waits) {
            for access in passing {
                let delay = levels[access.level as usize].misses * access.delay;
                rates[access.task as usize] += delay * wait;
            }
        }
        rates.iter_mut().for_each(|cpi| *cpi = 1.0 / *cpi);
        for ((passing, queue), wait) in queues.iter().zip(&parts.queues).zip(waits) {
            let (mut used, mut fall) = (0.0, 0.0);
            for access in passing {
                let misses = levels[access.level as usize].misses;
                let rate = rates[access.task as usize];
                used += misses * access.load * rate;
                fall += misses * access.load * rate * (misses * access.delay * rate);
            }
            let agreed = agreed_wait(queue.scale, *wait, used, fall);
            for access in passing {
                let delay = levels[access.level as usize].misses * access.delay;
                let rate = &mut rates[access.task as usize];
                *rate /= 1.0 + *rate * delay * (agreed - *wait);
                tasks[access.task as usize].cpi.queues += delay * agreed;
            }
            *wait = agreed;
        }
    }

    /// New rates of all tasks; returns by what share one changed most.
    pub fn share_cores(&mut self, overlap: f64) -> f64 {
        let Self { tasks, cores, rates, stalls, end, .. } = self;
        let mut change = 0.0_f64;
        for (members, siblings) in cores.iter_mut().filter(|(members, _)| !members.is_empty()) {
            stalls.clear();
            stalls.extend(members.iter().map(|&t| tasks[t].cpi.stalled()));
            rates.clear();
            rates.extend(members.iter().map(|&t| tasks[t].ipc));
            change = change.max(siblings.round(overlap, stalls, rates));
            for ((&t, &rate), &stalls) in members.iter().zip(&*rates).zip(&*stalls) {
                let task = &mut tasks[t];
                task.ipc = rate;
                task.cpi.siblings = 1.0 / rate - stalls - task.cpi.core;
                end.tasks[task.pu] = (rate, task.cpi.core + task.cpi.siblings);
            }
        }
        change
    }

    /// How task `t` goes on.
    pub fn rate(&self, t: usize) -> TaskRate {
        let task = &self.tasks[t];
        let levels = &self.levels[task.first..][..task.caches];
        let missed = self.levels[task.last()].misses;
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
        let load = |access: &Access| {
            let often = self.levels[access.level as usize].misses * access.load;
            often * self.tasks[access.task as usize].ipc
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

/// Divides a cache of `capacity` bytes: sets `held` to bytes and how fast they grow; `window` is how far
/// back the content reached in the last round, and is set to what it is now.
///
/// Near the end a round moves it by one step of Newton's method only, and what is held in a straight line.
fn divide(capacity: f64, sharers: &[Sharer<'_>], window: &mut f64, held: &mut Vec<(f64, f64)>) {
    /// Chosen: the square of it is what a straight line is wrong by at most in a round that is not the last.
    const NEAR: f64 = 0.02;
    held.clear();
    let all: f64 = sharers.iter().map(|sharer| sharer.alone(f64::INFINITY)).sum();
    if all <= capacity || sharers.len() == 1 {
        held.extend(sharers.iter().map(|sharer| (sharer.alone(capacity), 0.0)));
        return;
    }
    let speed: f64 = sharers.iter().map(|sharer| sharer.speed).sum();
    let time = *window / speed;
    held.extend(sharers.iter().map(|sharer| sharer.after(time)));
    let (bytes, growth) = held.iter().fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
    let missing = capacity - bytes;
    if missing.abs() <= NEAR * capacity && growth > 0.0 {
        let more = missing / growth;
        held.iter_mut().for_each(|at| at.0 = (at.0 + at.1 * more).max(0.0));
        *window = (time + more) * speed;
    } else {
        let time = reach(capacity, sharers, time);
        held.clear();
        held.extend(sharers.iter().map(|sharer| sharer.after(time)));
        *window = time * speed;
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
