//! What may be said of policies after a scenario was simulated under each.
//!
//! # Terms
//! - A *draw* is one choice of everything that the model assumes; draw 0 is the usual one. A *seed*
//!   decides what a real machine would leave to chance.
//! - A policy's *value* of a metric is its mean over the seeds under the usual assumptions; its *range*
//!   goes from the least to the greatest mean over the seeds under any draw.
//! - Its *ratio* is the geometric mean over the seeds, under the usual assumptions, of its value divided
//!   by the baseline's with the same draw and seed. The ratio's *interval* goes from the least to the
//!   greatest such mean under any draw, and is widened at both ends by what the seeds leave open: with
//!   `r(d, s)` the ratio's logarithm, `D` draws and `S` seeds, the spread `v` pooled over the draws is
//!   `v² = Σ_d Σ_s (r(d, s) − mean_d)² / D(S − 1)`, and the ends move by `t(0.975, D(S − 1)) · v / √S`.
//! - A difference is *resolved* when that interval leaves 1 out, so that its sign is the same whatever
//!   is assumed, and the ratio differs from 1 by at least [`RESOLUTION`]. Of nothing else is it said
//!   that it is better or worse. Each policy is compared for itself.
//!
//! The ensemble is no sample of the truth: its interval holds what is assumed against, not what the
//! model leaves out.
//!
//! # Properties
//! - **No claim without resolution** -> test `no_claim_without_resolution`
//! - **Common factors cancel**: what a draw or a seed does to all policies alike changes no ratio. -> test `common_factors_cancel`
//! - **More assumptions never resolve more**: a draw can widen an interval's range, never narrow it. -> test `a_draw_that_disagrees_silences`

use crate::stats;
use colocate_sim::{Method, Outcome};
use serde::{Deserialize, Serialize};

/// Version of the report format that this build writes.
pub const VERSION: u32 = 1;

/// Least difference that the model can resolve, as a part of the baseline. Chosen from how far it was
/// off against LLVM's scheduler: 3 to 5 % on average for two loops on one core (docs/validation.md).
pub const RESOLUTION: f64 = 0.05;

/// A figure of merit; `colocate_sim::metrics` defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From the first launch until the last job has done its work, in seconds.
    Turnaround,
    /// Time of the slowest job, in seconds (the metric of Serpa et al.).
    Slowest,
    /// System throughput: the sum of 1 / slowdown.
    Stp,
    /// Mean slowdown.
    Antt,
    /// Greatest slowdown over the least.
    Unfairness,
}

impl Metric {
    /// All of them in the order used everywhere.
    pub const ALL: [Self; 5] =
        [Self::Turnaround, Self::Slowest, Self::Stp, Self::Antt, Self::Unfairness];

    /// What tables call it, with its unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turnaround => "turnaround in seconds",
            Self::Slowest => "time of the slowest job in seconds",
            Self::Stp => "STP, the sum of 1 / slowdown",
            Self::Antt => "ANTT, the mean slowdown",
            Self::Unfairness => "unfairness, the greatest slowdown over the least",
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Turnaround => "turnaround",
            Self::Slowest => "slowest job",
            Self::Stp => "STP",
            Self::Antt => "ANTT",
            Self::Unfairness => "unfairness",
        }
    }

    /// Whether less of it is better.
    #[must_use]
    pub const fn less_is_better(self) -> bool {
        !matches!(self, Self::Stp)
    }

    fn of(self, outcome: &Outcome) -> Option<f64> {
        use colocate_sim::metrics;
        let slowdowns = || outcome.slowdowns();
        match self {
            Self::Turnaround => outcome.turnaround().map(colocate_machine::Nanos::as_secs_f64),
            Self::Slowest => outcome.slowest().map(colocate_machine::Nanos::as_secs_f64),
            Self::Stp => slowdowns().map(|each| metrics::stp(&each)),
            Self::Antt => slowdowns().and_then(|each| metrics::antt(&each)),
            Self::Unfairness => slowdowns().and_then(|each| metrics::unfairness(&each)),
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of colocate.
    pub colocate: String,
    /// The scenario's name.
    pub scenario: String,
    /// What it is for.
    pub note: Option<String>,
    /// The machine that is simulated.
    pub machine: String,
    /// The jobs' names.
    pub jobs: Vec<String>,
    /// How many tasks they have in all.
    pub tasks: u32,
    /// What becomes of a job that has done its work.
    pub method: Method,
    /// The policies.
    pub policies: Vec<String>,
    /// Which of them the others are compared to.
    pub baseline: String,
    /// The first seed.
    pub seed: u64,
    /// How many seeds; each is one more than the last.
    pub seeds: u32,
    /// How many draws from the ensemble; the first is what is usually assumed.
    pub draws: u32,
    /// A digest of all that the figures depend on: scenario, machine, demand vectors. Empty if nobody
    /// made one.
    pub inputs: String,
}

/// What is kept of one simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The metrics, in the order of [`Metric::ALL`]; `None` if the run did not come to its end.
    pub metrics: [Option<f64>; 5],
    /// Slowdown of each job.
    pub slowdowns: Vec<Option<f64>>,
    /// Progress of each job: the mean of its tasks'.
    pub progress: Vec<Option<f64>>,
    /// How the machine was used; kept under the usual assumptions only.
    pub usage: Option<Usage>,
}

