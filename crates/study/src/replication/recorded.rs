//! Recorded programs (`colocate profile --phases`), in place of drawn programs.
//!
//! # Approach
//! Demand vectors and their order are as recorded; components that were not recorded are guessed, as
//! everywhere. Recorded runs are short, so each stretch of a run is prolonged by one factor: alone,
//! under the default assumptions, a run takes as long as the study's programs do.
//! # Properties
//! - **A run takes as long as requested**, and its traffic is that of its phases by their times -> test `a_run_is_prolonged`

use super::drawn::SyntheticProgram;
use super::{StudyError, demand};
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::phase::PhaseFile;
use colocate_model::{Assumptions, Model, Phase, PlacedTask};

/// A recorded program.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    name: String,
    phases: Vec<Phase>,
    course: Vec<(u32, u64)>,
}

impl Recorded {
    /// A program of a file of demand vectors; `None` if the file has several vectors and no course.
    #[must_use]
    pub fn new(name: String, file: PhaseFile) -> Option<Self> {
        let PhaseFile { phases, mut course, .. } = file;
        if course.is_empty() && phases.len() == 1 {
            // Any number will do, since `programs` prolongs the course.
            course.push((0, 1_000_000_000));
        }
        (!course.is_empty()).then_some(Self { name, phases, course })
    }
}

/// Recorded programs on a machine; each takes `length` alone.
///
/// # Errors
/// [`StudyError`] if the machine cannot be modelled, or a demand vector does not fit its cores.
pub fn programs(
    machine: &Machine,
    performance: &Performance,
    recorded: &[Recorded],
    length: Nanos,
) -> Result<Vec<SyntheticProgram>, StudyError> {
    let assumptions = Assumptions::default();
    let model = Model::new(machine, performance, assumptions)?;
    let pu = machine.cores[0].pus[0];
    let mut programs = Vec::new();
    for Recorded { name, phases, course } in recorded.iter().cloned() {
        // Instructions and lines from memory a second, by phase.
        let mut rates: Vec<(f64, f64)> = Vec::new();
        for phase in &phases {
            let demand = demand(phase, &performance.kinds[0], &assumptions)?;
            let rate = model.alone(&PlacedTask { pu, demand: &demand, pages: &[], space: 0 });
            let speed = rate.instructions_per_second;
            rates.push((speed, rate.misses.last().copied().unwrap_or(0.0) * speed));
        }
        let mut seconds = 0.0;
        let mut lines = 0.0;
        for &(phase, ran) in &course {
            let (speed, traffic) = rates[phase as usize];
            let time = ran as f64 / speed;
            seconds += time;
            lines += time * traffic;
        }
        let factor = length.as_secs_f64() / seconds;
        let course = course.into_iter().map(|(phase, ran)| (phase, prolonged(ran, factor)));
        let course = course.collect();
        programs.push(SyntheticProgram { name, phases, course, traffic: lines / seconds / 1e6 });
    }
    Ok(programs)
}

/// Instructions times `factor`; at least 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn prolonged(instructions: u64, factor: f64) -> u64 {
    (instructions as f64 * factor).round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use colocate_machine::Bytes;
    use colocate_model::MissCurve;
    use colocate_model::phase::Known;

    #[test]
    fn a_run_is_prolonged() {
        let (machine, performance) = machine("xeon-x3320");
        let phase = |misses: f64| Phase {
            slots: Known::new(1.0, "test"),
            misses: Known::new(MissCurve::new([(Bytes::mib(64), misses)]).unwrap(), "test"),
            ..Phase::default()
        };
        let phases = vec![phase(0.0), phase(0.01)];
        let course = vec![(0, 3_000_000), (1, 1_000_000), (0, 3_000_000)];
        let file = PhaseFile { course, ..PhaseFile::new(phases.clone()) };
        let recorded = [Recorded::new("two".into(), file).unwrap()];
        let length = Nanos::from_secs(30);
        let [program] = &programs(&machine, &performance, &recorded, length).unwrap()[..] else {
            panic!("one")
        };
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let rate = |phase: u32| {
            let phase = &phases[phase as usize];
            let demand = demand(phase, &performance.kinds[0], &Assumptions::default()).unwrap();
            let pu = machine.cores[0].pus[0];
            model
                .alone(&PlacedTask { pu, demand: &demand, pages: &[], space: 0 })
                .instructions_per_second
        };
        let seconds = |&(phase, ran): &(u32, u64)| ran as f64 / rate(phase);
        let all: f64 = program.course.iter().map(seconds).sum();
        assert!((all - 30.0).abs() < 1e-6, "{all}");
        assert_eq!(program.course[0], program.course[2]);
        // Only the second phase misses, once in a hundred instructions.
        let lines = program.course[1].1 as f64 * 0.01;
        assert!((program.traffic / (lines / 30.0 / 1e6) - 1.0).abs() < 1e-6, "{}", program.traffic);
    }

    #[test]
    fn several_vectors_need_a_course() {
        let file = |count| PhaseFile::new(vec![Phase::default(); count]);
        assert!(Recorded::new("a".into(), file(1)).is_some());
        assert_eq!(Recorded::new("a".into(), file(2)), None);
    }
}
