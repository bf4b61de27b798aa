//! A machine and all that runs on it: the rates at which tasks go on while they share it.
//!
//! # Problem
//! How fast a task is depends on what it shares with others, and how much it takes of that depends on
//! how fast it is.
//!
//! # Approach
//! Rounds, until rates no longer change: caches are divided by the rates, so misses are known; misses
//! and rates give the waits at controllers and links; these are stalls, with which tasks share cores.
//!
//! # Terms
//! - `x(t)`: rate of a task, instructions per cycle of its core.
//! - `e(t)`: the same while it is not stalled.
//! - `s(t)`: cycles that it is stalled, per instruction: `1/x = 1/e + s`.

use crate::assumptions::Assumptions;
use crate::cache::{self, Sharer};
use crate::memory::{WAIT, agreed_wait};
use crate::phase::Demand;
use crate::smt::{Shared, Siblings};
use colocate_machine::performance::{Inclusion, Performance};
use colocate_machine::{BytesPerSecond, CacheKind, Machine, PuIdx};
use thiserror::Error;

/// Why a machine cannot be modelled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The performance figures are of another machine.
    #[error("expected figures for {expected} {what}, as the machine has, found {found}")]
    OtherMachine {
        /// What is counted.
        what: &'static str,
        /// How many the machine has.
        expected: usize,
        /// For how many there are figures.
        found: usize,
    },
    /// A level of caches has no figures.
    #[error("expected figures for caches of level {level}, found none")]
    UnknownLevel {
        /// The level.
        level: u8,
    },
    /// A cache's size is not known.
    #[error("expected the size of every cache, found one of level {level} without")]
    UnknownSize {
        /// Its level.
        level: u8,
    },
}

/// A task and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// Its PU.
    pub pu: PuIdx,
    /// What it demands, in figures for this PU's kind of core.
    pub demand: &'a Demand,
    /// Share of its accesses to memory that go to each node, by place in `Machine::nodes`; sums to 1.
    /// All 0, or empty: all are local.
    pub pages: &'a [f64],
    /// Its address space; tasks of one share lines.
    pub space: u32,
}

/// Where a task's cycles go, per instruction; what it adds up to is `1 / ipc`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpiStack {
    /// On a core that is its own.
    pub core: f64,
    /// More, since siblings take slots and ports.
    pub siblings: f64,
    /// Stalls that nobody else has a part in.
    pub stalls: f64,
    /// Accesses that hit a cache beyond the first.
    pub caches: f64,
    /// Accesses to memory that waits for nobody.
    pub memory: f64,
    /// Waits at caches, controllers and links that others use, too, or that the task alone fills.
    pub queues: f64,
    /// Lines that other tasks of its address space have changed.
    pub communication: f64,
}

impl CpiStack {
    /// Cycles per instruction.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.core
            + self.siblings
            + self.stalls
            + self.caches
            + self.memory
            + self.queues
            + self.communication
    }
}

/// How fast a task goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRate {
    /// Instructions per cycle of its core.
    pub ipc: f64,
    /// Instructions per second.
    pub instructions_per_second: f64,
    /// Where its cycles go.
    pub cpi: CpiStack,
    /// Misses per instruction of each cache over its PU, nearest first.
    pub misses: Vec<f64>,
    /// What it reads from memory and writes back.
    pub memory: BytesPerSecond,
    /// Bytes that it holds of each cache over its PU, nearest first.
    pub occupancy: Vec<f64>,
}

/// What is expected of tasks that run at the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// One a seat, in their order.
    pub tasks: Vec<TaskRate>,
    /// Used share of each memory controller's bandwidth, as `Performance::memory`.
    pub controllers: Vec<f64>,
    /// Used share of each link's bandwidth, as `Performance::links`.
    pub links: Vec<f64>,
    /// Used share of each core's front-end slots, as `Machine::cores`.
    pub slots: Vec<f64>,
    /// Used share of all ports of each core, as `Machine::cores`.
    pub ports: Vec<f64>,
    /// How many rounds it took.
    pub rounds: u32,
    /// By what share the rate changed most in the last round.
    pub residual: f64,
    /// Seconds that an access waits at each queue.
    waits: Vec<f64>,
}

