//! A study's definition: a TOML file in `studies/` that says which cells are simulated under which policies, and which
//! figures are reported.

use super::recorded::Recorded;
use crate::files;
use crate::metric::Metric;
use crate::simulate::contender::Contender;
use crate::simulate::scenario::Text;
use colocate_engine::Meanwhile;
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_model::phase::PhaseFile;
use serde::{Deserialize, Deserializer, Serialize};
use std::str::FromStr;

const KERNELS: &str = include_str!("../../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../../studies/serpa/nas.toml");

/// Notes for recorded programs; they replace the definition's notes on drawn programs.
const RECORDED: [&str; 2] = [
    "the programs are recorded ones with small inputs, each prolonged to the same time alone; what was not recorded of them is guessed",
    "ranges and intervals hold what the model assumes against and what chance does, not what the model leaves out, nor other programs: --seed draws other mixes of the same ones",
];

/// A study, as read from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PolicyStudyDefinition {
    pub(super) version: u32,
    /// Name, as `feliu-1`.
    pub name: String,
    /// Description of the programs, with `{length}`, `{quantum}` and `{round}` in seconds.
    pub summary: String,
    /// Default machine.
    pub machine: String,
    /// Number of sets of assumptions; at least 1.
    pub draws: u32,
    /// Seeds for each set of assumptions; at least 1.
    pub seeds: u32,
    /// Number of drawn programs; 0 without mixes.
    #[serde(default)]
    pub programs: usize,
    /// Recorded programs of the mixes; empty if programs are drawn.
    #[serde(skip)]
    pub recorded: Vec<Recorded>,
    /// Time that a program takes alone. Never 0.
    #[serde(deserialize_with = "text")]
    pub length: Nanos,
    /// Time of a serial and a parallel phase together, for phased programs. Never 0.
    #[serde(default, deserialize_with = "some_text")]
    pub round: Option<Nanos>,
    /// Time between two decisions. Never 0.
    #[serde(deserialize_with = "text")]
    pub quantum: Nanos,
    /// Figures of the model alone.
    #[serde(default)]
    pub facts: Vec<FactTable>,
    /// The tables.
    #[serde(rename = "part")]
    pub parts: Vec<StudyTable>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
    /// SMT-Bench's demand vectors.
    #[serde(skip)]
    pub kernels: Vec<Phase>,
    /// Demand vectors of the applications; all pairs are simulated.
    #[serde(skip)]
    pub applications: Vec<Phase>,
}

/// Figures without simulation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactTable {
    /// Kind of figures.
    pub kind: FactKind,
    /// Description, in a line.
    pub text: String,
}

/// Kinds of figures without simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactKind {
    /// SMT-Bench on one core.
    SmtBench,
    /// A thread alone on a fast core, relative to a slow core.
    FastCore,
}

/// A table of a study.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StudyTable {
    /// Name of the part.
    pub name: String,
    /// Title of the table, in a line.
    pub text: String,
    /// Policies, the first of `baselines` first. Policies that colocate does not have are left out.
    pub policies: Vec<String>,
    /// Policies to compare with.
    #[serde(default = "os")]
    pub baselines: Vec<String>,
    /// Kept metrics of a run.
    pub metrics: Vec<Metric>,
    /// How ratios are shown.
    #[serde(default)]
    pub ratios: Ratios,
    /// A picture of the first metric.
    pub picture: Option<Picture>,
    /// Detailed view of a mix.
    pub detail: Option<Detail>,
    /// Simulated cells.
    pub cells: Cells,
}

/// How ratios to a baseline are shown.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ratios {
    /// Percent by which a time is shorter or a speed greater; a metric without unit as a ratio.
    #[default]
    Better,
    /// In percent of the baseline.
    Percent,
}

/// Ratios along an axis.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// Name of the cell label along the axis.
    pub x: String,
    /// Title above the picture.
    pub title: String,
    /// Label of the axis, with its unit.
    pub axis: String,
}

/// Detailed view of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detail {
    /// Number of the mix, from 1.
    pub mix: usize,
    /// Printed view of the mix.
    pub what: Shown,
}

