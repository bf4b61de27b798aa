//! Assembly of a [`Machine`] in logical order from parts named by the kernel's numbers.
//!
//! Every reader (hwloc, XML, descriptions) lists the PUs, cores, caches and nodes it found. Missing
//! parts are filled in here, in the same way for all readers.

use crate::check::pu_twice;
use crate::cpulist::PuSet;
use crate::flaw::Flaw;
use crate::ids::{CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
use crate::machine::{Cache, CacheKind, Core, CoreKind, Distances, Machine, Node, Package, Pu};
use crate::units::{Bytes, Hertz};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parts found by a reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MachineParts {
    pub name: String,
    pub processor: Option<String>,
    /// Online PUs in logical order.
    pub pus: Vec<PuNr>,
    pub offline: PuSet,
    /// PUs of each core. A PU in no core becomes a core.
    pub cores: Vec<Vec<PuNr>>,
    /// PUs of each package. Cores in no package become one more package.
    pub packages: Vec<Vec<PuNr>>,
    pub nodes: Vec<NodePart>,
    pub caches: Vec<CachePart>,
    /// Kinds of cores, slowest first if their capacities are unknown. Cores of no kind become one
    /// more kind.
    pub kinds: Vec<KindPart>,
    pub distances: Option<DistancePart>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodePart {
    pub os: NodeNr,
    /// Size of the memory; 0 for none, `None` if unknown.
    pub memory: Option<Bytes>,
    /// PUs local to the node.
    pub pus: PuSet,
    /// True if the node can be the home of its PUs: false if the kernel reports no PUs of the
    /// node's own.
    pub may_be_home: bool,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CachePart {
    pub level: u8,
    pub kind: CacheKind,
    /// Size; 0 if unknown.
    pub size: Bytes,
    pub pus: Vec<PuNr>,
}

/// A kind of core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KindPart {
    pub pus: PuSet,
    pub name: Option<String>,
    /// Capacity in any scale: only ratios count.
    pub capacity: Option<u32>,
    pub max_frequency: Option<Hertz>,
}

/// A matrix of distances, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DistancePart {
    pub nodes: Vec<NodeNr>,
    pub values: Vec<u64>,
}

impl MachineParts {
    /// Assembles and checks the machine.
    pub(crate) fn assemble(mut self) -> Result<Machine, Flaw> {
        // A PU listed as both counts as online.
        self.offline = self.offline.difference(&self.pus.iter().copied().collect());
        let places = PuIndex::of(&self.pus)?;
        let cores = self.cores_by_place(&places)?;
        let mut machine = Machine {
            name: self.name,
            processor: self.processor,
            // Core 0 is a placeholder until the cores are known, as are the package and the kind
            // below.
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
        // Whatever the reader, contradictions of its source are refused here.
        machine.check()?;
        Ok(machine)
    }

    /// Removes PUs from all parts and makes them offline.
    #[cfg(feature = "read")]
    pub(crate) fn without(mut self, pus: &PuSet) -> Self {
        self.pus.retain(|pu| !pus.contains(*pu));
        let caches = self.caches.iter_mut().map(|cache| &mut cache.pus);
        for list in self.cores.iter_mut().chain(&mut self.packages).chain(caches) {
            list.retain(|pu| !pus.contains(*pu));
        }
        let nodes = self.nodes.iter_mut().map(|node| &mut node.pus);
        let kinds = self.kinds.iter_mut().map(|kind| &mut kind.pus);
        nodes.chain(kinds).for_each(|set| *set = set.difference(pus));
        self.offline.extend(pus.iter());
        self
    }

    /// PUs of every core, in logical order.
    fn cores_by_place(&self, places: &PuIndex) -> Result<Vec<Vec<PuIdx>>, Flaw> {
        let mut cores: Vec<Vec<PuIdx>> = self.cores.iter().map(|pus| places.all(pus)).collect();
        let mut in_core = vec![false; self.pus.len()];
        for &pu in cores.iter().flatten() {
            if std::mem::replace(&mut in_core[pu.idx()], true) {
                return Err(pu_twice(self.pus[pu.idx()]));
            }
        }
        let alone = (0..self.pus.len()).filter(|&pu| !in_core[pu]);
        cores.extend(alone.map(|pu| vec![PuIdx::new(pu)]));
        // Cores without an online PU.
        cores.retain(|core| !core.is_empty());
        // Logical order: by the first PU of each core.
        cores.sort();
        Ok(cores)
    }
}

/// Index of each online PU, by the kernel's number.
struct PuIndex(BTreeMap<PuNr, PuIdx>);

impl PuIndex {
    fn of(pus: &[PuNr]) -> Result<Self, Flaw> {
        let mut places = BTreeMap::new();
        for (index, &pu) in pus.iter().enumerate() {
            if places.insert(pu, PuIdx::new(index)).is_some() {
                return Err(pu_twice(pu));
            }
        }
        Ok(Self(places))
    }

    /// Indices of the online PUs among `pus`, in logical order.
    fn all(&self, pus: &[PuNr]) -> Vec<PuIdx> {
        let mut places: Vec<PuIdx> = pus.iter().filter_map(|pu| self.0.get(pu).copied()).collect();
        places.sort();
        places
    }

    fn of_set(&self, set: &PuSet) -> Vec<PuIdx> {
        self.all(&set.iter().collect::<Vec<_>>())
    }
}

/// Nodes of the machine. A saved topology leaves out the memory of a node both if the node has none
/// and if its memory is unknown. As every machine has memory, memory is unknown if no node has any.
fn nodes(found: &[NodePart], places: &PuIndex) -> Vec<Node> {
    let some = found.iter().any(|part| part.memory > Some(Bytes(0)));
    let nodes = found.iter().map(|part| Node {
        os: part.os,
        memory: part.memory.filter(|_| some),
        pus: places.of_set(&part.pus),
    });
    nodes.collect()
}

fn caches(found: Vec<CachePart>, places: &PuIndex) -> Vec<Cache> {
    let all = found.into_iter().map(|part| Cache {
        level: part.level,
        kind: part.kind,
        size: (part.size.0 > 0).then_some(part.size),
        pus: places.all(&part.pus),
    });
    let mut caches: Vec<Cache> = all.filter(|cache| !cache.pus.is_empty()).collect();
    // The order that `Machine::check` requires.
    caches.sort_by_key(|cache| (cache.level, cache.pus[0], cache.kind));
    caches
}

/// Distances in the machine's order of nodes; `None` if a node is missing or a figure exceeds the
/// range of ACPI's table.
fn distances(found: &DistancePart, nodes: &[Node]) -> Option<Distances> {
    let width = found.nodes.len();
    // A hostile file may name very many nodes.
    if found.values.len() != width.checked_mul(width)? {
        return None;
    }
    let places = nodes.iter().map(|node| found.nodes.iter().position(|&nr| nr == node.os));
    let order = places.collect::<Option<Vec<usize>>>()?;
    let mut rows = Vec::new();
    for &from in &order {
        let row = order.iter().map(|&to| u32::try_from(found.values[from * width + to]).ok());
        rows.push(row.collect::<Option<Vec<u32>>>()?);
    }
    Some(Distances { rows })
}

/// Home node of each PU: of the nodes that contain the PU, the node with the fewest PUs, then a
/// node with memory before a node without, then the first. hwloc lists nodes without PUs of their
/// own (high-bandwidth or persistent memory) with all PUs of the part of the machine they are
/// attached to.
struct Homes(Vec<Option<NodeIdx>>);

impl Homes {
    /// `parts` are the parts that the machine's nodes were made from.
    fn of(machine: &Machine, parts: &[NodePart]) -> Self {
        let mut order: Vec<usize> =
            (0..parts.len()).filter(|&index| parts[index].may_be_home).collect();
        order.sort_by_key(|&index| {
            let node = &machine.nodes[index];
            (node.pus.len(), node.memory == Some(Bytes(0)), index)
        });
        let mut homes = vec![None; machine.pus.len()];
        for index in order {
            for pu in &machine.nodes[index].pus {
                // Nodes are in order of preference, so the first stays.
                homes[pu.idx()].get_or_insert(NodeIdx::new(index));
            }
        }
        Self(homes)
    }

    /// Home of a core; `None` if its PUs have several homes, as the kernel permits.
    fn of_core(&self, pus: &[PuIdx]) -> Option<NodeIdx> {
        let home = self.0[pus[0].idx()];
        home.filter(|_| pus.iter().all(|pu| self.0[pu.idx()] == home))
    }
}

/// Assigns cores to packages: a core belongs to the first package with one of its PUs.
fn join_packages(machine: &mut Machine, found: Vec<Vec<PuNr>>, places: &PuIndex) {
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
        // Cores of no package come last.
        packages.entry(package.unwrap_or(usize::MAX)).or_default().push(CoreIdx::new(core));
    }
    machine.packages = packages.into_values().map(|cores| Package { cores }).collect();
    for (index, package) in machine.packages.iter().enumerate() {
        for core in &package.cores {
            machine.cores[core.idx()].package = PackageIdx::new(index);
        }
    }
}

/// Assigns cores to kinds: a core belongs to the first kind with one of its PUs. Kinds without
/// cores are dropped.
fn join_kinds(machine: &mut Machine, found: Vec<KindPart>, places: &PuIndex) {
    let found = slowest_first(found);
    let mut of_core: Vec<Option<usize>> = vec![None; machine.cores.len()];
    for (index, kind) in found.iter().enumerate() {
        for pu in places.of_set(&kind.pus) {
            of_core[machine.core_of(pu).idx()].get_or_insert(index);
        }
    }
    // Unclassified cores come last, as their speed is unknown.
    let other = found.len();
    let mut used: Vec<usize> = of_core.iter().map(|kind| kind.unwrap_or(other)).collect();
    for (core, kind) in machine.cores.iter_mut().zip(&used) {
        core.kind = KindIdx::new(*kind);
    }
    // Renumbers the kinds that have cores.
    used.sort_unstable();
    used.dedup();
    for core in &mut machine.cores {
        // `used` has the number of every core's kind, so the default is not used.
        core.kind = KindIdx::new(used.binary_search(&core.kind.idx()).unwrap_or(0));
    }
    let parts = used.iter().map(|&index| found.get(index).cloned().unwrap_or_default());
    machine.kinds = named(parts.collect());
}

/// Sorts the kinds with a capacity among themselves; the others keep their places.
fn slowest_first(kinds: Vec<KindPart>) -> Vec<KindPart> {
    let known = kinds.iter().filter(|kind| kind.capacity.is_some());
    let mut sorted: Vec<KindPart> = known.cloned().collect();
    sorted.sort_by_key(|kind| kind.capacity);
    let mut sorted = sorted.into_iter();
    let in_order = kinds.into_iter().map(|kind| match kind.capacity {
        // There are as many sorted kinds as kinds with a capacity.
        Some(_) => sorted.next().unwrap_or(kind),
        None => kind,
    });
    in_order.collect()
}

/// Name of a kind by its rank among `count` kinds, slowest first. `ends` are the names of the slowest
/// and the fastest.
pub(crate) fn rank_name(rank: usize, count: usize, ends: [&str; 2]) -> String {
    match rank {
        _ if count == 1 => "core".into(),
        0 => ends[0].into(),
        _ if rank + 1 == count => ends[1].into(),
        _ => format!("medium-{rank}"),
    }
}

/// Capacity in 1024ths of `top`; at least 1, as a kind of capacity 0 could not run.
fn scaled(capacity: u32, top: u32) -> u32 {
    // The product of a capacity and 1024 may exceed 32 bits.
    let relative = u64::from(capacity) * 1024 / u64::from(top.max(1));
    // `top` is the greatest capacity, so the quotient is at most 1024.
    u32::try_from(relative.max(1)).unwrap_or(1024)
}

/// Converts kinds: with names, and capacities relative to the fastest.
fn named(parts: Vec<KindPart>) -> Vec<CoreKind> {
    let count = parts.len();
    let top = parts.iter().filter_map(|part| part.capacity).max().unwrap_or(0);
    let kinds = parts.into_iter().enumerate().map(|(index, part)| CoreKind {
        name: part.name.unwrap_or_else(|| rank_name(index, count, ["efficiency", "performance"])),
        capacity: part.capacity.map(|capacity| scaled(capacity, top)),
        max_frequency: part.max_frequency.filter(|frequency| frequency.0 > 0),
    });
    kinds.collect()
}
