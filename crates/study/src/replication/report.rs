//! Report of a study: one form for all studies.

use super::definition::{Picture, Ratios, Shown};
use crate::metric::Metric;
use crate::published;
use crate::simulate::figures::{SimulatedVerdict, Spread, Unresolved};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the report that this build writes.
pub const VERSION: u32 = 1;

/// Results of a study, simulated (`docs/schemas/study.json`).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Always true: nothing here was measured.
    #[cfg_attr(feature = "schema", schemars(extend("const" = true)))]
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// Name of the study.
    pub study: String,
    /// Description of the programs, in a line.
    pub summary: String,
    /// Simulated machine.
    pub machine: String,
    /// Number of sets of assumptions.
    pub draws: u32,
    /// First seed.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// Time that a program takes alone, in seconds.
    pub length_s: f64,
    /// Time between two decisions, in seconds.
    pub quantum_s: f64,
    /// Time of a serial and a parallel phase together, in seconds; `None` without phased programs.
    pub round_s: Option<f64>,
    /// Digest of the machine, the programs and all settings.
    pub inputs: String,
    /// Least relative difference that counts as resolved.
    pub resolution: f64,
    /// Drawn programs.
    pub programs: Vec<ProgramFigures>,
    /// Figures of the model alone.
    pub facts: Vec<FactFigures>,
    /// Tables.
    pub parts: Vec<PartFigures>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

/// Figures of a drawn program alone, under the default assumptions.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFigures {
    /// Name of the program.
    pub name: String,
    /// Number of phases.
    pub phases: u32,
    /// Requests to memory, t/µs.
    pub memory: f64,
    /// Requests to the first cache, t/µs.
    pub first_cache: f64,
    /// Share of its speed that the program loses for each t/µs of other programs.
    pub loss: f64,
}

/// Figures without simulation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactFigures {
    /// Description, in a line.
    pub text: String,
    /// Figures.
    pub facts: Vec<Fact>,
}

/// A ratio from the model alone.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Name of the figure.
    pub name: String,
    /// Value with its range over the sets of assumptions.
    pub value: Spread,
    /// Published figure; `None` if nothing was published.
    pub published: Option<PublishedRatio>,
}

/// A published figure.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedRatio {
    /// The figure divided by the figure under Linux or alone; `None` where the text has no number.
    pub ratio: Option<f64>,
    /// Published wording.
    pub text: String,
    /// Publication and place.
    pub source: String,
}

/// A table.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartFigures {
    /// Name of the table.
    pub name: String,
    /// Title, in a line.
    pub text: String,
    /// How ratios are shown.
    pub ratios: Ratios,
    /// Policies of the study that colocate does not have.
    pub missing: Vec<String>,
    /// Policies to compare with.
    pub baselines: Vec<String>,
    /// Reported cells.
    pub cells: Vec<CellFigures>,
    /// A row a cell, or a row of means over all cells.
    pub rows: Vec<CellRow>,
    /// Published orders of policies.
    pub orders: Vec<OrderComparison>,
    /// Other published figures.
    pub published: Vec<PublishedRatio>,
    /// Picture of the first metric along an axis.
    pub picture: Option<Picture>,
    /// Detailed view of a mix.
    pub detail: Option<Details>,
}

/// Description of a cell.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellFigures {
    /// Name as shown: the labels in which the cells of the part differ.
    pub name: String,
    /// Labels, name and value, in display order.
    pub labels: Vec<(String, String)>,
    /// Labels as numbers; the unit is in the name.
    pub values: BTreeMap<String, f64>,
    /// Programs of the cell.
    pub programs: Vec<String>,
}

impl CellFigures {
    pub(super) fn of(
        labels: &[(&str, String)],
        values: &[(&str, f64)],
        programs: Vec<String>,
    ) -> Self {
        let labels = labels.iter().map(|(name, label)| ((*name).to_owned(), label.clone()));
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value));
        Self { name: String::new(), labels: labels.collect(), values: values.collect(), programs }
    }
}

/// Figures of a cell, or of the mean over all cells, under every policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    /// Index of the cell; `None` for the mean over all cells.
    pub cell: Option<u32>,
    /// Figures by policy.
    pub policies: Vec<PolicyMetrics>,
}

