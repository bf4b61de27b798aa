//! Stand-ins for the programs of SPEC CPU2006, for which the slides publish no figures: demand
//! vectors drawn so that their traffic alone lies in the range of the published workloads.
//!
//! # Problem
//! The available publications do not give the programs' demands of a core and of memory.
//! # Approach
//! Every component of a demand vector is drawn from its plausible range ([`Guessed::plausible`]; see
//! docs/method/assumptions.md). Traffic is drawn first, and the misses are made
//! to fit, alone on the machine under the default assumptions.
//! # Terms
//! - *Traffic*: requests to memory, lines a microsecond (t/µs), alone on the machine.
//! - `a`: exponent of the misses: they fall with the size of the cache as its power `−a`.
//! # Algorithm
//! 1. Traffic of the program: log-uniform in [`TRAFFIC`]; `a` uniform in [`POWER`]; all else uniform over the
//!    plausible range, the lower and the upper half equally likely.
//! 2. One to [`PHASES`] phases, each with half to twice the program's traffic, and a length alone
//!    that is log-uniform in [`LENGTH_S`]. The other components are the same in all phases.
//! 3. The misses of each phase are scaled until the phase has its traffic. If no scale is enough, with
//!    too few misses in parallel, the program is drawn anew with the same traffic. After [`TRIES`]
//!    draws the traffic is drawn anew, too.
//!
//! # Properties
//! - **Traffic is as drawn** -> test `traffic_is_as_drawn`
//! - **The same for the same seed** -> test `the_same_for_the_same_seed`

use super::{StudyError, demand, draws};
use crate::parts::segment;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Performance};
use colocate_model::phase::{Demand, Guessed, Known, PortWork};
use colocate_model::rng::SplitMix64;
use colocate_model::{Assumptions, MissCurve, Model, Phase, PlacedTask};
use colocate_sim::{PhaseIdx, PhaseSegment};

/// Range of a program's traffic, t/µs. Chosen: its mean, 8 t/µs, is in the middle of the traffic of
/// a context in the published workloads (20 to 40 t/µs on four cores, 50 to 130 on twelve contexts:
/// 5 to 10, 4 to 11). Its ends are as far apart as the published micro-benchmark with its `nop`s
/// and a program that fits into its cache.
pub const TRAFFIC: [f64; 2] = [0.3, 40.0];
/// Range of `a`. Chosen, around the square root that `typical_misses` takes for a rule of thumb.
pub const POWER: [f64; 2] = [0.3, 0.7];
/// Most phases of a program. Chosen.
pub const PHASES: usize = 4;
/// Length of a phase alone, in seconds. Chosen: one quantum to ten, so that the scheduler's figures
/// of the last quantum mostly, not always, hold in the next.
pub const LENGTH_S: [f64; 2] = [0.2, 2.0];
/// Draws of a program that cannot have its traffic. About one in a few cannot.
const TRIES: u32 = 200;
/// Draws of the traffic: the greatest possible traffic of a program on a machine may be less than
/// the drawn one.
const TRAFFICS: u32 = 20;
/// Sizes of the miss curve: the first in bytes, and the number of sizes, each four times the last.
const SIZES: (u64, u32) = (32 << 10, 7);

/// A program of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticProgram {
    /// Name: `p` and a number.
    pub name: String,
    /// Phases.
    pub phases: Vec<Phase>,
    /// Indices of phases in the order of execution, with their instructions. The course repeats.
    pub course: Vec<(u32, u64)>,
    /// Mean traffic alone, t/µs.
    pub traffic: f64,
}

impl SyntheticProgram {
    /// Course in a scenario in which the program's first phase has the index `first`.
    #[must_use]
    pub fn course(&self, first: u32) -> Vec<PhaseSegment> {
        let course = self.course.iter();
        course.map(|&(phase, ran)| segment(PhaseIdx(first + phase), ran)).collect()
    }
}

/// Draws `count` programs for a machine.
///
/// # Errors
/// [`StudyError`] if the machine cannot be modelled, or no program on it can have the traffic.
pub fn draw(
    machine: &Machine,
    performance: &Performance,
    count: usize,
    seed: u64,
) -> Result<Vec<SyntheticProgram>, StudyError> {
    let model = Model::new(machine, performance, Assumptions::default())?;
    let mut draw = Draw { model, machine, performance, random: SplitMix64::new(seed) };
    (0..count).map(|number| draw.program(number)).collect()
}