/// Views of a mix.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// Imbalance of the requests to the last-level caches.
    Imbalance,
    /// Share of the time for which two programs share a core.
    CoreSharing,
    /// Progress of the programs, and the number that has not ended.
    Progress,
    /// Requests to the first caches over time, and the quanta of a PU that each program has had.
    FirstCaches,
}

/// Kinds of cells.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cells {
    /// Random mixes of programs; figures are means over them.
    Mixes(Mixes),
    /// Programs with serial and parallel phases.
    Phased(Vec<Phased>),
    /// All pairs of the applications; figures are means over them.
    Pairs {
        /// Placements that only the oracle may choose.
        also: Vec<String>,
    },
    /// Two copies of an application: length of the second in percent of the first.
    Shorter(Vec<u32>),
}

/// Random mixes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mixes {
    /// Number of mixes.
    pub count: usize,
    /// Cores of a mix; mixes take the values in rotation.
    pub cores: Vec<usize>,
    /// PUs of each core that are used.
    pub pus_per_core: usize,
    /// Programs for each PU: 2 if a policy selects programs, 1 if it only places them.
    pub programs_per_pu: usize,
    /// Range of requests of all contexts to memory, t/µs; `None` if no range was published.
    #[serde(default)]
    pub traffic: Option<[f64; 2]>,
    /// Programs out of four from the half with most requests to the first cache; mixes take the
    /// values in rotation. Empty: programs are drawn from all.
    #[serde(default)]
    pub shapes: Vec<usize>,
    /// Whether each mix has its least possible turnaround, where that can be computed.
    #[serde(default)]
    pub bound: bool,
}

/// Programs with serial and parallel phases: every combination of the values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phased {
    /// Serial shares of the time on slow cores, percent.
    pub serial: Vec<u32>,
    /// Positions of the fast cores.
    #[serde(default = "friendly")]
    pub layouts: Vec<Layout>,
    /// Lengths of serial and of parallel phases, in milliseconds; empty: half a round each.
    #[serde(default)]
    pub phases_ms: Vec<u64>,
    /// Thread of the serial phases.
    #[serde(default)]
    pub serial_by: SerialBy,
    /// Behaviour of waiting threads.
    #[serde(default = "sleep")]
    pub waiting: Vec<Waiting>,
    /// True if fast cores are as slow as the others and only described as fast.
    #[serde(default)]
    pub levelled: bool,
    /// True if threads stream through memory; then every policy is also simulated with fewer
    /// threads.
    #[serde(default)]
    pub streaming: bool,
    /// True if threads have the demand of recorded programs, one program after the other.
    #[serde(default)]
    pub recorded: bool,
    /// Numbers of concurrent programs.
    #[serde(default = "one")]
    pub programs: Vec<u32>,
}

/// Positions of the fast cores: the two configurations of figure 5 of Fedorova et al.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// A fast core and slow ones under every last-level cache, as the machine is described.
    Friendly,
    /// As many cores of each kind, but the fast cores first, under last-level caches of their own.
    /// A move between a fast and a slow core loses the contents of the caches.
    Unfriendly,
}

/// Thread of the serial phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialBy {
    /// Threads in rotation, as where the last thread at a barrier does the serial phase.
    #[default]
    InTurn,
    /// Always the program's first thread, as in OpenMP between two parallel regions.
    First,
}

/// Behaviour of waiting threads, and its report to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// Waiting threads sleep.
    Sleep,
    /// Waiting threads spin, and the scheduler gets a report of spinning threads.
    Spin,
    /// Waiting threads spin, and the scheduler cannot distinguish them from working threads.
    SpinUnknown,
}

/// Demand vectors of a built-in file.
fn phases(text: &str) -> Result<Vec<Phase>, String> {
    PhaseFile::from_toml(text).map(|file| file.phases).map_err(|error| error.to_string())
}

// Defaults for serde, and functions that read text such as "500 ms".

fn os() -> Vec<String> {
    vec!["os".to_owned()]
}

fn friendly() -> Vec<Layout> {
    vec![Layout::Friendly]
}