/// How the machine was used; parts are between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Part of the time that PUs ran a task, on average.
    pub pus: f64,
    /// Part of the front ends' slots.
    pub slots: f64,
    /// Part of the ports' cycles.
    pub ports: f64,
    /// Part of each memory controller's bandwidth.
    pub controllers: Vec<f64>,
    /// Part of each link's bandwidth.
    pub links: Vec<f64>,
    /// Moves of tasks to another PU, each counted once.
    pub moves: f64,
    /// Those of them to another node.
    pub node_moves: f64,
    /// Bytes of pages that were moved.
    pub page_bytes: f64,
    /// For how much of the run's time tasks of two jobs shared a core, summed over all pairs of tasks:
    /// row by row, one row a job.
    pub together: Vec<Vec<f64>>,
}

/// A figure and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Under the usual assumptions.
    pub value: f64,
    /// Least under any.
    pub low: f64,
    /// Greatest under any.
    pub high: f64,
}

/// What may be said of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is what the others are compared to.
    Baseline,
    /// It is better, whatever is assumed.
    Better,
    /// It is worse, whatever is assumed.
    Worse,
    /// Nothing, for the reason beside it.
    NotResolved,
}

/// Why nothing may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// Some runs did not come to their end.
    NotFinished,
    /// One seed shows no chance.
    OneSeed,
    /// One set of assumptions shows no ensemble.
    OneDraw,
    /// The interval holds 1.
    SignChanges,
    /// The difference is below [`RESOLUTION`].
    BelowResolution,
}

impl Unresolved {
    /// The reason in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotFinished => "runs did not end",
            Self::OneSeed => "one seed",
            Self::OneDraw => "one set of assumptions",
            Self::SignChanges => "sign not stable",
            Self::BelowResolution => "below 5 %",
        }
    }
}

/// One metric of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricFigures {
    /// The metric.
    pub metric: Metric,
    /// Value and range; `None` if runs did not come to their end.
    pub value: Option<Spread>,
    /// Ratio to the baseline and its interval; `None` for the baseline, and if runs did not come to
    /// their end.
    pub ratio: Option<Spread>,
    /// What may be said.
    pub verdict: Verdict,
    /// Why nothing may be said; `None` unless it is so.
    pub unresolved: Option<Unresolved>,
}

/// One job under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFigures {
    /// Its slowdown; `None` if runs did not come to their end.
    pub slowdown: Option<Spread>,
    /// The part of its speed alone that its tasks had on average.
    pub progress: Option<Spread>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// The policy.
    pub policy: String,
    /// Runs that did not come to their end before the horizon.
    pub unfinished: u32,
    /// The metrics, in the order of [`Metric::ALL`].
    pub metrics: Vec<MetricFigures>,
    /// The jobs, in the scenario's order.
    pub jobs: Vec<JobFigures>,
    /// How the machine was used: means over the seeds, under the usual assumptions.
    pub usage: Usage,
}

