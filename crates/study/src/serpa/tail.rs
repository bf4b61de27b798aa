//! The tail of the paper's metric: where two applications differ in nothing but their length, the time of
//! the longer one still depends on the placement.
//!
//! Under `round-robin` the threads of one application share cores with each other, also when the other
//! application has ended and half of the machine is idle. Under a placement that puts one of each on a
//! core, the longer one then has whole cores. With `s` the slowdown beside a sibling and `r` the length
//! of the shorter relative to the longer application, both as under full load, the longer one takes
//! `r + (1 − r) / s` of the time: it gains `(1 − 1/s)(1 − r)`, with nothing matched at all.

use super::pairs::{job, scenario};
use super::{Study, StudyError, spread};
use crate::simulate::figures::Spread;
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_policy::PolicyKind;
use colocate_sim::scenario::Method;
use colocate_sim::{Options, Platform, simulate};
use serde::{Deserialize, Serialize};

/// Length of the shorter application, in percent of the longer one's.
const LENGTHS: [u64; 4] = [100, 75, 50, 25];
/// Time alone of the longer one.
const LONGER: Nanos = Nanos::from_millis(400);

/// Two copies of one application, one of them shorter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Length of the shorter one, as part of the longer one's.
    pub length: f64,
    /// By how much less time the longer one takes with one thread of each on every core than under
    /// `round-robin`, as part of the latter.
    pub gain: Spread,
}

/// The tail for several lengths, with an application of which the demand is `phase`.
///
/// # Errors
/// [`StudyError`] of a simulation.
pub fn figures(study: &Study<'_>, phase: &Phase) -> Result<Vec<Figures>, StudyError> {
    let one = |percent: u64| {
        let gains = study.draws.iter().map(|draw| {
            let platform = Platform::new(study.machine, study.performance, *draw)?;
            let mut jobs = scenario(study, [phase, phase], study.seed);
            jobs.method = Method::Leave;
            let shorter = Nanos(LONGER.0 / 100 * percent);
            jobs.jobs = vec![job(study, "longer", 0, LONGER), job(study, "shorter", 1, shorter)];
            let time = |policy: PolicyKind| -> Result<f64, StudyError> {
                let options = Options { alone: false, ..Options::default() };
                let outcome = simulate(&platform, &jobs, &policy, &options)?;
                Ok(outcome.jobs[0].took().map_or(f64::NAN, Nanos::as_secs_f64))
            };
            // `scatter` fills one PU a core before any second one: first all of one, then all of the other.
            Ok(1.0 - time(PolicyKind::Scatter)? / time(PolicyKind::RoundRobin)?)
        });
        let gains: Vec<f64> = gains.collect::<Result<_, StudyError>>()?;
        #[allow(clippy::cast_precision_loss)] // a percentage
        Ok(Figures { length: percent as f64 / 100.0, gain: spread(&gains) })
    };
    LENGTHS.into_iter().map(one).collect()
}
