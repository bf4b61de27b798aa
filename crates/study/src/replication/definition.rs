//! A study's definition: a TOML file in `studies/` that says which cells are simulated under which policies, and which
//! figures are reported.

use super::recorded::Recorded;
use crate::metric::Metric;
use crate::simulate::contender::Contender;
use crate::simulate::scenario::Text;
use colocate_engine::Meanwhile;
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_model::phase::PhaseFile;
use serde::{Deserialize, Deserializer, Serialize};
use std::str::FromStr;

/// Version of the form of a definition.
const VERSION: u32 = 1;

/// The studies that are built in: name, what it is, definition.
pub const BUILT_IN: [(&str, &str, &str); 6] = [
    (
        "serpa",
        "Instruction-aware mapping (Serpa et al.): SMT-Bench and all pairs of NAS benchmarks",
        include_str!("../../../../studies/serpa.toml"),
    ),
    (
        "feliu-1",
        "Bandwidth-aware scheduling without SMT (Feliu, first contribution): MMaS, MHaS and IDaS",
        include_str!("../../../../studies/feliu-1.toml"),
    ),
    (
        "feliu-2",
        "Bandwidth-aware scheduling with SMT (Feliu, second contribution): L1 allocation and BaS",
        include_str!("../../../../studies/feliu-2.toml"),
    ),
    (
        "feliu-3",
        "Progress-aware scheduling (Feliu, third contribution): Fair and Perf&Fair",
        include_str!("../../../../studies/feliu-3.toml"),
    ),
    (
        "feliu-4",
        "Symbiotic scheduling on POWER8 (Feliu, fourth contribution)",
        include_str!("../../../../studies/feliu-4.toml"),
    ),
    (
        "fedorova",
        "Serial phases on fast cores (Fedorova et al.): the gain, the cost of moves, and what spinning hides",
        include_str!("../../../../studies/fedorova.toml"),
    ),
];
const KERNELS: &str = include_str!("../../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../../studies/serpa/nas.toml");

/// What a reader should know of recorded programs, in place of what is said of drawn ones.
const RECORDED: [&str; 2] = [
    "the programs are recorded ones with small inputs, each prolonged to the same time alone; what was not recorded of them is guessed",
    "ranges and intervals hold what the model assumes against and what chance does, not what the model leaves out, nor other programs: --seed draws other mixes of the same ones",
];

/// A study.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Definition {
    pub(super) version: u32,
    /// Its name, as `feliu-1`.
    pub name: String,
    /// What programs are like, with `{length}`, `{quantum}` and `{round}` in seconds.
    pub summary: String,
    /// The machine that is simulated unless another one is given.
    pub machine: String,
    /// How many sets of assumptions; at least 1.
    pub draws: u32,
    /// How many seeds for each; at least 1.
    pub seeds: u32,
    /// How many programs are drawn, where there are mixes.
    #[serde(default)]
    pub programs: usize,
    /// Programs of the mixes in place of drawn ones; empty: they are drawn.
    #[serde(skip)]
    pub recorded: Vec<Recorded>,
    /// How long a program takes alone. Never 0.
    #[serde(deserialize_with = "text")]
    pub length: Nanos,
    /// How long a serial and a parallel phase take together, where there are some. Never 0.
    #[serde(default, deserialize_with = "some_text")]
    pub round: Option<Nanos>,
    /// Time between two decisions. Never 0.
    #[serde(deserialize_with = "text")]
    pub quantum: Nanos,
    /// Figures of the model alone.
    #[serde(default)]
    pub facts: Vec<Facts>,
    /// The tables.
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
    /// SMT-Bench's demand vectors.
    #[serde(skip)]
    pub kernels: Vec<Phase>,
    /// Demand vectors of which all pairs are simulated.
    #[serde(skip)]
    pub applications: Vec<Phase>,
}

/// Figures that need no simulation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Which.
    pub kind: FactKind,
    /// What they are, in a line.
    pub text: String,
}

/// Which figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactKind {
    /// SMT-Bench on one core.
    SmtBench,
    /// A thread alone on a fast core.
    FastCore,
}

/// A table of a study.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it shows, in a line.
    pub text: String,
    /// Policies, the first of `baselines` first. Those that colocate does not have are left out.
    pub policies: Vec<String>,
    /// What the others are compared to.
    #[serde(default = "os")]
    pub baselines: Vec<String>,
    /// What is kept of a run.
    pub metrics: Vec<Metric>,
    /// How ratios are shown.
    #[serde(default)]
    pub ratios: Ratios,
    /// A picture of the first metric.
    pub picture: Option<Picture>,
    /// A mix that is shown in detail.
    pub detail: Option<Detail>,
    /// What is simulated.
    pub cells: Cells,
}

/// How ratios to a baseline are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ratios {
    /// By how many percent a time is shorter or a speed greater; what has no unit as a ratio.
    #[default]
    Better,
    /// In percent of the baseline.
    Percent,
}

/// Ratios along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// The label along the axis.
    pub x: String,
    /// What is above it.
    pub title: String,
    /// What the axis counts, with its unit.
    pub axis: String,
}

/// A mix that is shown in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detail {
    /// Its number, from 1.
    pub mix: usize,
    /// What is printed of it.
    pub what: Shown,
}

/// What is printed of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// How unequal the requests of the last caches are.
    Imbalance,
    /// How often programs share a core.
    CoreSharing,
    /// How far the programs are, and how many are left.
    Progress,
    /// What the first caches are requested over time, and how many quanta of a PU each program has had.
    FirstCaches,
}

