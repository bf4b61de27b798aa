//! Machines that somebody described, figure by figure, in TOML.
//!
//! The compact form says how a machine is built and leaves the indices to us:
//!
//! ```toml
//! version = 1
//! name = "two small sockets"
//! processor = { value = "Example 2000", source = "vendor's data sheet" }
//!
//! [shape]
//! packages = { value = 2, source = "measured with lstopo" }
//! cores-per-package = 4
//! pus-per-core = 2
//! nodes = 2
//!
//! [numbering]
//! pus = { value = "siblings-last", source = "/proc/cpuinfo" }
//!
//! [memory]
//! per-node = "16 GiB"
//! distances = [[10, 21], [21, 10]]
//!
//! [[cache]]
//! level = 3
//! kind = "unified"
//! size = "8 MiB"
//! cores = 4
//!
//! [[kind]]
//! name = "core"
//! max-frequency = "2.3 GHz"
//! ```
//!
//! Every figure may stand alone or carry its source. The exact form ([`crate::exact`]) is read too.

use crate::check::Flaw;
use crate::cpulist::{MAX_PU_NR, PuSet};
use crate::exact::{self, Exact, ExactError};
use crate::ids::{NodeNr, PuNr};
use crate::machine::CacheKind;
use crate::parts::{CachePart, DistancePart, KindPart, NodePart, Parts};
use crate::units::{Bytes, Hertz};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::str::FromStr;
use thiserror::Error;

/// The machines that come with colocate: name and description.
pub const MACHINES: [(&str, &str); 7] = [
    ("epyc-7301", include_str!("../../../machines/epyc-7301.toml")),
    ("xeon-x3320", include_str!("../../../machines/xeon-x3320.toml")),
    ("xeon-e5645", include_str!("../../../machines/xeon-e5645.toml")),
    ("power8-10c", include_str!("../../../machines/power8-10c.toml")),
    ("xeon-e5405", include_str!("../../../machines/xeon-e5405.toml")),
    ("opteron-6282se", include_str!("../../../machines/opteron-6282se.toml")),
    ("amp-4x12", include_str!("../../../machines/amp-4x12.toml")),
];

/// Most sorts of caches: five levels of three kinds, and some room. Each is made for every core.
const MAX_CACHES: usize = 32;

/// Why a text does not describe a machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DescribedError {
    /// The text is not TOML, or has a key or a value that a description does not have.
    #[error("line {line}: {detail}")]
    Syntax {
        /// Where it stands.
        line: usize,
        /// What is wrong, in one line.
        detail: String,
    },
    /// The text has no version.
    #[error("expected version = {}, found none", exact::VERSION)]
    NoVersion,
    /// The figures do not fit together.
    #[error("{key}: expected {expected}, found {found}")]
    Figure {
        /// Which figure.
        key: String,
        /// What would fit.
        expected: String,
        /// What was found.
        found: String,
    },
    /// An exact machine is wrong, or any machine is of another version.
    #[error(transparent)]
    Exact(#[from] ExactError),
    /// The machine contradicts itself.
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

/// A figure, with its source if it has one.
#[derive(Clone, Debug)]
struct Figure<T> {
    value: T,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A figure with its source, and nothing else.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Sourced {
            value: toml::Value,
            #[serde(rename = "source")]
            _source: String,
        }
        let value = match toml::Value::deserialize(deserializer)? {
            table @ toml::Value::Table(_) => {
                table
                    .try_into::<Sourced>()
                    .map_err(|error| D::Error::custom(error.message()))?
                    .value
            }
            value => value,
        };
        let value = value.try_into().map_err(|error| D::Error::custom(error.message()))?;
        Ok(Self { value })
    }
}

/// A quantity written as text.
#[derive(Clone, Copy, Debug)]
struct Text<T>(T);

