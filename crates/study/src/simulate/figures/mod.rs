//! What may be said of policies after a scenario was simulated under each.
//!
//! # Terms
//! - A *draw* is one choice of everything that the model assumes; draw 0 is the default one. A *seed*
//!   decides what a real machine would leave to chance.
//! - A policy's *value* of a metric is its mean over the seeds under the default assumptions; its *range*
//!   goes from the least to the greatest mean over the seeds under any draw.
//! - Its *ratio* is the geometric mean over the seeds, under the default assumptions, of its value divided
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

mod grid;
mod kept;
#[cfg(test)]
pub(super) mod tests;

pub(crate) use kept::together;
pub use kept::{CacheUsage, PortUsage, Run, Usage};

use crate::metric::Metric;
use colocate_figures::stats::{Estimate, Interval};
use colocate_sim::Method;
pub(crate) use grid::Column;
use grid::Grid;
use serde::{Deserialize, Serialize};

/// Version of the report format that this build writes.
pub const VERSION: u32 = 1;

/// Least difference that the model can resolve, as a part of the baseline. Chosen from how far it was
/// off against LLVM's scheduler: 3 to 5 % on average for two loops on one core (docs/method/validation.md).
pub const RESOLUTION: f64 = 0.05;

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
    /// How many draws from the ensemble; the first is the default.
    pub draws: u32,
    /// A digest of all that the figures depend on: scenario, machine, demand vectors. Empty if there is none.
    pub inputs: String,
}

/// A figure and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Under the default assumptions.
    pub value: f64,
    /// Least under any.
    pub low: f64,
    /// Greatest under any.
    pub high: f64,
}

impl Spread {
    /// The same in other terms; `f` rises all over the range, or falls.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let ends = [f(self.low), f(self.high)];
        Self { value: f(self.value), low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) }
    }

    /// A ratio of 1.25 as 25 percent more.
    #[must_use]
    pub fn percent_more(self) -> Self {
        self.map(|ratio| (ratio - 1.0) * 100.0)
    }

    /// As `text` writes it, or that runs did not end.
    pub(crate) fn or_unended(spread: Option<Self>, text: impl FnOnce(Self) -> String) -> String {
        spread.map_or_else(|| "did not end".to_owned(), text)
    }

    /// With so many decimals, as `1.23 (1.20 to 1.30)`.
    #[must_use]
    pub fn text(&self, decimals: usize) -> String {
        let Self { value, low, high } = self;
        format!("{value:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    }

    /// The same with signs, as `+1.2 (-0.1 to +2.3)`.
    #[must_use]
    pub fn signed_text(&self, decimals: usize) -> String {
        let Self { value, low, high } = self;
        format!("{value:+.decimals$} ({low:+.decimals$} to {high:+.decimals$})")
    }
}

impl From<Spread> for Estimate {
    fn from(Spread { value, low, high }: Spread) -> Self {
        Self { value, interval: Some(Interval { low, high }) }
    }
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

impl Verdict {
    /// A word for tables; `~` where nothing may be said.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Baseline => "",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NotResolved => "~",
        }
    }
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
    /// The metrics, in the order of [`Metric::OF_SCENARIOS`].
    pub metrics: Vec<MetricFigures>,
    /// The jobs, in the scenario's order.
    pub jobs: Vec<JobFigures>,
    /// How the machine was used: means over the seeds, under the default assumptions.
    pub usage: Usage,
}

/// What came of a scenario under all its policies (`docs/schemas/simulated.json`). All of it is simulated.
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

impl Simulated {
    /// The figures of `runs`, which are in the order of policy, draw and seed, the seed fastest.
    ///
    /// # Panics
    /// If there are not as many runs as `settings` say, or the baseline is no policy.
    #[must_use]
    pub fn of(settings: Settings, runs: &[Run]) -> Self {
        let each = settings.draws as usize * settings.seeds as usize;
        assert_eq!(runs.len(), settings.policies.len() * each, "a run for every combination");
        let place = settings.policies.iter().position(|policy| *policy == settings.baseline);
        let place = place.expect("the baseline is one of the policies");
        let policies =
            compared(&settings.policies, place, settings.seeds as usize, settings.jobs.len(), runs);
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
}

/// What may be said of `policies` beside the one at the place `base`, with `runs` in the order of policy, draw
/// and seed, the seed fastest; each run has figures of so many `jobs`.
///
/// # Panics
/// If there is no policy at `base`, or the runs are not equally many for each policy.
#[must_use]
pub fn compared(
    policies: &[String],
    base: usize,
    seeds: usize,
    jobs: usize,
    runs: &[Run],
) -> Vec<PolicyFigures> {
    assert_eq!(runs.len() % policies.len(), 0, "equally many runs a policy");
    let each = runs.len() / policies.len();
    let of_policy = |policy: usize| Grid { runs: &runs[policy * each..][..each], seeds };
    let figures = |(policy, name): (usize, &String)| {
        let against = (policy != base).then(|| of_policy(base));
        of_policy(policy).figures(name, jobs, against)
    };
    policies.iter().enumerate().map(figures).collect()
}

fn notes(settings: &Settings, policies: &[PolicyFigures]) -> Vec<String> {
    let mut notes = vec![
        "ranges and intervals hold what the model assumes against and what chance does, not what the \
         model leaves out: docs/method/validation.md says how far it was off where it could be checked"
            .to_owned(),
    ];
    if settings.policies.iter().any(|policy| policy.starts_with("symbiosis-model")) {
        notes.push(
            "symbiosis-model plans with the model that simulates, under the default assumptions: that \
             favours it"
                .to_owned(),
        );
    }
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
             show how a policy places what is left"
                .to_owned(),
        );
    }
    notes
}
