//! Preparation of the first round: the placement of tasks, and the routes to their data.

use super::before::Before;
use super::caches::{CacheSharers, User};
use super::queues::AccessQueue;
use super::{SolverState, SolverTask, Steps, TaskAtCache};
use crate::system::PlacedTask;
use crate::system::parts::{SystemParts, parallel};

impl SolverState {
    /// Sets the placement. If `warm`, the search starts from the last result, otherwise from none.
    pub fn seat(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>], warm: bool) {
        self.before.resize_with(parts.places.len(), Before::default);
        if !warm {
            self.before.iter_mut().for_each(|before| before.ipc = 0.0);
            self.cores.iter_mut().for_each(|core| core.settled = false);
            self.caches.iter_mut().for_each(CacheSharers::forget);
            self.queues.iter_mut().for_each(AccessQueue::forget);
            self.levels.fill(TaskAtCache::default());
        }
        if !self.seating.is(seats) {
            // Other pages on the same PUs change the routes only.
            if !self.seating.is_on_pus_of(seats) {
                self.place(parts, seats);
            }
            self.find_ways(parts, seats);
            self.seating.set(seats);
        }
        self.see_demands(parts, seats);
        self.add_waits();
        self.set_cores(parts, seats);
        self.guess(parts, seats);
    }

    /// Updates all state that depends on the PUs in use.
    fn place(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        self.cores.resize_with(parts.cores.len(), Default::default);
        self.caches.resize_with(parts.caches.len(), Default::default);
        self.cores.iter_mut().for_each(|core| core.tasks.clear());
        self.caches.iter_mut().for_each(CacheSharers::clear);
        self.levels.clear();
        self.tasks.clear();
        for (t, seat) in seats.iter().enumerate() {
            let place = &parts.places[seat.pu.idx()];
            self.cores[place.core].tasks.push(t);
            let first = self.levels.len();
            for (level, &cache) in place.caches.iter().enumerate() {
                self.caches[cache].users.push(User::new(t, first, first + level));
            }
            let task = SolverTask {
                pu: seat.pu.idx(),
                clock: place.clock,
                line: parts.ways[place.node][place.node].line,
                first,
                caches: place.caches.len(),
                ..SolverTask::default()
            };
            self.levels.resize(task.others() + 1, TaskAtCache::default());
            self.tasks.push(task);
        }
    }

    /// Computes the queues that each task passes on the way to its data.
    fn find_ways(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        self.queues.resize_with(parts.queues.len(), Default::default);
        self.queues.iter_mut().for_each(|queue| queue.passing.clear());
        for (t, seat) in seats.iter().enumerate() {
            let task = &mut self.tasks[t];
            task.latency = 0.0;
            task.far_line = 0.0;
            task.apart = 0.0;
            self.go_to_memory(parts, t, seat);
        }
        self.go_to_others(parts, seats);
    }

    /// Finds changed demands, and discards results that depend on them.
    fn see_demands(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        for (task, seat) in self.tasks.iter_mut().zip(seats) {
            let before = &mut self.before[task.pu];
            if !before.demand.is(seat.demand) {
                before.demand.set(seat.demand);
                before.port_cycles = seat.demand.ports.iter().map(|(_, cycles)| cycles).sum();
                // The last rate is no start for another demand.
                before.ipc = 0.0;
                let place = &parts.places[task.pu];
                // `set_cores` prepares a core with an empty set anew.
                self.cores[place.core].set.clear();
                place.caches.iter().for_each(|&cache| self.caches[cache].unsettle());
            }
            task.written_back = seat.demand.written_back;
            task.cpi.stalls = seat.demand.stall_cycles;
            self.levels[task.others()].misses = seat.demand.shared_lines;
        }
    }

    /// Prepares the cores, and each task's rate at the start.
    fn set_cores(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        let mut demands = Vec::new();
        for (shared, core) in parts.cores.iter().zip(&mut self.cores) {
            // A core is prepared anew only for other PUs; changed demands have cleared `set`.
            let pus = core.tasks.iter().map(|&t| self.tasks[t].pu);
            if !pus.clone().eq(core.set.iter().copied()) {
                demands.clear();
                demands.extend(core.tasks.iter().map(|&t| seats[t].demand));
                core.siblings.set(*shared, &demands);
                core.settled = false;
                core.set.clear();
                core.set.extend(pus);
            }
            let count = if shared.divided { core.tasks.len() as f64 } else { 1.0 };
            for (i, &t) in core.tasks.iter().enumerate() {
                let task = &mut self.tasks[t];
                let demand = seats[t].demand;
                task.parallel = parallel(demand.parallel_misses, count);
                task.cpi.communication = demand.shared_lines * task.apart / task.parallel;
                let alone = core.siblings.alone[i];
                task.cpi.core = 1.0 / alone;
                let before = &self.before[task.pu];
                let known = before.ipc > 0.0;
                task.busy = Steps::from(if known { before.busy } else { task.cpi.core });
                task.ipc = Steps::from(before.ipc);
                core.siblings.by_chance[i] = if known { before.by_chance } else { alone };
            }
        }
    }

    /// Starts tasks without a known rate with the rate for an equal part of each cache.
    fn guess(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        if !self.tasks.iter().any(is_unknown) {
            return;
        }
        for (t, seat) in seats.iter().enumerate() {
            if is_unknown(&self.tasks[t]) {
                self.divide_equally(parts, t, seat);
                self.tasks[t].stall(parts, &self.levels);
            }
        }
        self.ask();
        for t in 0..seats.len() {
            if is_unknown(&self.tasks[t]) {
                self.tasks[t].ipc = Steps::from(self.going[t].rate);
            }
        }
    }

    fn go_to_memory(&mut self, parts: &SystemParts, t: usize, seat: &PlacedTask<'_>) {
        let place = &parts.places[seat.pu.idx()];
        let first = self.tasks[t].first;
        let last = self.tasks[t].last();
        let line = self.tasks[t].line;
        // The queue of a cache serves the misses of the level before.
        for (level, &cache) in place.caches.iter().enumerate().skip(1) {
            if let Some(queue) = parts.caches[cache].queue {
                let bandwidth = parts.queues[queue].bandwidth;
                self.queues[queue].pass(t, first + level - 1, 1.0, line / bandwidth);
            }
        }
        let ways = &parts.ways[place.node];
        // `max` also turns NaN into 0.
        let pages = |node: usize| seat.pages.get(node).copied().unwrap_or(0.0).max(0.0);
        let sum: f64 = (0..ways.len()).map(pages).sum();
        for (node, way) in ways.iter().enumerate() {
            let local = if node == place.node { 1.0 } else { 0.0 };
            // Without a page map all accesses are local.
            let share = if sum > 0.0 { pages(node) / sum } else { local };
            if share <= 0.0 {
                continue;
            }
            self.tasks[t].latency += share * way.latency * place.clock;
            self.tasks[t].far_line += share * way.line;
            for &queue in &way.queues {
                let load = way.line / parts.queues[queue].bandwidth;
                self.queues[queue].pass(t, last, share, load);
            }
        }
    }

    /// Adds the routes to lines modified by other tasks of the address space.
    fn go_to_others(&mut self, parts: &SystemParts, seats: &[PlacedTask<'_>]) {
        if seats.iter().all(|seat| seat.demand.shared_lines <= 0.0) {
            return;
        }
        let mut spaces = std::mem::take(&mut self.spaces);
        spaces.clear();
        spaces.extend(seats.iter().enumerate().map(|(t, seat)| (seat.space, t)));
        spaces.sort_unstable();
        // A task alone in its address space has no other to read from.
        for space in spaces.chunk_by(|a, b| a.0 == b.0).filter(|space| space.len() > 1) {
            for &(_, t) in space.iter().filter(|(_, t)| seats[*t].demand.shared_lines > 0.0) {
                self.read_from(parts, seats, t, space);
            }
        }
        self.spaces = spaces;
    }

    /// Adds reads of task `t` from all others of its address space, equally often and one at a
    /// time. A line comes from the nearest cache above both PUs. Without such a cache, an access
    /// takes as long as to memory of the other's node, and passes the same links.
    fn read_from(
        &mut self,
        parts: &SystemParts,
        seats: &[PlacedTask<'_>],
        t: usize,
        space: &[(u32, usize)],
    ) {
        let here = &parts.places[seats[t].pu.idx()];
        let level = self.tasks[t].others();
        // Equally often from each of the others.
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
            // No controller: the line comes from a cache of the other node, not from its memory.
            for &queue in way.queues.iter().filter(|&&queue| queue >= parts.controllers) {
                let load = way.line / parts.queues[queue].bandwidth;
                self.queues[queue].pass(t, level, share, load);
            }
        }
        self.tasks[t].apart = cycles * share;
    }
}

/// Whether the task has no rate from an earlier search.
fn is_unknown(task: &SolverTask) -> bool {
    task.ipc.given <= 0.0
}
