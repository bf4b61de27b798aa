//! SMT-Bench on one core: a kernel beside itself (the paper's scenario B) and beside another (C), as time
//! relative to the kernel alone (A).

use super::report::Fact;
use super::{Study, StudyError, demand};
use crate::parts::seat;
use crate::published;
use crate::simulate::figures::Spread;
use colocate_figures::stats;
use colocate_machine::{Machine, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::{Assumptions, Model, Phase};

/// Slowdowns under one set of assumptions: time beside another kernel over time alone.
struct DrawSlowdowns {
    /// Each kernel beside a copy of itself.
    same: Vec<f64>,
    /// Each kernel beside each other kernel.
    all: Vec<f64>,
    /// Each kernel beside the partner that slows it down least.
    best: Vec<f64>,
}

/// SMT-Bench's scenarios with `kernels`: each kernel beside a copy of itself; the geometric mean
/// and the greatest of these slowdowns; the geometric mean over all pairs of different kernels; the
/// geometric mean beside the partners that slow down least.
///
/// # Errors
/// [`StudyError`] if the machine has no siblings, or the machine or a kernel cannot be modelled.
pub fn facts(study: &Study<'_>, kernels: &[Phase]) -> Result<Vec<Fact>, StudyError> {
    let siblings = siblings(study.machine)?;
    let drawn = study.draws.iter().map(|draw| one(study, siblings, kernels, draw));
    let drawn = drawn.collect::<Result<Vec<DrawSlowdowns>, _>>()?;
    let mut facts: Vec<Fact> = Vec::new();
    for (place, kernel) in kernels.iter().enumerate() {
        let name = format!("{} beside itself", kernel.name);
        let value = over(&drawn, |drawn| drawn.same[place]);
        facts.push(Fact { name, value, published: None });
    }
    // In the order of the published rows.
    let means = [
        over(&drawn, |drawn| mean(&drawn.same)),
        over(&drawn, |drawn| drawn.same.iter().copied().fold(0.0, f64::max)),
        over(&drawn, |drawn| mean(&drawn.all)),
        over(&drawn, |drawn| mean(&drawn.best)),
    ];
    let rows = published::rows("serpa").filter(|row| row.figure == "SMT-Bench");
    facts.extend(rows.zip(means).map(|(row, value)| Fact {
        name: row.case.to_owned(),
        value,
        published: Some(row.into()),
    }));
    Ok(facts)
}

fn over(drawn: &[DrawSlowdowns], of: impl Fn(&DrawSlowdowns) -> f64) -> Spread {
    Spread::over(&drawn.iter().map(of).collect::<Vec<_>>(), 0.0)
}

fn mean(times: &[f64]) -> f64 {
    stats::geometric_mean(times).unwrap_or(1.0)
}

/// First two PUs of the first core with two PUs or more.
///
/// # Errors
/// [`StudyError::Unsuitable`] if no core has two PUs.
pub fn siblings(machine: &Machine) -> Result<[PuIdx; 2], StudyError> {
    let core = machine.cores.iter().find_map(|core| core.pus.first_chunk());
    core.copied().ok_or_else(|| {
        let found = format!("{}, whose cores have one PU each", machine.name);
        StudyError::Unsuitable("a machine with SMT".to_owned(), found)
    })
}

/// Slowdowns under the assumptions `draw`.
fn one(
    study: &Study<'_>,
    siblings: [PuIdx; 2],
    kernels: &[Phase],
    draw: &Assumptions,
) -> Result<DrawSlowdowns, StudyError> {
    let model = Model::new(study.machine, study.performance, *draw)?;
    let core = study.machine.core_of(siblings[0]);
    let kind = &study.performance.kinds[study.machine.cores[core.idx()].kind.idx()];
    let demands = kernels.iter().map(|kernel| demand(kernel, kind, draw));
    let demands: Vec<Demand> = demands.collect::<Result<_, _>>()?;
    // Two programs, each with an address space of its own.
    let seat = |space: u32, kernel: usize| seat(siblings[space as usize], &demands[kernel], space);
    let alone: Vec<f64> = (0..kernels.len())
        .map(|kernel| model.alone(&seat(0, kernel)).instructions_per_second)
        .collect();
    let beside = |kernel: usize, other: usize| {
        let both = model.predict(&[seat(0, kernel), seat(1, other)]);
        alone[kernel] / both.tasks[0].instructions_per_second
    };
    let mut drawn = DrawSlowdowns { same: Vec::new(), all: Vec::new(), best: Vec::new() };
    for kernel in 0..kernels.len() {
        drawn.same.push(beside(kernel, kernel));
        let others = (0..kernels.len()).filter(|&other| other != kernel);
        let others: Vec<f64> = others.map(|other| beside(kernel, other)).collect();
        drawn.best.push(others.iter().copied().fold(f64::INFINITY, f64::min));
        drawn.all.extend(others);
    }
    Ok(drawn)
}
