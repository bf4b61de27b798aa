//! Demand vector with a measured rate: unknown figures are chosen to reproduce the measured solo
//! rate.
//!
//! # Problem
//! If a task's rate is known and the reasons are not, arbitrary guesses yield another rate. Only
//! guesses that yield the measured rate can be right.
//!
//! # Approach
//! Guesses move along one path on which the cycles of an instruction never fall, to the point of
//! the measured cycles. Known figures never move.
//!
//! # Terms
//! - drawn: a guess of the assumptions; a moved guess begins or passes there.
//! - stalls: the guessed ones among `misses`, `stall-cycles` and `branch-misses`.
//! - `d`: `dependent-cycles`, if guessed.
//!
//! # The path
//! - From 0 to 1: stalls rise from none to those drawn; `d` is as drawn, but no more than the ports
//!   and the front end need, so that it costs nothing.
//! - From 1 to 2: `d` rises to the most that is plausible. With stalls as drawn, the unknown
//!   dependencies explain the rate.
//! - From 2: all guessed figures of both rise further. The rest is divided by the position of the
//!   drawn `d` in its range: a rate alone does not show the cause of cycles beyond all guesses.
//!
//! # Properties
//! - **As fast as measured**: wherever known figures and limits allow, the rate alone is the
//!   measured one. → `as_fast_as_measured`
//! - **Known stays**: known figures are unchanged. → `what_is_known_stays`

use super::{CpiStack, Model, PlacedTask};
use crate::phase::{Demand, Guessed, Guesses, Known, Phase, PhaseError, typical_misses};
use colocate_machine::PuIdx;

/// Relative tolerance of the solo rate. Chosen: five times the tolerance of the search for rates.
const NEAR: f64 = 5e-4;
/// Most predictions. Chosen: bisection with as many steps reaches any number.
const TRIES: u32 = 60;
/// End of the path. Chosen: a hundred times slower than the slowest plausible guess.
const END: f64 = 1e4;
/// Least share of dependencies in the cycles beyond all plausible guesses: misses are limited.
const LEAST_PART: f64 = 0.1;
/// Limit of guessed misses, as a multiple of the typical: one an instruction with 32 KiB.
const MOST_MISSES: f64 = 50.0;

impl Model<'_> {
    /// Figures of the phase for a PU, with this model's guesses for unknown components. If the
    /// phase has cycles measured on this machine's processor, guesses are adjusted to them. With
    /// several kinds of cores they are not: the kind on which cycles were counted is unknown.
    ///
    /// # Errors
    /// As [`Phase::on`].
    ///
    /// # Panics
    /// If the PU is not of the machine.
    pub fn demand(&self, phase: &Phase, pu: PuIdx) -> Result<Demand, PhaseError> {
        let kind = self.machine.cores[self.machine.core_of(pu).idx()].kind;
        let core = &self.performance.kinds[kind.idx()];
        let guesses = &self.assumptions.guesses;
        let drawn = phase.on(core, guesses)?;
        let measured = phase.cycles_on(self.machine.processor.as_deref());
        let counts = self.machine.kinds.len() == 1 && GuessPath::moves(&drawn.guessed);
        let Some(measured) = measured.filter(|_| counts) else {
            return Ok(drawn.demand);
        };
        let mut path = GuessPath { phase, guesses, guessed: &drawn.guessed, unbound: 0.0 };
        // Without dependencies the core takes the cycles of its front end and its ports.
        path.unbound = self.solo(&path.at(0.0).on(core, guesses)?.demand, pu).core;
        meet(measured, &mut |x| {
            let demand = path.at(x).on(core, guesses)?.demand;
            Ok((self.solo(&demand, pu).total(), demand))
        })
    }

    fn solo(&self, demand: &Demand, pu: PuIdx) -> CpiStack {
        self.alone(&PlacedTask { pu, demand, pages: &[], space: 0 }).cpi
    }
}

