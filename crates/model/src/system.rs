//! A machine and all that runs on it: the rates of tasks while they share it.
//!
//! # Problem
//! How fast a task is depends on what it shares with others, and how much it takes of that depends on how fast it is.
//!
//! # Approach
//! Rounds, until rates no longer change. In each, the rates divide the caches, so misses are known ([`crate::cache`]); misses
//! and rates give how long accesses wait at controllers and links ([`crate::memory`]); all these are stalls, with which tasks
//! share their cores ([`crate::smt`]), and that gives new rates.
//!
//! What a part of the machine (a cache, a queue, a core) does follows from its input. A round leaves out the parts whose input
//! is as it was when they were last computed; and a [`Search`] keeps all parts for the next situation. So where one task's
//! phase has changed only its neighbours are computed, and then those that these change.
//!
//! # Terms
//! - `x`: rate of a task, instructions per cycle of its core; `s`: cycles that it is stalled, per instruction.
//! - busy: `1/x − s`, cycles per instruction in which it uses the core or waits for siblings to.
//! - `M`: misses under way at a time; `m(l)`: misses per instruction of the cache of level `l`, 0 is the nearest.
//!
//! # Equations
//! - `M = 1 + (M of the whole window − 1) / parts`: see [`parallel`].
//! - `s = stalls that are the task's own + Σ over l > 0 of (m(l−1) − m(l)) · latency(l) / M`
//!   `+ m(last) · Σ over nodes of pages · (latency + hop) · clock / M + lines of other tasks + waits`.
//! - bytes from memory per instruction: `m(last) · line · (1 + written back)`, at the controllers by the page map, and at every
//!   link that the access crosses. A link's two directions are not distinguished: that is right where traffic is the same in
//!   both directions, and else too much.
//! - clock: cycles of the task's core a second. Caches count in cycles, memory and hops in seconds.
//!
//! # Properties
//! - **Capacity**: no controller, link, front end or port is used more than it is. → `no_resource_above_capacity`
//! - **Order**: which seat is named first changes nothing. → `order_of_seats_changes_nothing`
//! - **Alone**: a task that shares nothing has the rate that it has alone. → `alone_equals_solo`
//! - **Contention**: one more stream at a controller helps no other there. → `more_streams_help_none`
//! - **Continuity**: a little more demand changes rates a little. → `continuity`
//! - **Warm**: where a search begins does not change where it ends. → `warm_equals_cold`
//! - **Whole**: the CPI stack adds up. → `stacks_add_up`
//!
//! Left out: prefetching, address translation, coherence beyond `shared_lines`, traffic of migrating pages, clock rates that
//! depend on the load.

use crate::assumptions::Assumptions;
use crate::phase::Demand;
use colocate_machine::performance::{Impossible, Performance};
use colocate_machine::{BytesPerSecond, Machine, PuIdx};
use parts::Parts;
use thiserror::Error;
use work::Work;

mod measured;
mod migration;
mod parts;
mod work;

pub use migration::Migration;
pub use parts::parallel;

/// Why a machine cannot be modelled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The figures are not of this machine, or of none.
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

/// A task and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// Its PU.
    pub pu: PuIdx,
    /// What it demands, in figures for this PU's kind of core.
    pub demand: &'a Demand,
    /// Share of its accesses to memory that go to each node, by place in `Machine::nodes`; sums to 1.
    /// Other sums are scaled to 1; all 0, or empty: all are local.
    pub pages: &'a [f64],
    /// Its address space; tasks of one share lines.
    pub space: u32,
}

/// Where a task's cycles go, per instruction; what it adds up to is `1 / ipc`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpiStack {
    /// On a core of its own.
    pub core: f64,
    /// More, since siblings take slots, ports and a part of the window.
    pub siblings: f64,
    /// Stalls that no other task has a part in.
    pub stalls: f64,
    /// Accesses that hit a cache beyond the first.
    pub caches: f64,
    /// Accesses to memory, as if they waited for no other.
    pub memory: f64,
    /// Waits at caches, controllers and links, for others' accesses and for its own.
    pub queues: f64,
    /// Lines that other tasks of its address space have changed.
    pub communication: f64,
}