fn sleep() -> Vec<Waiting> {
    vec![Waiting::Sleep]
}

fn one() -> Vec<u32> {
    vec![1]
}

pub(crate) fn text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    Ok(Text::deserialize(deserializer)?.0)
}

fn some_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    // Called for a present field only: the default is `None`.
    text(deserializer).map(Some)
}

impl PolicyStudyDefinition {
    /// Reads a built-in study.
    ///
    /// # Errors
    /// As of [`files::read`].
    pub fn built_in(name: &str) -> Result<Self, String> {
        let mut study: Self = files::read(name)?;
        if study.facts.iter().any(|facts| facts.kind == FactKind::SmtBench) {
            study.kernels = phases(KERNELS)?;
            study.applications = phases(APPLICATIONS)?;
        }
        Ok(study)
    }

    /// Makes mixes of `programs` in place of drawn programs.
    pub fn use_recorded(&mut self, programs: Vec<Recorded>) {
        self.recorded = programs;
        self.notes = RECORDED.map(str::to_owned).to_vec();
    }

    /// Parts with random mixes.
    pub fn mixes(&mut self) -> impl Iterator<Item = &mut Mixes> {
        self.parts.iter_mut().filter_map(|part| match &mut part.cells {
            Cells::Mixes(mixes) => Some(mixes),
            _ => None,
        })
    }

    /// Whether all pairs of applications are simulated.
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.cells, Cells::Pairs { .. }))
    }
}

impl StudyTable {
    /// Policies of the part that colocate has, by name.
    pub fn known(&self) -> impl Iterator<Item = (&String, Contender)> {
        self.policies.iter().filter_map(|name| Some((name, self.contender(name)?)))
    }

    /// Names of the policies that colocate does not have.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.policies.iter().filter(|name| self.contender(name).is_none()).cloned().collect()
    }

    /// The named policy; `None` if colocate does not have it. Waiting jobs and guards exist in
    /// mixes only.
    fn contender(&self, name: &str) -> Option<Contender> {
        let found: Contender = name.parse().ok()?;
        let is_plain = !found.guarded && found.waiting != Some(Meanwhile::Fill);
        (is_plain || matches!(self.cells, Cells::Mixes(_))).then_some(found)
    }

    /// Whether figures are means over the cells.
    #[must_use]
    pub const fn is_averaged(&self) -> bool {
        matches!(self.cells, Cells::Mixes(_) | Cells::Pairs { .. })
    }

    /// Whether the last policy is an oracle.
    #[must_use]
    pub const fn has_oracle(&self) -> bool {
        matches!(self.cells, Cells::Phased(_) | Cells::Pairs { .. })
    }

    /// Whether every policy is also simulated with fewer threads.
    #[must_use]
    pub fn has_fewer_threads(&self) -> bool {
        matches!(&self.cells, Cells::Phased(all) if all.iter().any(|phased| phased.streaming))
    }

    /// Names of the compared policies, in the order of a piece's runs.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.known().map(|(name, _)| name.clone()).collect();
        if self.has_fewer_threads() {
            names.extend(self.known().map(|(name, _)| format!("{name}, fdt")));
        }
        names.extend(self.has_oracle().then(|| "oracle".to_owned()));
        names
    }

    /// Index of a metric among the kept metrics.
    #[must_use]
    pub fn place(&self, metric: Metric) -> Option<usize> {
        self.metrics.iter().position(|each| *each == metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_studies_can_be_read() {
        // The last three are not of policies.
        for (name, ..) in &files::STUDIES[..6] {
            let study = PolicyStudyDefinition::built_in(name).unwrap();
            for part in &study.parts {
                assert_eq!(part.missing(), Vec::<String>::new());
                assert!(part.baselines.contains(&part.policies[0]), "{name} {}", part.name);
                assert!(part.baselines.iter().all(|base| part.policies.contains(base)));
                if let (Cells::Mixes(mixes), Some(detail)) = (&part.cells, part.detail) {
                    assert!((1..=mixes.count).contains(&detail.mix));
                }
            }
        }
        assert!(PolicyStudyDefinition::built_in("best").is_err());
    }
}
