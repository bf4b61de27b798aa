//! Invariants of every machine, of any origin.

use crate::cpulist::MAX_PU_NR;
use crate::flaw::Flaw;
use crate::ids::{CacheIdx, CoreIdx, KindIdx, PackageIdx, PuIdx, PuNr};
use crate::machine::{Cache, CacheKind, Machine};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Most PUs of a machine: Linux allows 8,192 (`NR_CPUS`).
pub(crate) const MAX_PUS: usize = MAX_PU_NR as usize + 1;

/// Most NUMA nodes of a machine, as in Linux (`MAX_NUMNODES`).
pub(crate) const MAX_NODES: usize = 1024;

impl Machine {
    /// Checks the invariants that every reader relies on: at least one PU; unique kernel numbers,
    /// those of PUs up to [`MAX_PU_NR`]; indices in range; every PU in exactly one core and every
    /// core in exactly one package, in logical order; every core of a known kind; kinds with a
    /// capacity slowest first; caches sorted by level and logical order, each over neighbouring
    /// PUs, nested; square distances.
    ///
    /// # Errors
    /// The first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.pus.is_empty() {
            return flaw("expected at least one online CPU, found none");
        }
        at_most(self.pus.len(), "CPUs", MAX_PUS)?;
        at_most(self.nodes.len(), "NUMA nodes", MAX_NODES)?;
        // Each check relies on the ones before: nodes are indexed only after `check_cores`.
        check_numbers(self)?;
        check_cores(self)?;
        check_packages(self)?;
        check_nodes(self)?;
        check_kinds(self)?;
        check_caches(self)?;
        check_distances(self)
    }
}