/// Figures of a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyMetrics {
    /// Name; `fdt` means with fewer threads, and `oracle` is the upper bound.
    pub policy: String,
    /// Figures by metric.
    pub metrics: Vec<MetricFigures>,
}

/// A metric of a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricFigures {
    /// The metric.
    pub metric: Metric,
    /// Value; `None` if a run did not end, or if the metric is unknown for the oracle.
    pub value: Option<Spread>,
    /// Comparisons with the other baselines, where the metric compares policies.
    pub beside: Vec<Beside>,
    /// Time saved against the first policy, as a part of the time that the oracle saves. `None`
    /// where the oracle saves less than the resolution.
    pub of_oracle: Option<Spread>,
    /// Published figure; `None` if nothing was published.
    pub published: Option<PublishedRatio>,
}

/// Comparison of a policy with a baseline.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The baseline.
    pub baseline: String,
    /// Ratio to the baseline's value and its interval; for `time`, the baseline's value over the
    /// policy's. `None` if a run did not end.
    pub ratio: Option<Spread>,
    /// Verdict of the comparison.
    pub verdict: SimulatedVerdict,
    /// Reason for an unresolved verdict.
    pub unresolved: Option<Unresolved>,
    /// Where the ratio is a mean: the ratio in each cell over all seeds, with its range over the
    /// assumptions.
    pub by_cell: Vec<Option<Spread>>,
}

/// Published order of two schedulers, and the simulated one.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderComparison {
    /// Metric by which the schedulers are ordered.
    pub metric: Metric,
    /// Scheduler published as better.
    pub better: String,
    /// Scheduler published as worse.
    pub than: String,
    /// Ratio of the better to the worse scheduler; `None` if a run did not end.
    pub ratio: Option<Spread>,
    /// Simulated order.
    pub found: SimulatedOrder,
    /// True if the order is decided and the difference is at least the resolution of the model.
    pub resolved: bool,
    /// Publication of the order.
    pub source: String,
}

/// Simulated order, relative to the published one.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedOrder {
    /// As published, under all assumptions.
    Same,
    /// Reversed, under all assumptions.
    Reversed,
    /// Not decided: the order depends on the assumptions or on chance, or only one set of
    /// assumptions or one seed was simulated.
    Open,
}

impl From<&published::PublishedFigure> for PublishedRatio {
    fn from(row: &published::PublishedFigure) -> Self {
        Self { ratio: row.value, text: row.text.to_owned(), source: row.source.to_owned() }
    }
}

/// A mix under every scheduler.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Name of the mix.
    pub mix: String,
    /// Printed view.
    pub what: Shown,
    /// Programs, in the order of their jobs.
    pub programs: Vec<String>,
    /// Courses by scheduler, the baseline first.
    pub policies: Vec<MixTimeline>,
}

/// Course of a mix under a scheduler.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixTimeline {
    /// Name of the scheduler.
    pub policy: String,
    /// Progress of the least advanced program, mean progress, and progress of the most advanced
    /// program, as parts of the target. Eleven points: tenths of the time until the first program
    /// has reached its target, from 0 to 10.
    pub progress: Vec<[f64; 3]>,
    /// Programs that have not reached their targets, at each tenth of the baseline's turnaround,
    /// from its start to a fifth after its end.
    pub left: Vec<u32>,
    /// Imbalance of the shared caches: the most requested cache less the least requested, in quanta
    /// with at least as many programs as contexts. `None` if no level has several caches with
    /// several cores each.
    pub imbalance: Option<Imbalance>,
    /// Requests to the first caches, t/µs, in each tenth of the time until the first program has
    /// reached its target: the least and the most requested core. Empty if accesses are not
    /// reported.
    pub first_caches: Vec<[f64; 2]>,
    /// Quanta for which each program had a PU until it reached its target.
    pub slots: Vec<f64>,
    /// Part of the run's time for which two programs were on one core, row by row.
    pub core_sharing: Vec<Vec<f64>>,
}

/// Differences over quanta, t/µs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imbalance {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub ninth_tenth: f64,
}
