//! Two applications with a thread a core each, under every policy.
//!
//! Applications of which the same is known behave alike, so pairs of them are simulated once and counted as often as they
//! stand for.

use super::definition::Part;
use super::report::CellFigures;
use super::{Done, Kept, Study, StudyError};
use crate::metric::Metric;
use crate::simulate::contender::Contender;
use colocate_machine::{Bytes, Nanos};
use colocate_model::Phase;
use colocate_policy::PolicySpec;
use colocate_sim::run::alone_times;
use colocate_sim::scenario::{
    JobSpec, Method, Pages, PhaseIdx, PhaseSpec, Scenario, Stretch, ThreadSpec, Work,
};
use colocate_sim::{Kernel, Options, Outcome, Platform, simulate};

/// All pairs of different applications.
#[derive(Debug)]
pub struct Pairs<'a> {
    applications: &'a [Phase],
    /// Of every pair, the place of the one in `distinct` that stands for it.
    all: Vec<([usize; 2], usize)>,
    distinct: Vec<[usize; 2]>,
}

impl<'a> Pairs<'a> {
    /// All pairs of `applications`.
    #[must_use]
    pub fn new(applications: &'a [Phase]) -> Self {
        // Whether the same is known of both, their names aside.
        let alike = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|place| &applications[place]);
            *a == Phase { name: a.name.clone(), ..b.clone() }
        };
        let mut pairs = Self { applications, all: Vec::new(), distinct: Vec::new() };
        for a in 0..applications.len() {
            for b in a + 1..applications.len() {
                let same = |&[c, d]: &[usize; 2]| alike(a, c) && alike(b, d);
                let place = pairs.distinct.iter().position(same).unwrap_or_else(|| {
                    pairs.distinct.push([a, b]);
                    pairs.distinct.len() - 1
                });
                pairs.all.push(([a, b], place));
            }
        }
        pairs
    }

    /// The pairs that are simulated.
    pub fn cells(&self) -> impl Iterator<Item = [&'a Phase; 2]> {
        self.distinct.iter().map(|pair| pair.map(|place| &self.applications[place]))
    }

    /// Every pair, with the place of the one that stands for it.
    #[must_use]
    pub fn reported(&self) -> Vec<(CellFigures, usize)> {
        let names = |pair: [usize; 2]| pair.map(|place| self.applications[place].name.clone());
        let figures = |&(pair, cell): &([usize; 2], usize)| {
            let names = names(pair);
            (CellFigures::of(&[("pair", names.join("+"))], &[], names.to_vec()), cell)
        };
        self.all.iter().map(figures).collect()
    }
}

/// What is reported of a length of the second copy.
pub(super) fn shorter(percent: u32) -> CellFigures {
    let length = f64::from(percent) / 100.0;
    CellFigures::of(&[("length", format!("{percent} %"))], &[("length", length)], Vec::new())
}

/// A pair under every policy and the oracle, which may choose the placements `also` as well.
pub(super) fn under_all(
    study: &Study<'_>,
    part: &Part,
    also: &[String],
    pair: [&Phase; 2],
    draw: usize,
) -> Result<Done, StudyError> {
    let mut policies: Vec<PolicySpec> = part.known().map(|(_, it)| it.policy).collect();
    let own = policies.len();
    policies.extend(also.iter().map(|name| PolicySpec::named(name)));
    let mut runs = under(study, part, pair, draw, &policies)?;
    let stp = part.place(Metric::Stp).unwrap_or(0);
    let best = |seed: usize| {
        let of_seed = runs.iter().map(|runs| &runs[seed]);
        of_seed.max_by(|a, b| a[stp].unwrap_or(0.0).total_cmp(&b[stp].unwrap_or(0.0))).cloned()
    };
    let oracle: Vec<Kept> = (0..runs[0].len()).filter_map(best).collect();
    runs.truncate(own);
    runs.push(oracle);
    Ok(runs)
}

/// A pair under each of `policies`. An application that ends begins anew until both have ended.
fn under(
    study: &Study<'_>,
    part: &Part,
    pair: [&Phase; 2],
    draw: usize,
    policies: &[PolicySpec],
) -> Result<Done, StudyError> {
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

/// Two copies of a typical application, the second of `percent` of the length.
pub(super) fn tail(
    study: &Study<'_>,
    part: &Part,
    percent: u32,
    draw: usize,
) -> Result<Done, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let (phase, length) = (Phase::default(), study.definition.length);
    let shorter = Nanos(length.0 / 100 * u64::from(percent));
    let under_one = |(_, Contender { policy, .. }): (_, Contender)| {
        let one = |seed| -> Result<Kept, StudyError> {
            let mut scenario = scenario(study, [&phase, &phase], seed);
            scenario.method = Method::Leave;
            scenario.jobs =
                vec![job(study, "longer", 0, length), job(study, "shorter", 1, shorter)];
            Ok(part.kept(&once(&platform, &scenario, &policy)?))
        };
        study.seeds().map(one).collect()
    };
    part.known().map(under_one).collect()
}

fn once(
    platform: &Platform<'_>,
    scenario: &Scenario,
    policy: &PolicySpec,
) -> Result<Outcome, StudyError> {
    let options = Options { alone: false, ..Options::default() };
    Ok(simulate(platform, scenario, policy, &options)?)
}

/// Two applications with a thread a core each. A simulation that does not end is ended after an hour, or a hundred times the
/// length where that is later.
fn scenario(study: &Study<'_>, pair: [&Phase; 2], seed: u64) -> Scenario {
    let length = study.definition.length;
    let jobs = pair.iter().zip(0..).map(|(phase, place)| job(study, &phase.name, place, length));
    Scenario {
        name: format!("{} and {}", pair[0].name, pair[1].name),
        seed,
        phases: pair.iter().map(|&phase| PhaseSpec::of(phase.clone())).collect(),
        jobs: jobs.collect(),
        method: Method::Restart,
        quantum: study.definition.quantum,
        grain: Nanos::ZERO,
        horizon: Nanos::from_secs(3600).max(Nanos(length.0.saturating_mul(100))),
        usable: None,
        events: Vec::new(),
        kernel: Kernel::default(),
    }
}

/// An application with a thread a core, whose threads do the phase at `phase`.
fn job(study: &Study<'_>, name: &str, phase: u32, length: Nanos) -> JobSpec {
    let thread = |order: usize| ThreadSpec {
        name: format!("{name}-{order}"),
        born: Nanos::ZERO,
        course: vec![Stretch {
            phase: PhaseIdx(phase),
            instructions: 1_000_000_000,
            sleep: Nanos::ZERO,
            barrier: false,
        }],
        work: Work::AloneFor(length),
        pages: Pages::FirstTouch,
        resident: Bytes::mib(32),
    };
    JobSpec {
        memory: Vec::new(),
        name: name.to_owned(),
        arrives: Nanos::ZERO,
        threads: (0..study.machine.cores.len()).map(thread).collect(),
        barrier: None,
    }
}
