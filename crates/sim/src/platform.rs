//! A described machine, ready to simulate on: what many scenarios share.

use crate::SimError;
use crate::scenario::{PhaseSpec, Scenario, Stretch, ThreadSpec, Work};
use colocate_machine::{Machine, Nanos, Performance, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::{Assumptions, Model, ModelError, Seat};

/// A machine with its speeds, under one choice of assumptions.
#[derive(Debug)]
pub struct Platform<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    assumptions: Assumptions,
    model: Model<'a>,
}

impl<'a> Platform<'a> {
    /// The machine with these speeds, under these assumptions.
    ///
    /// # Errors
    /// [`ModelError`] if the figures are not of this machine, or too few.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
    ) -> Result<Self, ModelError> {
        let model = Model::new(machine, performance, assumptions)?;
        Ok(Self { machine, performance, assumptions, model })
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// Its speeds.
    #[must_use]
    pub const fn performance(&self) -> &'a Performance {
        self.performance
    }

    /// What is assumed.
    #[must_use]
    pub const fn assumptions(&self) -> Assumptions {
        self.assumptions
    }

    /// The model that predicts the rates.
    #[must_use]
    pub const fn model(&self) -> &Model<'a> {
        &self.model
    }

    /// Which kind of core a PU belongs to, by place in `Machine::kinds`.
    pub(crate) fn kind_of(&self, pu: PuIdx) -> usize {
        self.machine.cores[self.machine.core_of(pu).idx()].kind.idx()
    }

    /// The home node of a PU, by place in `Machine::nodes`.
    pub(crate) fn node_of(&self, pu: PuIdx) -> Option<usize> {
        self.machine.cores[self.machine.core_of(pu).idx()].node.map(|node| node.idx())
    }

    /// Cycles per second of a PU's core.
    #[allow(clippy::cast_precision_loss)] // clock rates are far below 2^53
    pub(crate) fn clock_of(&self, pu: PuIdx) -> f64 {
        self.performance.kinds[self.kind_of(pu)].clock.0 as f64
    }
}

/// The phases of a scenario in figures for every kind of core, and how fast each is alone.
#[derive(Debug)]
pub(crate) struct Demands {
    /// By phase, then by kind of core.
    by_kind: Vec<Vec<Demand>>,
    /// Instructions per second, alone on a core of the fastest kind, memory near.
    alone: Vec<f64>,
}

impl Demands {
    pub fn new(platform: &Platform<'_>, scenario: &Scenario) -> Result<Self, SimError> {
        let kinds = &platform.performance.kinds;
        let of = |spec: &PhaseSpec| -> Result<Vec<Demand>, SimError> {
            let on = |core| Ok(spec.phase.on(core, &platform.assumptions.guesses)?.demand);
            let wrong = |error| SimError::Phase { phase: spec.phase.name.clone(), error };
            kinds.iter().map(on).collect::<Result<_, _>>().map_err(wrong)
        };
        let by_kind = scenario.phases.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let alone = by_kind.iter().map(|demands| fastest_alone(platform, demands)).collect();
        Ok(Self { by_kind, alone })
    }

    pub fn of(&self, phase: usize, kind: usize) -> &Demand {
        &self.by_kind[phase][kind]
    }

    pub fn alone(&self, phase: usize) -> f64 {
        self.alone[phase]
    }

    /// How many instructions a thread does before it ends.
    pub fn work(&self, course: &[Stretch], work: Work) -> f64 {
        let once: f64 = course.iter().map(|stretch| float(stretch.instructions)).sum();
        match work {
            Work::Once => once,
            Work::Instructions(instructions) => float(instructions),
            Work::AloneFor(time) => self.done_in(course, once, time),
        }
    }

    /// Instructions that a thread does alone in so long, sleep included; at least one.
    fn done_in(&self, course: &[Stretch], once: f64, time: Nanos) -> f64 {
        let busy = |stretch: &Stretch| self.busy(stretch);
        let round: f64 = course.iter().map(|s| busy(s) + s.sleep.as_secs_f64()).sum();
        let rounds = (time.as_secs_f64() / round).floor();
        let mut rest = time.as_secs_f64() - rounds * round;
        let mut done = rounds * once;
        for stretch in course {
            let part = (rest / busy(stretch)).clamp(0.0, 1.0);
            done += part * float(stretch.instructions);
            rest -= busy(stretch) + stretch.sleep.as_secs_f64();
        }
        done.round().max(1.0)
    }

    /// Seconds that a stretch takes alone, without sleep.
    pub fn busy(&self, stretch: &Stretch) -> f64 {
        float(stretch.instructions) / self.alone(stretch.phase.0 as usize)
    }

    /// What a thread goes through alone until its work is done.
    pub fn life(&self, thread: &ThreadSpec) -> Life {
        let mut round = Life::default();
        let mut once = 0.0;
        for stretch in &thread.course {
            round.busy += self.busy(stretch);
            once += float(stretch.instructions);
            round.pause(stretch, 1.0);
        }
        let all = self.work(&thread.course, thread.work);
        let rounds = (all / once).floor();
        let rest = self.rest(&thread.course, all - rounds * once);
        Life {
            busy: rounds * round.busy + rest.busy,
            asleep: rounds * round.asleep + rest.asleep,
            barriers: rounds * round.barriers + rest.barriers,
        }
    }

    /// So many instructions after the last whole round of a course. If there are none, the thread was done before
    /// it slept or waited at the end of that round, which is taken back.
    fn rest(&self, course: &[Stretch], mut instructions: f64) -> Life {
        let mut rest = Life::default();
        if instructions <= 0.0 {
            course.last().into_iter().for_each(|stretch| rest.pause(stretch, -1.0));
            return rest;
        }
        for stretch in course {
            let part = instructions.min(float(stretch.instructions));
            rest.busy += part / self.alone(stretch.phase.0 as usize);
            instructions -= part;
            if instructions <= 0.0 {
                break;
            }
            rest.pause(stretch, 1.0);
        }
        rest
    }
}

/// A thread that is alone, from its creation until its work is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// In seconds.
    pub busy: f64,
    /// In seconds, without what it waits for others.
    pub asleep: f64,
    /// How many it comes to.
    pub barriers: f64,
}

impl Life {
    /// What comes at the end of a stretch, so many times.
    fn pause(&mut self, stretch: &Stretch, times: f64) {
        self.asleep += times * stretch.sleep.as_secs_f64();
        self.barriers += times * f64::from(stretch.barrier);
    }
}

#[allow(clippy::cast_precision_loss)] // work of 2^53 instructions takes weeks
pub(crate) fn float(instructions: u64) -> f64 {
    instructions as f64
}

fn fastest_alone(platform: &Platform<'_>, demands: &[Demand]) -> f64 {
    let first_of =
        |kind: usize| platform.machine.all_pus().find(|&pu| platform.kind_of(pu) == kind);
    let rate = |kind: usize| {
        let seat = Seat { pu: first_of(kind)?, demand: &demands[kind], pages: &[], space: 0 };
        Some(platform.model.alone(&seat).instructions_per_second)
    };
    (0..demands.len()).filter_map(rate).fold(0.0, f64::max)
}
