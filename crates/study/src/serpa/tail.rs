//! The tail of the paper's metric: where two applications differ in nothing but their length, the time of
//! the longer one still depends on the placement.
//!
//! Under `round-robin` the threads of one application share cores with each other, also when the other
//! application has ended and half of the machine is idle. Under a placement that puts one of each on a
//! core, the longer one then has whole cores. With `s` the slowdown beside a sibling and `r` the length
//! of the shorter relative to the longer application, both as under full load, the longer one takes
//! `r + (1 − r) / s` of the time: it gains `(1 − 1/s)(1 − r)`, with nothing matched at all.
//!
//! Beside `os` the same is told: there it depends on how soon the kernel spreads the threads that are left.

use super::Study;
use super::pairs::{self, FIGURES, Metrics, PolicyFigures, beside_both, job, scenario};
use crate::replication::{Done, Grid, StudyError, seeds};
use crate::simulate::figures::Metric;
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_policy::PolicySpec;
use colocate_sim::scenario::Method;
use colocate_sim::{Options, Platform, simulate};
use serde::{Deserialize, Serialize};

/// Length of the shorter application, in percent of the longer one's.
const LENGTHS: [u32; 4] = [100, 75, 50, 25];
/// The paper's baselines, and a placement with one thread of each application on every core: `scatter` fills
/// one PU a core before any second one, first with all of one, then with all of the other.
pub(super) const POLICIES: [&str; 3] = ["os", "round-robin", "scatter"];

/// Two copies of one application, one of them shorter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Length of the shorter one, as part of the longer one's.
    pub length: f64,
    /// Time of the longer one; `scatter` puts one thread of each on every core.
    pub policies: Vec<PolicyFigures>,
}

/// How many cells there are: a length each.
pub(super) const CELLS: usize = LENGTHS.len();

/// One length with one set of assumptions, with an application of which the demand is `phase`.
pub(super) fn under_all(
    study: &Study<'_>,
    phase: &Phase,
    cell: usize,
    draw: usize,
) -> Result<Done<FIGURES>, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let options = Options { alone: false, ..Options::default() };
    let shorter = Nanos(study.alone.0 / 100 * u64::from(LENGTHS[cell]));
    let one = |policy: &str, seed: u64| -> Result<Metrics, StudyError> {
        let mut jobs = scenario(study, [phase, phase], seed);
        jobs.method = Method::Leave;
        jobs.jobs = vec![job(study, "longer", 0, study.alone), job(study, "shorter", 1, shorter)];
        let outcome = simulate(&platform, &jobs, &PolicySpec::named(policy), &options)?;
        let took = outcome.jobs[0].took().filter(|_| outcome.complete);
        let mut metrics = Metrics::default();
        metrics[pairs::place(Metric::Slowest)] = took.map(Nanos::as_secs_f64);
        Ok(metrics)
    };
    let of = |policy| seeds(study.seed, study.seeds).map(|seed| one(policy, seed)).collect();
    POLICIES.into_iter().map(of).collect()
}

/// The figures of all cells.
pub(super) fn figures(grid: Grid<'_, FIGURES>) -> Vec<Figures> {
    let of_cell = |(cell, percent): (usize, u32)| Figures {
        length: f64::from(percent) / 100.0,
        policies: beside_both(&POLICIES, &[Metric::Slowest], |policy, metric| {
            grid.column(cell, policy, pairs::place(metric))
        }),
    };
    LENGTHS.into_iter().enumerate().map(of_cell).collect()
}