/// A machine, ready to predict.
#[derive(Debug)]
pub struct Model<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    assumptions: Assumptions,
    /// By PU.
    places: Vec<Place>,
    /// By `Machine::caches`.
    caches: Vec<Cache>,
    /// Controllers, then links, then caches: those that can be waited for.
    queues: Vec<Queue>,
    /// Queue of each cache, by `Machine::caches`, where its bandwidth is known.
    cache_queues: Vec<Option<usize>>,
    /// `links[from][to]`: queues that an access crosses.
    links: Vec<Vec<Vec<usize>>>,
}

/// A PU's surroundings.
#[derive(Debug)]
struct Place {
    core: usize,
    kind: usize,
    /// Of `Performance::memory`.
    node: usize,
    /// Cycles per second.
    clock: f64,
    /// Data caches over it, nearest first, by `Machine::caches`.
    caches: Vec<usize>,
}

/// A cache in plain numbers.
#[derive(Debug)]
struct Cache {
    capacity: f64,
    /// Cycles.
    latency: f64,
    inclusion: Inclusion,
}

/// What can be waited for.
#[derive(Debug)]
struct Queue {
    /// Bytes per second.
    bandwidth: f64,
    /// Seconds.
    scale: f64,
}

/// Rates are right to this share.
const NEAR: f64 = 1e-7;
/// Rounds that are tried at most. Chosen; those of 64 tasks end after a dozen.
const ROUNDS: u32 = 200;

/// What a round works on, of one task.
#[derive(Debug, Default)]
struct State {
    ipc: f64,
    /// Rate while active on a core of its own.
    alone: f64,
    /// The same beside its siblings.
    active: f64,
    parallel: f64,
    misses: Vec<f64>,
    occupancy: Vec<f64>,
    cpi: CpiStack,
    /// Queue, accesses per instruction, bytes an access.
    accesses: Vec<(usize, f64, f64)>,
}

impl State {
    fn stalls(&self) -> f64 {
        self.cpi.total() - self.cpi.core - self.cpi.siblings
    }
}

