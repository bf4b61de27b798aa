//! Two applications with as many threads as cores each, under every policy: the paper's all-pairs study.
//!
//! Both applications last equally long alone, and one that has ended begins anew until both have: so
//! nobody is ever alone on the machine, and what is seen is the effect of who shares a core with whom.
//! The paper's own metric, the time of the slower application, is told beside throughput and unfairness.
//!
//! Applications of which the same is known behave alike, so pairs of them are simulated once and counted as
//! often as they stand for.

use super::{Study, StudyError, geometric_mean, spread_of_all};
use crate::simulate::figures::{self, Metric, MetricFigures, Spread};
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

/// What is kept of a run, in the order of [`Metric::ALL`]; `None` if it did not come to its end.
pub type Metrics = [Option<f64>; 5];

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

/// All pairs with all sets of assumptions: pieces of work that do not depend on each other.
#[derive(Debug)]
pub struct Pairs<'a> {
    applications: &'a [Phase],
    draws: usize,
    /// Of every pair, the place of the one in `distinct` that stands for it.
    all: Vec<([usize; 2], usize)>,
    distinct: Vec<[usize; 2]>,
}

impl<'a> Pairs<'a> {
    /// All pairs of different `applications`, with so many sets of assumptions.
    #[must_use]
    pub fn new(applications: &'a [Phase], draws: usize) -> Self {
        let mut pairs = Self { applications, draws, all: Vec::new(), distinct: Vec::new() };
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

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.distinct.len() * self.draws
    }

    /// The applications and the set of assumptions of a piece.
    ///
    /// # Panics
    /// If there is no such piece.
    #[must_use]
    pub fn at(&self, piece: usize) -> ([&'a Phase; 2], usize) {
        let pair = self.distinct[piece % self.distinct.len()];
        (pair.map(|place| &self.applications[place]), piece / self.distinct.len())
    }

    /// Of what came of the pieces, in their order, that of each pair with the set of assumptions `draw`.
    pub fn of_draw<'d, T>(&self, draw: usize, done: &'d [T]) -> impl Iterator<Item = &'d T> {
        let first = draw * self.distinct.len();
        self.all.iter().map(move |(_, place)| &done[first + place])
    }

    /// The figures of all pieces, in their order: runs by policy, the oracle last, and by seed.
    ///
    /// # Panics
    /// If there are not as many as [`Self::count`] says.
    #[must_use]
    pub fn figures(&self, threads: usize, done: &[Vec<Vec<Metrics>>]) -> Figures {
        assert_eq!(done.len(), self.count(), "every piece");
        let seeds = done.first().and_then(|runs| runs.first()).map_or(1, Vec::len);
        let names: Vec<String> =
            POLICIES.iter().map(ToString::to_string).chain(["oracle".to_owned()]).collect();
        let runs: Vec<figures::Run> = (0..names.len())
            .flat_map(|policy| (0..self.draws).map(move |draw| (policy, draw)))
            .flat_map(|(policy, draw)| (0..seeds).map(move |seed| (policy, draw, seed)))
            .map(|(policy, draw, seed)| {
                mean(self.of_draw(draw, done).map(|runs| runs[policy][seed]))
            })
            .collect();
        Figures {
            applications: self.applications.iter().map(|phase| phase.name.clone()).collect(),
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            policies: beside_both(&names, [OS, ROUND_ROBIN], seeds, &runs, &TOLD),
            pairs: (0..self.all.len()).map(|pair| self.pair(pair, done)).collect(),
        }
    }

    fn pair(&self, pair: usize, done: &[Vec<Vec<Metrics>>]) -> PairFigures {
        let ([a, b], place) = self.all[pair];
        let slower = super::pairs::place(Metric::Slowest);
        let over = |base: usize| {
            let of_draw = |draw: usize| {
                let runs = &done[draw * self.distinct.len() + place];
                let both = runs[INSTRUCTION].iter().zip(&runs[base]);
                let ratio =
                    |(mine, base): (&Metrics, &Metrics)| Some(mine[slower]? / base[slower]?);
                Some(geometric_mean(&both.map(ratio).collect::<Option<Vec<f64>>>()?))
            };
            spread_of_all(&(0..self.draws).map(of_draw).collect::<Vec<_>>())
        };
        let name = |place: usize| self.applications[place].name.clone();
        PairFigures {
            pair: [name(a), name(b)],
            over_os: over(OS),
            over_round_robin: over(ROUND_ROBIN),
        }
    }
}

