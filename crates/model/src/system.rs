//! Rates of tasks that share a machine.
//!
//! # Problem
//! The speed of a task depends on resources shared with others, and its use of these resources
//! depends on its speed.
//!
//! # Approach
//! Rounds, until rates no longer change. In each round the rates divide the caches, so misses are
//! known ([`crate::cache`]). Misses and rates yield the waits of accesses at controllers and links
//! ([`crate::memory`]). All these are stalls, and with these stalls tasks share their cores
//! ([`crate::smt`]), so new rates are known.
//!
//! The state of a part of the machine (a cache, a queue, a core) follows from its input. A round
//! skips parts whose input is unchanged since they were last computed, and a [`Solver`] keeps all
//! parts for the next situation. After one task's change of phase only its neighbours are computed,
//! then those affected by them.
//!
//! # Terms
//! - `x`: rate of a task, instructions per cycle of its core; `s`: its stall cycles per
//!   instruction.
//! - busy: `1/x − s`, cycles per instruction in which it uses the core or waits for siblings to.
//! - `M`: misses outstanding at a time; `m(l)`: misses per instruction of the cache of level `l`, 0
//!   is the nearest.
//!
//! # Equations
//! - `M = 1 + (M of the whole window − 1) / parts`: see [`parallel`].
//! - `s = stalls that are the task's own + Σ over l > 0 of (m(l−1) − m(l)) · latency(l) / M`
//!   `+ m(last) · Σ over nodes of pages · (latency + hop) · clock / M + lines of other tasks + waits`.
//! - bytes from memory per instruction: `m(last) · line · (1 + written back)`, at the controllers
//!   by the page map, and at every link that the access crosses. The two directions of a link are
//!   not distinguished. This is right for equal traffic in both directions, and otherwise
//!   overestimates the load.
//! - clock: cycles of the task's core a second. Caches count in cycles, memory and hops in seconds.
//!
//! # Properties
//! - **Capacity**: no controller, link, front end or port is used above its capacity.
//!   → `no_resource_above_capacity`
//! - **Order**: the order of seats changes nothing. → `order_of_seats_changes_nothing`
//! - **Alone**: a task that shares nothing has its solo rate. → `alone_equals_solo`
//! - **Contention**: one more stream at a controller helps no other there.
//!   → `more_streams_help_none`
//! - **Continuity**: a small change of demand changes rates by little. → `continuity`
//! - **Warm**: the start of a search does not change its result. → `warm_equals_cold`
//! - **Whole**: the CPI stack adds up. → `stacks_add_up`
//!
//! Not modelled: prefetching, address translation, coherence beyond `shared_lines`, traffic of
//! migrating pages, clock rates that depend on the load.

use crate::assumptions::Assumptions;
use crate::phase::Demand;
use colocate_machine::performance::{Impossible, Performance};
use colocate_machine::{BytesPerSecond, Machine, PuIdx};
use parts::SystemParts;
use work::SolverState;

mod measured;
mod migration;
mod parts;
mod work;

pub use migration::Migration;
pub use parts::parallel;

/// Task and its PU.
#[derive(Clone, Copy, Debug)]
pub struct PlacedTask<'a> {
    /// PU of the task.
    pub pu: PuIdx,
    /// Demand, in figures for this PU's kind of core.
    pub demand: &'a Demand,
    /// Share of the task's memory accesses to each node, by index in `Machine::nodes`. Shares are
    /// scaled to sum 1; all 0 or empty means local accesses only.
    pub pages: &'a [f64],
    /// Address space; tasks of one address space share lines.
    pub space: u32,
}

/// Cycles per instruction of a task, by cause; the sum is `1 / ipc`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpiStack {
    /// Core cycles without siblings.
    pub core: f64,
    /// Additional core cycles, for slots, ports and window taken by siblings.
    pub siblings: f64,
    /// Stalls independent of other tasks.
    pub stalls: f64,
    /// Hits in caches beyond the first.
    pub caches: f64,
    /// Accesses to memory, without waits for other accesses.
    pub memory: f64,
    /// Waits at caches, controllers and links, for accesses of this and other tasks.
    pub queues: f64,
    /// Lines modified by other tasks of the address space.
    pub communication: f64,
}

impl CpiStack {
    /// Cycles per instruction.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.core + self.siblings + self.stalled()
    }

    /// Stall cycles per instruction.
    pub(crate) fn stalled(&self) -> f64 {
        self.stalls + self.caches + self.memory + self.queues + self.communication
    }
}

/// Rate of a task, and its use of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRate {
    /// Instructions per cycle of its core.
    pub ipc: f64,
    /// Instructions per second.
    pub instructions_per_second: f64,
    /// Cycles per instruction, by cause.
    pub cpi: CpiStack,
    /// Misses per instruction of each data cache above the task's PU, nearest first.
    pub misses: Vec<f64>,
    /// Memory traffic: lines read and written back.
    pub memory: BytesPerSecond,
    /// Occupancy in bytes of each data cache above the task's PU, nearest first.
    pub occupancy: Vec<f64>,
}

