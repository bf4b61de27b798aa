//! Verdicts on policies after a scenario was simulated under each.
//!
//! # Terms
//! - A *draw* is one set of the model's assumptions; draw 0 is the default set. A *seed* sets all
//!   that a real machine would leave to chance.
//! - A policy's *value* of a metric is its mean over the seeds under the default assumptions; its
//!   *range* goes from the least to the greatest mean over the seeds under any draw.
//! - Its *ratio* is the geometric mean over the seeds, under the default assumptions, of its value
//!   divided by the baseline's with the same draw and seed. The ratio's *interval* goes from the
//!   least to the greatest such mean under any draw, and is widened at both ends by the spread of
//!   the seeds: with `r(d, s)` the ratio's logarithm, `D` draws and `S` seeds, the spread `v`
//!   pooled over the draws is `v² = Σ_d Σ_s (r(d, s) − mean_d)² / D(S − 1)`, and the ends move by
//!   `t(0.975, D(S − 1)) · v / √S`.
//! - A difference is *resolved* when that interval leaves 1 out, so that its sign is the same under
//!   all assumptions, and the ratio differs from 1 by at least [`RESOLUTION`]. Only a resolved
//!   difference is called better or worse. Each policy is compared for itself.
//!
//! The ensemble is no sample of the truth: its interval covers the alternatives to each assumption,
//! not effects that the model leaves out.
//!
//! # Properties
//! - **No claim without resolution** -> test `no_claim_without_resolution`
//! - **Common factors cancel**: what a draw or a seed does to all policies alike changes no ratio.
//!   -> test `common_factors_cancel`
//! - **More assumptions never resolve more**: a draw can widen an interval's range, never narrow
//!   it. -> test `a_draw_that_disagrees_silences`

mod grid;
mod kept;
#[cfg(test)]
pub(super) mod tests;

pub(crate) use kept::together;
pub use kept::{CacheUsage, PortUsage, RunSummary, Usage};

use crate::metric::Metric;
use colocate_figures::stats::{Estimate, Interval};
use colocate_sim::Method;
pub(crate) use grid::FigureColumn;
use grid::Grid;
use serde::{Deserialize, Serialize};

/// Version of the report format.
pub const VERSION: u32 = 1;

/// Smallest difference that the model can resolve, as a part of the baseline. Chosen from its error
/// against LLVM's scheduler: 3 to 5 % on average for two loops on one core (docs/method/validation.md).
pub const RESOLUTION: f64 = 0.05;

/// Settings of a comparison.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonSettings {
    /// Version of colocate.
    pub colocate: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Purpose of the scenario, if it has a note.
    pub note: Option<String>,
    /// Name of the simulated machine.
    pub machine: String,
    /// Names of the jobs.
    pub jobs: Vec<String>,
    /// Number of tasks of all jobs.
    pub tasks: u32,
    /// Treatment of a job that has done its work.
    pub method: Method,
    /// The policies.
    pub policies: Vec<String>,
    /// The baseline, one of `policies`.
    pub baseline: String,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds; each is one more than the last.
    pub seeds: u32,
    /// Number of draws from the ensemble; the first is the default.
    pub draws: u32,
    /// Digest of the inputs: scenario, machine, demand vectors. Empty if not known.
    pub inputs: String,
}

/// A figure with its range over the draws.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Value under the default assumptions.
    pub value: f64,
    /// Smallest value under any draw.
    pub low: f64,
    /// Largest value under any draw.
    pub high: f64,
}

