//! Speed-up factors: how many times faster a thread is on a fast core than on a slow one.
//!
//! # Problem
//! Some threads use what a fast core has to offer, others wait for memory on either.
//! # Approach
//! Instructions per second on both kinds of cores are sampled, with a running average; or the contention model says how fast
//! the thread's job is alone on either, where its demand is known beforehand.
//! # Terms
//! - *Rate*: instructions per cycle times the clock rate of the core's kind, relative to the fastest; where clock rates are not known,
//!   times its speed. Cycles are counted only while the thread runs, so waiting for a PU changes nothing.
//! - *Factor*: rate on a fast core over rate on a slow one.
//! # Algorithm
//! A rate counts only where the thread was put on a PU for the quantum and was last seen there. What was sampled on both kinds goes before the model's word.
//! A thread that was placed for [`BLIND`] quanta and showed no rate is taken for one of which none will ever be known.
//! # Properties
//! - **By hand** -> tests `sampled_by_hand`, `told_by_the_model`

use super::super::{Choice, Queued};
use super::cores::{Cores, clock};
use crate::plan::TaskId;
use colocate_machine::{Machine, Performance, PuIdx};
use colocate_model::system::{Model, Seat};
use colocate_model::{Assumptions, Phase};
use std::collections::BTreeMap;

/// How much a new rate counts beside those before it. Chosen: half, as for CPI stacks.
pub const WEIGHT: f64 = 0.5;

/// Quanta without a rate after which none is expected any more. Chosen: the first one of a thread may be missed.
pub const BLIND: u32 = 2;

/// Which kind of core a thread has to be put on, for its factor to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A fast one.
    Fast,
    /// A slow one.
    Slow,
}

/// The factors of all threads.
#[derive(Clone, Debug, Default)]
pub struct Factors {
    /// What the model can be asked with: how fast the machine is, and what each job demands.
    known: Option<(Performance, Vec<Phase>)>,
    /// What it said, by job; `None` before it was asked.
    told: Option<Vec<Option<f64>>>,
    seen: BTreeMap<TaskId, Sampled>,
    /// Where threads were put for the last quantum.
    placed: BTreeMap<TaskId, PuIdx>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    fast: Option<f64>,
    slow: Option<f64>,
    blind: u32,
}

impl Factors {
    /// Nothing is sampled yet; `known` is what the model can be asked with.
    #[must_use]
    pub fn new(known: Option<(Performance, Vec<Phase>)>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Takes in what threads did in the last quantum, and forgets those that are gone.
    pub fn note(&mut self, machine: &Machine, cores: &Cores, queue: &[Queued]) {
        if self.told.is_none() {
            let said = self.known.as_ref().map(|(performance, demands)| {
                said(machine, cores, performance, demands).unwrap_or_default()
            });
            self.told = Some(said.unwrap_or_default());
        }
        let mut there = BTreeMap::new();
        for thread in queue.iter().flat_map(|job| &job.threads) {
            let mut sampled = self.seen.remove(&thread.id).unwrap_or_default();
            let put = self.placed.get(&thread.id).copied().filter(|pu| Some(*pu) == thread.pu);
            if let Some((pu, core)) = put.zip(cores.of(thread)) {
                let ipc = thread.ran.as_ref().and_then(|ran| ran.ipc);
                let rate = ipc.map(|ipc| ipc * relative_clock(machine, cores, pu, core));
                sampled.take(cores.all()[core].fast, rate);
            }
            there.insert(thread.id, sampled);
        }
        self.seen = there;
    }

    /// Where threads are put for the next quantum.
    pub fn put(&mut self, queue: &[Queued], choices: &[Choice]) {
        let threads = queue.iter().flat_map(|job| &job.threads);
        let places = choices.iter().flat_map(|choice| &choice.places);
        let put = threads.zip(places).filter_map(|(thread, (pu, _))| Some((thread.id, (*pu)?)));
        self.placed = put.collect();
    }

    /// The factor of a thread; `None` while nobody knows.
    #[must_use]
    pub fn of(&self, id: TaskId) -> Option<f64> {
        let sampled = self.seen.get(&id).and_then(|sampled| {
            let slow = sampled.slow.filter(|slow| *slow > 0.0)?;
            Some(sampled.fast? / slow)
        });
        sampled.or_else(|| *self.told.as_ref()?.get(id.job.0 as usize)?)
    }

    /// Where a thread has to run for its factor to be known; `None` if it is known, or never will be.
    #[must_use]
    pub fn missing(&self, id: TaskId) -> Option<Missing> {
        let sampled = self.seen.get(&id).copied().unwrap_or_default();
        match sampled {
            _ if self.of(id).is_some() || self.is_blind(id) => None,
            Sampled { fast: Some(_), .. } => Some(Missing::Slow),
            Sampled { .. } => Some(Missing::Fast),
        }
    }

    /// Whether a thread shows no rates.
    #[must_use]
    pub fn is_blind(&self, id: TaskId) -> bool {
        self.seen.get(&id).is_some_and(|sampled| sampled.blind >= BLIND)
    }
}

impl Sampled {
    fn take(&mut self, fast: bool, rate: Option<f64>) {
        let Some(rate) = rate else {
            self.blind = self.blind.saturating_add(1);
            return;
        };
        self.blind = 0;
        let kept = if fast { &mut self.fast } else { &mut self.slow };
        *kept = Some(kept.map_or(rate, |before| before + WEIGHT * (rate - before)));
    }
}

/// The clock rate over the fastest kind's, or else the speed.
fn relative_clock(machine: &Machine, cores: &Cores, pu: PuIdx, core: usize) -> f64 {
    let kind = machine.cores[machine.core_of(pu).idx()].kind;
    let rates: Option<Vec<f64>> = machine.kinds.iter().map(clock).collect();
    let relative = rates.and_then(|rates| {
        let most = rates.iter().copied().fold(0.0, f64::max);
        (most > 0.0).then(|| rates[kind.idx()] / most)
    });
    relative.unwrap_or(cores.all()[core].speed)
}

/// What the model says of each job: alone on one of the fastest cores over alone on one of the slowest. `None` for jobs of
/// which no demand is known, and for all where it cannot say.
fn said(
    machine: &Machine,
    cores: &Cores,
    performance: &Performance,
    demands: &[Phase],
) -> Option<Vec<Option<f64>>> {
    let assumptions = Assumptions::default();
    let model = Model::new(machine, performance, assumptions).ok()?;
    let by_speed = |a: &&super::cores::Core, b: &&super::cores::Core| a.speed.total_cmp(&b.speed);
    let fast = cores.all().iter().max_by(by_speed)?.pus[0];
    let slow = cores.all().iter().min_by(by_speed)?.pus[0];
    let rate = |phase: &Phase, pu: PuIdx| -> Option<f64> {
        let kind = machine.cores[machine.core_of(pu).idx()].kind;
        let on = phase.on(performance.kinds.get(kind.idx())?, &assumptions.guesses).ok()?;
        let seat = Seat { pu, demand: &on.demand, pages: &[], space: 0 };
        Some(model.alone(&seat).instructions_per_second).filter(|rate| *rate > 0.0)
    };
    let factor = |phase: &Phase| {
        let known = *phase != Phase::default();
        known.then(|| Some(rate(phase, fast)? / rate(phase, slow)?)).flatten()
    };
    Some(demands.iter().map(factor).collect())
}
