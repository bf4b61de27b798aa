//! Two applications with as many threads as cores each, under every policy: the paper's all-pairs study.
//!
//! Both applications last equally long alone, and one that has ended begins anew until both have: so
//! nobody is ever alone on the machine, and what is seen is the effect of who shares a core with whom.
//! The paper's own metric, the time of the slower application, is told beside throughput and unfairness.
//!
//! Applications of which the same is known behave alike, so pairs of them are simulated once and counted as
//! often as they stand for.

use super::Study;
use crate::replication::{Done, Grid, StudyError, count, seeds};
use crate::simulate::figures::{Column, Metric, MetricFigures, Run, Spread};
use colocate_machine::{Bytes, Nanos};
use colocate_model::{Assumptions, Phase};
use colocate_policy::PolicySpec;
use colocate_sim::run::alone_times;
use colocate_sim::scenario::{
    JobSpec, Method, Pages, PhaseIdx, PhaseSpec, Scenario, Stretch, ThreadSpec, Work,
};
use colocate_sim::{Kernel, Options, Platform, simulate};
use serde::{Deserialize, Serialize};

/// The policies that are compared, the paper's baselines first.
pub const POLICIES: [&str; 5] = ["os", "round-robin", "instruction", "mix", "symbiosis-model"];
/// Placements that the oracle may choose besides.
const MORE: [&str; 2] = ["scatter", "compact"];
/// Places in [`POLICIES`] of the paper's baselines, and of its own mapping.
const OS: usize = 0;
const ROUND_ROBIN: usize = 1;
const INSTRUCTION: usize = 2;

/// What is told of a policy, in this order.
const TOLD: [Metric; 3] = [Metric::Slowest, Metric::Stp, Metric::Unfairness];

/// How many figures are kept of a run, in the order of [`Metric::ALL`].
pub const FIGURES: usize = Metric::ALL.len();
/// What is kept of a run; `None` if it did not come to its end.
pub type Metrics = [Option<f64>; FIGURES];

/// One policy beside both of the paper's baselines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// The policy; `oracle` is the best of all for each pair, draw and seed, by throughput.
    pub policy: String,
    /// Time of the slower application, throughput and unfairness, beside `os`.
    pub over_os: Vec<MetricFigures>,
    /// The same beside `round-robin`.
    pub over_round_robin: Vec<MetricFigures>,
}

/// One pair under the paper's mapping: time of the slower application over that under a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairFigures {
    /// The applications.
    pub pair: [String; 2],
    /// Under `instruction` over `os`; `None` if a run did not end.
    pub over_os: Option<Spread>,
    /// Under `instruction` over `round-robin`; `None` if a run did not end.
    pub over_round_robin: Option<Spread>,
}

/// All pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The applications.
    pub applications: Vec<String>,
    /// Threads of each.
    pub threads: u32,
    /// Geometric means over all pairs, one entry a policy.
    pub policies: Vec<PolicyFigures>,
    /// Every pair of different ones.
    pub pairs: Vec<PairFigures>,
}

/// All pairs, those of which the same is known as one cell.
#[derive(Debug)]
pub struct Pairs<'a> {
    applications: &'a [Phase],
    /// Of every pair, the place of the one in `distinct` that stands for it.
    all: Vec<([usize; 2], usize)>,
    distinct: Vec<[usize; 2]>,
}

impl<'a> Pairs<'a> {
    /// All pairs of different `applications`.
    #[must_use]
    pub fn new(applications: &'a [Phase]) -> Self {
        let mut pairs = Self { applications, all: Vec::new(), distinct: Vec::new() };
        for a in 0..applications.len() {
            for b in a + 1..applications.len() {
                let alike = |&[c, d]: &[usize; 2]| pairs.alike(a, c) && pairs.alike(b, d);
                let place = pairs.distinct.iter().position(alike);
                if place.is_none() {
                    pairs.distinct.push([a, b]);
                }
                pairs.all.push(([a, b], place.unwrap_or(pairs.distinct.len() - 1)));
            }
        }
        pairs
    }

    /// Whether the same is known of both, their names aside.
    fn alike(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|place| &self.applications[place]);
        *a == Phase { name: a.name.clone(), ..b.clone() }
    }

    /// How many cells there are.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.distinct.len()
    }

    /// The applications of a cell.
    pub(super) fn of_cell(&self, cell: usize) -> [&'a Phase; 2] {
        self.distinct[cell].map(|place| &self.applications[place])
    }

    /// Of every pair the cell that stands for it.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|(_, cell)| *cell)
    }

    /// The figures of all cells: runs by policy, the oracle last, and by seed.
    #[must_use]
    pub fn figures(&self, threads: usize, grid: Grid<'_, FIGURES>) -> Figures {
        let cells: Vec<usize> = self.all().collect();
        let names: Vec<&str> = POLICIES.into_iter().chain(["oracle"]).collect();
        let column = |policy, metric| grid.means(&cells, policy, place(metric));
        Figures {
            applications: self.applications.iter().map(|phase| phase.name.clone()).collect(),
            threads: count(threads),
            policies: beside_both(&names, &TOLD, column),
            pairs: self.all.iter().map(|pair| self.pair(pair, grid)).collect(),
        }
    }

    fn pair(&self, (pair, cell): &([usize; 2], usize), grid: Grid<'_, FIGURES>) -> PairFigures {
        let slower = place(Metric::Slowest);
        let over = |base: usize| {
            let of_draw = |draw| grid.ratio((*cell, draw), [INSTRUCTION, base], slower);
            Spread::over_draws((0..grid.draws).map(of_draw))
        };
        PairFigures {
            pair: pair.map(|place| self.applications[place].name.clone()),
            over_os: over(OS),
            over_round_robin: over(ROUND_ROBIN),
        }
    }
}

