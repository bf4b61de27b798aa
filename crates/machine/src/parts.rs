//! From parts named by the kernel's numbers to a [`Machine`] in logical order.
//!
//! Every reader (hwloc, XML, described machines) says which PUs, cores, caches and nodes it found;
//! what is missing is filled in here, once, in the same way for all of them.

use crate::check::Flaw;
use crate::cpulist::PuSet;
use crate::ids::{CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
use crate::machine::{Cache, CacheKind, Core, CoreKind, Distances, Machine, Node, Package, Pu};
use crate::units::{Bytes, Hertz};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a reader found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub name: String,
    pub processor: Option<String>,
    /// Online PUs in logical order.
    pub pus: Vec<PuNr>,
    pub offline: PuSet,
    /// PUs of each core. PUs in none are cores of their own.
    pub cores: Vec<Vec<PuNr>>,
    /// PUs of each package. Cores in none make up one more.
    pub packages: Vec<Vec<PuNr>>,
    pub nodes: Vec<NodePart>,
    pub caches: Vec<CachePart>,
    /// Slowest first where capacities do not say it. Cores of none make up one more.
    pub kinds: Vec<KindPart>,
    pub distances: Option<DistancePart>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodePart {
    pub os: NodeNr,
    /// 0 where there is none, `None` where it is unknown.
    pub memory: Option<Bytes>,
    /// PUs that are local to it.
    pub pus: PuSet,
    /// Whether these can be at home in it: not where the kernel says that the node has no PUs of its own.
    pub may_be_home: bool,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CachePart {
    pub level: u8,
    pub kind: CacheKind,
    /// 0 where it is unknown.
    pub size: Bytes,
    pub pus: Vec<PuNr>,
}

/// A kind of core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KindPart {
    pub pus: PuSet,
    pub name: Option<String>,
    /// In any scale; only ratios count.
    pub capacity: Option<u32>,
    pub max_frequency: Option<Hertz>,
}

/// A matrix of distances, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DistancePart {
    pub nodes: Vec<NodeNr>,
    pub values: Vec<u64>,
}

impl Parts {
    /// The machine made of these parts.
    pub(crate) fn assemble(mut self) -> Result<Machine, Flaw> {
        self.offline = self.offline.difference(&self.pus.iter().copied().collect());
        let places = Places::of(&self.pus)?;
        let cores = self.cores_by_place(&places)?;
        let mut machine = Machine {
            name: self.name,
            processor: self.processor,
            pus: self.pus.iter().map(|&os| Pu { os, core: CoreIdx(0) }).collect(),
            cores: Vec::new(),
            packages: Vec::new(),
            nodes: nodes(&self.nodes, &places),
            caches: caches(self.caches, &places),
            kinds: Vec::new(),
            distances: None,
            offline: self.offline.iter().collect(),
        };
        machine.distances = self.distances.and_then(|found| distances(&found, &machine.nodes));
        let homes = Homes::of(&machine, &self.nodes);
        for (index, pus) in cores.into_iter().enumerate() {
            for pu in &pus {
                machine.pus[pu.idx()].core = CoreIdx::new(index);
            }
            let node = homes.of_core(&pus);
            machine.cores.push(Core { pus, package: PackageIdx(0), node, kind: KindIdx(0) });
        }
        join_packages(&mut machine, self.packages, &places);
        join_kinds(&mut machine, self.kinds, &places);
        machine.check()?;
        Ok(machine)
    }

    /// The same without some PUs, which become offline ones.
    #[cfg(feature = "read")]
    pub(crate) fn without(mut self, pus: &PuSet) -> Self {
        let leave = |set: &mut Vec<PuNr>| set.retain(|pu| !pus.contains(*pu));
        leave(&mut self.pus);
        self.cores.iter_mut().chain(&mut self.packages).for_each(leave);
        self.caches.iter_mut().for_each(|cache| leave(&mut cache.pus));
        let nodes = self.nodes.iter_mut().map(|node| &mut node.pus);
        let kinds = self.kinds.iter_mut().map(|kind| &mut kind.pus);
        nodes.chain(kinds).for_each(|set| *set = set.difference(pus));
        self.offline.extend(pus.iter());
        self
    }

