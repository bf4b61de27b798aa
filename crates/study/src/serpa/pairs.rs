//! Two applications with as many threads as cores each, under every policy: the paper's all-pairs study.
//!
//! Both applications last equally long alone, and one that has ended begins anew until both have: so
//! nobody is ever alone on the machine, and what is seen is the effect of who shares a core with whom.
//! The paper's own metric, the time of the slower application, is told beside throughput and unfairness.

use super::{Study, StudyError, geometric_mean, spread};
use crate::simulate::figures::Spread;
use colocate_engine::Modelled;
use colocate_machine::{Bytes, Nanos};
use colocate_model::{Assumptions, Phase};
use colocate_policy::PolicyKind;
use colocate_sim::run::alone_times;
use colocate_sim::scenario::{
    JobSpec, Method, Pages, PhaseIdx, PhaseSpec, Scenario, Stretch, ThreadSpec, Work,
};
use colocate_sim::{Kernel, Options, Platform, metrics, simulate};
use serde::{Deserialize, Serialize};

/// The policies that are compared, the paper's baselines first.
pub const POLICIES: [PolicyKind; 5] = [
    PolicyKind::Os,
    PolicyKind::RoundRobin,
    PolicyKind::Instruction { key: None },
    PolicyKind::Mix,
    PolicyKind::SymbiosisModel,
];
/// Placements that the oracle may choose besides.
const MORE: [PolicyKind; 2] = [PolicyKind::Scatter, PolicyKind::Compact];

/// How long each application takes alone. Kept as it was when the predictions were frozen, but too short for
/// the simulated kernel to spread the threads: with 20 s, `os` is 2 % slower than `round-robin`, not 44 %
/// (docs/serpa.md).
const ALONE: Nanos = Nanos::from_millis(500);

/// One policy over all pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// The policy; `oracle` is the best of all for each pair and draw, by throughput.
    pub policy: String,
    /// Time of the slower application over that under `os`: geometric mean over pairs and seeds.
    pub slower_over_os: Spread,
    /// The same over `round-robin`.
    pub slower_over_round_robin: Spread,
    /// Throughput (STP) over that under `os`.
    pub stp_over_os: Spread,
    /// Throughput over that under `round-robin`.
    pub stp_over_round_robin: Spread,
    /// Greatest slowdown over the least: mean over pairs and seeds.
    pub unfairness: Spread,
}

/// All pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The applications.
    pub applications: Vec<String>,
    /// Pairs of different ones.
    pub pairs: u32,
    /// Threads of each.
    pub threads: u32,
    /// One entry a policy.
    pub policies: Vec<PolicyFigures>,
}

/// What is kept of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    slower: f64,
    stp: f64,
    unfairness: f64,
}

/// All pairs with all sets of assumptions: pieces of work that do not depend on each other.
#[derive(Debug)]
pub struct Pairs<'a> {
    study: Study<'a>,
    applications: &'a [Phase],
    /// Places in the list of applications, and of the set of assumptions.
    units: Vec<[usize; 3]>,
}

/// What came of a piece: runs by policy, the oracle last, and by seed.
#[derive(Clone, Debug)]
pub struct Unit(Vec<Vec<Run>>);

impl<'a> Pairs<'a> {
    /// All pairs of different `applications`.
    #[must_use]
    pub fn new(study: Study<'a>, applications: &'a [Phase]) -> Self {
        let mut units = Vec::new();
        for draw in 0..study.draws.len() {
            for a in 0..applications.len() {
                units.extend((a + 1..applications.len()).map(|b| [a, b, draw]));
            }
        }
        Self { study, applications, units }
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// Makes one piece.
    ///
    /// # Errors
    /// The [`StudyError`] of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn unit(&self, unit: usize) -> Result<Unit, StudyError> {
        let [a, b, draw] = self.units[unit];
        let pair = [&self.applications[a], &self.applications[b]];
        one(&self.study, pair, &self.study.draws[draw]).map(Unit)
    }

    /// The figures of all pieces, in their order.
    #[must_use]
    pub fn figures(&self, done: &[Unit]) -> Figures {
        let pairs = done.len() / self.study.draws.len().max(1);
        let draws: Vec<&[Unit]> = done.chunks(pairs.max(1)).collect();
        let names = POLICIES.iter().map(ToString::to_string).chain(["oracle".to_owned()]);
        Figures {
            applications: self.applications.iter().map(|phase| phase.name.clone()).collect(),
            pairs: u32::try_from(pairs).unwrap_or(u32::MAX),
            threads: u32::try_from(self.study.machine.cores.len()).unwrap_or(u32::MAX),
            policies: names.enumerate().map(|(place, name)| told(name, place, &draws)).collect(),
        }
    }
}