/// What came of a scenario under all its policies. All of it is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// What was simulated.
    pub settings: Settings,
    /// Least difference that counts as resolved.
    pub resolution: f64,
    /// One entry a policy.
    pub policies: Vec<PolicyFigures>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// What is kept of `outcome`; with `usage` also how the machine was used.
    #[must_use]
    pub fn of(outcome: &Outcome, usage: bool) -> Self {
        Self {
            metrics: Metric::ALL.map(|metric| metric.of(outcome).filter(|_| outcome.complete)),
            slowdowns: outcome.jobs.iter().map(colocate_sim::JobOutcome::slowdown).collect(),
            progress: progress(outcome),
            usage: usage.then(|| Usage::of(outcome)),
        }
    }
}

/// The mean progress of each job's tasks.
fn progress(outcome: &Outcome) -> Vec<Option<f64>> {
    let mut by_job = vec![Vec::new(); outcome.jobs.len()];
    for task in &outcome.tasks {
        by_job[task.id.job.0 as usize].extend(task.progress());
    }
    by_job.iter().map(|tasks| stats::mean(tasks)).collect()
}

impl Usage {
    fn of(outcome: &Outcome) -> Self {
        let used = &outcome.used;
        let lasted = outcome.lasted.as_secs_f64();
        let share = |a, b| if lasted > 0.0 { outcome.together.seconds(a, b) / lasted } else { 0.0 };
        let jobs = 0..outcome.jobs.len();
        let moves = |count: fn(&colocate_sim::Moves) -> f64| {
            outcome.tasks.iter().map(|task| count(&task.moves)).fold(0.0, |sum, each| sum + each)
        };
        let part = |parts: &[f64]| stats::mean(parts).unwrap_or(0.0);
        #[allow(clippy::cast_precision_loss)] // shown with three digits
        Self {
            pus: part(&used.pus),
            slots: part(&used.slots),
            ports: part(&used.ports),
            controllers: used.controllers.clone(),
            links: used.links.clone(),
            moves: moves(|moves| f64::from(moves.total())),
            node_moves: moves(|moves| f64::from(moves.other_node)),
            page_bytes: moves(|moves| moves.page_bytes as f64),
            together: jobs.clone().map(|a| jobs.clone().map(|b| share(a, b)).collect()).collect(),
        }
    }

    /// The mean of several; all are of the same machine and jobs.
    fn mean(all: &[&Self]) -> Self {
        let of = |get: &dyn Fn(&Self) -> f64| {
            stats::mean(&all.iter().map(|usage| get(usage)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let each = |get: fn(&Self) -> &[f64]| -> Vec<f64> {
            let length = all.first().map_or(0, |first| get(first).len());
            (0..length).map(|place| of(&|usage| get(usage)[place])).collect()
        };
        let jobs = 0..all.first().map_or(0, |first| first.together.len());
        let together = |a: usize, b: usize| of(&|usage: &Self| usage.together[a][b]);
        Self {
            pus: of(&|usage| usage.pus),
            slots: of(&|usage| usage.slots),
            ports: of(&|usage| usage.ports),
            controllers: each(|usage| &usage.controllers),
            links: each(|usage| &usage.links),
            moves: of(&|usage| usage.moves),
            node_moves: of(&|usage| usage.node_moves),
            page_bytes: of(&|usage| usage.page_bytes),
            together: jobs
                .clone()
                .map(|a| jobs.clone().map(|b| together(a, b)).collect())
                .collect(),
        }
    }
}

impl Simulated {
    /// The figures of `runs`, which are in the order of policy, draw and seed, the seed fastest.
    ///
    /// # Panics
    /// If there are not as many runs as `settings` ask for, or the baseline is no policy.
    #[must_use]
    pub fn of(settings: Settings, runs: &[Run]) -> Self {
        let each = settings.draws as usize * settings.seeds as usize;
        assert_eq!(runs.len(), settings.policies.len() * each, "a run for every combination");
        let place = settings.policies.iter().position(|policy| *policy == settings.baseline);
        let place = place.expect("the baseline is one of the policies");
        let of_policy = |policy: usize| Grid {
            runs: &runs[policy * each..][..each],
            seeds: settings.seeds as usize,
        };
        let base = of_policy(place);
        let policies = settings.policies.iter().enumerate();
        let policies = policies.map(|(policy, name)| {
            let against = (policy != place).then_some(base);
            of_policy(policy).figures(name, settings.jobs.len(), against)
        });
        let policies: Vec<PolicyFigures> = policies.collect();
        let notes = notes(&settings, &policies);
        Self {
            version: VERSION,
            simulated: true,
            settings,
            resolution: RESOLUTION,
            policies,
            notes,
        }
    }

    /// The figures as JSON text, ending in a newline (`docs/schemas/simulated.json`).
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("every field has a JSON form");
        text.push('\n');
        text
    }
}

/// All runs of one policy: draw by draw, seed by seed.
#[derive(Clone, Copy)]
struct Grid<'a> {
    runs: &'a [Run],
    seeds: usize,
}

impl Grid<'_> {
    fn figures(self, policy: &str, jobs: usize, base: Option<Self>) -> PolicyFigures {
        let unfinished = self.runs.iter().filter(|run| run.metrics[0].is_none()).count();
        let usages: Vec<&Usage> = self.runs.iter().filter_map(|run| run.usage.as_ref()).collect();
        let job = |job: usize| JobFigures {
            slowdown: self.spread(|run| run.slowdowns[job]),
            progress: self.spread(|run| run.progress[job]),
        };
        PolicyFigures {
            policy: policy.to_owned(),
            unfinished: u32::try_from(unfinished).unwrap_or(u32::MAX),
            metrics: (0..Metric::ALL.len()).map(|metric| self.metric(metric, base)).collect(),
            jobs: (0..jobs).map(job).collect(),
            usage: Usage::mean(&usages),
        }
    }

