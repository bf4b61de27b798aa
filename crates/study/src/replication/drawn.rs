//! Programs that stand for SPEC CPU2006's, of which the slides publish no figures: demand vectors drawn so that
//! their traffic alone lies where that of the published workloads does.
//!
//! # Problem
//! What the programs of the studies demand of a core and of the memory was not published with what we have.
//! # Approach
//! Every component of a demand vector is drawn from what is plausible for it ([`Guessed::plausible`], which
//! docs/method/assumptions.md gives account of). Traffic is drawn first, and the misses are made
//! to fit, alone on the machine under the default assumptions.
//! # Terms
//! - *Traffic*: requests to memory, lines a microsecond (t/µs), alone on the machine.
//! - `a`: how fast misses fall with the size of the cache: as its power `−a`.
//! # Algorithm
//! 1. Traffic of the program: log-uniform in [`TRAFFIC`]; `a` uniform in [`POWER`]; all else uniform over the
//!    plausible range, the lower and the upper half equally likely.
//! 2. One to [`PHASES`] phases, each with up to twice or half of the program's traffic, and a length alone
//!    that is log-uniform in [`LENGTH_S`]. Otherwise phases of a program are alike.
//! 3. The misses of each phase are scaled until it has its traffic. Where that cannot be, as there are too few
//!    misses at a time, all but the traffic of the program is drawn anew, and after [`TRIES`] the traffic, too.
//!
//! # Properties
//! - **Traffic is as drawn** -> test `traffic_is_as_drawn`
//! - **The same for the same seed** -> test `the_same_for_the_same_seed`

use super::{StudyError, demand};
use colocate_figures::stats::Random;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance};
use colocate_model::phase::{Demand, Guessed, Known, Work as PortWork};
use colocate_model::{Assumptions, MissCurve, Model, Phase, Seat};
use colocate_sim::{PhaseIdx, Stretch};

/// Traffic of a program. Chosen: its mean, 8 t/µs, is in the middle of what each context has in the published
/// workloads (20 to 40 t/µs on four cores, 50 to 130 on twelve contexts: 5 to 10, 4 to 11), and the ends are as
/// far apart as those of the published micro-benchmark with its `nop`s and a program that fits into its cache.
pub const TRAFFIC: [f64; 2] = [0.3, 40.0];
/// How fast misses fall. Chosen, around the square root that `typical_misses` takes for a rule of thumb.
pub const POWER: [f64; 2] = [0.3, 0.7];
/// Most phases of a program. Chosen.
pub const PHASES: usize = 4;
/// Length of a phase alone, in seconds. Chosen: from one quantum to ten, so that what a scheduler saw
/// in the last quantum is mostly, not always, true in the next.
pub const LENGTH_S: [f64; 2] = [0.2, 2.0];
/// How often a program is drawn anew that cannot have its traffic. One in a few cannot.
const TRIES: u32 = 200;
/// How often its traffic is, too: the most that one program can have on a machine may be less than what is drawn.
const TRAFFICS: u32 = 20;
/// Sizes of the curve of misses: the first, and four times the last one each.
const SIZES: (u64, u32) = (32 << 10, 7);

/// A program of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name: `p` and a number.
    pub name: String,
    /// What it does.
    pub phases: Vec<Phase>,
    /// Places of phases in the order in which it does them, with their instructions; then it begins anew.
    pub course: Vec<(u32, u64)>,
    /// Mean traffic alone, t/µs.
    pub traffic: f64,
}

impl Program {
    /// Its course, when its first phase is the scenario's at place `first`.
    #[must_use]
    pub fn course(&self, first: u32) -> Vec<Stretch> {
        let stretch = |&(phase, instructions): &(u32, u64)| Stretch {
            phase: PhaseIdx(first + phase),
            instructions,
            sleep: Nanos::ZERO,
            barrier: false,
        };
        self.course.iter().map(stretch).collect()
    }
}

/// As many programs, drawn for a machine.
///
/// # Errors
/// [`StudyError`] if the machine cannot be modelled, or no program on it can have so much traffic.
pub fn draw(
    machine: &Machine,
    performance: &Performance,
    count: usize,
    seed: u64,
) -> Result<Vec<Program>, StudyError> {
    let model = Model::new(machine, performance, Assumptions::default())?;
    let mut draw = Draw { model, machine, performance, random: Random::new(seed) };
    (0..count).map(|number| draw.program(number)).collect()
}