/// Demand on the path with `measured` cycles, or the nearest.
fn meet(
    measured: f64,
    cycles: &mut impl FnMut(f64) -> Result<(f64, Demand), PhaseError>,
) -> Result<Demand, PhaseError> {
    // Logarithms, since cycles on the path span several powers of ten.
    let mut at = |x: f64| cycles(x).map(|(cycles, demand)| ((cycles / measured).ln(), demand));
    let mut low = (0.0, 0.0);
    let mut high = (1.0, 0.0);
    let (off, demand) = at(1.0)?;
    if off.abs() < NEAR {
        return Ok(demand);
    }
    high.1 = off;
    if off > 0.0 {
        let (off, demand) = at(0.0)?;
        low.1 = off;
        // Slower in the model than measured, even without stalls.
        if off >= -NEAR {
            return Ok(demand);
        }
    }
    while high.1 < 0.0 {
        low = high;
        // The path bends at 1 and 2; beyond, all figures grow in proportion and steps may grow as
        // well.
        high.0 = if high.0 < 2.0 { 2.0 } else { high.0 * 4.0 };
        let (off, demand) = at(high.0)?;
        high.1 = off;
        if off.abs() < NEAR || (off < 0.0 && high.0 > END) {
            return Ok(demand);
        }
    }
    let mut side = 0;
    for left in (0..TRIES).rev() {
        // False position with halved weights (the Illinois method, Dowell and Jarratt, BIT 1971),
        // and bisection every fourth time, where the path is level at one end.
        let share = low.1 / (low.1 - high.1);
        // A step close to either end would leave almost the whole interval.
        let share = if left % 4 == 0 { 0.5 } else { share.clamp(0.02, 0.98) };
        let middle = low.0 + share * (high.0 - low.0);
        let (off, demand) = at(middle)?;
        // The last try counts however far off.
        if off.abs() < NEAR || left == 0 {
            return Ok(demand);
        }
        if off < 0.0 {
            low = (middle, off);
            high.1 *= if side < 0 { 0.5 } else { 1.0 };
            side = -1;
        } else {
            high = (middle, off);
            low.1 *= if side > 0 { 0.5 } else { 1.0 };
            side = 1;
        }
    }
    at(high.0).map(|(_, demand)| demand)
}

/// Ways to fill in the unknown figures of a phase, from fast to slow.
struct GuessPath<'a> {
    phase: &'a Phase,
    guesses: &'a Guesses,
    guessed: &'a [Guessed],
    /// Core cycles per instruction without dependencies.
    unbound: f64,
}

impl GuessPath<'_> {
    const STALLS: [Guessed; 3] = [Guessed::MissFactor, Guessed::StallCycles, Guessed::BranchMisses];

    /// Whether any guess can be moved.
    fn moves(guessed: &[Guessed]) -> bool {
        guessed.iter().any(|one| *one == Guessed::DependentCycles || Self::STALLS.contains(one))
    }

    fn is(&self, guessed: Guessed) -> bool {
        self.guessed.contains(&guessed)
    }

    /// Share of dependencies in the cycles beyond all guesses.
    fn part(&self) -> f64 {
        if !self.is(Guessed::DependentCycles) {
            return 0.0;
        }
        if !Self::STALLS.into_iter().any(|stall| self.is(stall)) {
            return 1.0;
        }
        let range = Guessed::DependentCycles.plausible();
        let drawn = self.guesses.get(Guessed::DependentCycles);
        ((drawn - range.least) / (range.most - range.least)).clamp(LEAST_PART, 1.0)
    }

    /// Phase at position `x` of the path.
    fn at(&self, x: f64) -> Phase {
        let part = self.part();
        let beyond = (x - 2.0).max(0.0);
        let mut phase = self.phase.clone();
        if self.is(Guessed::DependentCycles) {
            let first = self.guesses.get(Guessed::DependentCycles).min(self.unbound);
            let most = Guessed::DependentCycles.plausible().most.max(first);
            let cycles = first + (x - 1.0).clamp(0.0, 1.0) * (most - first) + part * beyond;
            phase.dependent_cycles = chosen(cycles);
        }
        // Without movable dependencies, stalls take their section of the path.
        let until = if self.is(Guessed::DependentCycles) { 1.0 } else { 2.0 };
        let factor = x.min(until) + (1.0 - part) * beyond;
        let drawn = |guessed| factor * self.guesses.get(guessed);
        if self.is(Guessed::MissFactor) {
            let misses = typical_misses(drawn(Guessed::MissFactor).min(MOST_MISSES));
            phase.misses = Known::new(misses, CHOSEN);
        }
        if self.is(Guessed::StallCycles) {
            phase.stall_cycles = chosen(drawn(Guessed::StallCycles));
        }
        if self.is(Guessed::BranchMisses) {
            // An instruction is at most one mispredicted branch; `Phase::check` refuses more.
            phase.branch_misses = chosen(drawn(Guessed::BranchMisses).min(1.0));
        }
        phase
    }
}

const CHOSEN: &str = "chosen so that the rate is the measured one";