/// What is simulated.
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
    /// Two copies of an application, the length of the second in percent of the first's.
    Shorter(Vec<u32>),
}

/// Random mixes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mixes {
    /// How many.
    pub count: usize,
    /// Cores that mixes have: one after the other, from the first.
    pub cores: Vec<usize>,
    /// PUs of each core that are used.
    pub pus_per_core: usize,
    /// Programs for each PU: 2 where they are selected, 1 where they are only placed.
    pub programs_per_pu: usize,
    /// Requests of all contexts to the memory, t/µs; `None` if nothing was published.
    #[serde(default)]
    pub traffic: Option<[f64; 2]>,
    /// Of four programs so many are of the half with most requests to the first cache; mixes take turns. Empty: any.
    #[serde(default)]
    pub shapes: Vec<usize>,
}

/// Programs with serial and parallel phases: every combination of the values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phased {
    /// Serial shares of the time on slow cores, percent.
    pub serial: Vec<u32>,
    /// Where the fast cores are.
    #[serde(default = "friendly")]
    pub layouts: Vec<Layout>,
    /// How long serial and parallel phases are each, in milliseconds; empty: a round together.
    #[serde(default)]
    pub phases_ms: Vec<u64>,
    /// Which thread does the serial phases.
    #[serde(default)]
    pub serial_by: SerialBy,
    /// What waiting threads do.
    #[serde(default = "sleep")]
    pub waiting: Vec<Waiting>,
    /// Whether fast cores are as slow as the others, and only said to be fast.
    #[serde(default)]
    pub levelled: bool,
    /// Whether threads stream through memory; then every policy is also simulated with fewer threads.
    #[serde(default)]
    pub streaming: bool,
    /// Whether threads do what recorded programs do, each in its turn.
    #[serde(default)]
    pub recorded: bool,
    /// How many programs there are at once.
    #[serde(default = "one")]
    pub programs: Vec<u32>,
}

/// Where the fast cores are: the two configurations of figure 5 of Fedorova et al.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// A fast core and slow ones under every last-level cache, as the machine is described.
    Friendly,
    /// As many cores of each kind, but the fast ones first: under last-level caches of their own, so that every move
    /// between a fast and a slow core leaves the caches behind.
    Unfriendly,
}

/// Which thread does the serial phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialBy {
    /// Another thread each time, as where the last one at a barrier goes on.
    #[default]
    InTurn,
    /// Always the program's first thread, as OpenMP's between two parallel regions.
    First,
}

/// What waiting threads do, and whether that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// They sleep.
    Sleep,
    /// They spin, and the scheduler gets a report of which do.
    Spin,
    /// They spin, and to the scheduler they look like threads that work.
    SpinUnknown,
}

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

fn text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: std::fmt::Display>,
    D: Deserializer<'de>,
{
    Ok(Text::deserialize(deserializer)?.0)
}

fn some_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    text(deserializer).map(Some)
}

impl Definition {
    /// A built-in study.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn built_in(name: &str) -> Result<Self, String> {
        let text = BUILT_IN.iter().find(|(own, ..)| *own == name);
        let (.., text) = text.ok_or_else(|| format!("expected a study, found {name:?}"))?;
        let mut study: Self = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let phases = |text| -> Result<Vec<Phase>, String> {
            let file = PhaseFile::from_toml(text).map_err(|error| error.to_string())?;
            Ok(file.phases)
        };
        if study.facts.iter().any(|facts| facts.kind == FactKind::SmtBench) {
            (study.kernels, study.applications) = (phases(KERNELS)?, phases(APPLICATIONS)?);
        }
        if study.version == VERSION { Ok(study) } else { Err(format!("{name}: version")) }
    }

    /// Makes mixes of these programs in place of drawn ones.
    pub fn use_recorded(&mut self, programs: Vec<Recorded>) {
        self.recorded = programs;
        self.notes = RECORDED.map(str::to_owned).to_vec();
    }

    /// Its random mixes.
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

impl Part {
    /// Its policies that colocate has, by name.
    pub fn known(&self) -> impl Iterator<Item = (&String, Contender)> {
        self.policies.iter().filter_map(|name| Some((name, self.contender(name)?)))
    }

    /// Names of those that it does not have.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let unknown = |name: &&String| self.contender(name).is_none();
        self.policies.iter().filter(unknown).cloned().collect()
    }

    /// Jobs wait, and a guard compares quanta, in mixes only.
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

    /// What is compared, in the order of a run's figures.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names = || self.known().map(|(name, _)| name.clone());
        let fewer = names().map(|name| format!("{name}, fdt")).filter(|_| self.has_fewer_threads());
        let oracle = self.has_oracle().then(|| "oracle".to_owned());
        names().chain(fewer).chain(oracle).collect()
    }

    /// Where a metric is among the kept ones.
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
        for (name, ..) in BUILT_IN {
            let study = Definition::built_in(name).unwrap();
            assert_eq!(study.name, name);
            for part in &study.parts {
                assert_eq!(part.missing(), Vec::<String>::new());
                assert!(part.baselines.contains(&part.policies[0]), "{name} {}", part.name);
                assert!(part.baselines.iter().all(|base| part.policies.contains(base)));
                if let (Cells::Mixes(mixes), Some(detail)) = (&part.cells, part.detail) {
                    assert!((1..=mixes.count).contains(&detail.mix));
                }
            }
        }
        assert!(Definition::built_in("best").is_err());
    }
}
