//! SMT-Bench on one core: a kernel beside itself (the paper's scenario B) and beside another (C), as time
//! relative to the kernel alone (A).

use super::Study;
use crate::replication::StudyError;
use crate::simulate::figures::Spread;
use colocate_machine::{Machine, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::{Assumptions, Model, Phase, Seat};
use serde::{Deserialize, Serialize};

/// Times relative to alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The kernels.
    pub kernels: Vec<String>,
    /// Each beside a copy of itself.
    pub same: Vec<Spread>,
    /// The geometric mean of these: scenario B.
    pub scenario_b: Spread,
    /// The greatest of these.
    pub worst_b: Spread,
    /// The geometric mean of both times of every pair of different kernels: scenario C over all pairs.
    pub scenario_c: Spread,
    /// The geometric mean over the kernels of the time beside the partner that slows it down least:
    /// scenario C with the best partner.
    pub best_c: Spread,
}

/// One draw.
struct Drawn {
    same: Vec<f64>,
    all: Vec<f64>,
    best: Vec<f64>,
}

/// SMT-Bench's scenarios with these kernels.
///
/// # Errors
/// [`StudyError`] if the machine has no siblings, or it or a kernel cannot be modelled.
pub fn figures(study: &Study<'_>, kernels: &[Phase]) -> Result<Figures, StudyError> {
    let siblings = siblings(study.machine)?;
    let drawn: Vec<Drawn> = study
        .draws
        .iter()
        .map(|draw| one(study, siblings, kernels, draw))
        .collect::<Result<_, _>>()?;
    let over =
        |of: &dyn Fn(&Drawn) -> f64| Spread::over(&drawn.iter().map(of).collect::<Vec<_>>(), 0.0);
    let same = (0..kernels.len()).map(|kernel| over(&|drawn| drawn.same[kernel]));
    Ok(Figures {
        kernels: kernels.iter().map(|kernel| kernel.name.clone()).collect(),
        same: same.collect(),
        scenario_b: over(&|drawn| geometric_mean(&drawn.same)),
        worst_b: over(&|drawn| drawn.same.iter().copied().fold(0.0, f64::max)),
        scenario_c: over(&|drawn| geometric_mean(&drawn.all)),
        best_c: over(&|drawn| geometric_mean(&drawn.best)),
    })
}

/// The geometric mean; 1 of nothing.
#[allow(clippy::cast_precision_loss)] // a few hundred at most
fn geometric_mean(times: &[f64]) -> f64 {
    let sum = times.iter().fold(0.0, |sum, time| sum + time.ln());
    (sum / times.len().max(1) as f64).exp()
}

/// Two PUs of the first core that has two.
///
/// # Errors
/// [`StudyError::NoSiblings`] if there is none.
pub fn siblings(machine: &Machine) -> Result<[PuIdx; 2], StudyError> {
    let core = machine.cores.iter().find_map(|core| core.pus.first_chunk());
    core.copied().ok_or_else(|| StudyError::NoSiblings { found: machine.name.clone() })
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
    let demand = |kernel: &Phase| -> Result<Demand, StudyError> {
        let wrong = |reason| StudyError::Phase { name: kernel.name.clone(), reason };
        Ok(kernel.on(kind, &draw.guesses).map_err(wrong)?.demand)
    };
    let demands: Vec<Demand> = kernels.iter().map(demand).collect::<Result<_, _>>()?;
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