    /// The PUs of every core, in logical order.
    fn cores_by_place(&self, places: &Places) -> Result<Vec<Vec<PuIdx>>, Flaw> {
        let mut cores: Vec<Vec<PuIdx>> = self.cores.iter().map(|pus| places.all(pus)).collect();
        let mut in_core = vec![false; self.pus.len()];
        for &pu in cores.iter().flatten() {
            if std::mem::replace(&mut in_core[pu.idx()], true) {
                return Err(Flaw::TwicePu(self.pus[pu.idx()]));
            }
        }
        let alone = (0..self.pus.len()).filter(|&pu| !in_core[pu]);
        cores.extend(alone.map(|pu| vec![PuIdx::new(pu)]));
        cores.retain(|core| !core.is_empty());
        cores.sort();
        Ok(cores)
    }
}

/// Where each online PU is in logical order.
struct Places(BTreeMap<PuNr, PuIdx>);

impl Places {
    fn of(pus: &[PuNr]) -> Result<Self, Flaw> {
        let mut places = BTreeMap::new();
        for (index, &pu) in pus.iter().enumerate() {
            if places.insert(pu, PuIdx::new(index)).is_some() {
                return Err(Flaw::TwicePu(pu));
            }
        }
        Ok(Self(places))
    }

    /// The places of those that are online, in logical order.
    fn all(&self, pus: &[PuNr]) -> Vec<PuIdx> {
        let mut places: Vec<PuIdx> = pus.iter().filter_map(|pu| self.0.get(pu).copied()).collect();
        places.sort();
        places
    }

    fn of_set(&self, set: &PuSet) -> Vec<PuIdx> {
        self.all(&set.iter().collect::<Vec<_>>())
    }
}

/// A saved topology leaves out how much memory a node has where that is none or not known. No machine is without any, so where
/// no node has some it is not known.
fn nodes(found: &[NodePart], places: &Places) -> Vec<Node> {
    let some = found.iter().any(|part| part.memory > Some(Bytes(0)));
    let node = |part: &NodePart| Node {
        os: part.os,
        memory: part.memory.filter(|_| some),
        pus: places.of_set(&part.pus),
    };
    found.iter().map(node).collect()
}

fn caches(found: Vec<CachePart>, places: &Places) -> Vec<Cache> {
    let cache = |part: CachePart| Cache {
        level: part.level,
        kind: part.kind,
        size: (part.size.0 > 0).then_some(part.size),
        pus: places.all(&part.pus),
    };
    let mut caches: Vec<Cache> =
        found.into_iter().map(cache).filter(|cache| !cache.pus.is_empty()).collect();
    caches.sort_by_key(|cache| (cache.level, cache.pus[0], cache.kind));
    caches
}

/// Distances in the machine's order of nodes, or `None` if a node is missing or a figure is not
/// of the kind that ACPI's table holds.
fn distances(found: &DistancePart, nodes: &[Node]) -> Option<Distances> {
    let width = found.nodes.len();
    if found.values.len() != width.checked_mul(width)? {
        return None;
    }
    let place = |node: &Node| found.nodes.iter().position(|&nr| nr == node.os);
    let order = nodes.iter().map(place).collect::<Option<Vec<usize>>>()?;
    let cell = |from: usize, to: usize| u32::try_from(found.values[from * width + to]).ok();
    let row = |&from: &usize| order.iter().map(|&to| cell(from, to)).collect::<Option<Vec<u32>>>();
    Some(Distances { rows: order.iter().map(row).collect::<Option<Vec<_>>>()? })
}

/// The node each PU is at home in: of those that have the PU, the one with the fewest PUs, then
/// one with memory before one without, then the first. hwloc lists nodes without PUs of their own
/// (high-bandwidth or persistent memory) beside all PUs of the part of the machine they hang from.
struct Homes(Vec<Option<NodeIdx>>);

impl Homes {
    /// `parts` are those of which the machine's nodes are made.
    fn of(machine: &Machine, parts: &[NodePart]) -> Self {
        let rank = |&index: &usize| {
            let node = &machine.nodes[index];
            (node.pus.len(), node.memory == Some(Bytes(0)), index)
        };
        let mut order: Vec<usize> =
            (0..parts.len()).filter(|&index| parts[index].may_be_home).collect();
        order.sort_by_key(rank);
        let mut homes = vec![None; machine.pus.len()];
        for index in order {
            for pu in &machine.nodes[index].pus {
                homes[pu.idx()].get_or_insert(NodeIdx::new(index));
            }
        }
        Self(homes)
    }