struct Draw<'a> {
    model: Model<'a>,
    machine: &'a Machine,
    performance: &'a Performance,
    random: SplitMix64,
}

impl Draw<'_> {
    fn program(&mut self, number: usize) -> Result<SyntheticProgram, StudyError> {
        for _ in 0..TRAFFICS {
            let traffic = self.between_logs(TRAFFIC);
            for _ in 0..TRIES {
                if let Some(program) = self.try_program(number, traffic)? {
                    return Ok(program);
                }
            }
        }
        let [least, most] = TRAFFIC;
        let expected = format!(
            "a machine on which programs can have {least} to {most} t/µs of memory traffic"
        );
        Err(StudyError::Unsuitable(expected, self.machine.name.clone()))
    }

    /// Draws a program; `None` if it cannot have its traffic.
    fn try_program(
        &mut self,
        number: usize,
        traffic: f64,
    ) -> Result<Option<SyntheticProgram>, StudyError> {
        let power = self.between(POWER);
        let base = self.base(number);
        let count = 1 + draws::below(&mut self.random, PHASES);
        let mut phases = Vec::new();
        let mut instructions = Vec::new();
        let mut lines = 0.0;
        let mut seconds = 0.0;
        for _ in 0..count {
            // A single phase has exactly the program's traffic.
            let target = if count == 1 { traffic } else { traffic * self.between_logs([0.5, 2.0]) };
            let length = self.between_logs(LENGTH_S);
            let Some((phase, rate)) = self.with_traffic(&base, power, target)? else {
                return Ok(None);
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds of a core
            instructions.push((rate * length).round().max(1.0) as u64);
            phases.push(phase);
            lines += target * length;
            seconds += length;
        }
        Ok(Some(SyntheticProgram {
            name: format!("p{number}"),
            phases,
            course: (0..).zip(instructions).collect(),
            traffic: lines / seconds,
        }))
    }

    /// Draws all components but the misses.
    fn base(&mut self, number: usize) -> Phase {
        // The order of the draws is part of a seed's meaning.
        let slots = self.plausible(Guessed::Slots);
        let dependent = self.plausible(Guessed::DependentCycles);
        let divided = self.plausible(Guessed::DividedFactor);
        let stall = self.plausible(Guessed::StallCycles);
        let branch = self.plausible(Guessed::BranchMisses);
        let parallel = self.plausible(Guessed::ParallelMisses);
        let written = self.plausible(Guessed::WrittenBack);
        Phase {
            name: format!("p{number}"),
            slots: known(slots),
            work: Known::new(PortWork::Kinds(self.kinds()), SOURCE),
            dependent_cycles: known(dependent),
            dependent_cycles_divided: known(dependent * divided),
            stall_cycles: known(stall),
            branch_misses: known(branch),
            parallel_misses: known(parallel),
            written_back: known(written),
            shared_lines: known(0.0),
            ..Phase::default()
        }
    }

    /// A random value of the component's plausible range.
    fn plausible(&mut self, guessed: Guessed) -> f64 {
        guessed.plausible().at(self.random.unit())
    }

    /// Work by kind, one operation an instruction.
    fn kinds(&mut self) -> Vec<(WorkKind, f64)> {
        let branch = self.plausible(Guessed::BranchShare);
        let int = self.plausible(Guessed::IntShare);
        let float = self.plausible(Guessed::FloatShare);
        let load = self.plausible(Guessed::LoadShare);
        let store = self.plausible(Guessed::StoreShare);
        let mul = self.plausible(Guessed::IntMulPart);
        let div = self.plausible(Guessed::IntDivPart);
        let float_mul = self.plausible(Guessed::FloatMulPart);
        let float_div = self.plausible(Guessed::FloatDivPart);
        let whole = branch + int + float + load + store;
        let kinds = [
            (WorkKind::Branch, branch),
            (WorkKind::Int, int * (1.0 - mul - div)),
            (WorkKind::IntMul, int * mul),
            (WorkKind::IntDiv, int * div),
            (WorkKind::FloatAdd, float * (1.0 - float_mul - float_div)),
            (WorkKind::FloatMul, float * float_mul),
            (WorkKind::FloatDiv, float * float_div),
            (WorkKind::Load, load),
            (WorkKind::Store, store),
        ];
        kinds.into_iter().map(|(kind, share)| (kind, share / whole)).collect()
    }

    /// The phase with misses that give it the traffic `target`, and its instructions a second;
    /// `None` if no misses do.
    fn with_traffic(
        &self,
        base: &Phase,
        power: f64,
        target: f64,
    ) -> Result<Option<(Phase, f64)>, StudyError> {
        let kind = &self.performance.kinds[0];
        let mut demand = demand(base, kind, &Assumptions::default())?;
        // At most every load and store misses.
        let mut least = 1e-7;
        let mut most = requests(base);
        if self.traffic(&mut demand, curve(most, power)).0 < target {
            return Ok(None);
        }
        // 40 halvings give nine digits of the ratio, more than needed.
        for _ in 0..40 {
            // The geometric middle, since the ends are several powers of ten apart.
            let middle = (least * most).sqrt();
            let less = self.traffic(&mut demand, curve(middle, power)).0 < target;
            *(if less { &mut least } else { &mut most }) = middle;
        }
        let (_, rate) = self.traffic(&mut demand, curve(most, power));
        let misses = Known::new(curve(most, power), "drawn: for its traffic alone");
        Ok(Some((Phase { misses, ..base.clone() }, rate)))
    }

    /// Traffic in t/µs and instructions a second, alone on the first PU.
    fn traffic(&self, demand: &mut Demand, misses: MissCurve) -> (f64, f64) {
        demand.misses = misses;
        let pu = self.machine.cores[0].pus[0];
        let rate = self.model.alone(&PlacedTask { pu, demand, pages: &[], space: 0 });
        let speed = rate.instructions_per_second;
        // Misses of the last level go to memory.
        (rate.misses.last().copied().unwrap_or(0.0) * speed / 1e6, speed)
    }

    fn between(&mut self, [least, most]: [f64; 2]) -> f64 {
        least + (most - least) * self.random.unit()
    }

    fn between_logs(&mut self, [least, most]: [f64; 2]) -> f64 {
        self.between([least.ln(), most.ln()]).exp()
    }
}

