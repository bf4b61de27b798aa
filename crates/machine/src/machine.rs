//! What the hardware is: a tree flattened into vectors in hwloc's logical order.

use crate::ids::{CacheIdx, CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
use crate::units::{Bytes, Hertz};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// A machine.
///
/// All vectors are in hwloc's logical order, so that neighbours in a vector are neighbours in the
/// machine: PUs of one core follow each other, cores of one cache follow each other, and so on.
/// Offline PUs have no place in `pus`; their kernel numbers are in `offline`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its common name: a host's name, a file's name or a described machine's title.
    pub name: String,
    /// Processor model, if known.
    pub processor: Option<String>,
    /// Hardware threads that are online.
    pub pus: Vec<Pu>,
    /// Physical cores with at least one online PU.
    pub cores: Vec<Core>,
    /// Sockets.
    pub packages: Vec<Package>,
    /// NUMA nodes, also those without PUs or without memory.
    pub nodes: Vec<Node>,
    /// Caches, nearest level first, and in logical order within a level.
    pub caches: Vec<Cache>,
    /// Kinds of cores, slowest first; one entry on a machine whose cores are alike.
    pub kinds: Vec<CoreKind>,
    /// Distance between nodes, or `None` if the firmware does not say.
    pub distances: Option<Distances>,
    /// PUs that the kernel lists but has offline, lowest number first. In a saved topology also
    /// those that were left out when it was saved.
    pub offline: Vec<PuNr>,
}

/// A hardware thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pu {
    /// The kernel's number.
    pub os: PuNr,
    /// The core it belongs to.
    pub core: CoreIdx,
}

/// A physical core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Its online PUs, in logical order. Never empty. Siblings share its execution units.
    pub pus: Vec<PuIdx>,
    /// The socket it sits in.
    pub package: PackageIdx,
    /// The NUMA node it is at home in: on the live machine the kernel's, else of those local to it the
    /// one with the fewest PUs, then one with memory before one without. `None` on a machine that
    /// reports no node for it, or several of which each has some of its PUs.
    pub node: Option<NodeIdx>,
    /// Which kind of core it is.
    pub kind: KindIdx,
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its cores, in logical order.
    pub cores: Vec<CoreIdx>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The kernel's number.
    pub os: NodeNr,
    /// Memory; 0 bytes for a node without memory, `None` if unknown.
    pub memory: Option<Bytes>,
    /// PUs that are local to it, in logical order. A node without PUs of its own, which is no
    /// core's home, is local to all PUs of the part of the machine that it hangs from.
    pub pus: Vec<PuIdx>,
}

/// What a cache holds, in the order in which caches of one level are listed.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size, or `None` if unknown. Never 0.
    pub size: Option<Bytes>,
    /// PUs that share it, in logical order.
    pub pus: Vec<PuIdx>,
}

/// A kind of core: all cores of one kind run one thread equally fast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreKind {
    /// "performance", "efficiency", … or the kernel's own name; "core" where all are alike.
    pub name: String,
    /// Speed relative to the fastest kind, whose capacity is 1024 (the kernel's `cpu_capacity`).
    /// `None` if unknown.
    pub capacity: Option<u32>,
    /// Highest clock rate, or `None` if unknown.
    pub max_frequency: Option<Hertz>,
}

/// Relative distances between NUMA nodes, as ACPI's SLIT and `numactl --hardware` give them:
/// 10 is local, 20 is twice as far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    /// `rows[a][b]`: from node `a` to node `b`, indexed by place in `Machine::nodes`.
    pub rows: Vec<Vec<u32>>,
}

impl Machine {
    /// The core of a PU.
    ///
    /// # Panics
    /// If `pu` is not of this machine.
    #[must_use]
    pub fn core_of(&self, pu: PuIdx) -> CoreIdx {
        self.pus[pu.idx()].core
    }

    /// The PU with the kernel's number `os`, or `None` if it is offline or absent.
    ///
    /// Searches all PUs, except where the kernel's order is the logical one; for
    /// many, use [`Machine::places`].
    #[must_use]
    pub fn pu_by_os(&self, os: PuNr) -> Option<PuIdx> {
        if self.pus.get(os.idx()).is_some_and(|pu| pu.os == os) {
            return Some(PuIdx(os.0));
        }
        self.pus.iter().position(|pu| pu.os == os).map(PuIdx::new)
    }

    /// The place of every online PU by the kernel's number.
    #[must_use]
    pub fn places(&self) -> HashMap<PuNr, PuIdx> {
        self.all_pus().map(|pu| (self.pus[pu.idx()].os, pu)).collect()
    }

    /// All PUs in logical order.
    pub fn all_pus(&self) -> impl Iterator<Item = PuIdx> + use<> {
        (0..self.pus.len()).map(PuIdx::new)
    }

    /// PUs of the cores that are at home in `node`, in logical order; none for a node without PUs
    /// of its own.
    pub fn home_pus(&self, node: NodeIdx) -> impl Iterator<Item = PuIdx> + '_ {
        let cores = self.cores.iter().filter(move |core| core.node == Some(node));
        cores.flat_map(|core| core.pus.iter().copied())
    }

    /// The most PUs that one core has: 1 without SMT.
    #[must_use]
    pub fn smt_width(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0)
    }

    /// The last-level cache of a PU: the highest-level data or unified cache over it.
    ///
    /// A few steps of binary search for each level.
    #[must_use]
    pub fn last_level_cache(&self, pu: PuIdx) -> Option<CacheIdx> {
        let mut rest = self.caches.len();
        while let Some(cache) = rest.checked_sub(1).and_then(|last| self.caches.get(last)) {
            let level = cache.level;
            let begin = self.caches[..rest].partition_point(|cache| cache.level < level);
            if let Some(found) = self.data_cache_over(pu, begin..rest) {
                return Some(CacheIdx::new(found));
            }
            rest = begin;
        }
        None
    }

    /// The cache over `pu` that holds data, among those of one level. They are sorted by their
    /// first PU and share none, so it is the last one that begins at or before `pu`.
    fn data_cache_over(&self, pu: PuIdx, level: Range<usize>) -> Option<usize> {
        let caches = &self.caches[level.clone()];
        let after = caches.partition_point(|cache| cache.pus.first() <= Some(&pu));
        let holds_data = |cache: &Cache| cache.kind != CacheKind::Instruction;
        let found = caches[..after].iter().rposition(holds_data)?;
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
