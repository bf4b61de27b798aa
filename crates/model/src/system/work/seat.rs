//! Before the first round: who is where, and what each passes on the way to its data.

use super::caches::{Group, User};
use super::{Access, Core, Ended, Level, Steps, Task, Work};
use crate::phase::Demand;
use crate::smt::Shared;
use crate::system::Seat;
use crate::system::parts::{Parts, parallel};
use colocate_machine::performance::PortSet;

impl Core {
    /// Other tasks, or the same once more: then all that is known of them stays right.
    fn set(&mut self, shared: Shared, demands: &[&Demand]) {
        if self.shared != Some(shared) || !self.is_of(demands) {
            self.siblings.set(shared, demands);
            self.shared = Some(shared);
            self.figures.clear();
            self.figures.extend(demands.iter().flat_map(|demand| figures(demand)));
            self.ports.clear();
            self.ports.extend(demands.iter().flat_map(|demand| demand.ports.iter().copied()));
        }
    }

    fn is_of(&self, demands: &[&Demand]) -> bool {
        let figures = demands.iter().flat_map(|demand| figures(demand));
        let ports = demands.iter().flat_map(|demand| demand.ports.iter());
        self.figures.iter().copied().eq(figures) && self.ports.iter().eq(ports)
    }
}

/// All that [`crate::smt::Siblings`] asks of a demand beside its ports.
#[allow(clippy::cast_precision_loss)] // far fewer than 2^53 ports
fn figures(demand: &Demand) -> [f64; 4] {
    let ports = demand.ports.len() as f64;
    [demand.slots, demand.dependent_cycles, demand.dependent_cycles_divided, ports]
}

/// Ports of all tasks of a core, with their cycles.
pub(super) type Ports = Vec<(PortSet, f64)>;

impl Work {
    /// Takes in who is where.
    pub fn seat(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        self.cores.resize_with(parts.cores.len(), Default::default);
        self.caches.resize_with(parts.caches.len(), Default::default);
        self.queues.resize_with(parts.queues.len(), Vec::new);
        self.cores.iter_mut().for_each(|core| core.tasks.clear());
        self.caches.iter_mut().for_each(Group::clear);
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
        self.guess(parts, seats);
    }

    /// Begins with the rate of each task that has an equal part of each cache and waits for nobody, where
    /// nothing better is known.
    fn guess(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        if self.tasks.iter().all(|task| task.ipc.given > 0.0) {
            return;
        }
        self.divide_equally(parts, seats);
        self.stall(parts);
        for task in self.tasks.iter_mut().filter(|task| task.ipc.given <= 0.0) {
            task.ipc = Steps::from(1.0 / (task.busy.given + task.cpi.stalled()));
        }
    }

    fn sit(&mut self, parts: &Parts, t: usize, seat: &Seat<'_>) {
        let place = &parts.places[seat.pu.idx()];
        self.cores[place.core].tasks.push(t);
        for (level, &cache) in place.caches.iter().enumerate() {
            self.caches[cache].users.push(User::new(t, level));
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
        let delay = share * task.clock / task.parallel;
        let load = bytes * task.parallel / parts.queues[queue].bandwidth;
        #[allow(clippy::cast_possible_truncation)] // a machine has fewer than 2^32 PUs and caches
        let (task, level) = (t as u32, level as u32);
        match self.queues[queue].last_mut() {
            // Another way over the same link.
            Some(last) if (last.task, last.level, last.load) == (task, level, load) => {
                last.delay += delay;
            }
            _ => self.queues[queue].push(Access { task, level, delay, load, cycles: 0.0 }),
        }
    }

    /// Sets up the cores and each task's rate to begin with.
    fn set_cores(&mut self, parts: &Parts, seats: &[Seat<'_>]) {
        let mut demands = Vec::new();
        for (shared, core) in parts.cores.iter().zip(&mut self.cores) {
            if core.tasks.is_empty() {
                continue;
            }
            demands.clear();
            demands.extend(core.tasks.iter().map(|&t| seats[t].demand));
            core.set(*shared, &demands);
            #[allow(clippy::cast_precision_loss)] // a core has few PUs
            let count = if shared.divided { demands.len() as f64 } else { 1.0 };
            for (i, &t) in core.tasks.iter().enumerate() {
                let task = &mut self.tasks[t];
                task.parallel = parallel(demands[i].parallel_misses, count);
                task.cpi.core = 1.0 / core.siblings.alone(i);
                task.cpi.stalls = demands[i].stall_cycles;
                let before = &mut self.end.tasks[task.pu];
                let of = Ended::of(demands[i]);
                let known = before.of == of && before.ipc > 0.0;
                before.of = of;
                task.busy = Steps::from(if known { before.busy } else { task.cpi.core });
                task.ipc = Steps::from(if known { before.ipc } else { 0.0 });
                let alone = core.siblings.alone(i);
                core.siblings.begin_at(i, if known { before.by_chance } else { alone });
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
}