const SOURCE: &str = "drawn from what is plausible, docs/method/assumptions.md";

fn known(value: f64) -> Known<f64> {
    Known::new(value, SOURCE)
}

/// Loads and stores of an instruction.
fn requests(phase: &Phase) -> f64 {
    let Some(PortWork::Kinds(kinds)) = phase.work.get() else { return 0.0 };
    let of = kinds.iter().filter(|(kind, _)| matches!(kind, WorkKind::Load | WorkKind::Store));
    of.map(|(_, share)| share).sum()
}

/// Miss curve with `first` misses at the least size; misses fall with the power `−power` of the
/// size.
fn curve(first: f64, power: f64) -> MissCurve {
    let (size, count) = SIZES;
    let points = (0..count)
        .map(|step| (Bytes(size << (2 * step)), first * 4_f64.powf(-power * f64::from(step))));
    MissCurve::new(points).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    #[test]
    fn traffic_is_as_drawn() {
        let (machine, performance) = machine("xeon-x3320");
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        for program in draw(&machine, &performance, 6, 1).unwrap() {
            let (mut lines, mut seconds) = (0.0, 0.0);
            for (phase, &(_, instructions)) in program.phases.iter().zip(&program.course) {
                let on = phase.on(&performance.kinds[0], &Assumptions::default().guesses).unwrap();
                assert!(on.guessed.is_empty(), "{:?}", on.guessed);
                let pu = machine.cores[0].pus[0];
                let rate =
                    model.alone(&PlacedTask { pu, demand: &on.demand, pages: &[], space: 0 });
                let instructions = instructions as f64;
                lines += rate.misses.last().unwrap() * instructions / 1e6;
                seconds += instructions / rate.instructions_per_second;
            }
            assert!((lines / seconds / program.traffic - 1.0).abs() < 1e-4, "{program:?}");
            assert!((TRAFFIC[0] / 2.0..=TRAFFIC[1] * 2.0).contains(&program.traffic));
            assert!((1..=PHASES).contains(&program.phases.len()));
        }
    }

    #[test]
    fn the_same_for_the_same_seed() {
        let (machine, performance) = machine("xeon-e5645");
        let drawn = |seed| draw(&machine, &performance, 3, seed).unwrap();
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
