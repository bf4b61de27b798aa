//! Two applications with a thread a core each, under every policy.
//!
//! Applications with equal demand vectors behave alike, so equal pairs are simulated once and counted
//! as often as they occur.

use super::definition::StudyTable;
use super::report::CellFigures;
use super::{Kept, PolicyRuns, Study, StudyError};
use crate::metric::Metric;
use crate::parts::{self, segment};
use colocate_machine::{Bytes, Nanos};
use colocate_model::Phase;
use colocate_policy::PolicySpec;
use colocate_sim::run::alone_times;
use colocate_sim::scenario::{
    JobSpec, Method, PhaseIdx, PhaseSpec, Scenario, ThreadSpec, TotalWork,
};
use colocate_sim::{Outcome, Platform, SimulationOptions, simulate};

/// All pairs of different applications.
#[derive(Debug)]
pub struct ApplicationPairs<'a> {
    applications: &'a [Phase],
    /// Every pair, and the index of its equal in `distinct`.
    all: Vec<([usize; 2], usize)>,
    distinct: Vec<[usize; 2]>,
}

impl<'a> ApplicationPairs<'a> {
    /// Makes all pairs of `applications`.
    #[must_use]
    pub fn new(applications: &'a [Phase]) -> Self {
        let mut pairs = Self { applications, all: Vec::new(), distinct: Vec::new() };
        for a in 0..applications.len() {
            for b in a + 1..applications.len() {
                let equal = pairs.distinct.iter().position(|&[c, d]| {
                    is_equal(&applications[a], &applications[c])
                        && is_equal(&applications[b], &applications[d])
                });
                let place = equal.unwrap_or_else(|| {
                    pairs.distinct.push([a, b]);
                    pairs.distinct.len() - 1
                });
                pairs.all.push(([a, b], place));
            }
        }
        pairs
    }

    /// Simulated pairs.
    pub fn cells(&self) -> impl Iterator<Item = [&'a Phase; 2]> {
        self.distinct.iter().map(|pair| pair.map(|place| &self.applications[place]))
    }

    /// Every pair, with the index of its simulated cell.
    #[must_use]
    pub fn reported(&self) -> Vec<(CellFigures, usize)> {
        let figures = self.all.iter().map(|&(pair, cell)| {
            let names = pair.map(|place| self.applications[place].name.clone());
            (CellFigures::of(&[("pair", names.join("+"))], &[], names.to_vec()), cell)
        });
        figures.collect()
    }
}

/// Whether two applications have equal demand vectors; names do not count.
fn is_equal(a: &Phase, b: &Phase) -> bool {
    *a == Phase { name: a.name.clone(), ..b.clone() }
}

/// Report of a length of the second copy.
pub(super) fn shorter(percent: u32) -> CellFigures {
    let length = f64::from(percent) / 100.0;
    CellFigures::of(&[("length", format!("{percent} %"))], &[("length", length)], Vec::new())
}

/// Simulates a pair under every policy and the oracle, which may also choose the placements `also`.
pub(super) fn under_all(
    study: &Study<'_>,
    part: &StudyTable,
    also: &[String],
    pair: [&Phase; 2],
    draw: usize,
) -> Result<PolicyRuns, StudyError> {
    let mut policies: Vec<PolicySpec> = part.known().map(|(_, it)| it.policy).collect();
    let own = policies.len();
    policies.extend(also.iter().map(|name| PolicySpec::named(name)));
    let mut runs = under(study, part, pair, draw, &policies)?;
    let stp = part.place(Metric::Stp).unwrap_or(0);
    // The oracle chooses for each seed anew.
    let oracle = (0..runs[0].len()).filter_map(|seed| {
        let of_seed = runs.iter().map(|runs| &runs[seed]);
        // A run that did not end is never the best.
        of_seed.max_by(|a, b| a[stp].unwrap_or(0.0).total_cmp(&b[stp].unwrap_or(0.0))).cloned()
    });
    let oracle: Vec<Kept> = oracle.collect();
    // Placements that only the oracle may choose are not reported.
    runs.truncate(own);
    runs.push(oracle);
    Ok(runs)
}

/// Simulates a pair under each of `policies`. An application that ends begins anew until both have
/// ended.
fn under(
    study: &Study<'_>,
    part: &StudyTable,
    pair: [&Phase; 2],
    draw: usize,
    policies: &[PolicySpec],
) -> Result<PolicyRuns, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let mut runs = vec![Vec::new(); policies.len()];
    for seed in study.seeds() {
        let scenario = scenario(study, pair, seed);
        let alone = alone_times(&platform, &scenario)?;
        for (runs, policy) in runs.iter_mut().zip(policies) {
            let mut outcome = once(&platform, &scenario, policy)?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            runs.push(part.kept(&outcome));
        }
    }
    Ok(runs)
}

/// Simulates two copies of a typical application; the length of the second is `percent` of the
/// first.
pub(super) fn tail(
    study: &Study<'_>,
    part: &StudyTable,
    percent: u32,
    draw: usize,
) -> Result<PolicyRuns, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let phase = Phase::default();
    let length = study.definition.length;
    let shorter = Nanos(length.0 / 100 * u64::from(percent));
    let mut runs = PolicyRuns::new();
    for (_, contender) in part.known() {
        let mut own: Vec<Kept> = Vec::new();
        for seed in study.seeds() {
            let mut scenario = scenario(study, [&phase, &phase], seed);
            scenario.method = Method::Leave;
            scenario.jobs =
                vec![job(study, "longer", 0, length), job(study, "shorter", 1, shorter)];
            own.push(part.kept(&once(&platform, &scenario, &contender.policy)?));
        }
        runs.push(own);
    }
    Ok(runs)
}

fn once(
    platform: &Platform<'_>,
    scenario: &Scenario,
    policy: &PolicySpec,
) -> Result<Outcome, StudyError> {
    let options = SimulationOptions { alone: false, ..SimulationOptions::default() };
    Ok(simulate(platform, scenario, policy, &options)?)
}

/// Two applications with a thread a core each. The time limit is an hour, or a hundred times the
/// length if that is later.
fn scenario(study: &Study<'_>, pair: [&Phase; 2], seed: u64) -> Scenario {
    let length = study.definition.length;
    let jobs = pair.iter().zip(0..).map(|(phase, place)| job(study, &phase.name, place, length));
    let phases = pair.iter().map(|&phase| PhaseSpec::of(phase.clone())).collect();
    let name = format!("{} and {}", pair[0].name, pair[1].name);
    let horizon = Nanos::from_secs(3600).max(Nanos(length.0.saturating_mul(100)));
    let times = [study.definition.quantum, horizon];
    let scenario = parts::scenario(&name, phases, jobs.collect(), times);
    Scenario { seed, method: Method::Restart, ..scenario }
}

/// An application with a thread a core; its threads do the phase with index `phase`.
fn job(study: &Study<'_>, name: &str, phase: u32, length: Nanos) -> JobSpec {
    let course = vec![segment(PhaseIdx(phase), 1_000_000_000)];
    let thread = parts::thread("", course, TotalWork::AloneFor(length));
    let threads = (0..study.machine.cores.len()).map(|order| ThreadSpec {
        name: format!("{name}-{order}"),
        resident: Bytes::mib(32),
        ..thread.clone()
    });
    parts::job(name, threads.collect())
}