    /// The home of a core; `None` if its PUs have several, as the kernel permits.
    fn of_core(&self, pus: &[PuIdx]) -> Option<NodeIdx> {
        let home = self.0[pus[0].idx()];
        home.filter(|_| pus.iter().all(|pu| self.0[pu.idx()] == home))
    }
}

fn join_packages(machine: &mut Machine, found: Vec<Vec<PuNr>>, places: &Places) {
    let mut of_core: Vec<Option<usize>> = vec![None; machine.cores.len()];
    let mut groups: Vec<Vec<PuIdx>> = found.iter().map(|pus| places.all(pus)).collect();
    groups.sort();
    for (index, group) in groups.iter().enumerate() {
        for pu in group {
            of_core[machine.core_of(*pu).idx()].get_or_insert(index);
        }
    }
    let mut packages: BTreeMap<usize, Vec<CoreIdx>> = BTreeMap::new();
    for (core, package) in of_core.iter().enumerate() {
        packages.entry(package.unwrap_or(usize::MAX)).or_default().push(CoreIdx::new(core));
    }
    machine.packages = packages.into_values().map(|cores| Package { cores }).collect();
    for (index, package) in machine.packages.iter().enumerate() {
        for core in &package.cores {
            machine.cores[core.idx()].package = PackageIdx::new(index);
        }
    }
}

fn join_kinds(machine: &mut Machine, found: Vec<KindPart>, places: &Places) {
    let found = slowest_first(found);
    let mut of_core: Vec<Option<usize>> = vec![None; machine.cores.len()];
    for (index, kind) in found.iter().enumerate() {
        for pu in places.of_set(&kind.pus) {
            of_core[machine.core_of(pu).idx()].get_or_insert(index);
        }
    }
    // Unclassified cores come last: "slowest first" cannot be said of them.
    let other = found.len();
    let mut used: Vec<usize> = of_core.iter().map(|kind| kind.unwrap_or(other)).collect();
    for (core, kind) in machine.cores.iter_mut().zip(&used) {
        core.kind = KindIdx::new(*kind);
    }
    used.sort_unstable();
    used.dedup();
    for core in &mut machine.cores {
        core.kind = KindIdx::new(used.binary_search(&core.kind.idx()).unwrap_or(0));
    }
    let part = |&index: &usize| found.get(index).cloned().unwrap_or_default();
    machine.kinds = named(used.iter().map(part).collect());
}

/// Kinds that have a capacity in its order; the others stay where they are.
fn slowest_first(kinds: Vec<KindPart>) -> Vec<KindPart> {
    let known = |kind: &&KindPart| kind.capacity.is_some();
    let mut sorted: Vec<KindPart> = kinds.iter().filter(known).cloned().collect();
    sorted.sort_by_key(|kind| kind.capacity);
    let mut sorted = sorted.into_iter();
    let next = |kind: KindPart| kind.capacity.and_then(|_| sorted.next()).unwrap_or(kind);
    kinds.into_iter().map(next).collect()
}

/// Kinds with names and with capacities relative to the fastest.
fn named(parts: Vec<KindPart>) -> Vec<CoreKind> {
    let count = parts.len();
    let top = parts.iter().filter_map(|part| part.capacity).max().unwrap_or(0);
    // A fraction of the fastest in 1024ths, at least 1: a kind of no capacity could not run.
    let scaled = |capacity: u32| {
        let relative = u64::from(capacity) * 1024 / u64::from(top.max(1));
        u32::try_from(relative.max(1)).unwrap_or(1024)
    };
    let name = |index: usize| match index {
        _ if count == 1 => "core".into(),
        0 => "efficiency".into(),
        _ if index + 1 == count => "performance".into(),
        _ => format!("medium-{index}"),
    };
    let kind = |(index, part): (usize, KindPart)| CoreKind {
        name: part.name.unwrap_or_else(|| name(index)),
        capacity: part.capacity.map(scaled),
        max_frequency: part.max_frequency.filter(|frequency| frequency.0 > 0),
    };
    parts.into_iter().enumerate().map(kind).collect()
}
