//! Hardware topology: a tree flattened into vectors in hwloc's logical order.

use crate::cpulist::PuSet;
use crate::ids::{CacheIdx, CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
use crate::units::{Bytes, Hertz};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// A machine.
///
/// All vectors are in hwloc's logical order: neighbours in a vector are neighbours in the machine.
/// PUs of one core follow each other, cores of one cache follow each other, and so on. Offline PUs
/// are not in `pus`; their kernel numbers are in `offline`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name: the host's name, the file's name, or the title of a description.
    pub name: String,
    /// Processor model, if known.
    pub processor: Option<String>,
    /// Hardware threads that are online.
    pub pus: Vec<Pu>,
    /// Physical cores with at least one online PU.
    pub cores: Vec<Core>,
    /// Sockets.
    pub packages: Vec<Package>,
    /// NUMA nodes, including nodes without PUs or without memory.
    pub nodes: Vec<Node>,
    /// Caches, nearest level first, and in logical order within a level.
    pub caches: Vec<Cache>,
    /// Kinds of cores, slowest first; one entry on a homogeneous machine.
    pub kinds: Vec<CoreKind>,
    /// Distances between nodes; `None` if the firmware does not report them.
    pub distances: Option<Distances>,
    /// Offline PUs, lowest kernel number first. For a saved topology, also the PUs left out of the
    /// file.
    pub offline: Vec<PuNr>,
}

/// A hardware thread.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pu {
    /// The kernel's number.
    pub os: PuNr,
    /// Core of the PU.
    pub core: CoreIdx,
}

/// A physical core.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Online PUs, in logical order. Never empty. Siblings share the execution units of the core.
    pub pus: Vec<PuIdx>,
    /// Socket of the core.
    pub package: PackageIdx,
    /// Home NUMA node. On the live machine, the kernel's choice. Otherwise, of the nodes local to
    /// the core, the node with the fewest PUs, and a node with memory before a node without. `None`
    /// if the machine reports no node for the core, or its PUs belong to several nodes.
    pub node: Option<NodeIdx>,
    /// Kind of the core.
    pub kind: KindIdx,
}

/// A socket.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Cores of the socket, in logical order.
    pub cores: Vec<CoreIdx>,
}

/// A NUMA node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The kernel's number.
    pub os: NodeNr,
    /// Size of the memory; 0 bytes for a node without memory, `None` if unknown.
    pub memory: Option<Bytes>,
    /// PUs local to the node, in logical order. A node without PUs of its own is local to all PUs
    /// of the part of the machine it is attached to, and is no core's home.
    pub pus: Vec<PuIdx>,
}

/// Content of a cache, in the order in which caches of one level are listed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Data and instructions.
    Unified,
}

/// A cache.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Content.
    pub kind: CacheKind,
    /// Size; `None` if unknown. Never 0.
    pub size: Option<Bytes>,
    /// PUs that share the cache, in logical order.
    pub pus: Vec<PuIdx>,
}

/// A kind of core. Cores of one kind run a thread equally fast.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreKind {
    /// Name: "performance", "efficiency", … or the kernel's name; "core" on a homogeneous machine.
    pub name: String,
    /// Speed relative to the fastest kind, which has 1024 (the kernel's `cpu_capacity`). `None` if
    /// unknown.
    pub capacity: Option<u32>,
    /// Highest clock rate; `None` if unknown.
    pub max_frequency: Option<Hertz>,
}

/// Relative distances between NUMA nodes, as in ACPI's SLIT and `numactl --hardware`: 10 is local,
/// 20 is twice as far.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    /// `rows[a][b]`: distance from node `a` to node `b`, by index into `Machine::nodes`.
    pub rows: Vec<Vec<u32>>,
}

impl Machine {
    /// Core of a PU.
    ///
    /// # Panics
    /// If `pu` is not of this machine.
    #[must_use]
    pub fn core_of(&self, pu: PuIdx) -> CoreIdx {
        self.pus[pu.idx()].core
    }