fn check_numbers(machine: &Machine) -> Result<(), Flaw> {
    let mut numbers = machine.pus.iter().map(|pu| pu.os).chain(machine.offline.iter().copied());
    if let Some(beyond) = numbers.clone().find(|pu| pu.0 > MAX_PU_NR) {
        return flaw(format!("expected CPU numbers up to {MAX_PU_NR}, found {beyond}"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = numbers.find(|&pu| !seen.insert(pu)) {
        return Err(pu_twice(twice));
    }
    let mut seen = BTreeSet::new();
    match machine.nodes.iter().find(|node| !seen.insert(node.os)) {
        Some(node) => flaw(format!("expected every NUMA node once, found {} twice", node.os)),
        None => Ok(()),
    }
}

fn check_cores(machine: &Machine) -> Result<(), Flaw> {
    let mut next = 0;
    for (index, core) in machine.cores.iter().enumerate() {
        let here = CoreIdx::new(index);
        in_range(here, "package", core.package.0, machine.packages.len())?;
        in_range(here, "kind", core.kind.0, machine.kinds.len())?;
        if let Some(node) = core.node {
            in_range(here, "node", node.0, machine.nodes.len())?;
        }
        // The PUs of all cores, one core after another, are 0, 1, 2, …
        let follow = core.pus.iter().all(|&pu| {
            next += 1;
            pu.idx() == next - 1 && machine.pus.get(pu.idx()).is_some_and(|pu| pu.core == here)
        });
        if core.pus.is_empty() || !follow {
            return mismatch(
                here,
                "the next PUs in logical order, at least one, that name this core",
            );
        }
    }
    if next < machine.pus.len() {
        return mismatch(PuIdx::new(next), "a core that lists it");
    }
    Ok(())
}

fn check_packages(machine: &Machine) -> Result<(), Flaw> {
    let mut listed = 0;
    for (index, package) in machine.packages.iter().enumerate() {
        let is_named = package.cores.iter().all(|core| {
            machine.cores.get(core.idx()).is_some_and(|core| core.package.idx() == index)
        });
        let is_ascending = package.cores.is_sorted_by(|a, b| a < b);
        if package.cores.is_empty() || !is_ascending || !is_named {
            return mismatch(
                PackageIdx::new(index),
                "its cores in logical order, at least one, that name this package",
            );
        }
        listed += package.cores.len();
    }
    if listed == machine.cores.len() {
        return Ok(());
    }
    mismatch("packages", "every core in one of them")
}

fn check_nodes(machine: &Machine) -> Result<(), Flaw> {
    for node in &machine.nodes {
        ascending_in_range(node.os, &node.pus, machine.pus.len())?;
    }
    for (index, core) in machine.cores.iter().enumerate() {
        let local = core.node.is_none_or(|node| {
            core.pus.iter().all(|pu| machine.nodes[node.idx()].pus.binary_search(pu).is_ok())
        });
        if !local {
            return mismatch(CoreIdx::new(index), "a node that lists its PUs as local");
        }
    }
    Ok(())
}

fn check_kinds(machine: &Machine) -> Result<(), Flaw> {
    let used: BTreeSet<usize> = machine.cores.iter().map(|core| core.kind.idx()).collect();
    for (index, kind) in machine.kinds.iter().enumerate() {
        let used = used.contains(&index);
        // Capacities are relative to the fastest kind, which has 1024.
        let sane = kind.capacity.is_none_or(|capacity| (1..=1024).contains(&capacity))
            && kind.max_frequency.is_none_or(|frequency| frequency.0 > 0);
        if !used || !sane {
            let expected =
                "a core of that kind, a capacity of 1 to 1024 or none, a frequency above 0 or none";
            return mismatch(KindIdx::new(index), expected);
        }
    }
    if !machine.kinds.iter().filter_map(|kind| kind.capacity).is_sorted() {
        return mismatch("kinds", "the slowest first, by their capacities");
    }
    Ok(())
}

fn check_caches(machine: &Machine) -> Result<(), Flaw> {
    for (index, cache) in machine.caches.iter().enumerate() {
        let owner = CacheIdx::new(index);
        ascending_in_range(owner, &cache.pus, machine.pus.len())?;
        // Logical order puts the PUs of a cache side by side.
        let neighbours = cache.pus.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
        if cache.pus.is_empty()
            || !neighbours
            || cache.level == 0
            || cache.size.is_some_and(|s| s.0 == 0)
        {
            let expected =
                "neighbouring PUs, at least one, a level from 1 and a size above 0 or none";
            return mismatch(owner, expected);
        }
    }
    if !machine.caches.is_sorted_by(|a, b| (a.level, a.pus[0]) <= (b.level, b.pus[0])) {
        return mismatch("caches", "nearest level first, logical order within a level");
    }
    // Data and instruction caches are separate trees; unified caches are in both.
    check_nesting(machine, |cache| cache.kind != CacheKind::Instruction)?;
    check_nesting(machine, |cache| cache.kind != CacheKind::Data)
}

/// Checks that the selected caches form a tree; two caches of one level never share a PU.
///
/// Caches are visited from the outermost in. Each lies within the innermost open cache, or
/// begins after it.
fn check_nesting(machine: &Machine, counts: impl Fn(&Cache) -> bool) -> Result<(), Flaw> {
    let mut order: Vec<(CacheIdx, &Cache)> = machine
        .caches
        .iter()
        .enumerate()
        .filter(|(_, cache)| counts(cache))
        .map(|(index, cache)| (CacheIdx::new(index), cache))
        .collect();
    // Of caches that begin at the same PU, the outer first.
    order.sort_by_key(|(_, cache)| (cache.pus[0], std::cmp::Reverse(cache.level)));
    let mut open: Vec<(CacheIdx, &Cache)> = Vec::new();
    for (index, cache) in order {
        let (first, last) = span(cache);
        // Caches that end before this one begins contain no later cache.
        while open.last().is_some_and(|(_, above)| span(above).1 < first) {
            open.pop();
        }
        if let Some(&(other, above)) = open.last()
            && (span(above).1 < last || above.level <= cache.level)
        {
            return flaw(format!(
                "expected caches that nest, found {other} and {index} overlapping"
            ));
        }
        open.push((index, cache));
    }
    Ok(())
}

fn check_distances(machine: &Machine) -> Result<(), Flaw> {
    let Some(distances) = &machine.distances else { return Ok(()) };
    let nodes = machine.nodes.len();
    let rows = distances.rows.len();
    let wrong = distances.rows.iter().map(Vec::len).find(|&found| found != nodes);
    if let Some(found) = wrong.or((rows != nodes).then_some(nodes)) {
        return flaw(format!(
            "expected {nodes} × {nodes} distances, found a row of {found} in {rows} rows"
        ));
    }
    Ok(())
}

/// First and last PU of a cache.
fn span(cache: &Cache) -> (PuIdx, PuIdx) {
    (cache.pus[0], cache.pus[cache.pus.len() - 1])
}

fn flaw(line: impl Into<String>) -> Result<(), Flaw> {
    Err(Flaw(line.into()))
}

/// Refuses a part that contradicts another on containment, or is contained in none.
fn mismatch(owner: impl Display, expected: &str) -> Result<(), Flaw> {
    flaw(format!("{owner}: expected {expected}"))
}

/// The error for a PU that is listed twice.
pub(crate) fn pu_twice(pu: PuNr) -> Flaw {
    Flaw(format!("expected every CPU once, found {pu} twice"))
}

/// Refuses more parts than any real machine has.
pub(crate) fn at_most(found: usize, what: &str, limit: usize) -> Result<(), Flaw> {
    if found > limit { flaw(format!("expected at most {limit} {what}")) } else { Ok(()) }
}

fn in_range(owner: impl Display, what: &str, found: u32, limit: usize) -> Result<(), Flaw> {
    if (found as usize) < limit {
        return Ok(());
    }
    flaw(format!("{owner}: expected {what} below {limit}, found {found}"))
}

fn ascending_in_range(owner: impl Display, pus: &[PuIdx], limit: usize) -> Result<(), Flaw> {
    // Not the last PU: the order is checked below.
    if let Some(last) = pus.iter().max() {
        in_range(&owner, "PU", last.0, limit)?;
    }
    if pus.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    mismatch(owner, "its PUs in logical order, each once")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described;
    use crate::ids::{KindIdx, NodeIdx, PackageIdx};
    use crate::machine::CoreKind;
    use proptest::prelude::*;

    fn epyc() -> Machine {
        described::from_toml(described::MACHINES[0].1).expect("described").machine
    }

    /// The flaw that a change to a sound machine brings.
    fn flaw(change: impl Fn(&mut Machine)) -> String {
        let mut machine = epyc();
        change(&mut machine);
        machine.check().expect_err("flawed").to_string()
    }

    #[test]
    fn every_flaw_is_found() {
        assert_eq!(flaw(|m| m.pus.clear()), "expected at least one online CPU, found none");
        assert_eq!(
            flaw(|m| m.pus[3].os = m.pus[2].os),
            "expected every CPU once, found cpu8 twice"
        );
        assert_eq!(flaw(|m| m.offline.push(PuNr(5))), "expected every CPU once, found cpu5 twice");
        assert_eq!(
            flaw(|m| m.offline.push(PuNr(65_536))),
            "expected CPU numbers up to 65535, found cpu65536"
        );
        assert_eq!(
            flaw(|m| m.nodes[1].os = m.nodes[0].os),
            "expected every NUMA node once, found node0 twice"
        );
        let core =
            "core L#4: expected the next PUs in logical order, at least one, that name this core";
        assert_eq!(flaw(|m| m.cores[4].pus.clear()), core);
        assert_eq!(flaw(|m| m.cores[4].pus.swap(0, 1)), core);
        assert_eq!(flaw(|m| m.pus[9].core = CoreIdx(0)), core);
        assert_eq!(
            flaw(|m| m.cores[4].kind = KindIdx(7)),
            "core L#4: expected kind below 1, found 7"
        );
        assert_eq!(
            flaw(|m| m.cores[4].node = Some(NodeIdx(0))),
            "core L#4: expected a node that lists its PUs as local"
        );
        assert_eq!(
            flaw(|m| m.cores[4].package = PackageIdx(1)),
            "package L#0: expected its cores in logical order, at least one, that name this package"
        );
        assert_eq!(
            flaw(|m| m.packages[1].cores.truncate(15)),
            "packages: expected every core in one of them"
        );
        assert_eq!(
            flaw(|m| m.nodes[0].pus.reverse()),
            "node0: expected its PUs in logical order, each once"
        );
        assert_eq!(
            flaw(|m| m.nodes[0].pus.push(PuIdx(64))),
            "node0: expected PU below 64, found 64"
        );
        assert_eq!(
            flaw(|m| m.kinds[0].capacity = Some(0)),
            "kind 0: expected a core of that kind, a capacity of 1 to 1024 or none, a frequency above 0 or none"
        );
        let two_kinds = |m: &mut Machine, capacities: [Option<u32>; 2]| {
            m.kinds = capacities.map(|capacity| CoreKind { capacity, ..m.kinds[0].clone() }).into();
            m.cores[4].kind = KindIdx(1);
        };
        assert_eq!(
            flaw(|m| two_kinds(m, [Some(1024), Some(512)])),
            "kinds: expected the slowest first, by their capacities"
        );
        for sound in [[Some(512), Some(1024)], [Some(1024), None], [Some(1024); 2]] {
            let mut machine = epyc();
            two_kinds(&mut machine, sound);
            assert_eq!(machine.check(), Ok(()));
        }
        let cache = "cache L#0: expected neighbouring PUs, at least one, a level from 1 and a size above 0 or none";
        assert_eq!(flaw(|m| m.caches[0].pus.push(PuIdx(7))), cache);
        assert_eq!(flaw(|m| m.caches[0].size = Some(crate::Bytes(0))), cache);
        assert_eq!(
            flaw(|m| m.caches.reverse()),
            "caches: expected nearest level first, logical order within a level"
        );
        assert_eq!(
            flaw(|m| m.caches.last_mut().expect("an L3").pus.insert(0, PuIdx(59))),
            "expected caches that nest, found cache L#58 and cache L#111 overlapping"
        );
        assert_eq!(
            flaw(|m| m.distances.as_mut().expect("distances").rows.truncate(7)),
            "expected 8 × 8 distances, found a row of 8 in 7 rows"
        );
    }

    proptest! {
        /// Every description that fits together is a sound machine with the counts it gives.
        #[test]
        fn described_machines_are_sound(
            packages in 1..4_usize,
            cores in 1..9_usize,
            smt in 1..5_usize,
            per_cache in 1..9_usize,
            nodes in 0..5_usize,
            siblings_last: bool,
        ) {
            let order = if siblings_last { "siblings-last" } else { "in-order" };
            let text = format!(
                "version = 1\nname = \"any\"\n[shape]\npackages = {packages}\ncores-per-package = {cores}\npus-per-core = {smt}\nnodes = {nodes}\n[numbering]\npus = \"{order}\"\n[[cache]]\nlevel = 2\nkind = \"unified\"\ncores = {per_cache}\n"
            );
            let all = packages * cores;
            let fits = all % per_cache == 0 && (nodes == 0 || all % nodes == 0);
            match described::from_toml(&text) {
                Ok(exact) => {
                    let machine = exact.machine;
                    prop_assert!(fits);
                    prop_assert_eq!(machine.check(), Ok(()));
                    prop_assert_eq!(machine.pus.len(), all * smt);
                    prop_assert_eq!(machine.caches.len(), all / per_cache);
                    prop_assert!(!crate::picture(&machine, None).is_empty());
                }
                Err(error) => prop_assert!(!fits, "{}", error),
            }
        }
    }
}