/// Where a metric is in [`Metrics`].
pub(super) fn place(metric: Metric) -> usize {
    Metric::ALL.iter().position(|each| *each == metric).unwrap_or(0)
}

/// A run that stands for several: geometric means of their figures.
fn mean(runs: impl Iterator<Item = Metrics>) -> figures::Run {
    let runs: Vec<Metrics> = runs.collect();
    let of = |place: usize| {
        let figures = runs.iter().map(|run| run[place]).collect::<Option<Vec<f64>>>()?;
        Some(geometric_mean(&figures))
    };
    kept(std::array::from_fn(of))
}

/// A run of which only the metrics are kept.
pub(super) fn kept(metrics: Metrics) -> figures::Run {
    figures::Run { metrics, slowdowns: Vec::new(), progress: Vec::new(), usage: None }
}

/// Of policies the metrics `told` beside those at the two places `bases`.
pub(super) fn beside_both(
    names: &[String],
    bases: [usize; 2],
    seeds: usize,
    runs: &[figures::Run],
    told: &[Metric],
) -> Vec<PolicyFigures> {
    let [over_os, over_round_robin] =
        bases.map(|base| figures::compared(names, base, seeds, 0, runs));
    let only = |figures: figures::PolicyFigures| {
        let metrics = figures.metrics.into_iter();
        metrics.filter(|figures| told.contains(&figures.metric)).collect::<Vec<_>>()
    };
    over_os
        .into_iter()
        .zip(over_round_robin)
        .map(|(os, round_robin)| PolicyFigures {
            policy: os.policy.clone(),
            over_os: only(os),
            over_round_robin: only(round_robin),
        })
        .collect()
}

/// A pair under every policy and the oracle, `[policy][seed]`.
///
/// # Errors
/// The [`StudyError`] of a simulation.
///
/// # Panics
/// If there is no set of assumptions `draw`.
pub fn all_policies(
    study: &Study<'_>,
    pair: [&Phase; 2],
    draw: usize,
) -> Result<Vec<Vec<Metrics>>, StudyError> {
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
///
/// # Errors
/// The [`StudyError`] of a simulation.
///
/// # Panics
/// If there is no set of assumptions `draw`.
pub fn under(
    study: &Study<'_>,
    pair: [&Phase; 2],
    draw: usize,
    policies: &[&str],
) -> Result<Vec<Vec<Metrics>>, StudyError> {
    let draw: &Assumptions = &study.draws[draw];
    let platform = Platform::new(study.machine, study.performance, *draw)?;
    let mut runs = vec![Vec::new(); policies.len()];
    for seed in 0..study.seeds {
        let scenario = scenario(study, pair, study.seed.wrapping_add(seed.into()));
        let alone = alone_times(&platform, &scenario)?;
        for (runs, &policy) in runs.iter_mut().zip(policies) {
            let policy = PolicySpec::named(policy);
            let options = Options { alone: false, ..Options::default() };
            let mut outcome = simulate(&platform, &scenario, &policy, &options)?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            runs.push(figures::Run::of(&outcome, false).metrics);
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
        let pairs = Pairs::new(&applications, 2);
        let mut done = vec![vec![vec![[Some(4.0); 5]]; POLICIES.len() + 1]; 2];
        let slower = place(Metric::Slowest);
        for (runs, time) in done.iter_mut().zip([3.0, 5.0]) {
            runs[INSTRUCTION][0][slower] = Some(time);
        }
        let over_os = |done: &[Vec<Vec<Metrics>>]| pairs.figures(2, done).pairs[0].over_os;
        let found = over_os(&done).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(found.value, 0.75) && near(found.low, 0.75) && near(found.high, 1.25));
        done[1][INSTRUCTION][0] = Metrics::default();
        let figures = pairs.figures(2, &done);
        assert_eq!((figures.pairs[0].over_os, figures.pairs[0].over_round_robin), (None, None));
        assert_eq!(figures.policies[INSTRUCTION].over_os[0].ratio, None);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
