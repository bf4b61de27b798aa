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

use super::pairs::{self, Metrics, PolicyFigures, beside_both, job, kept, scenario};
use super::{Study, StudyError};
use crate::simulate::figures::{Metric, Run};
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_policy::PolicySpec;
use colocate_sim::scenario::Method;
use colocate_sim::{Options, Platform, simulate};
use serde::{Deserialize, Serialize};

/// Length of the shorter application, in percent of the longer one's.
const LENGTHS: [u64; 4] = [100, 75, 50, 25];
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

/// How many pieces of work there are.
#[must_use]
pub fn count(study: &Study<'_>) -> usize {
    LENGTHS.len() * study.draws.len()
}

/// One piece: one length with one set of assumptions, `[policy][seed]`, with an application of which the
/// demand is `phase`.
///
/// # Errors
/// [`StudyError`] of a simulation.
///
/// # Panics
/// If there is no such piece.
pub fn piece(
    study: &Study<'_>,
    phase: &Phase,
    piece: usize,
) -> Result<Vec<Vec<Metrics>>, StudyError> {
    let (percent, draw) = (LENGTHS[piece / study.draws.len()], piece % study.draws.len());
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let options = Options { alone: false, ..Options::default() };
    let one = |policy: &str, seed: u32| -> Result<Metrics, StudyError> {
        let mut jobs = scenario(study, [phase, phase], study.seed.wrapping_add(seed.into()));
        jobs.method = Method::Leave;
        let shorter = Nanos(study.alone.0 / 100 * percent);
        jobs.jobs = vec![job(study, "longer", 0, study.alone), job(study, "shorter", 1, shorter)];
        let outcome = simulate(&platform, &jobs, &PolicySpec::named(policy), &options)?;
        let mut metrics = Metrics::default();
        metrics[pairs::place(Metric::Slowest)] =
            outcome.jobs[0].took().filter(|_| outcome.complete).map(Nanos::as_secs_f64);
        Ok(metrics)
    };
    let of = |policy: &str| (0..study.seeds).map(|seed| one(policy, seed)).collect();
    POLICIES.into_iter().map(of).collect()
}

/// The figures of all pieces, in their order.
///
/// # Panics
/// If there are not as many as [`count`] says.
#[must_use]
pub fn figures(study: &Study<'_>, done: &[Vec<Vec<Metrics>>]) -> Vec<Figures> {
    assert_eq!(done.len(), count(study), "every piece");
    let names: Vec<String> = POLICIES.iter().map(ToString::to_string).collect();
    let figures = |(percent, done): (u64, &[Vec<Vec<Metrics>>])| {
        let of_policy = |policy: usize| done.iter().flat_map(move |runs| runs[policy].iter());
        let runs: Vec<Run> =
            (0..names.len()).flat_map(of_policy).map(|metrics| kept(*metrics)).collect();
        let policies = beside_both(&names, [0, 1], study.seeds as usize, &runs, &[Metric::Slowest]);
        #[allow(clippy::cast_precision_loss)] // a percentage
        Figures { length: percent as f64 / 100.0, policies }
    };
    LENGTHS.into_iter().zip(done.chunks(study.draws.len())).map(figures).collect()
}