    /// Means over the seeds: that of the usual draw, the least and the greatest of any. `None` if a run
    /// has no figure.
    fn spread(self, get: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        let means = self.runs.chunks(self.seeds).map(|seeds| {
            let values: Option<Vec<f64>> = seeds.iter().map(&get).collect();
            stats::mean(&values?)
        });
        let means = means.collect::<Option<Vec<f64>>>()?;
        Some(Spread::over(&means, 0.0))
    }

    fn metric(self, place: usize, base: Option<Self>) -> MetricFigures {
        let metric = Metric::ALL[place];
        let value = self.spread(|run| run.metrics[place]);
        let Some(base) = base else {
            let verdict = Verdict::Baseline;
            return MetricFigures { metric, value, ratio: None, verdict, unresolved: None };
        };
        let ratio = self.ratio(base, place);
        let judged = ratio.map_or(Err(Unresolved::NotFinished), |ratio| self.judge(metric, ratio));
        let (verdict, unresolved) = match judged {
            Ok(verdict) => (verdict, None),
            Err(reason) => (Verdict::NotResolved, Some(reason)),
        };
        MetricFigures { metric, value, ratio, verdict, unresolved }
    }

    fn ratio(self, base: Self, place: usize) -> Option<Spread> {
        let log = |(run, base): (&Run, &Run)| {
            let ratio = run.metrics[place]? / base.metrics[place]?;
            Some(ratio.ln()).filter(|log| log.is_finite())
        };
        let logs = self.runs.iter().zip(base.runs).map(log).collect::<Option<Vec<f64>>>()?;
        let draws: Vec<&[f64]> = logs.chunks(self.seeds).collect();
        let means = draws.iter().map(|draw| stats::mean(draw)).collect::<Option<Vec<f64>>>()?;
        let Spread { value, low, high } = Spread::over(&means, self.reach(&draws, &means));
        Some(Spread { value: value.exp(), low: low.exp(), high: high.exp() })
    }

    /// Half the width of the 95 % interval of a mean over the seeds, spread pooled over the draws; 0
    /// for one seed.
    #[allow(clippy::cast_precision_loss)] // thousands at most
    fn reach(self, draws: &[&[f64]], means: &[f64]) -> f64 {
        let freedom = (draws.len() * (self.seeds - 1)) as f64;
        let squares = draws
            .iter()
            .zip(means)
            .flat_map(|(draw, mean)| draw.iter().map(move |log| (log - mean).powi(2)));
        let squares = squares.fold(0.0, |sum, each| sum + each);
        let t = stats::t_quantile(0.975, freedom).unwrap_or(0.0);
        if squares == 0.0 { 0.0 } else { t * (squares / freedom / self.seeds as f64).sqrt() }
    }