/// Where a metric is in [`Metrics`].
pub(super) fn place(metric: Metric) -> usize {
    Metric::ALL.iter().position(|each| *each == metric).unwrap_or(0)
}

/// Of policies the metrics `told` beside `os`, the first of them, and `round-robin`, the second; `column` has the figures of
/// a policy.
pub(super) fn beside_both(
    names: &[&str],
    told: &[Metric],
    column: impl Fn(usize, Metric) -> Column,
) -> Vec<PolicyFigures> {
    let over = |policy: usize, base: usize| {
        let of = |&metric: &Metric| {
            let against = (policy != base).then(|| column(base, metric));
            MetricFigures::of(metric, &column(policy, metric), against.as_ref())
        };
        told.iter().map(of).collect()
    };
    let beside = |(place, name): (usize, &&str)| PolicyFigures {
        policy: (*name).to_owned(),
        over_os: over(place, OS),
        over_round_robin: over(place, ROUND_ROBIN),
    };
    names.iter().enumerate().map(beside).collect()
}

/// A pair under every policy and the oracle, `[policy][seed]`.
pub(super) fn all_policies(
    study: &Study<'_>,
    pair: [&Phase; 2],
    draw: usize,
) -> Result<Done<FIGURES>, StudyError> {
    let policies: Vec<&str> = POLICIES.iter().chain(&MORE).copied().collect();
    let mut runs = under(study, pair, draw, &policies)?;
    let stp = place(Metric::Stp);
    let best = |seed: usize| {
        let of_seed = runs.iter().map(|runs| runs[seed]);
        of_seed.max_by(|a, b| a[stp].unwrap_or(0.0).total_cmp(&b[stp].unwrap_or(0.0)))
    };
    let oracle: Vec<Metrics> = (0..study.seeds as usize).filter_map(best).collect();
    runs.truncate(POLICIES.len());
    runs.push(oracle);
    Ok(runs)
}

/// A pair under each of `policies`, seed by seed: `[policy][seed]`.
pub(super) fn under(
    study: &Study<'_>,
    pair: [&Phase; 2],
    draw: usize,
    policies: &[&str],
) -> Result<Done<FIGURES>, StudyError> {
    let draw: &Assumptions = &study.draws[draw];
    let platform = Platform::new(study.machine, study.performance, *draw)?;
    let mut runs = vec![Vec::new(); policies.len()];
    for seed in seeds(study.seed, study.seeds) {
        let scenario = scenario(study, pair, seed);
        let alone = alone_times(&platform, &scenario)?;
        for (runs, &policy) in runs.iter_mut().zip(policies) {
            let policy = PolicySpec::named(policy);
            let options = Options { alone: false, ..Options::default() };
            let mut outcome = simulate(&platform, &scenario, &policy, &options)?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            runs.push(Run::of(&outcome, false).metrics);
        }
    }
    Ok(runs)
}

/// Two applications with a thread a core each.
pub(super) fn scenario(study: &Study<'_>, pair: [&Phase; 2], seed: u64) -> Scenario {
    let jobs =
        pair.iter().zip(0..).map(|(phase, place)| job(study, &phase.name, place, study.alone));
    Scenario {
        name: format!("{} and {}", pair[0].name, pair[1].name),
        seed,
        phases: pair.iter().map(|&phase| PhaseSpec::of(phase.clone())).collect(),
        jobs: jobs.collect(),
        method: Method::Restart,
        quantum: Nanos::from_millis(200),
        grain: Nanos::ZERO,
        horizon: study.horizon(),
        usable: None,
        events: Vec::new(),
        kernel: Kernel::default(),
    }
}

/// An application with a thread a core, whose threads do the phase at `phase`.
pub(super) fn job(study: &Study<'_>, name: &str, phase: u32, alone: Nanos) -> JobSpec {
    let thread = |order: usize| ThreadSpec {
        name: format!("{name}-{order}"),
        born: Nanos::ZERO,
        course: vec![Stretch {
            phase: PhaseIdx(phase),
            instructions: 1_000_000_000,
            sleep: Nanos::ZERO,
            barrier: false,
        }],
        work: Work::AloneFor(alone),
        pages: Pages::FirstTouch,
        resident: Bytes::mib(32),
    };
    JobSpec {
        name: name.to_owned(),
        arrives: Nanos::ZERO,
        threads: (0..study.machine.cores.len()).map(thread).collect(),
        barrier: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sets of assumptions, one seed; under `instruction` 3 of 4 s and 5 of 4 s. With a run that did not end
    /// under the second set nothing is said of any.
    #[test]
    fn a_pair_that_did_not_end_has_no_figure() {
        let applications = ["A", "B"].map(|name| Phase { name: name.into(), ..Phase::default() });
        let pairs = Pairs::new(&applications);
        let mut done = vec![vec![vec![[Some(4.0); 5]]; POLICIES.len() + 1]; 2];
        let slower = place(Metric::Slowest);
        for (runs, time) in done.iter_mut().zip([3.0, 5.0]) {
            runs[INSTRUCTION][0][slower] = Some(time);
        }
        let found = pairs.figures(2, Grid { done: &done, draws: 2 }).pairs[0].over_os.unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(found.value, 0.75) && near(found.low, 0.75) && near(found.high, 1.25));
        done[1][INSTRUCTION][0] = Metrics::default();
        let figures = pairs.figures(2, Grid { done: &done, draws: 2 });
        assert_eq!((figures.pairs[0].over_os, figures.pairs[0].over_round_robin), (None, None));
        assert_eq!(figures.policies[INSTRUCTION].over_os[0].ratio, None);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
