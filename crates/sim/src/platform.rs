//! A described machine with its model, shared by many scenarios.

use crate::SimError;
use crate::scenario::{PhaseSegment, Scenario, ThreadSpec, TotalWork};
use colocate_machine::performance::Impossible;
use colocate_machine::{Machine, Nanos, NodeIdx, Performance, PuIdx};
use colocate_model::phase::{Demand, Guesses, PhaseError};
use colocate_model::{Assumptions, Model, Phase, PlacedTask};

/// A machine with its speeds, under a set of assumptions.
#[derive(Debug)]
pub struct Platform<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Speeds of the machine.
    pub performance: &'a Performance,
    /// Assumptions of the model.
    pub assumptions: Assumptions,
    /// The model of rates.
    pub model: Model<'a>,
}

impl<'a> Platform<'a> {
    /// A machine with its speeds, and the model of both under these assumptions.
    ///
    /// # Errors
    /// [`Impossible`] if the speeds are not of this machine, or too few.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
    ) -> Result<Self, Impossible> {
        let model = Model::new(machine, performance, assumptions)?;
        Ok(Self { machine, performance, assumptions, model })
    }

    /// Kind of a PU's core, by place in `Machine::kinds`.
    pub(crate) fn kind_of(&self, pu: PuIdx) -> usize {
        self.machine.cores[self.machine.core_of(pu).idx()].kind.idx()
    }

    /// First PU of a kind of core; `None` for a kind without cores.
    pub(crate) fn first_of_kind(&self, kind: usize) -> Option<PuIdx> {
        self.machine.all_pus().find(|&pu| self.kind_of(pu) == kind)
    }

    /// PUs at home in a node, given by place in `Machine::nodes`.
    pub(crate) fn home_pus(&self, node: usize) -> impl Iterator<Item = PuIdx> + '_ {
        self.machine.home_pus(NodeIdx::new(node))
    }

    /// Home node of a PU, by place in `Machine::nodes`; `None` if unknown.
    pub(crate) fn node_of(&self, pu: PuIdx) -> Option<usize> {
        self.machine.cores[self.machine.core_of(pu).idx()].node.map(|node| node.idx())
    }

    /// Clock of a PU's core, in Hz.
    pub(crate) fn clock_of(&self, pu: PuIdx) -> f64 {
        self.performance.kinds[self.kind_of(pu)].clock.0 as f64
    }
}

/// Demands of a scenario's phases, and the speed of each alone.
#[derive(Debug)]
pub(crate) struct Demands {
    /// Demand by phase, then by kind of core.
    by_kind: Vec<Vec<Demand>>,
    /// By phase: instructions per second alone, on a core of the fastest kind, memory near.
    alone: Vec<f64>,
}

impl Demands {
    /// Works out all phases of a scenario.
    ///
    /// # Errors
    /// [`SimError::Phase`] if a phase cannot run on a kind of core.
    pub fn new(platform: &Platform<'_>, scenario: &Scenario) -> Result<Self, SimError> {
        let guesses = &platform.assumptions.guesses;
        let phases = scenario.phases.iter();
        let by_kind = phases
            .map(|spec| demands_by_kind(platform.performance, &spec.phase, guesses))
            .collect::<Result<Vec<_>, _>>()?;
        let alone = by_kind.iter().map(|demands| fastest_alone(platform, demands)).collect();
        Ok(Self { by_kind, alone })
    }

    /// Demand of a phase on a kind of core.
    pub fn of(&self, phase: usize, kind: usize) -> &Demand {
        &self.by_kind[phase][kind]
    }

    /// Speed of a phase alone on a core of the fastest kind, in instructions per second.
    pub fn alone(&self, phase: usize) -> f64 {
        self.alone[phase]
    }

    /// Instructions of a thread from its creation to its end.
    pub fn work(&self, course: &[PhaseSegment], work: TotalWork) -> f64 {
        let once: f64 = course.iter().map(|stretch| stretch.instructions as f64).sum();
        match work {
            TotalWork::Once => once,
            TotalWork::Instructions(instructions) => instructions as f64,
            TotalWork::AloneFor(time) => self.done_in(course, once, time),
        }
    }

    /// Instructions of a thread alone in a time, sleep included; at least 1.
    fn done_in(&self, course: &[PhaseSegment], once: f64, time: Nanos) -> f64 {
        let round: f64 = course.iter().map(|s| self.busy(s) + s.sleep.as_secs_f64()).sum();
        let rounds = (time.as_secs_f64() / round).floor();
        let mut rest = time.as_secs_f64() - rounds * round;
        let mut done = rounds * once;
        for stretch in course {
            let part = (rest / self.busy(stretch)).clamp(0.0, 1.0);
            done += part * stretch.instructions as f64;
            rest -= self.busy(stretch) + stretch.sleep.as_secs_f64();
        }
        done.round().max(1.0)
    }

    /// Seconds of a stretch alone, without sleep.
    pub fn busy(&self, stretch: &PhaseSegment) -> f64 {
        stretch.instructions as f64 / self.alone(stretch.phase.0 as usize)
    }

    /// Times of a thread alone, until its work is done.
    pub fn life(&self, thread: &ThreadSpec) -> Life {
        let mut round = Life::default();
        let mut once = 0.0;
        for stretch in &thread.course {
            round.busy += self.busy(stretch);
            once += stretch.instructions as f64;
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

    /// Times of the instructions after the last whole round of a course. With 0 instructions the
    /// thread was done before the last round's pause: the result takes the pause back.
    fn rest(&self, course: &[PhaseSegment], mut instructions: f64) -> Life {
        let mut rest = Life::default();
        if instructions <= 0.0 {
            course.last().into_iter().for_each(|stretch| rest.pause(stretch, -1.0));
            return rest;
        }
        for stretch in course {
            let part = instructions.min(stretch.instructions as f64);
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

/// Times of a thread alone, from its creation to the end of its work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// Seconds on a PU.
    pub busy: f64,
    /// Seconds asleep, waits at barriers left out.
    pub asleep: f64,
    /// Arrivals at barriers.
    pub barriers: f64,
}

impl Life {
    /// Adds the sleep and the barrier at a stretch's end, this many times.
    fn pause(&mut self, stretch: &PhaseSegment, times: f64) {
        self.asleep += times * stretch.sleep.as_secs_f64();
        self.barriers += times * f64::from(stretch.barrier);
    }
}

/// Demand of an instruction of a phase, by kind of core.
///
/// # Errors
/// [`SimError::Phase`] if the phase cannot run on a kind of core.
pub(crate) fn demands_by_kind(
    performance: &Performance,
    phase: &Phase,
    guesses: &Guesses,
) -> Result<Vec<Demand>, SimError> {
    let kinds = performance.kinds.iter();
    kinds
        .map(|core| Ok(phase.on(core, guesses)?.demand))
        .collect::<Result<_, PhaseError>>()
        .map_err(|error| SimError::Phase { phase: phase.name.clone(), error })
}

/// Speed of a phase alone on its fastest kind of core, in instructions per second.
fn fastest_alone(platform: &Platform<'_>, demands: &[Demand]) -> f64 {
    let rates = demands.iter().enumerate().filter_map(|(kind, demand)| {
        let pu = platform.first_of_kind(kind)?;
        let seat = PlacedTask { pu, demand, pages: &[], space: 0 };
        Some(platform.model.alone(&seat).instructions_per_second)
    });
    rates.fold(0.0, f64::max)
}
