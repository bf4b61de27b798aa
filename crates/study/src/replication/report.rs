//! What came of a study: one form for all of them.

use super::definition::{Picture, Ratios, Shown};
use crate::metric::Metric;
use crate::published;
use crate::simulate::figures::{Spread, Unresolved, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the report that this build writes.
pub const VERSION: u32 = 1;

/// What came of a study, simulated (`docs/schemas/study.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// Which study.
    pub study: String,
    /// What programs are like, in a line.
    pub summary: String,
    /// The machine that is simulated.
    pub machine: String,
    /// How many sets of assumptions.
    pub draws: u32,
    /// How many seeds for each.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long a program takes alone, in seconds.
    pub length_s: f64,
    /// Time between two decisions, in seconds.
    pub quantum_s: f64,
    /// How long a serial and a parallel phase take together, in seconds, where there are some.
    pub round_s: Option<f64>,
    /// A digest of the machine, the programs and all settings.
    pub inputs: String,
    /// Least difference that counts as resolved.
    pub resolution: f64,
    /// The drawn programs.
    pub programs: Vec<ProgramFigures>,
    /// Figures of the model alone.
    pub facts: Vec<FactFigures>,
    /// The tables.
    pub parts: Vec<PartFigures>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// What a drawn program does alone, under the default assumptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFigures {
    /// Its name.
    pub name: String,
    /// Phases.
    pub phases: u32,
    /// Requests to memory, t/µs.
    pub memory: f64,
    /// Requests to the first cache, t/µs.
    pub first_cache: f64,
    /// Share of its speed that it loses for each t/µs of others.
    pub loss: f64,
}

/// Figures that need no simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactFigures {
    /// What they are, in a line.
    pub text: String,
    /// The figures.
    pub facts: Vec<Fact>,
}

/// A figure that needs no simulation, as a ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// The figure.
    pub value: Spread,
    /// What was published of it, if anything was.
    pub published: Option<Published>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The figure over that under Linux or alone; `None` where the text has no number.
    pub ratio: Option<f64>,
    /// As it stands there.
    pub text: String,
    /// Where.
    pub source: String,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartFigures {
    /// Its name.
    pub name: String,
    /// What it shows, in a line.
    pub text: String,
    /// How ratios are shown.
    pub ratios: Ratios,
    /// Policies of the study that colocate does not have.
    pub missing: Vec<String>,
    /// What the others are compared to.
    pub baselines: Vec<String>,
    /// What is simulated.
    pub cells: Vec<CellFigures>,
    /// A row a cell, or one of means over all cells.
    pub rows: Vec<Row>,
    /// Published orders of policies.
    pub orders: Vec<Order>,
    /// What else was published.
    pub published: Vec<Published>,
    /// The first metric along an axis.
    pub picture: Option<Picture>,
    /// One mix in detail.
    pub detail: Option<Details>,
}

/// What is simulated in a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellFigures {
    /// What it is, as shown: the labels that are not the same for all cells of its part.
    pub name: String,
    /// What it is: name and value, in the order in which they are shown.
    pub labels: Vec<(String, String)>,
    /// Numbers of it.
    pub values: BTreeMap<String, f64>,
    /// Its programs.
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

/// A cell, or the mean of all, under every policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The cell's place; `None` for the mean of all.
    pub cell: Option<u32>,
    /// The policies.
    pub policies: Vec<PolicyFigures>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyFigures {
    /// Its name; `fdt` is with fewer threads, and `oracle` the best that can be had.
    pub policy: String,
    /// Its figures.
    pub metrics: Vec<MetricFigures>,
}

/// One metric of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricFigures {
    /// The metric.
    pub metric: Metric,
    /// Its value; `None` if a run did not end, and where there is none of an oracle.
    pub value: Option<Spread>,
    /// Beside each baseline but itself, where policies are compared by the metric.
    pub beside: Vec<Beside>,
    /// The part of the time that the oracle saves beside the first policy that it saves, too; `None` where the oracle saves
    /// less than can be resolved.
    pub of_oracle: Option<Spread>,
    /// What was published of it, if anything was.
    pub published: Option<Published>,
}

/// A policy beside a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The baseline.
    pub baseline: String,
    /// The ratio to its value and the interval, of `time` the baseline's over the policy's; `None` if a run did not end.
    pub ratio: Option<Spread>,
    /// What may be said.
    pub verdict: Verdict,
    /// Why nothing may be said.
    pub unresolved: Option<Unresolved>,
    /// Where the ratio is a mean, that in each cell, seeds together, and its range over the assumptions.
    pub by_cell: Vec<Option<Spread>>,
}

/// Two schedulers of which it was published which is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// By what.
    pub metric: Metric,
    /// The one that was published to be better.
    pub better: String,
    /// The other.
    pub than: String,
    /// Ratio of the first to the second; `None` if a run did not end.
    pub ratio: Option<Spread>,
    /// Whether it is so here.
    pub found: Found,
    /// Whether it is decided, and the difference as large as the model can resolve.
    pub resolved: bool,
    /// Where the order was published.
    pub source: String,
}

/// An order beside the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// As published, under all assumptions.
    Same,
    /// The other way round, under all assumptions.
    Reversed,
    /// It depends on the assumptions or on chance, or there is only one set of them or one seed.
    Open,
}

impl From<&published::Row> for Published {
    fn from(row: &published::Row) -> Self {
        Self { ratio: row.value, text: row.text.to_owned(), source: row.source.to_owned() }
    }
}

/// One mix under every scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Its name.
    pub mix: String,
    /// What is printed of it.
    pub what: Shown,
    /// Its programs, in the order of their jobs.
    pub programs: Vec<String>,
    /// The schedulers, the baseline first.
    pub policies: Vec<Course>,
}

/// The course of a mix under one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Its name.
    pub policy: String,
    /// How far the programs have come at each tenth of the time until the first has reached its target,
    /// begin and end included: the part of its target that the least, the mean and the farthest program
    /// has reached.
    pub progress: Vec<[f64; 3]>,
    /// How many programs have not reached their targets at each tenth of the baseline's turnaround, from its
    /// start to a fifth after its end.
    pub left: Vec<u32>,
    /// The requests of the caches of which there are several with several cores each, t/µs: the greatest less the least,
    /// in quanta with as many programs as contexts or more. `None` if there are no such caches.
    pub imbalance: Option<Imbalance>,
    /// Requests of the cores' first caches, t/µs, in each tenth of the time until the first program has reached its target: of the core that is
    /// requested least in a quantum, and of the one that is requested most. Empty if they are not reported.
    pub first_caches: Vec<[f64; 2]>,
    /// For how many quanta each program had a PU until it reached its target.
    pub slots: Vec<f64>,
    /// Part of the run's time for which two programs were on one core, row by row.
    pub core_sharing: Vec<Vec<f64>>,
}

/// Differences of quanta, t/µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imbalance {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// Nine of ten are smaller.
    pub ninth_tenth: f64,
}