fn chosen(figure: f64) -> Known<f64> {
    Known::new(figure, CHOSEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Assumptions;
    use crate::mix::{Mix, Share};
    use crate::phase::MeasuredCycles;
    use colocate_machine::{Machine, Performance, described};

    fn epyc() -> (Machine, Performance) {
        let exact = described::from_toml(described::MACHINES[0].1).unwrap();
        (exact.machine, exact.performance.unwrap())
    }

    fn measured(machine: &Machine, cycles: f64) -> Phase {
        let share = |share| Share::new(share);
        let mix = Mix {
            branch: share(0.1),
            float: share(0.1),
            int: share(0.4),
            load: share(0.25),
            store: share(0.1),
        };
        let processor = machine.processor.clone().unwrap();
        let cycles = Known::new(MeasuredCycles { processor, cycles }, "made up");
        Phase { cycles, ..Phase::of_mix("", mix, "made up") }
    }

    fn alone(model: &Model<'_>, demand: &Demand) -> f64 {
        let seat = PlacedTask { pu: PuIdx(0), demand, pages: &[], space: 0 };
        model.alone(&seat).cpi.total()
    }

    /// From the rate of a core without stalls to far beyond all guesses.
    #[test]
    fn as_fast_as_measured() {
        let (machine, performance) = epyc();
        for assumed in Assumptions::sample(17, 5) {
            let model = Model::new(&machine, &performance, assumed).unwrap();
            for cycles in [0.5, 0.7, 1.0, 1.5, 3.0, 10.0, 100.0] {
                let demand = model.demand(&measured(&machine, cycles), PuIdx(0)).unwrap();
                let found = alone(&model, &demand);
                assert!((found / cycles - 1.0).abs() < 2.0 * NEAR, "{cycles}: {found}");
            }
            // Nothing is faster than the front end, which has 4 to 6 slots a cycle.
            let demand = model.demand(&measured(&machine, 0.1), PuIdx(0)).unwrap();
            let found = alone(&model, &demand);
            assert!((0.1..0.6).contains(&found) && demand.stall_cycles < 1e-12, "{found}");
        }
    }

    /// Only guesses are moved, here the stalls of its own: without misses and dependencies an instruction
    /// with one of 5 slots takes 0.2 cycles, so 0.8 of a measured one are stalls.
    #[test]
    fn what_is_known_stays() {
        let (machine, performance) = epyc();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let known = |figure| Known::new(figure, "made up");
        let phase = Phase {
            slots: known(1.0),
            work: Known::new(crate::phase::PortWork::Kinds(vec![]), "made up"),
            dependent_cycles: known(0.0),
            branch_misses: known(0.0),
            misses: Known::new(typical_misses(0.0), "made up"),
            ..measured(&machine, 1.0)
        };
        let demand = model.demand(&phase, PuIdx(0)).unwrap();
        assert!((performance.kinds[0].width - 5.0).abs() < 1e-12);
        assert!((demand.stall_cycles - 0.8).abs() < 1e-3, "{demand:?}");
        let all = Phase { stall_cycles: known(0.1), ..phase };
        let demand = model.demand(&all, PuIdx(0)).unwrap();
        assert!((demand.stall_cycles - 0.1).abs() < 1e-12 && demand.dependent_cycles <= 0.0);
    }

    /// Cycles measured on another processor have no effect.
    #[test]
    fn another_processor() {
        let (machine, performance) = epyc();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let mut phase = measured(&machine, 3.0);
        let plain = Phase { cycles: Known::Unknown, ..phase.clone() };
        let here = model.demand(&phase, PuIdx(0)).unwrap();
        let processor = "another".to_owned();
        phase.cycles = Known::new(MeasuredCycles { processor, cycles: 3.0 }, "made up");
        let there = model.demand(&phase, PuIdx(0)).unwrap();
        assert_eq!(there, model.demand(&plain, PuIdx(0)).unwrap());
        assert!(here.dependent_cycles > there.dependent_cycles);
    }

    /// Cores of two kinds: the kind of the measurement is unknown.
    #[test]
    fn several_kinds_of_cores() {
        let amp = described::MACHINES.iter().find(|(name, _)| *name == "amp-4x12").unwrap();
        let exact = described::from_toml(amp.1).unwrap();
        let (mut machine, performance) = (exact.machine, exact.performance.unwrap());
        machine.processor = Some("made up".to_owned());
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let phase = measured(&machine, 8.0);
        let plain = Phase { cycles: Known::Unknown, ..phase.clone() };
        for core in [&machine.cores[0], machine.cores.last().unwrap()] {
            let found = model.demand(&phase, core.pus[0]).unwrap();
            assert_eq!(found, model.demand(&plain, core.pus[0]).unwrap());
        }
    }

    /// The cycles never fall on the path.
    #[test]
    fn slower_and_slower() {
        let (machine, performance) = epyc();
        for assumed in Assumptions::sample(9, 2) {
            let model = Model::new(&machine, &performance, assumed).unwrap();
            let phase = Phase { cycles: Known::Unknown, ..measured(&machine, 1.0) };
            let guessed = phase.on(&performance.kinds[0], &assumed.guesses).unwrap().guessed;
            let path = GuessPath {
                phase: &phase,
                guesses: &assumed.guesses,
                guessed: &guessed,
                unbound: 0.4,
            };
            let mut before = 0.0;
            for step in 0..60 {
                let x = f64::from(step) * 0.1;
                let demand = path.at(x).on(&performance.kinds[0], &assumed.guesses).unwrap().demand;
                let cycles = alone(&model, &demand);
                assert!(cycles >= before * (1.0 - 1e-3), "{x}: {cycles} after {before}");
                before = cycles;
            }
        }
    }
}
