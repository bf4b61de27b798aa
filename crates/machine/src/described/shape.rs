//! Structure of a described machine: from counts to parts.

use super::figure::{DescribedFigure, Text};
use super::{Misfit, misfit, performance};
use crate::cpulist::{MAX_PU_NR, PuSet};
use crate::ids::{NodeNr, PuNr};
use crate::machine::CacheKind;
use crate::parts::{CachePart, DistancePart, KindPart, MachineParts, NodePart};
use crate::units::{Bytes, Hertz};
use serde::Deserialize;

/// Most `[[cache]]` entries: five levels of three kinds, and some margin. Each entry makes a cache
/// for every core.
const MAX_CACHES: usize = 32;

/// A compact description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    #[serde(rename = "version")]
    _version: u32,
    name: String,
    processor: Option<DescribedFigure<String>>,
    shape: Shape,
    #[serde(default)]
    numbering: Numbering,
    #[serde(default)]
    memory: NodeMemoryForm,
    #[serde(default)]
    cache: Vec<CacheLevel>,
    #[serde(default)]
    kind: Vec<KindForm>,
    /// Speeds of all parts, or none.
    pub(super) performance: Option<performance::PerformanceForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Shape {
    packages: DescribedFigure<u32>,
    cores_per_package: DescribedFigure<u32>,
    pus_per_core: DescribedFigure<u32>,
    /// Number of NUMA nodes of the whole machine; 0 or absent for a machine that reports none.
    nodes: Option<DescribedFigure<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbering {
    /// "in-order" (the default), "siblings-last", or a list in logical order.
    pus: Option<DescribedFigure<String>>,
    /// Offline PUs; not among the PUs of the shape.
    offline: Option<DescribedFigure<Text<PuSet>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeMemoryForm {
    per_node: Option<DescribedFigure<Text<Bytes>>>,
    distances: Option<DescribedFigure<Vec<Vec<u32>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheLevel {
    level: u8,
    kind: CacheKind,
    size: Option<DescribedFigure<Text<Bytes>>>,
    /// Number of neighbouring cores that share a cache.
    cores: DescribedFigure<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KindForm {
    name: String,
    /// Cores of the kind, from 0 in logical order; optional on a machine of one kind.
    cores: Option<DescribedFigure<Text<PuSet>>>,
    capacity: Option<DescribedFigure<u32>>,
    max_frequency: Option<DescribedFigure<Text<Hertz>>>,
}

/// Numbers of parts, checked.
#[derive(Clone, Copy)]
struct PartCounts {
    packages: usize,
    /// Cores of the whole machine.
    cores: usize,
    /// PUs of a core.
    smt: usize,
}

impl Description {
    /// Builds the parts of the machine.
    pub(super) fn parts(self) -> Result<MachineParts, Misfit> {
        let size = self.shape.size()?;
        let cores = self.numbering.cores(size)?;
        let offline = self.numbering.offline(&cores)?;
        let nodes = self.shape.nodes.as_ref().map_or(0, |nodes| nodes.value as usize);
        let nodes = split("shape.nodes", &cores, nodes)?;
        let memory = self.memory.per_node.as_ref().map(|memory| memory.value.0);
        let parts = nodes.into_iter().enumerate().map(|(index, pus)| NodePart {
            os: NodeNr::new(index),
            memory,
            pus: pus.into_iter().collect(),
            may_be_home: true,
        });
        let nodes: Vec<NodePart> = parts.collect();
        Ok(MachineParts {
            distances: self.memory.distances(nodes.len())?,
            name: self.name,
            processor: self.processor.map(|processor| processor.value),
            pus: cores.concat(),
            offline,
            packages: split("shape.packages", &cores, size.packages)?,
            nodes,
            caches: caches(&self.cache, &cores)?,
            kinds: kinds(&self.kind, &cores)?,
            cores,
        })
    }
}

impl Shape {
    fn size(&self) -> Result<PartCounts, Misfit> {
        let figures = [
            ("shape.packages", self.packages.value),
            ("shape.cores-per-package", self.cores_per_package.value),
            ("shape.pus-per-core", self.pus_per_core.value),
        ];
        if let Some((key, found)) = figures.iter().find(|(_, figure)| *figure == 0) {
            return Err(misfit(*key, "at least 1", found));
        }
        // A product of three 32-bit numbers may exceed 64 bits.
        let all: u128 = figures.iter().map(|(_, figure)| u128::from(*figure)).product();
        if all > u128::from(MAX_PU_NR) + 1 {
            return Err(misfit("shape", format!("at most {} PUs", MAX_PU_NR + 1), all));
        }
        let [packages, cores, smt] = figures.map(|(_, figure)| figure as usize);
        Ok(PartCounts { packages, cores: packages * cores, smt })
    }
}

impl Numbering {
    /// PUs of every core, in logical order.
    fn cores(&self, size: PartCounts) -> Result<Vec<Vec<PuNr>>, Misfit> {
        let count = size.cores * size.smt;
        let order = match self.pus.as_ref().map_or("in-order", |pus| pus.value.as_str()) {
            "in-order" => (0..count).map(PuNr::new).collect(),
            // The first siblings of all cores, then all second siblings, as on most x86 machines.
            "siblings-last" => (0..count)
                .map(|place| PuNr::new(place % size.smt * size.cores + place / size.smt))
                .collect(),
            list => listed(list, count)?,
        };
        if order.len() != count {
            return Err(misfit("numbering.pus", format!("{count} PUs"), order.len()));
        }
        Ok(order.chunks(size.smt).map(<[PuNr]>::to_vec).collect())
    }

    /// Offline PUs: none of the shape's PUs.
    fn offline(&self, cores: &[Vec<PuNr>]) -> Result<PuSet, Misfit> {
        let offline = self.offline.as_ref().map(|set| set.value.0.clone()).unwrap_or_default();
        let both = offline.intersection(&cores.iter().flatten().copied().collect());
        if !both.is_empty() {
            return Err(misfit("numbering.offline", "PUs beside those of the shape", both));
        }
        Ok(offline)
    }
}

/// PU numbers in the listed order. Reading stops after the part of the list that exceeds `count`,
/// since a hostile list may be long.
fn listed(list: &str, count: usize) -> Result<Vec<PuNr>, Misfit> {
    let mut order = Vec::new();
    for part in list.split(',') {
        let part = PuSet::parse_list(part).map_err(|error| {
            misfit("numbering.pus", "in-order, siblings-last or a list", format!("a flaw: {error}"))
        })?;
        order.extend(part.iter());
        if order.len() > count {
            break;
        }
    }
    Ok(order)
}

impl NodeMemoryForm {
    fn distances(&self, nodes: usize) -> Result<Option<DistancePart>, Misfit> {
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

/// Divides the cores into `groups` groups of neighbours, as PUs; no groups for 0.
fn split(key: &str, cores: &[Vec<PuNr>], groups: usize) -> Result<Vec<Vec<PuNr>>, Misfit> {
    if groups == 0 {
        return Ok(Vec::new());
    }
    if !cores.len().is_multiple_of(groups) {
        return Err(misfit(key, format!("a divisor of {} cores", cores.len()), groups));
    }
    Ok(cores.chunks(cores.len() / groups).map(<[Vec<PuNr>]>::concat).collect())
}

fn caches(levels: &[CacheLevel], cores: &[Vec<PuNr>]) -> Result<Vec<CachePart>, Misfit> {
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
        // `CachePart` has 0 for an unknown size.
        let size = level.size.as_ref().map_or(Bytes(0), |size| size.value.0);
        let parts = split(&key, cores, cores.len() / sharers)?.into_iter();
        caches.extend(parts.map(|pus| CachePart {
            level: level.level,
            kind: level.kind,
            size,
            pus,
        }));
    }
    Ok(caches)
}

fn kinds(kinds: &[KindForm], cores: &[Vec<PuNr>]) -> Result<Vec<KindPart>, Misfit> {
    let mut taken = PuSet::new();
    let mut parts = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        // A list of cores has the form of a list of PUs.
        let members: PuSet = match &kind.cores {
            Some(set) => set.value.0.clone(),
            None => (0..cores.len()).map(PuNr::new).collect(),
        };
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
        parts.push(KindPart {
            pus,
            name: Some(kind.name.clone()),
            capacity: kind.capacity.as_ref().map(|capacity| capacity.value),
            max_frequency: kind.max_frequency.as_ref().map(|frequency| frequency.value.0),
        });
    }
    Ok(parts)
}
