//! Parts of a machine shared by PUs, as targets of placement.

use crate::cpulist::PuSet;
use crate::ids::{CacheIdx, NodeIdx, PuIdx, PuNr};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Kind of part that PUs share.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedPart {
    /// A core.
    Core,
    /// A last-level cache.
    Cache,
    /// A memory node.
    Node,
    /// A package.
    Package,
}

impl SharedPart {
    /// All kinds, smallest first on most machines.
    pub const ALL: [Self; 4] = [Self::Core, Self::Cache, Self::Node, Self::Package];
}

impl fmt::Display for SharedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Cache => "cache",
            Self::Node => "node",
            Self::Package => "package",
        })
    }
}

impl Machine {
    /// Index of the part of a kind that contains a PU; `None` without such a part.
    fn part_of(&self, kind: SharedPart, pu: PuIdx) -> Option<usize> {
        let core = &self.cores[self.core_of(pu).idx()];
        match kind {
            SharedPart::Core => Some(self.core_of(pu).idx()),
            SharedPart::Cache => self.last_level_cache(pu).map(CacheIdx::idx),
            SharedPart::Node => core.node.map(NodeIdx::idx),
            SharedPart::Package => Some(core.package.idx()),
        }
    }

    /// Online PUs that share a part with a PU, including the PU, in logical order; empty without
    /// such a part.
    #[must_use]
    pub fn sharing(&self, kind: SharedPart, pu: PuIdx) -> Vec<PuIdx> {
        let Some(part) = self.part_of(kind, pu) else { return Vec::new() };
        self.all_pus().filter(|other| self.part_of(kind, *other) == Some(part)).collect()
    }

    /// Kernel numbers of [`Machine::sharing`].
    #[must_use]
    pub fn sharing_with(&self, kind: SharedPart, pu: PuNr) -> PuSet {
        let shared = self.pu_by_os(pu).map(|pu| self.sharing(kind, pu)).unwrap_or_default();
        shared.into_iter().map(|pu| self.pus[pu.idx()].os).collect()
    }

    /// PUs of each part of a kind, in logical order.
    #[must_use]
    pub fn parts(&self, kind: SharedPart) -> Vec<Vec<PuIdx>> {
        let mut parts: BTreeMap<usize, Vec<PuIdx>> = BTreeMap::new();
        for pu in self.all_pus() {
            if let Some(part) = self.part_of(kind, pu) {
                parts.entry(part).or_default().push(pu);
            }
        }
        parts.into_values().collect()
    }

    /// Parts shared by several PUs of `pus`, but not by all, as their PUs within `pus`. Without
    /// duplicates, larger kinds first.
    #[must_use]
    pub fn shared_parts(&self, pus: &PuSet) -> Vec<PuSet> {
        let parts = SharedPart::ALL.into_iter().rev().flat_map(|kind| self.parts(kind));
        let mut found: Vec<PuSet> = Vec::new();
        for part in parts {
            let numbers = part.into_iter().map(|pu| self.pus[pu.idx()].os);
            let part: PuSet = numbers.filter(|pu| pus.contains(*pu)).collect();
            // Equal parts, such as a package of one node, count once.
            if part.len() > 1 && part != *pus && !found.contains(&part) {
                found.push(part);
            }
        }
        found
    }
}

#[cfg(test)]
#[cfg(feature = "read")]
mod tests {
    use super::*;
    use crate::read::synthetic;

    fn parts(spec: &str, usable: &str) -> Vec<String> {
        let machine = synthetic(spec).unwrap();
        let usable = PuSet::parse_list(usable).unwrap();
        machine.shared_parts(&usable).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_part_once() {
        let spec = "pack:2 node:2 l3:1 core:2 pu:2";
        let nodes = ["0-3", "4-7", "8-11", "12-15"];
        let cores = ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"];
        let all: Vec<&str> = ["0-7", "8-15"].into_iter().chain(nodes).chain(cores).collect();
        assert_eq!(parts(spec, "0-15"), all);
        assert_eq!(parts(spec, "0-4"), ["0-3", "0-1", "2-3"], "of what can be used");
        assert!(parts("core:2 pu:1", "0-1").is_empty());
    }

    #[test]
    fn what_shares_with_a_pu() {
        let machine = synthetic("pack:2 node:2 l3:1 core:2 pu:2").unwrap();
        let with_5 = SharedPart::ALL.map(|part| machine.sharing_with(part, PuNr(5)).to_string());
        assert_eq!(with_5, ["4-5", "4-7", "4-7", "0-7"]);
        assert!(machine.sharing_with(SharedPart::Node, PuNr(16)).is_empty());
    }
}
