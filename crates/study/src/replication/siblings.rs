//! SMT-Bench on one core: a kernel beside itself (the paper's scenario B) and beside another (C), as time
//! relative to the kernel alone (A).

use super::report::Fact;
use super::{Study, StudyError, demand};
use crate::published;
use crate::simulate::figures::Spread;
use colocate_figures::stats;
use colocate_machine::{Machine, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::{Assumptions, Model, Phase, Seat};

/// Times under one set of assumptions.
struct Drawn {
    same: Vec<f64>,
    all: Vec<f64>,
    best: Vec<f64>,
}

/// SMT-Bench's scenarios with these kernels: each beside a copy of itself; the geometric mean and the greatest of these; the
/// geometric mean of both times of every pair of different kernels; that of the times beside the partners that slow down least.
///
/// # Errors
/// [`StudyError`] if the machine has no siblings, or it or a kernel cannot be modelled.
pub fn facts(study: &Study<'_>, kernels: &[Phase]) -> Result<Vec<Fact>, StudyError> {
    let siblings = siblings(study.machine)?;
    let one = |draw| one(study, siblings, kernels, draw);
    let drawn: Vec<Drawn> = study.draws.iter().map(one).collect::<Result<_, _>>()?;
    let over =
        |of: &dyn Fn(&Drawn) -> f64| Spread::over(&drawn.iter().map(of).collect::<Vec<_>>(), 0.0);
    let mut facts: Vec<Fact> = Vec::new();
    for (place, kernel) in kernels.iter().enumerate() {
        let name = format!("{} beside itself", kernel.name);
        facts.push(Fact { name, value: over(&|drawn| drawn.same[place]), published: None });
    }
    let mean = |times: &[f64]| stats::geometric_mean(times).unwrap_or(1.0);
    let means = [
        over(&|drawn| mean(&drawn.same)),
        over(&|drawn| drawn.same.iter().copied().fold(0.0, f64::max)),
        over(&|drawn| mean(&drawn.all)),
        over(&|drawn| mean(&drawn.best)),
    ];
    let rows = published::rows("serpa").filter(|row| row.figure == "SMT-Bench");
    facts.extend(rows.zip(means).map(|(row, value)| Fact {
        name: row.case.to_owned(),
        value,
        published: Some(row.into()),
    }));
    Ok(facts)
}

/// Two PUs of the first core that has two.
///
/// # Errors
/// [`StudyError::Unsuitable`] if there is none.
pub fn siblings(machine: &Machine) -> Result<[PuIdx; 2], StudyError> {
    let core = machine.cores.iter().find_map(|core| core.pus.first_chunk());
    core.copied().ok_or_else(|| {
        let found = format!("{}, whose cores have one PU each", machine.name);
        StudyError::Unsuitable("a machine with SMT".to_owned(), found)
    })
}

fn one(
    study: &Study<'_>,
    siblings: [PuIdx; 2],
    kernels: &[Phase],
    draw: &Assumptions,
) -> Result<Drawn, StudyError> {
    let model = Model::new(study.machine, study.performance, *draw)?;
    let core = study.machine.core_of(siblings[0]);
    let kind = &study.performance.kinds[study.machine.cores[core.idx()].kind.idx()];
    let demands = kernels.iter().map(|kernel| demand(kernel, kind, draw));
    let demands: Vec<Demand> = demands.collect::<Result<_, _>>()?;
    let seat = |place: usize, kernel: usize| Seat {
        pu: siblings[place],
        demand: &demands[kernel],
        pages: &[],
        space: u32::from(place == 1),
    };
    let alone: Vec<f64> = (0..kernels.len())
        .map(|kernel| model.alone(&seat(0, kernel)).instructions_per_second)
        .collect();
    let beside = |kernel: usize, other: usize| {
        let both = model.predict(&[seat(0, kernel), seat(1, other)]);
        alone[kernel] / both.tasks[0].instructions_per_second
    };
    let mut drawn = Drawn { same: Vec::new(), all: Vec::new(), best: Vec::new() };
    for kernel in 0..kernels.len() {
        drawn.same.push(beside(kernel, kernel));
        let others = (0..kernels.len()).filter(|&other| other != kernel);
        let others: Vec<f64> = others.map(|other| beside(kernel, other)).collect();
        drawn.best.push(others.iter().copied().fold(f64::INFINITY, f64::min));
        drawn.all.extend(others);
    }
    Ok(drawn)
}