    fn judge(self, metric: Metric, ratio: Spread) -> Result<Verdict, Unresolved> {
        if self.seeds < 2 {
            return Err(Unresolved::OneSeed);
        }
        if self.runs.len() == self.seeds {
            return Err(Unresolved::OneDraw);
        }
        if (ratio.low..=ratio.high).contains(&1.0) {
            return Err(Unresolved::SignChanges);
        }
        if (ratio.value - 1.0).abs() < RESOLUTION {
            return Err(Unresolved::BelowResolution);
        }
        let less = ratio.high < 1.0;
        Ok(if less == metric.less_is_better() { Verdict::Better } else { Verdict::Worse })
    }
}

impl Spread {
    /// The first of `values`, the least less `reach`, and the greatest and `reach`.
    fn over(values: &[f64], reach: f64) -> Self {
        Self {
            value: values[0],
            low: values.iter().copied().fold(f64::INFINITY, f64::min) - reach,
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max) + reach,
        }
    }
}

fn notes(settings: &Settings, policies: &[PolicyFigures]) -> Vec<String> {
    let mut notes = vec![
        "ranges and intervals hold what the model assumes against and what chance does, not what the \
         model leaves out: docs/validation.md says how far it was off where it could be checked"
            .to_owned(),
    ];
    for figures in policies.iter().filter(|figures| figures.unfinished > 0) {
        notes.push(format!(
            "{} of {} runs under {} did not come to their end before the horizon",
            figures.unfinished,
            settings.draws * settings.seeds,
            figures.policy
        ));
    }
    if settings.method == Method::Leave && settings.jobs.len() > 1 {
        notes.push(
            "jobs leave when they are done, so the last ones are alone for a while: times then also \
             tell how a policy places what is left"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn settings(policies: &[&str], draws: u32, seeds: u32) -> Settings {
        Settings {
            colocate: "0.1.0".into(),
            scenario: "pair".into(),
            note: None,
            machine: "2x Test 1000".into(),
            jobs: vec!["a".into(), "b".into()],
            tasks: 4,
            method: Method::Restart,
            policies: policies.iter().map(|&policy| policy.to_owned()).collect(),
            baseline: policies[0].to_owned(),
            seed: 1,
            seeds,
            draws,
            inputs: String::new(),
        }
    }

    /// Every metric of every run is what `value(policy, draw, seed)` says.
    pub(crate) fn runs(settings: &Settings, value: impl Fn(usize, u32, u32) -> f64) -> Vec<Run> {
        let mut runs = Vec::new();
        for policy in 0..settings.policies.len() {
            for draw in 0..settings.draws {
                for seed in 0..settings.seeds {
                    let value = Some(value(policy, draw, seed));
                    let usage = Usage {
                        pus: 0.5,
                        controllers: vec![0.25],
                        together: vec![vec![0.0, 1.0], vec![1.0, 0.0]],
                        ..Usage::default()
                    };
                    runs.push(Run {
                        metrics: [value; 5],
                        slowdowns: vec![value; 2],
                        progress: vec![Some(0.5); 2],
                        usage: (draw == 0).then_some(usage),
                    });
                }
            }
        }
        runs
    }

    fn of(settings: &Settings, value: impl Fn(usize, u32, u32) -> f64) -> Simulated {
        Simulated::of(settings.clone(), &runs(settings, value))
    }

    /// Ratios e^-1 and e^-0.5 by draw, ± 0.1 by seed: means −1 and −½, squares 4 · 0.01 over 2 degrees
    /// of freedom, v = √0.02, and t(0.975, 2) = 4.302653: the ends move by 4.302653 · √(0.02 / 2) =
    /// 0.430265.
    #[test]
    fn traced_by_hand() {
        let settings = settings(&["os", "mix"], 2, 2);
        let found = of(&settings, |policy, draw, seed| match policy {
            0 => 1.0,
            _ => (-1.0 + 0.5 * f64::from(draw) + if seed == 0 { 0.1 } else { -0.1 }).exp(),
        });
        let ratio = found.policies[1].metrics[0].ratio.unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{a} is not {b}");
        close(ratio.value.ln(), -1.0);
        close(ratio.low.ln(), -1.430_265);
        close(ratio.high.ln(), -0.069_735);
        assert_eq!(found.policies[1].metrics[0].verdict, Verdict::Better);
        // More throughput is better, less of it worse.
        assert_eq!(found.policies[1].metrics[2].verdict, Verdict::Worse);
        let value = found.policies[1].metrics[0].value.unwrap();
        close(value.value, (-1.0_f64).exp() * 0.1_f64.cosh());
        close(value.high, (-0.5_f64).exp() * 0.1_f64.cosh());
        close(found.policies[0].usage.pus, 0.5);
    }

    /// Fifteen draws say 10 % less; one says 1 % more.
    #[test]
    fn a_draw_that_disagrees_silences() {
        let settings = settings(&["os", "mix"], 16, 2);
        let by_draw = |odd: f64| {
            move |policy: usize, draw: u32, _| match (policy, draw) {
                (0, _) => 1.0,
                (_, 9) => odd,
                _ => 0.9,
            }
        };
        let agreed = &of(&settings, by_draw(0.89)).policies[1].metrics[0];
        assert_eq!((agreed.verdict, agreed.unresolved), (Verdict::Better, None));
        let silenced = &of(&settings, by_draw(1.01)).policies[1].metrics[0];
        assert_eq!(silenced.verdict, Verdict::NotResolved);
        assert_eq!(silenced.unresolved, Some(Unresolved::SignChanges));
    }

    #[test]
    fn why_nothing_is_said() {
        let why = |draws, seeds, factor: f64| {
            let settings = settings(&["os", "mix"], draws, seeds);
            let found = of(&settings, |policy, _, _| if policy == 0 { 1.0 } else { factor });
            found.policies[1].metrics[0].unresolved
        };
        assert_eq!(why(1, 5, 0.5), Some(Unresolved::OneDraw));
        assert_eq!(why(5, 1, 0.5), Some(Unresolved::OneSeed));
        assert_eq!(why(5, 5, 0.96), Some(Unresolved::BelowResolution));
        assert_eq!(why(5, 5, 1.0), Some(Unresolved::SignChanges));
        assert_eq!(why(5, 5, 0.9), None);
        let settings = settings(&["os", "mix"], 2, 2);
        let mut runs = runs(&settings, |_, _, _| 1.0);
        runs[7].metrics = [None; 5];
        let found = Simulated::of(settings, &runs);
        assert_eq!(found.policies[1].metrics[4].unresolved, Some(Unresolved::NotFinished));
        assert_eq!((found.policies[0].unfinished, found.policies[1].unfinished), (0, 1));
        assert!(found.notes[1].starts_with("1 of 4 runs under mix"), "{:?}", found.notes);
    }

    #[test]
    fn what_is_written_is_read() {
        let found = of(&settings(&["os", "mix"], 2, 2), |policy, _, _| 1.5 - policy as f64 / 3.0);
        assert_eq!(serde_json::from_str::<Simulated>(&found.to_json()).unwrap(), found);
    }

    proptest! {
        #[test]
        fn no_claim_without_resolution(
            values in prop::collection::vec(0.2..5.0_f64, 1..60),
            draws in 1..6_u32,
            seeds in 1..6_u32,
        ) {
            let settings = settings(&["os", "mix", "compact"], draws, seeds);
            let found = of(&settings, |policy, draw, seed| {
                values[(policy * 31 + (draw * 7 + seed) as usize) % values.len()]
            });
            for metric in found.policies.iter().skip(1).flat_map(|policy| &policy.metrics) {
                let ratio = metric.ratio.unwrap();
                prop_assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
                let resolved = draws > 1 && seeds > 1
                    && !(ratio.low..=ratio.high).contains(&1.0)
                    && (ratio.value - 1.0).abs() >= RESOLUTION;
                prop_assert_eq!(resolved, metric.verdict != Verdict::NotResolved);
                prop_assert_eq!(resolved, metric.unresolved.is_none());
            }
        }

        #[test]
        fn common_factors_cancel(factors in prop::collection::vec(0.1..10.0_f64, 12)) {
            let settings = settings(&["os", "mix"], 3, 4);
            let found = of(&settings, |policy, draw, seed| {
                factors[(draw * 4 + seed) as usize] * if policy == 0 { 4.0 } else { 3.0 }
            });
            let ratio = found.policies[1].metrics[0].ratio.unwrap();
            prop_assert!((ratio.value - 0.75).abs() < 1e-9);
            prop_assert!((ratio.low - 0.75).abs() < 1e-9 && (ratio.high - 0.75).abs() < 1e-9);
        }
    }
}