impl Spread {
    /// The spread of `f` of the figure; `f` must be monotonic over the range.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let ends = [f(self.low), f(self.high)];
        // A falling `f` exchanges the ends.
        Self { value: f(self.value), low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) }
    }

    /// A ratio as a difference in percent: 1.25 is 25.
    #[must_use]
    pub fn percent_more(self) -> Self {
        self.map(|ratio| (ratio - 1.0) * 100.0)
    }

    /// The text of a spread; without one "did not end".
    pub(crate) fn or_unended(spread: Option<Self>, text: impl FnOnce(Self) -> String) -> String {
        spread.map_or_else(|| "did not end".to_owned(), text)
    }

    /// Value and range with this many decimals, as `1.23 (1.20 to 1.30)`.
    #[must_use]
    pub fn text(&self, decimals: usize) -> String {
        let Self { value, low, high } = self;
        format!("{value:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    }

    /// Value and range with signs, as `+1.2 (-0.1 to +2.3)`.
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

/// Verdict on a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedVerdict {
    /// The baseline itself.
    Baseline,
    /// Better, under all assumptions.
    Better,
    /// Worse, under all assumptions.
    Worse,
    /// None, for the reason in `unresolved`.
    NotResolved,
}

impl SimulatedVerdict {
    /// Mark in tables; `~` for an unresolved difference.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Baseline => "",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NotResolved => "~",
        }
    }
}

/// Reason why a difference is not resolved.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unresolved {
    /// Some runs did not end before the horizon.
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

/// A metric of a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricFigures {
    /// The metric.
    pub metric: Metric,
    /// Value and range; `None` if runs did not end.
    pub value: Option<Spread>,
    /// Ratio to the baseline with its interval; `None` for the baseline, and if runs did not end.
    pub ratio: Option<Spread>,
    /// Verdict.
    pub verdict: SimulatedVerdict,
    /// Reason, if the difference is not resolved.
    pub unresolved: Option<Unresolved>,
}

/// A job under a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFigures {
    /// Slowdown; `None` if runs did not end.
    pub slowdown: Option<Spread>,
    /// Mean speed of its tasks relative to alone.
    pub progress: Option<Spread>,
}

/// Figures of a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// The policy.
    pub policy: String,
    /// Runs that did not end before the horizon.
    pub unfinished: u32,
    /// The metrics, in the order of [`Metric::OF_SCENARIOS`].
    pub metrics: Vec<MetricFigures>,
    /// The jobs, in the scenario's order.
    pub jobs: Vec<JobFigures>,
    /// Use of the machine: means over the seeds, under the default assumptions.
    pub usage: Usage,
}

/// Results of a scenario under all its policies (`docs/schemas/simulated.json`). All figures are
/// simulated.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Always true: nothing here was measured.
    #[cfg_attr(feature = "schema", schemars(extend("const" = true)))]
    pub simulated: bool,
    /// Settings of the comparison.
    pub settings: ComparisonSettings,
    /// Smallest difference that counts as resolved.
    pub resolution: f64,
    /// Figures of each policy.
    pub policies: Vec<PolicyFigures>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

impl Simulated {
    /// Figures of `runs`, in the order of policy, draw and seed, the seed fastest.
    ///
    /// # Panics
    /// If the number of runs is not that of `settings`, or the baseline is no policy.
    #[must_use]
    pub fn of(settings: ComparisonSettings, runs: &[RunSummary]) -> Self {
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

/// Figures of `policies` beside the baseline at place `base`, from `runs` in the order of policy,
/// draw and seed, the seed fastest; each run has figures of this many `jobs`.
///
/// # Panics
/// If `base` is no place of a policy, or the runs are not equally many for each policy.
#[must_use]
pub fn compared(
    policies: &[String],
    base: usize,
    seeds: usize,
    jobs: usize,
    runs: &[RunSummary],
) -> Vec<PolicyFigures> {
    assert_eq!(runs.len() % policies.len(), 0, "equally many runs a policy");
    let each = runs.len() / policies.len();
    let grids = (0..policies.len()).map(|at| Grid { runs: &runs[at * each..][..each], seeds });
    let grids: Vec<_> = grids.collect();
    let figures = policies.iter().enumerate().map(|(policy, name)| {
        let against = (policy != base).then(|| grids[base]);
        grids[policy].figures(name, jobs, against)
    });
    figures.collect()
}

fn notes(settings: &ComparisonSettings, policies: &[PolicyFigures]) -> Vec<String> {
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