impl<'a> Model<'a> {
    /// A model of `machine` with these figures.
    ///
    /// # Errors
    /// - [`ModelError::OtherMachine`] if the figures are not of this machine.
    /// - [`ModelError::UnknownLevel`], [`ModelError::UnknownSize`] if a cache cannot be modelled.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
    ) -> Result<Self, ModelError> {
        let nodes = machine.nodes.len().max(1);
        same("kinds of cores", machine.kinds.len(), performance.kinds.len())?;
        same("memory nodes", nodes, performance.memory.len())?;
        same("rows of hops", nodes, performance.hops.len())?;
        for row in &performance.hops {
            same("hops of a node", nodes, row.len())?;
        }
        let caches = caches(machine, performance, &assumptions)?;
        let (queues, cache_queues, links) = queues(machine, performance, &assumptions);
        let places = machine.all_pus().map(|pu| place(machine, performance, pu)).collect();
        Ok(Self {
            machine,
            performance,
            assumptions,
            places,
            caches,
            queues,
            cache_queues,
            links,
        })
    }

    /// Rates of tasks that run at the same time, at most one a PU.
    ///
    /// `warm` is a prediction of the same model for a similar situation, which shortens the search.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict(&self, seats: &[Seat<'_>], warm: Option<&Prediction>) -> Prediction {
        let mut waits = warm.map_or_else(|| vec![0.0; self.queues.len()], |w| w.waits.clone());
        waits.resize(self.queues.len(), 0.0);
        let mut on_core = vec![Vec::new(); self.machine.cores.len()];
        let mut in_cache = vec![Vec::new(); self.caches.len()];
        for (t, seat) in seats.iter().enumerate() {
            on_core[self.place(seat).core].push(t);
            for (level, &cache) in self.place(seat).caches.iter().enumerate() {
                in_cache[cache].push((t, level));
            }
        }
        on_core.retain(|tasks| !tasks.is_empty());
        let mut cores: Vec<_> = on_core.iter().map(|tasks| self.siblings(seats, tasks)).collect();
        let mut states: Vec<State> = seats.iter().map(|seat| self.start(seat)).collect();
        for (tasks, siblings) in on_core.iter().zip(&cores) {
            for (i, &t) in tasks.iter().enumerate() {
                states[t].alone = siblings.alone(i);
                states[t].active = states[t].alone;
                states[t].ipc = states[t].alone;
                states[t].parallel = self.parallel(&seats[t], tasks.len());
            }
        }
        let (mut rounds, mut residual) = (0, f64::INFINITY);
        while rounds < ROUNDS && residual > NEAR {
            self.divide_caches(seats, &in_cache, &mut states);
            for (t, seat) in seats.iter().enumerate() {
                self.stall(seats, seat, &mut states[t]);
            }
            self.wait(seats, &mut states, &mut waits);
            residual = 0.0;
            for (tasks, siblings) in on_core.iter().zip(&mut cores) {
                residual = self.share_core(tasks, siblings, &mut states).max(residual);
            }
            rounds += 1;
        }
        self.report(seats, states, waits, rounds, residual)
    }

    /// A task alone on the machine, on that PU.
    #[must_use]
    pub fn alone(&self, seat: &Seat<'_>) -> TaskRate {
        self.predict(std::slice::from_ref(seat), None).tasks.swap_remove(0)
    }

    fn place(&self, seat: &Seat<'_>) -> &Place {
        &self.places[seat.pu.idx()]
    }

    fn start(&self, seat: &Seat<'_>) -> State {
        let levels = self.place(seat).caches.len();
        State { misses: vec![0.0; levels], occupancy: vec![0.0; levels], ..State::default() }
    }

    /// Misses under way at a time beside `siblings - 1` others: the first, and as many behind it as
    /// the part of the window that is left reaches.
    fn parallel(&self, seat: &Seat<'_>, siblings: usize) -> f64 {
        let divided = self.performance.kinds[self.place(seat).kind].divided;
        #[allow(clippy::cast_precision_loss)] // a core has few PUs
        let parts = if divided { siblings as f64 } else { 1.0 };
        1.0 + (seat.demand.parallel_misses - 1.0).max(0.0) / parts
    }

    /// The tasks of a core, ready to share it.
    fn siblings(&self, seats: &[Seat<'_>], tasks: &[usize]) -> Siblings {
        let kind = &self.performance.kinds[self.place(&seats[tasks[0]]).kind];
        let demands: Vec<&Demand> = tasks.iter().map(|&t| seats[t].demand).collect();
        Siblings::new(Shared::new(kind, &self.assumptions), &demands)
    }

    /// Divides every cache by the rates, and finds out what each task misses.
    fn divide_caches(
        &self,
        seats: &[Seat<'_>],
        in_cache: &[Vec<(usize, usize)>],
        states: &mut [State],
    ) {
        // Nearest level first, as the machine has them, since an exclusive cache needs to know what
        // the nearer ones hold.
        for (cache, users) in in_cache.iter().enumerate().filter(|(_, users)| !users.is_empty()) {
            let exclusive = self.caches[cache].inclusion == Inclusion::Exclusive;
            let sharer = |&(t, level): &(usize, usize)| {
                let place = self.place(&seats[t]);
                let nearer: f64 = states[t].occupancy[..level].iter().skip(1).sum();
                Sharer {
                    curve: &seats[t].demand.misses,
                    speed: states[t].ipc * place.clock,
                    elsewhere: if exclusive { nearer } else { 0.0 },
                }
            };
            let sharers: Vec<_> = users.iter().map(sharer).collect();
            let held = cache::occupancy(self.caches[cache].capacity, &sharers);
            for ((&(t, level), bytes), sharer) in users.iter().zip(held).zip(&sharers) {
                states[t].occupancy[level] = bytes;
                states[t].misses[level] = sharer.curve.at(bytes + sharer.elsewhere);
            }
        }
        for (seat, state) in seats.iter().zip(states) {
            self.keep_order(self.place(seat), state);
        }
    }

    /// What a farther cache misses a nearer one misses, too; an inclusive one takes from nearer ones
    /// what it loses.
    fn keep_order(&self, place: &Place, state: &mut State) {
        for level in 1..state.misses.len() {
            let inclusive = self.caches[place.caches[level]].inclusion == Inclusion::Inclusive;
            let (nearer, far) = state.misses.split_at_mut(level);
            if inclusive {
                nearer.iter_mut().for_each(|misses| *misses = misses.max(far[0]));
            } else {
                far[0] = far[0].min(nearer[level - 1]);
            }
        }
    }

    /// Sets the task's stalls but for waits, and what it asks of queues.
    fn stall(&self, seats: &[Seat<'_>], seat: &Seat<'_>, state: &mut State) {
        let place = self.place(seat);
        state.cpi.stalls = seat.demand.stall_cycles;
        state.cpi.caches = 0.0;
        state.accesses.clear();
        let line = bytes(self.performance.memory[place.node].line.0);
        for (level, &cache) in place.caches.iter().enumerate().skip(1) {
            let reach = state.misses[level - 1];
            let hits = reach - state.misses[level];
            state.cpi.caches += hits * self.caches[cache].latency / state.parallel;
            if let Some(queue) = self.cache_queues[cache] {
                state.accesses.push((queue, reach, line));
            }
        }
        let missed = state.misses.last().copied().unwrap_or_else(|| seat.demand.misses.at(0.0));
        state.cpi.memory = 0.0;
        for (node, share) in self.pages(seat) {
            let memory = &self.performance.memory[node];
            let seconds = self.latency(place.node, node) * share;
            let bytes = bytes(memory.line.0) * (1.0 + seat.demand.written_back);
            state.cpi.memory += missed * seconds * place.clock / state.parallel;
            let crossed = &self.links[place.node][node];
            for &queue in std::iter::once(&node).chain(crossed) {
                state.accesses.push((queue, missed * share, bytes));
            }
        }
        state.cpi.communication = self.communication(seats, seat) / state.parallel;
    }

    /// Seconds of an access from a core of one node to memory of another that waits for nobody.
    fn latency(&self, from: usize, to: usize) -> f64 {
        let nanos = self.performance.memory[to].latency + self.performance.hops[from][to];
        nanos.as_secs_f64() * self.assumptions.latency
    }

    /// Nodes of a task's pages, with their shares.
    fn pages<'s>(&self, seat: &Seat<'s>) -> impl Iterator<Item = (usize, f64)> + use<'s> {
        let home = self.place(seat).node;
        let (pages, nodes) = (seat.pages, self.performance.memory.len());
        let sum: f64 = pages.iter().take(nodes).sum();
        (0..nodes).filter_map(move |node| {
            let share = pages.get(node).copied().unwrap_or(0.0) / sum;
            let share = if sum > 0.0 { share } else { f64::from(u8::from(node == home)) };
            (share > 0.0).then_some((node, share))
        })
    }

    /// Cycles per instruction for lines of other tasks' caches, one at a time: those of all tasks of
    /// the address space equally often. From the nearest cache that both share; where there is none it
    /// takes as long as from memory of the other's node.
    fn communication(&self, seats: &[Seat<'_>], seat: &Seat<'_>) -> f64 {
        let place = self.place(seat);
        let others = seats.iter().filter(|other| other.space == seat.space && other.pu != seat.pu);
        let (mut cycles, mut count) = (0.0, 0.0);
        for other in others.filter(|_| seat.demand.shared_lines > 0.0) {
            let theirs = self.place(other);
            let common = place.caches.iter().position(|cache| theirs.caches.contains(cache));
            cycles += match common {
                Some(0) => 0.0,
                Some(level) => self.caches[place.caches[level]].latency,
                None => self.latency(place.node, theirs.node) * place.clock,
            };
            count += 1.0;
        }
        if count > 0.0 { seat.demand.shared_lines * cycles / count } else { 0.0 }
    }

    /// Lets waits and the rates of those who wait agree.
    fn wait(&self, seats: &[Seat<'_>], states: &mut [State], waits: &mut [f64]) {
        let mut users = vec![Vec::new(); self.queues.len()];
        for (t, state) in states.iter().enumerate() {
            for &(queue, accesses, bytes) in &state.accesses {
                users[queue].push((t, accesses, bytes));
            }
        }
        // Cycles per instruction of each task, with all waits.
        let clock = |t: usize| self.place(&seats[t]).clock;
        let each = |t: usize, accesses: f64| accesses * clock(t) / states[t].parallel;
        let mut cpi: Vec<f64> = Vec::new();
        for (t, state) in states.iter().enumerate() {
            let waits = state.accesses.iter().map(|&(q, a, _)| each(t, a) * waits[q]).sum::<f64>();
            cpi.push(1.0 / state.active + state.stalls() - state.cpi.queues + waits);
        }
        for (queue, users) in users.iter().enumerate() {
            let (mut used, mut fall) = (0.0, 0.0);
            for &(t, accesses, bytes) in users {
                let share = clock(t) * accesses * bytes / self.queues[queue].bandwidth / cpi[t];
                used += share;
                fall += share * each(t, accesses) / cpi[t];
            }
            let wait = agreed_wait(self.queues[queue].scale, waits[queue], used, fall);
            for &(t, accesses, _) in users {
                cpi[t] += each(t, accesses) * (wait - waits[queue]);
            }
            waits[queue] = wait;
        }
        let queues: Vec<f64> = states
            .iter()
            .enumerate()
            .map(|(t, s)| s.accesses.iter().map(|&(q, a, _)| each(t, a) * waits[q]).sum())
            .collect();
        for (state, queues) in states.iter_mut().zip(queues) {
            state.cpi.queues = queues;
        }
    }

    /// New rates of the tasks of a core; returns the largest change, as a share.
    fn share_core(&self, tasks: &[usize], siblings: &mut Siblings, states: &mut [State]) -> f64 {
        let stalls: Vec<f64> = tasks.iter().map(|&t| states[t].stalls()).collect();
        let mut rates: Vec<f64> = tasks.iter().map(|&t| states[t].ipc).collect();
        let change = siblings.round(self.assumptions.overlap, &stalls, &mut rates);
        for (i, &t) in tasks.iter().enumerate() {
            let state = &mut states[t];
            state.ipc = rates[i];
            state.active = 1.0 / (1.0 / rates[i] - stalls[i]);
            state.cpi.core = 1.0 / state.alone;
            state.cpi.siblings = 1.0 / state.active - state.cpi.core;
        }
        change
    }

    fn report(
        &self,
        seats: &[Seat<'_>],
        states: Vec<State>,
        waits: Vec<f64>,
        rounds: u32,
        residual: f64,
    ) -> Prediction {
        let cores = self.machine.cores.len();
        let (mut slots, mut ports) = (vec![0.0; cores], vec![0.0; cores]);
        let mut used = vec![0.0; self.queues.len()];
        let mut tasks = Vec::new();
        for (seat, state) in seats.iter().zip(states) {
            let place = self.place(seat);
            let kind = &self.performance.kinds[place.kind];
            let rate = state.ipc * place.clock;
            let work: f64 = seat.demand.ports.iter().map(|(_, cycles)| cycles).sum();
            slots[place.core] += state.ipc * seat.demand.slots / kind.width;
            #[allow(clippy::cast_precision_loss)] // a core has few ports
            let of = kind.ports.len().max(1) as f64;
            ports[place.core] += state.ipc * work / of;
            let mut memory = 0.0;
            for &(queue, accesses, bytes) in &state.accesses {
                used[queue] += rate * accesses * bytes / self.queues[queue].bandwidth;
                if queue < self.performance.memory.len() {
                    memory += rate * accesses * bytes;
                }
            }
            tasks.push(TaskRate {
                ipc: state.ipc,
                instructions_per_second: rate,
                cpi: state.cpi,
                misses: state.misses,
                memory: BytesPerSecond(memory),
                occupancy: state.occupancy,
            });
        }
        let controllers = self.performance.memory.len();
        let links = used[controllers..controllers + self.performance.links.len()].to_vec();
        used.truncate(controllers);
        Prediction { tasks, controllers: used, links, slots, ports, rounds, residual, waits }
    }
}

fn same(what: &'static str, expected: usize, found: usize) -> Result<(), ModelError> {
    let wrong = ModelError::OtherMachine { what, expected, found };
    if expected == found { Ok(()) } else { Err(wrong) }
}

#[allow(clippy::cast_precision_loss)] // sizes of caches and lines are far below 2^53
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

fn place(machine: &Machine, performance: &Performance, pu: PuIdx) -> Place {
    let core = machine.core_of(pu);
    let kind = machine.cores[core.idx()].kind.idx();
    let over = machine.caches.iter().enumerate();
    let over = over.filter(|(_, c)| c.kind != CacheKind::Instruction && c.pus.contains(&pu));
    #[allow(clippy::cast_precision_loss)] // clock rates are far below 2^53
    let clock = performance.kinds[kind].clock.0 as f64;
    Place {
        core: core.idx(),
        kind,
        node: machine.cores[core.idx()].node.map_or(0, |node| node.idx()),
        clock,
        caches: over.map(|(cache, _)| cache).collect(),
    }
}

fn caches(
    machine: &Machine,
    performance: &Performance,
    assumptions: &Assumptions,
) -> Result<Vec<Cache>, ModelError> {
    let read = |cache: &colocate_machine::Cache| {
        if cache.kind == CacheKind::Instruction {
            return Ok(Cache { capacity: 0.0, latency: 0.0, inclusion: Inclusion::Neither });
        }
        let level = cache.level;
        let figures = performance.caches.iter().find(|figures| figures.level == level);
        let figures = figures.ok_or(ModelError::UnknownLevel { level })?;
        let size = cache.size.ok_or(ModelError::UnknownSize { level })?;
        Ok(Cache {
            capacity: bytes(size.0),
            latency: figures.latency.0 * assumptions.latency,
            inclusion: figures.inclusion,
        })
    };
    machine.caches.iter().map(read).collect()
}

type Queues = (Vec<Queue>, Vec<Option<usize>>, Vec<Vec<Vec<usize>>>);

fn queues(machine: &Machine, performance: &Performance, assumptions: &Assumptions) -> Queues {
    let queue = |bandwidth: BytesPerSecond, latency: f64| Queue {
        bandwidth: bandwidth.0 * assumptions.bandwidth,
        scale: latency * assumptions.latency * WAIT,
    };
    let memory = performance.memory.iter();
    let mut all: Vec<Queue> =
        memory.map(|node| queue(node.bandwidth, node.latency.as_secs_f64())).collect();
    let nodes = performance.memory.len();
    let mut links = vec![vec![Vec::new(); nodes]; nodes];
    for link in &performance.links {
        let hop = |&(from, to): &(u32, u32)| {
            performance.hops[from as usize][to as usize].as_secs_f64()
        };
        let latency = link.crossed_by.iter().map(hop).fold(f64::INFINITY, f64::min);
        let latency = if latency.is_finite() { latency } else { 0.0 };
        for &(from, to) in &link.crossed_by {
            links[from as usize][to as usize].push(all.len());
        }
        all.push(queue(link.bandwidth, latency));
    }
    let mut of_caches = vec![None; machine.caches.len()];
    for (place, cache) in machine.caches.iter().enumerate() {
        let figures = performance.caches.iter().find(|figures| figures.level == cache.level);
        let Some((figures, bandwidth)) = figures.and_then(|f| Some((f, f.bandwidth?))) else {
            continue;
        };
        if cache.kind == CacheKind::Instruction || cache.level < 2 {
            continue;
        }
        let core = machine.core_of(cache.pus[0]);
        let kind = &performance.kinds[machine.cores[core.idx()].kind.idx()];
        #[allow(clippy::cast_precision_loss)] // clock rates are far below 2^53
        let seconds = figures.latency.0 / kind.clock.0 as f64;
        of_caches[place] = Some(all.len());
        all.push(queue(bandwidth, seconds));
    }
    (all, of_caches, links)
}

#[cfg(test)]
mod tests;