impl CpiStack {
    /// Cycles per instruction.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.core + self.siblings + self.stalled()
    }

    /// Cycles per instruction for which it is stalled.
    pub(crate) fn stalled(&self) -> f64 {
        self.stalls + self.caches + self.memory + self.queues + self.communication
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
    /// Misses per instruction of each data cache over its PU, nearest first.
    pub misses: Vec<f64>,
    /// What it reads from memory and writes back.
    pub memory: BytesPerSecond,
    /// Bytes that it holds of each data cache over its PU, nearest first.
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
    /// Used share of each cache's bandwidth, as `Machine::caches`; 0 where it is not known.
    pub caches: Vec<f64>,
    /// Used share of each core's front-end slots, as `Machine::cores`.
    pub slots: Vec<f64>,
    /// Used share of all ports of each core, as `Machine::cores`.
    pub ports: Vec<f64>,
    /// How many rounds the search took.
    pub rounds: u32,
    /// By what share a rate changed most in the last round.
    pub residual: f64,
    /// Seconds that an access waits, by queue.
    waits: Vec<f64>,
}

/// A machine, ready to predict.
#[derive(Debug)]
pub struct Model<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    assumptions: Assumptions,
    parts: Parts,
}

/// The search ends when no rate changes by a greater share in a round. Chosen, far below what the model can
/// resolve, so that differences of two predictions are those of the model.
const NEAR: f64 = 1e-4;

/// Rounds that are tried at most. Chosen; see `benches` for how many there are.
const ROUNDS: u32 = 500;

impl<'a> Model<'a> {
    /// A model of `machine` with these figures.
    ///
    /// # Errors
    /// [`ModelError::Impossible`] if the figures are not of this machine.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
    ) -> Result<Self, ModelError> {
        performance.check(machine)?;
        let parts = Parts::new(machine, performance, &assumptions);
        Ok(Self { machine, performance, assumptions, parts })
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// What is assumed.
    #[must_use]
    pub const fn assumptions(&self) -> &Assumptions {
        &self.assumptions
    }

    /// Rates of tasks that run at the same time, at most one a PU. Predicting one situation after the other
    /// is faster with a [`Search`].
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict(&self, seats: &[Seat<'_>]) -> Prediction {
        Search::new(self).predict(seats)
    }

    /// A task alone on the machine, on that PU.
    ///
    /// # Panics
    /// If its PU is not of the machine.
    #[must_use]
    pub fn alone(&self, seat: &Seat<'_>) -> TaskRate {
        self.predict(std::slice::from_ref(seat)).tasks.swap_remove(0)
    }
}

/// Predicts one situation after the other, in memory that is kept.
#[derive(Debug)]
pub struct Search<'a> {
    model: &'a Model<'a>,
    work: Work,
}

impl<'a> Search<'a> {
    /// Nothing is predicted yet.
    #[must_use]
    pub fn new(model: &'a Model<'a>) -> Self {
        Self { model, work: Work::default() }
    }

    /// As [`Model::predict`]: what it finds does not depend on what was searched before.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict(&mut self, seats: &[Seat<'_>]) -> Prediction {
        self.work.seat(&self.model.parts, seats, false);
        self.find(seats)
    }

    /// The same, beginning where the last search ended: the sooner done the less has changed since.
    ///
    /// # Panics
    /// If a seat's PU is not of the machine.
    #[must_use]
    pub fn predict_next(&mut self, seats: &[Seat<'_>]) -> Prediction {
        self.work.seat(&self.model.parts, seats, true);
        self.find(seats)
    }

    fn find(&mut self, seats: &[Seat<'_>]) -> Prediction {
        let (work, model) = (&mut self.work, self.model);
        let mut sharers = Vec::new();
        let (mut rounds, mut residual) = (0, f64::INFINITY);
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
    fn cores(&self, seats: &[Seat<'_>], tasks: &[TaskRate]) -> (Vec<f64>, Vec<f64>) {
        let Model { machine, performance, parts, .. } = self.model;
        let mut slots = vec![0.0; machine.cores.len()];
        let mut ports = vec![0.0; machine.cores.len()];
        for (seat, task) in seats.iter().zip(tasks) {
            let core = parts.places[seat.pu.idx()].core;
            let kind = &performance.kinds[machine.cores[core].kind.idx()];
            #[allow(clippy::cast_precision_loss)] // a core has few ports
            let of = kind.ports.len() as f64;
            slots[core] += task.ipc * seat.demand.slots / parts.width(seat.pu);
            ports[core] += task.ipc * self.work.port_cycles(seat.pu.idx()) / of;
        }
        (slots, ports)
    }
}

impl Prediction {
    /// Seconds that an access waits at a queue.
    fn waited(&self, queue: usize) -> f64 {
        self.waits.get(queue).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