/// Prediction for tasks that run at the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Rates in the order of the seats.
    pub tasks: Vec<TaskRate>,
    /// Used share of each memory controller's bandwidth, as `Performance::memory`.
    pub controllers: Vec<f64>,
    /// Used share of each link's bandwidth, as `Performance::links`.
    pub links: Vec<f64>,
    /// Used share of each cache's bandwidth, as `Machine::caches`; 0 if unknown.
    pub caches: Vec<f64>,
    /// Used share of each core's front-end slots, as `Machine::cores`.
    pub slots: Vec<f64>,
    /// Used share of all ports of each core, as `Machine::cores`.
    pub ports: Vec<f64>,
    /// Rounds of the search.
    pub rounds: u32,
    /// Largest relative change of a rate in the last round.
    pub residual: f64,
    /// Wait of an access at each queue, in seconds.
    waits: Vec<f64>,
}

/// Performance model of a machine.
#[derive(Debug)]
pub struct Model<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    assumptions: Assumptions,
    parts: SystemParts,
}

/// Relative change of rates that ends the search. Chosen, far below the accuracy of the model, so
/// that differences between predictions come from the model.
const NEAR: f64 = 1e-4;

/// Most rounds. Chosen; `benches` shows the actual number.
const ROUNDS: u32 = 500;

impl<'a> Model<'a> {
    /// Model of `machine` with the figures `performance`.
    ///
    /// # Errors
    /// [`Impossible`] if the figures are not of this machine.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
    ) -> Result<Self, Impossible> {
        performance.check(machine)?;
        let parts = SystemParts::new(machine, performance, &assumptions);
        Ok(Self { machine, performance, assumptions, parts })
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// Assumptions of the model.
    #[must_use]
    pub const fn assumptions(&self) -> &Assumptions {
        &self.assumptions
    }

    /// Predicts tasks that run at the same time, at most one a PU. A [`Solver`] is faster for a
    /// sequence of situations.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict(&self, seats: &[PlacedTask<'_>]) -> Prediction {
        Solver::new(self).predict(seats)
    }

    /// Rate of a task alone on the machine, on its PU.
    ///
    /// # Panics
    /// If its PU is not of the machine.
    #[must_use]
    pub fn alone(&self, seat: &PlacedTask<'_>) -> TaskRate {
        self.predict(std::slice::from_ref(seat)).tasks.swap_remove(0)
    }
}

/// Predictor for a sequence of situations; reuses its memory.
#[derive(Debug)]
pub struct Solver<'a> {
    model: &'a Model<'a>,
    work: SolverState,
}

impl<'a> Solver<'a> {
    /// Search without a previous result.
    #[must_use]
    pub fn new(model: &'a Model<'a>) -> Self {
        Self { model, work: SolverState::default() }
    }

    /// Predicts as [`Model::predict`]: the result does not depend on earlier searches.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict(&mut self, seats: &[PlacedTask<'_>]) -> Prediction {
        self.work.seat(&self.model.parts, seats, false);
        self.find(seats)
    }

    /// Predicts from the result of the last search: the smaller the change, the faster.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict_next(&mut self, seats: &[PlacedTask<'_>]) -> Prediction {
        self.work.seat(&self.model.parts, seats, true);
        self.find(seats)
    }

    fn find(&mut self, seats: &[PlacedTask<'_>]) -> Prediction {
        let work = &mut self.work;
        let model = self.model;
        let mut sharers = Vec::new();
        let mut rounds = 0;
        // Above any tolerance, so that there is at least one round.
        let mut residual = f64::INFINITY;
        // The order matters: misses are input of the waits, and all stalls are input of the rates.
        while rounds < ROUNDS && residual > NEAR {
            work.divide_caches(&model.parts, seats, &mut sharers);
            work.stall(&model.parts);
            work.wait(&model.parts);
            residual = work.share_cores(model.assumptions.overlap);
            rounds += 1;
        }
        let tasks: Vec<TaskRate> = (0..seats.len()).map(|t| work.rate(t)).collect();
        let (slots, ports) = self.cores(seats, &tasks);
        let work = &self.work;
        let (controllers, links, caches) = work.used(&model.parts);
        let waits = work.all_waits();
        Prediction { tasks, controllers, links, caches, slots, ports, rounds, residual, waits }
    }

    /// Used shares of the front end's slots and of all ports, by core.
    fn cores(&self, seats: &[PlacedTask<'_>], tasks: &[TaskRate]) -> (Vec<f64>, Vec<f64>) {
        let Model { machine, performance, parts, .. } = self.model;
        let mut slots = vec![0.0; machine.cores.len()];
        let mut ports = vec![0.0; machine.cores.len()];
        for (seat, task) in seats.iter().zip(tasks) {
            let core = parts.places[seat.pu.idx()].core;
            let kind = &performance.kinds[machine.cores[core].kind.idx()];
            let of = kind.ports.len() as f64;
            slots[core] += task.ipc * seat.demand.slots / parts.width(seat.pu);
            ports[core] += task.ipc * self.work.port_cycles(seat.pu.idx()) / of;
        }
        (slots, ports)
    }
}

impl Prediction {
    /// Wait of an access at a queue, in seconds.
    fn waited(&self, queue: usize) -> f64 {
        self.waits.get(queue).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests;