struct Draw<'a> {
    model: Model<'a>,
    machine: &'a Machine,
    performance: &'a Performance,
    random: Random,
}

impl Draw<'_> {
    fn program(&mut self, number: usize) -> Result<Program, StudyError> {
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

    /// `None` if it cannot have its traffic.
    fn try_program(&mut self, number: usize, traffic: f64) -> Result<Option<Program>, StudyError> {
        let power = self.between(POWER);
        let base = self.base(number);
        let count = 1 + self.random.below(PHASES);
        let (mut phases, mut instructions) = (Vec::new(), Vec::new());
        let (mut lines, mut seconds) = (0.0, 0.0);
        for _ in 0..count {
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
        Ok(Some(Program {
            name: format!("p{number}"),
            phases,
            course: (0..).zip(instructions).collect(),
            traffic: lines / seconds,
        }))
    }

    /// All but the misses.
    fn base(&mut self, number: usize) -> Phase {
        let mut known = |guessed: Guessed| known(guessed.plausible().at(self.unit()));
        let slots = known(Guessed::Slots);
        let dependent = known(Guessed::DependentCycles);
        let divided = known(Guessed::DividedFactor);
        let (stall, branch) = (known(Guessed::StallCycles), known(Guessed::BranchMisses));
        let (parallel, written) = (known(Guessed::ParallelMisses), known(Guessed::WrittenBack));
        let cycles = dependent.get().zip(divided.get()).map_or(0.0, |(whole, by)| whole * by);
        Phase {
            name: format!("p{number}"),
            slots,
            work: Known::new(PortWork::Kinds(self.kinds()), SOURCE),
            dependent_cycles: dependent,
            dependent_cycles_divided: self::known(cycles),
            stall_cycles: stall,
            branch_misses: branch,
            parallel_misses: parallel,
            written_back: written,
            shared_lines: self::known(0.0),
            ..Phase::default()
        }
    }

    /// Work by kind, one operation an instruction.
    fn kinds(&mut self) -> Vec<(WorkKind, f64)> {
        let mut of = |guessed: Guessed| guessed.plausible().at(self.unit());
        let (branch, int, float) =
            (of(Guessed::BranchShare), of(Guessed::IntShare), of(Guessed::FloatShare));
        let (load, store) = (of(Guessed::LoadShare), of(Guessed::StoreShare));
        let (mul, div) = (of(Guessed::IntMulPart), of(Guessed::IntDivPart));
        let (float_mul, float_div) = (of(Guessed::FloatMulPart), of(Guessed::FloatDivPart));
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

    /// The phase with misses that give it so much traffic, and its instructions a second; `None` if none do.
    fn with_traffic(
        &self,
        base: &Phase,
        power: f64,
        target: f64,
    ) -> Result<Option<(Phase, f64)>, StudyError> {
        let kind = &self.performance.kinds[0];
        let mut demand = demand(base, kind, &Assumptions::default())?;
        // Every load and store can miss, and no more.
        let (mut least, mut most) = (1e-7, requests(base));
        if self.traffic(&mut demand, curve(most, power)).0 < target {
            return Ok(None);
        }
        // Halved 40 times: to nine digits of the ratio, far more than counts.
        for _ in 0..40 {
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
        let rate = self.model.alone(&Seat { pu, demand, pages: &[], space: 0 });
        let speed = rate.instructions_per_second;
        (rate.misses.last().copied().unwrap_or(0.0) * speed / 1e6, speed)
    }

    /// From 0 to 1.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit
    fn unit(&mut self) -> f64 {
        (self.random.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, [least, most]: [f64; 2]) -> f64 {
        least + (most - least) * self.unit()
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

/// So many misses with the least size, falling with the power `−power` of the size.
fn curve(first: f64, power: f64) -> MissCurve {
    let (size, count) = SIZES;
    let point =
        |step: u32| (Bytes(size << (2 * step)), first * 4_f64.powf(-power * f64::from(step)));
    MissCurve::new((0..count).map(point)).unwrap_or_default()
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
                let rate = model.alone(&Seat { pu, demand: &on.demand, pages: &[], space: 0 });
                #[allow(clippy::cast_precision_loss)]
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