    /// PU with the kernel's number `os`; `None` if offline or absent.
    ///
    /// Constant time if the kernel numbers PUs in logical order, otherwise a search over all PUs.
    /// For many lookups, use [`Machine::places`].
    #[must_use]
    pub fn pu_by_os(&self, os: PuNr) -> Option<PuIdx> {
        if self.pus.get(os.idx()).is_some_and(|pu| pu.os == os) {
            return Some(PuIdx(os.0));
        }
        self.pus.iter().position(|pu| pu.os == os).map(PuIdx::new)
    }

    /// Index of every online PU, by the kernel's number.
    #[must_use]
    pub fn places(&self) -> HashMap<PuNr, PuIdx> {
        self.all_pus().map(|pu| (self.pus[pu.idx()].os, pu)).collect()
    }

    /// All PUs in logical order.
    pub fn all_pus(&self) -> impl Iterator<Item = PuIdx> + use<> {
        (0..self.pus.len()).map(PuIdx::new)
    }

    /// PUs of the cores whose home is `node`, in logical order; none for a node without PUs of its
    /// own.
    pub fn home_pus(&self, node: NodeIdx) -> impl Iterator<Item = PuIdx> + '_ {
        let cores = self.cores.iter().filter(move |core| core.node == Some(node));
        cores.flat_map(|core| core.pus.iter().copied())
    }

    /// Greatest number of PUs of a core: 1 without SMT.
    #[must_use]
    pub fn smt_width(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0)
    }

    /// PUs of every core, by the kernel's numbers, in logical order.
    #[must_use]
    pub fn core_sets(&self) -> Vec<PuSet> {
        let cores = self.cores.iter();
        cores.map(|core| core.pus.iter().map(|pu| self.pus[pu.idx()].os).collect()).collect()
    }

    /// Last-level cache of a PU: the data or unified cache of the highest level over the PU. `None`
    /// without such a cache.
    ///
    /// Takes a binary search for each level.
    #[must_use]
    pub fn last_level_cache(&self, pu: PuIdx) -> Option<CacheIdx> {
        let mut rest = self.caches.len();
        // A level may cover some PUs only, or hold only instructions.
        while let Some(cache) = rest.checked_sub(1).and_then(|last| self.caches.get(last)) {
            let level = cache.level;
            // Caches are sorted by level.
            let begin = self.caches[..rest].partition_point(|cache| cache.level < level);
            if let Some(found) = self.data_cache_over(pu, begin..rest) {
                return Some(CacheIdx::new(found));
            }
            rest = begin;
        }
        None
    }

    /// Data or unified cache over `pu`, among the caches of one level. Caches of a level are sorted
    /// by their first PU and share none, so the last cache that begins at or before `pu` is the
    /// candidate.
    fn data_cache_over(&self, pu: PuIdx, level: Range<usize>) -> Option<usize> {
        let caches = &self.caches[level.clone()];
        let after = caches.partition_point(|cache| cache.pus.first() <= Some(&pu));
        let mut before = caches[..after].iter();
        let found = before.rposition(|cache| cache.kind != CacheKind::Instruction)?;
        (caches[found].pus.last() >= Some(&pu)).then_some(level.start + found)
    }
}

#[cfg(test)]
mod tests {
    use crate::described;

    #[test]
    fn places_and_caches_agree_with_a_linear_search() {
        for (name, text) in described::MACHINES {
            let machine = described::from_toml(text).expect(name).machine;
            let places = machine.places();
            for pu in machine.all_pus() {
                let os = machine.pus[pu.idx()].os;
                assert_eq!((machine.pu_by_os(os), places.get(&os)), (Some(pu), Some(&pu)));
                let over = machine.caches.iter().enumerate().filter(|(_, cache)| {
                    cache.kind != super::CacheKind::Instruction && cache.pus.contains(&pu)
                });
                let last = over.max_by_key(|(_, cache)| cache.level).map(|(index, _)| index);
                assert_eq!(machine.last_level_cache(pu).map(super::CacheIdx::idx), last, "{name}");
            }
        }
    }

    #[test]
    fn no_cache_over_some_pus() {
        let mut machine =
            described::from_toml(described::MACHINES[0].1).expect("described").machine;
        machine.caches.retain(|cache| cache.level == 3);
        machine.caches.remove(0);
        assert_eq!(machine.last_level_cache(super::PuIdx(0)), None);
        assert_eq!(machine.last_level_cache(super::PuIdx(4)), Some(super::CacheIdx(0)));
    }
}