/// All policies and the oracle, seed by seed, of one pair and draw: `[policy][seed]`.
fn one(
    study: &Study<'_>,
    pair: [&Phase; 2],
    draw: &Assumptions,
) -> Result<Vec<Vec<Run>>, StudyError> {
    let platform = Platform::new(study.machine, study.performance, *draw)?;
    let mut runs = vec![Vec::new(); POLICIES.len() + 1];
    for seed in 0..study.seeds {
        let scenario = scenario(study, pair, study.seed.wrapping_add(seed.into()));
        let alone = alone_times(&platform, &scenario)?;
        let mut best: Option<Run> = None;
        for (place, &policy) in POLICIES.iter().chain(&MORE).enumerate() {
            let planner = Modelled { policy, performance: study.performance };
            let options = Options { alone: false, ..Options::default() };
            let mut outcome = simulate(&platform, &scenario, &planner, &options)?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            let run = Run::of(&outcome);
            if best.is_none_or(|best| run.stp > best.stp) {
                best = Some(run);
            }
            if let Some(of_policy) = runs[..POLICIES.len()].get_mut(place) {
                of_policy.push(run);
            }
        }
        runs[POLICIES.len()].extend(best);
    }
    Ok(runs)
}

impl Run {
    /// What did not end is told as if it took for ever: `NaN` makes every figure of it one.
    fn of(outcome: &colocate_sim::Outcome) -> Self {
        let slowdowns = outcome.slowdowns().unwrap_or_default();
        let unfairness = metrics::unfairness(&slowdowns).unwrap_or(f64::NAN);
        let slower = outcome.slowest().map_or(f64::NAN, Nanos::as_secs_f64);
        let stp = if slowdowns.is_empty() { f64::NAN } else { metrics::stp(&slowdowns) };
        Self { slower, stp, unfairness }
    }
}

/// The figures of the policy at `place`.
fn told(policy: String, place: usize, draws: &[&[Unit]]) -> PolicyFigures {
    let os = POLICIES.iter().position(|policy| *policy == PolicyKind::Os).unwrap_or(0);
    let rr = POLICIES.iter().position(|policy| *policy == PolicyKind::RoundRobin).unwrap_or(0);
    let over = |base: usize, of: fn(&Run) -> f64| {
        let one = |pairs: &&[Unit]| {
            let ratios = pairs.iter().flat_map(|Unit(runs)| {
                runs[place].iter().zip(&runs[base]).map(|(mine, theirs)| of(mine) / of(theirs))
            });
            geometric_mean(&ratios.collect::<Vec<_>>())
        };
        spread(&draws.iter().map(one).collect::<Vec<_>>())
    };
    let unfairness = |pairs: &&[Unit]| {
        let all = pairs.iter().flat_map(|Unit(runs)| runs[place].iter().map(|run| run.unfairness));
        crate::stats::mean(&all.collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    PolicyFigures {
        policy,
        slower_over_os: over(os, |run| run.slower),
        slower_over_round_robin: over(rr, |run| run.slower),
        stp_over_os: over(os, |run| run.stp),
        stp_over_round_robin: over(rr, |run| run.stp),
        unfairness: spread(&draws.iter().map(unfairness).collect::<Vec<_>>()),
    }
}

/// Two applications with a thread a core each.
pub(super) fn scenario(study: &Study<'_>, pair: [&Phase; 2], seed: u64) -> Scenario {
    let jobs = pair.iter().zip(0..).map(|(phase, place)| job(study, &phase.name, place, ALONE));
    Scenario {
        name: format!("{} and {}", pair[0].name, pair[1].name),
        seed,
        phases: pair.iter().map(|&phase| PhaseSpec::of(phase.clone())).collect(),
        jobs: jobs.collect(),
        method: Method::Restart,
        quantum: Nanos::from_millis(200),
        grain: Nanos::ZERO,
        horizon: Nanos::from_secs(3600),
        usable: None,
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
        }],
        work: Work::AloneFor(alone),
        pages: Pages::FirstTouch,
        resident: Bytes::mib(32),
    };
    JobSpec {
        name: name.to_owned(),
        arrives: Nanos::ZERO,
        threads: (0..study.machine.cores.len()).map(thread).collect(),
    }
}