impl<'de, T: FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    #[serde(rename = "version")]
    _version: u32,
    name: String,
    processor: Option<Figure<String>>,
    shape: Shape,
    #[serde(default)]
    numbering: Numbering,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    cache: Vec<CacheLevel>,
    #[serde(default)]
    kind: Vec<Kind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Shape {
    packages: Figure<u32>,
    cores_per_package: Figure<u32>,
    pus_per_core: Figure<u32>,
    /// NUMA nodes of the whole machine; 0 or nothing where it reports none.
    nodes: Option<Figure<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbering {
    /// "in-order" (the default), "siblings-last", or a list in logical order.
    pus: Option<Figure<String>>,
    /// PUs that are switched off, beside those of the shape.
    offline: Option<Figure<Text<PuSet>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Memory {
    per_node: Option<Figure<Text<Bytes>>>,
    distances: Option<Figure<Vec<Vec<u32>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheLevel {
    level: u8,
    kind: CacheKind,
    size: Option<Figure<Text<Bytes>>>,
    /// How many neighbouring cores share one.
    cores: Figure<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Kind {
    name: String,
    /// Which cores, counted from 0 in logical order; all of them if there is one kind.
    cores: Option<Figure<Text<PuSet>>>,
    capacity: Option<Figure<u32>>,
    max_frequency: Option<Figure<Text<Hertz>>>,
}

/// Reads a described machine, compact or exact.
///
/// # Errors
/// [`DescribedError`], one line each.
pub fn from_toml(text: &str) -> Result<Exact, DescribedError> {
    let syntax = |error: toml::de::Error| DescribedError::Syntax {
        line: error
            .span()
            .map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
        detail: error.message().lines().collect::<Vec<_>>().join(", "),
    };
    let table: toml::Table = toml::from_str(text).map_err(syntax)?;
    let version = table.get("version").and_then(toml::Value::as_integer);
    let version = version.ok_or(DescribedError::NoVersion)?;
    exact::check_version(u64::try_from(version).unwrap_or(u64::MAX))?;
    if table.contains_key("machine") {
        return Ok(Exact::from_value(table)?);
    }
    let described: Description = toml::from_str(text).map_err(syntax)?;
    Ok(Exact::new(described.parts()?.assemble()?, None))
}

/// Where the figures of a compact description come from: key and source, in the file's order of
/// keys.
///
/// # Errors
/// [`DescribedError::Syntax`] if the text is not TOML.
pub fn sources(text: &str) -> Result<Vec<(String, String)>, DescribedError> {
    let table: toml::Table = toml::from_str(text).map_err(|error| DescribedError::Syntax {
        line: 1,
        detail: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let mut found = Vec::new();
    collect_sources("", &toml::Value::Table(table), &mut found);
    Ok(found)
}

fn collect_sources(key: &str, value: &toml::Value, found: &mut Vec<(String, String)>) {
    let below = |name: &str| if key.is_empty() { name.into() } else { format!("{key}.{name}") };
    match value {
        toml::Value::Table(table) => match table.get("source").and_then(toml::Value::as_str) {
            Some(source) => found.push((key.into(), source.into())),
            None => {
                table.iter().for_each(|(name, value)| collect_sources(&below(name), value, found))
            }
        },
        toml::Value::Array(values) => values.iter().enumerate().for_each(|(index, value)| {
            collect_sources(&format!("{key}[{index}]"), value, found);
        }),
        _ => {}
    }
}

fn misfit(
    key: impl Into<String>,
    expected: impl Into<String>,
    found: impl ToString,
) -> DescribedError {
    DescribedError::Figure { key: key.into(), expected: expected.into(), found: found.to_string() }
}

/// The size of everything, checked.
#[derive(Clone, Copy)]
struct Size {
    packages: usize,
    cores: usize,
    smt: usize,
}

impl Description {
    fn parts(self) -> Result<Parts, DescribedError> {
        let size = self.shape.size()?;
        let cores = self.numbering.cores(size)?;
        let offline = self.numbering.offline(&cores)?;
        let nodes = self.shape.nodes.as_ref().map_or(0, |nodes| nodes.value as usize);
        let nodes = split("shape.nodes", &cores, nodes)?;
        let memory = self.memory.per_node.as_ref().map(|memory| memory.value.0);
        let node = |(index, pus): (usize, Vec<PuNr>)| NodePart {
            os: NodeNr::new(index),
            memory,
            pus: pus.into_iter().collect(),
        };
        Ok(Parts {
            distances: self.memory.distances(nodes.len())?,
            name: self.name,
            processor: self.processor.map(|processor| processor.value),
            pus: cores.concat(),
            offline,
            packages: split("shape.packages", &cores, size.packages)?,
            nodes: nodes.into_iter().enumerate().map(node).collect(),
            caches: caches(&self.cache, &cores)?,
            kinds: kinds(&self.kind, &cores)?,
            cores,
        })
    }
}

impl Shape {
    fn size(&self) -> Result<Size, DescribedError> {
        let figures = [
            ("shape.packages", self.packages.value),
            ("shape.cores-per-package", self.cores_per_package.value),
            ("shape.pus-per-core", self.pus_per_core.value),
        ];
        if let Some((key, found)) = figures.iter().find(|(_, figure)| *figure == 0) {
            return Err(misfit(*key, "at least 1", found));
        }
        let all: u128 = figures.iter().map(|(_, figure)| u128::from(*figure)).product();
        if all > u128::from(MAX_PU_NR) + 1 {
            return Err(misfit("shape", format!("at most {} PUs", MAX_PU_NR + 1), all));
        }
        let [packages, cores, smt] = figures.map(|(_, figure)| figure as usize);
        Ok(Size { packages, cores: packages * cores, smt })
    }
}

impl Numbering {
    /// The PUs of every core, in logical order.
    fn cores(&self, size: Size) -> Result<Vec<Vec<PuNr>>, DescribedError> {
        let count = size.cores * size.smt;
        let order = match self.pus.as_ref().map_or("in-order", |pus| pus.value.as_str()) {
            "in-order" => (0..count).map(PuNr::new).collect(),
            "siblings-last" => (0..count)
                .map(|place| PuNr::new(place % size.smt * size.cores + place / size.smt))
                .collect(),
            list => listed(list)?,
        };
        if order.len() != count {
            return Err(misfit("numbering.pus", format!("{count} PUs"), order.len()));
        }
        Ok(order.chunks(size.smt).map(<[PuNr]>::to_vec).collect())
    }

    /// PUs that are switched off: the shape has the others.
    fn offline(&self, cores: &[Vec<PuNr>]) -> Result<PuSet, DescribedError> {
        let offline = self.offline.as_ref().map(|set| set.value.0.clone()).unwrap_or_default();
        let both = offline.intersection(&cores.iter().flatten().copied().collect());
        if !both.is_empty() {
            return Err(misfit("numbering.offline", "PUs beside those of the shape", both));
        }
        Ok(offline)
    }
}

/// PU numbers in the order in which they are listed.
fn listed(list: &str) -> Result<Vec<PuNr>, DescribedError> {
    let mut order = Vec::new();
    for part in list.split(',') {
        let part = PuSet::parse_list(part).map_err(|error| {
            misfit("numbering.pus", "in-order, siblings-last or a list", format!("a flaw: {error}"))
        })?;
        order.extend(part.iter());
    }
    Ok(order)
}

impl Memory {
    fn distances(&self, nodes: usize) -> Result<Option<DistancePart>, DescribedError> {
        let Some(rows) = self.distances.as_ref().map(|distances| &distances.value) else {
            return Ok(None);
        };
        let wrong = rows.iter().map(Vec::len).find(|&width| width != nodes);
        let wrong = wrong.or_else(|| (rows.len() != nodes).then_some(rows.len()));
        if let Some(found) = wrong {
            let expected = format!("{nodes} rows of {nodes}");
            return Err(misfit("memory.distances", expected, format!("one of {found}")));
        }
        let values = rows.iter().flatten().map(|&distance| distance.into()).collect();
        Ok(Some(DistancePart { nodes: (0..nodes).map(NodeNr::new).collect(), values }))
    }
}

/// Cores in `groups` groups of neighbours, as PUs; none for 0.
fn split(key: &str, cores: &[Vec<PuNr>], groups: usize) -> Result<Vec<Vec<PuNr>>, DescribedError> {
    if groups == 0 {
        return Ok(Vec::new());
    }
    if !cores.len().is_multiple_of(groups) {
        return Err(misfit(key, format!("a divisor of {} cores", cores.len()), groups));
    }
    Ok(cores.chunks(cores.len() / groups).map(<[Vec<PuNr>]>::concat).collect())
}

fn caches(levels: &[CacheLevel], cores: &[Vec<PuNr>]) -> Result<Vec<CachePart>, DescribedError> {
    if levels.len() > MAX_CACHES {
        return Err(misfit("cache", format!("at most {MAX_CACHES} of them"), levels.len()));
    }
    let mut caches = Vec::new();
    for (index, level) in levels.iter().enumerate() {
        let key = format!("cache[{index}].cores");
        let sharers = level.cores.value as usize;
        if sharers == 0 || !cores.len().is_multiple_of(sharers) {
            return Err(misfit(key, format!("a divisor of {} cores", cores.len()), sharers));
        }
        let size = level.size.as_ref().map_or(Bytes(0), |size| size.value.0);
        let cache = |pus| CachePart { level: level.level, kind: level.kind, size, pus };
        caches.extend(split(&key, cores, cores.len() / sharers)?.into_iter().map(cache));
    }
    Ok(caches)
}

fn kinds(kinds: &[Kind], cores: &[Vec<PuNr>]) -> Result<Vec<KindPart>, DescribedError> {
    let mut taken = PuSet::new();
    let mut part = |(index, kind): (usize, &Kind)| {
        let all = || (0..cores.len()).map(PuNr::new).collect();
        let members: PuSet = kind.cores.as_ref().map_or_else(all, |set| set.value.0.clone());
        let twice = members.intersection(&taken);
        if !twice.is_empty() {
            return Err(misfit(format!("kind[{index}].cores"), "cores of no earlier kind", twice));
        }
        taken.extend(members.iter());
        let mut pus = PuSet::new();
        for core in members.iter() {
            let core = cores.get(core.idx()).ok_or_else(|| {
                let expected = format!("cores below {}", cores.len());
                misfit(format!("kind[{index}].cores"), expected, core.0)
            })?;
            pus.extend(core.iter().copied());
        }
        Ok(KindPart {
            pus,
            name: Some(kind.name.clone()),
            capacity: kind.capacity.as_ref().map(|capacity| capacity.value),
            max_frequency: kind.max_frequency.as_ref().map(|frequency| frequency.value.0),
        })
    };
    kinds.iter().enumerate().map(&mut part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use proptest::prelude::*;

    fn machine(name: &str) -> Machine {
        let text = MACHINES.iter().find(|(found, _)| *found == name).expect(name).1;
        from_toml(text).expect(name).machine
    }

    /// Packages, nodes, cores, PUs, last-level caches.
    fn counts(name: &str) -> [usize; 5] {
        let machine = machine(name);
        let top = machine.caches.iter().map(|cache| cache.level).max();
        let last = machine.caches.iter().filter(|cache| Some(cache.level) == top).count();
        [machine.packages.len(), machine.nodes.len(), machine.cores.len(), machine.pus.len(), last]
    }

    #[test]
    fn the_seven_machines_are_what_the_papers_say() {
        assert_eq!(counts("epyc-7301"), [2, 8, 32, 64, 16]);
        assert_eq!(counts("xeon-x3320"), [1, 1, 4, 4, 2]);
        assert_eq!(counts("xeon-e5645"), [1, 1, 6, 12, 1]);
        assert_eq!(counts("power8-10c"), [1, 2, 10, 40, 10]);
        assert_eq!(counts("xeon-e5405"), [2, 1, 8, 8, 4]);
        assert_eq!(counts("opteron-6282se"), [4, 8, 64, 64, 8]);
        assert_eq!(counts("amp-4x12"), [4, 0, 16, 16, 4]);
    }

    #[test]
    fn siblings_on_epyc_are_32_apart() {
        let machine = machine("epyc-7301");
        for core in &machine.cores {
            let os: Vec<u32> = core.pus.iter().map(|pu| machine.pus[pu.idx()].os.0).collect();
            assert_eq!(os, [os[0], os[0] + 32]);
        }
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        for (name, text) in MACHINES {
            let table: toml::Table = toml::from_str(text).expect(name);
            let sourced = sources(text).expect(name);
            let shape = table["shape"].as_table().expect(name);
            for key in shape.keys().map(|key| format!("shape.{key}")) {
                assert!(sourced.iter().any(|(found, _)| *found == key), "{name}: {key}");
            }
            let caches = table.get("cache").and_then(toml::Value::as_array).expect(name);
            for (index, cache) in caches.iter().enumerate() {
                for key in ["size", "cores"].iter().filter(|key| cache.get(**key).is_some()) {
                    let key = format!("cache[{index}].{key}");
                    assert!(sourced.iter().any(|(found, _)| *found == key), "{name}: {key}");
                }
            }
            assert!(sourced.iter().all(|(_, source)| source.len() > 5), "{name}");
        }
    }

    #[test]
    fn amp_has_slow_cores_first() {
        let machine = machine("amp-4x12");
        let kinds: Vec<_> = machine.kinds.iter().map(|kind| (&*kind.name, kind.capacity)).collect();
        assert_eq!(kinds, [("slow", Some(512)), ("fast", Some(1024))]);
        let fast = machine.cores.iter().enumerate().filter(|(_, core)| core.kind.0 == 1);
        assert_eq!(fast.map(|(index, _)| index).collect::<Vec<_>>(), [0, 4, 8, 12]);
    }

    const SMALL: &str = "version = 1\nname = \"small\"\n[shape]\npackages = 2\ncores-per-package = 2\npus-per-core = 2\nnodes = 2\n";

    fn error(text: &str) -> String {
        let error = from_toml(text).expect_err(text).to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn bare_figures_and_defaults() {
        let small = from_toml(SMALL).expect("small").machine;
        let os: Vec<u32> = small.pus.iter().map(|pu| pu.os.0).collect();
        assert_eq!(os, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((small.distances, small.nodes[0].memory, small.kinds.len()), (None, None, 1));
    }

    #[test]
    fn wrong_descriptions_get_one_line() {
        let with = |more: &str| error(&format!("{SMALL}{more}"));
        assert_eq!(error("name = 1"), "expected version = 1, found none");
        assert_eq!(
            error("version = 2"),
            "expected a machine of version 1, found version 2; write it again with this colocate"
        );
        assert!(error("= 1").starts_with("line 1: "));
        assert_eq!(
            with("[momery]"),
            "line 8: unknown field `momery`, expected one of `version`, `name`, `processor`, `shape`, `numbering`, `memory`, `cache`, `kind`"
        );
        assert_eq!(
            with("[memory]\nper-mode = 1"),
            "line 9: unknown field `per-mode`, expected `per-node` or `distances`"
        );
        assert_eq!(
            with("[memory]\nper-node = \"16 GB\""),
            "line 9: expected a size like \"32 KiB\" or \"16 GiB\", found \"16 GB\""
        );
        assert_eq!(
            with("[memory]\nper-node = { value = \"16 GiB\", sourse = \"x\" }"),
            "line 9: unknown field `sourse`, expected `value` or `source`"
        );
        assert_eq!(
            with("[memory]\ndistances = [[10, 20]]"),
            "memory.distances: expected 2 rows of 2, found one of 1"
        );
        assert_eq!(with("[numbering]\npus = \"0-6\""), "numbering.pus: expected 8 PUs, found 7");
        assert_eq!(
            with("[numbering]\noffline = \"7-8\""),
            "numbering.offline: expected PUs beside those of the shape, found 7"
        );
        assert_eq!(
            with("[numbering]\npus = \"0-6,6\""),
            "expected every CPU once, found cpu6 twice"
        );
        assert_eq!(
            with("[[cache]]\nlevel = 2\nkind = \"unified\"\ncores = 3"),
            "cache[0].cores: expected a divisor of 4 cores, found 3"
        );
        assert_eq!(
            with("[[kind]]\nname = \"a\"\n[[kind]]\nname = \"b\"\ncores = \"1-2\""),
            "kind[1].cores: expected cores of no earlier kind, found 1-2"
        );
        assert_eq!(
            with("[[kind]]\nname = \"a\"\ncores = \"4\""),
            "kind[0].cores: expected cores below 4, found 4"
        );
        assert_eq!(
            error(&SMALL.replace("nodes = 2", "nodes = 3")),
            "shape.nodes: expected a divisor of 4 cores, found 3"
        );
        assert_eq!(
            error(&SMALL.replace("packages = 2", "packages = 0")),
            "shape.packages: expected at least 1, found 0"
        );
        assert_eq!(
            error(&SMALL.replace("packages = 2", "packages = 4000000000")),
            "shape: expected at most 65536 PUs, found 16000000000"
        );
    }

    proptest! {
        /// Whatever happens to a line, the text is read or refused, and what is read is sound.
        #[test]
        fn damaged_descriptions_are_read_or_refused(
            which in 0..MACHINES.len(),
            at in 0..100_usize,
            with in 0..100_usize,
            how in 0..4,
            text in "[0-9a-z\"{}\\[\\]=,. -]{0,12}",
        ) {
            let mut lines: Vec<&str> = MACHINES[which].1.lines().collect();
            let (at, with) = (at % lines.len(), with % lines.len());
            let key = lines[at].split('=').next().unwrap_or_default();
            let changed = format!("{key}= {text}");
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[with]),
                2 => lines.swap(at, with),
                _ => lines[at] = &changed,
            }
            match from_toml(&lines.join("\n")) {
                Ok(exact) => prop_assert_eq!(exact.machine.check(), Ok(())),
                Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
            }
        }
    }
}
