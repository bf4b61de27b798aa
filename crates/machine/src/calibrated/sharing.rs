//! Groups of PUs that share a core, a last-level cache or a package, from the latency of cache
//! lines passed between them.
//!
//! # Problem
//! The topology reported by a hypervisor may be wrong: PUs that share a cache appear as separate
//! packages, and PUs of two packages as neighbours.
//!
//! # Approach
//! The latency grows with the distance of two PUs, in steps: siblings, cache, package, machine.
//! Sorted latencies have a gap at each step. A gap counts only if the PUs closer than the gap form
//! groups. Measured groups replace differing reported groups.
//!
//! # Terms
//! - *latency* of a pair: nanoseconds to pass a line, one way.
//! - *boundary*: a gap between latencies; its *groups* are the sets of PUs connected by pairs below
//!   the gap.
//!
//! # Algorithm
//! 0. Pairs whose measurements differ by more than [`STEADY`] are left out. If more than [`STRAY`]
//!    of all pairs differ, the hypervisor moves PUs among cores, and the report is kept.
//! 1. Every gap of at least [`GAP`] between neighbours in the sorted latencies is a candidate. A
//!    candidate is a boundary if at most [`STRAY`] of the pairs within its groups lie above the
//!    gap.
//! 2. A boundary whose groups are reported as cores, last-level caches or packages confirms the
//!    report. The first other boundary with latencies of siblings ([`SIBLINGS_MOST`]) gives the
//!    cores, the next caches, the next packages.
//! 3. Reported groups without a boundary are contradicted if their latencies are impossible within
//!    one core or one cache, or between two packages. Otherwise the reported groups are kept.
//!
//! # Properties
//! - **Agrees**: latencies of the reported topology change nothing.      -> test `agreement_is_silent`
//! - **Finds**: other siblings, caches and packages are found.           -> test `contradictions_are_found`
//! - **Noise**: up to 20 % on every latency changes nothing.             -> test `noise_changes_nothing`
//! - **Steady**: pairs whose latency varies change nothing.            -> test `pus_that_move_share_what_is_reported`
//! - **Admits**: flat latencies that fit the report, and none, change nothing. -> test `flat_latencies_say_little`

use crate::cpulist::PuSet;
use crate::ids::{NodeIdx, PuIdx, PuNr};
use crate::machine::{CacheKind, CoreKind, Machine, Node};
use crate::parts::{CachePart, DistancePart, KindPart, MachineParts, NodePart};
use crate::shared::SharedPart;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Least ratio of neighbouring sorted latencies at a boundary. Chosen: latencies of different parts
/// of a machine differ by a factor of 2 and more, those within a part by 1.3 (a mesh of 40 cores).
pub const GAP: f64 = 1.45;
/// Greatest ratio of repeated measurements of a steady pair. Chosen: the parts of a machine differ
/// by more, repetitions on a busy machine by less.
const STEADY: f64 = 1.8;
/// Greatest share of the pairs within a boundary's groups above the boundary, slowed by other load.
/// Chosen.
const STRAY: f64 = 0.1;
/// Greatest latency between siblings, in ns: the line stays in their first-level cache. Published:
/// 4 to 7 for desktop processors, up to 20 for guests of slower servers.
pub const SIBLINGS_MOST: f64 = 25.0;
/// Greatest latency within a last-level cache, in ns. Published: 15 to 35 on AMD's Zen, up to 85
/// across Intel's meshes.
pub const CACHE_MOST: f64 = 100.0;
/// Least latency between packages, in ns. Published: 100 to 140 on Intel's servers, 180 to 220 on
/// AMD's.
pub const PACKAGES_LEAST: f64 = 80.0;
/// Most PUs of a core: POWER has eight.
const CORE_MOST: usize = 8;

/// Measured latency between two PUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Two different PUs.
    pub pus: (PuNr, PuNr),
    /// Least of several one-way measurements, in nanoseconds. Above 0.
    pub ns: f64,
    /// Greatest of the measurements, in nanoseconds.
    pub most_ns: f64,
}

impl Latency {
    /// True if repeated measurements agree.
    fn is_steady(&self) -> bool {
        self.most_ns <= STEADY * self.ns
    }
}

/// A machine whose reported groups are corrected by measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrectedMachine {
    /// Machine with the measured groups in place of differing reported groups.
    pub machine: Machine,
    /// Differences between report and measurement, one line each.
    pub disagreements: Vec<String>,
}

/// Partition of the PUs into groups.
type PuPartition = BTreeSet<BTreeSet<PuNr>>;

/// Part of a machine that a group of PUs shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SharingLevel {
    Core,
    Cache,
    Package,
}

impl SharingLevel {
    const ALL: [Self; 3] = [Self::Core, Self::Cache, Self::Package];

    const fn name(self) -> &'static str {
        ["a core", "a last cache", "a package"][self as usize]
    }
}

/// Compares the reported `machine` with `latencies`. Pairs may be missing.
#[must_use]
pub fn sharing(machine: &Machine, latencies: &[Latency]) -> CorrectedMachine {
    let (steady, unsteady): (Vec<Latency>, Vec<Latency>) =
        latencies.iter().copied().partition(Latency::is_steady);
    // PUs that move among cores have no fixed topology to measure.
    let moves = unsteady.len() as f64 > STRAY * latencies.len() as f64;
    if let (true, Some(Latency { pus: (a, b), ns, most_ns })) = (moves, unsteady.first()) {
        let line = format!(
            "passing a cache line between PUs {} and {} takes {ns:.0} to {most_ns:.0} ns in repeated measurements: a \
             hypervisor moves them among cores, and the reported groups are kept",
            a.0, b.0
        );
        return CorrectedMachine { machine: machine.clone(), disagreements: vec![line] };
    }
    let mut sorted = steady;
    sorted.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    let all: BTreeSet<PuNr> = machine.pus.iter().map(|pu| pu.os).collect();
    let reported = SharingLevel::ALL.map(|level| groups_of(machine, level));
    let mut found: BTreeMap<SharingLevel, PuPartition> = BTreeMap::new();
    let mut others: Vec<(PuPartition, f64)> = Vec::new();
    for boundary in boundaries(&sorted, &all) {
        match SharingLevel::ALL.into_iter().find(|&level| reported[level as usize] == boundary.0) {
            // Caches and packages are often the same groups: one boundary confirms both.
            Some(_) => found.extend(
                SharingLevel::ALL
                    .into_iter()
                    .filter(|&it| reported[it as usize] == boundary.0)
                    .map(|level| (level, boundary.0.clone())),
            ),
            None => others.push(boundary),
        }
    }
    // Finest boundary first: cores are found before caches, and caches before packages.
    for (groups, within) in others {
        let is_fit =
            |level: SharingLevel| !found.contains_key(&level) && fits(level, &groups, within);
        if let Some(level) = SharingLevel::ALL.into_iter().find(|&level| is_fit(level)) {
            found.insert(level, groups);
        }
    }
    // Levels without a boundary.
    for level in SharingLevel::ALL {
        if !found.contains_key(&level)
            && let Some(groups) = contradicted(level, &reported[level as usize], &sorted, &all)
        {
            found.insert(level, groups);
        }
    }
    let differing = found.iter().filter(|(level, groups)| *groups != &reported[**level as usize]);
    let mut disagreements: Vec<String> = differing
        .map(|(&level, groups)| line(level, &reported[level as usize], groups, &sorted))
        .collect();
    if disagreements.is_empty() {
        return CorrectedMachine { machine: machine.clone(), disagreements };
    }
    let made = rebuilt(machine, &reported, &found);
    if made.is_none() {
        disagreements
            .push("no machine has all of these groups: the reported ones are kept".to_owned());
    }
    CorrectedMachine { machine: made.unwrap_or_else(|| machine.clone()), disagreements }
}

/// True if `groups` with the median latency `within` can be groups of this level.
fn fits(level: SharingLevel, groups: &PuPartition, within: f64) -> bool {
    match level {
        SharingLevel::Core => {
            within <= SIBLINGS_MOST && groups.iter().all(|group| group.len() <= CORE_MOST)
        }
        SharingLevel::Cache => within <= CACHE_MOST,
        SharingLevel::Package => true,
    }
}

/// Groups of every boundary, finest first, with the median latency of the pairs that the next finer
/// boundary does not connect.
fn boundaries(sorted: &[Latency], all: &BTreeSet<PuNr>) -> Vec<(PuPartition, f64)> {
    let mut found: Vec<(PuPartition, f64)> = Vec::new();
    for cut in 1..sorted.len() {
        let (below, above) = sorted.split_at(cut);
        if above[0].ns / below[cut - 1].ns < GAP {
            continue;
        }
        let groups = connected(below, all);
        // Other load slows some pairs within a group, too.
        let stray = above.iter().filter(|pair| are_together(&groups, pair.pus)).count();
        let is_group = stray as f64 <= STRAY * (stray + cut) as f64;
        // A single group of all PUs is no boundary.
        if is_group && groups.len() > 1 {
            let own = below.iter().filter(|pair| {
                are_together(&groups, pair.pus)
                    && found.last().is_none_or(|(finer, _)| !are_together(finer, pair.pus))
            });
            let own: Vec<f64> = own.map(|pair| pair.ns).collect();
            // Without a pair of its own, the pair next to the gap stands for the boundary.
            let within = own.get(own.len() / 2).map_or(below[cut - 1].ns, |&ns| ns);
            found.push((groups, within));
        }
    }
    found
}

/// One group for each PU.
fn singletons(all: &BTreeSet<PuNr>) -> impl Iterator<Item = BTreeSet<PuNr>> {
    all.iter().map(|&pu| BTreeSet::from([pu]))
}

/// Connected components of the graph with edges `pairs`.
fn connected(pairs: &[Latency], all: &BTreeSet<PuNr>) -> PuPartition {
    let mut groups: Vec<BTreeSet<PuNr>> = singletons(all).collect();
    for Latency { pus: (a, b), .. } in pairs {
        let touching = groups.extract_if(.., |group| group.contains(a) || group.contains(b));
        let joined: BTreeSet<PuNr> = touching.flatten().collect();
        groups.push(joined);
    }
    groups.into_iter().collect()
}

/// True if both PUs are in one group.
fn are_together(groups: &PuPartition, (a, b): (PuNr, PuNr)) -> bool {
    groups.iter().any(|group| group.contains(&a) && group.contains(&b))
}

/// Median of the sorted latencies within the groups, or between different groups; `None` without
/// such a pair.
fn median(groups: &PuPartition, sorted: &[Latency], within: bool) -> Option<f64> {
    let pairs = sorted.iter().filter(|pair| are_together(groups, pair.pus) == within);
    let latencies: Vec<f64> = pairs.map(|pair| pair.ns).collect();
    latencies.get(latencies.len() / 2).copied()
}

/// Replacement for `reported` groups without a boundary; `None` if the latencies allow the reported
/// groups.
fn contradicted(
    level: SharingLevel,
    reported: &PuPartition,
    sorted: &[Latency],
    all: &BTreeSet<PuNr>,
) -> Option<PuPartition> {
    let within = median(reported, sorted, true);
    let across = median(reported, sorted, false);
    match level {
        SharingLevel::Core => {
            within.filter(|&ns| ns > SIBLINGS_MOST).map(|_| singletons(all).collect())
        }
        SharingLevel::Cache => {
            within.filter(|&ns| ns > CACHE_MOST).map(|_| singletons(all).collect())
        }
        SharingLevel::Package => {
            across.filter(|&ns| ns < PACKAGES_LEAST).map(|_| PuPartition::from([all.clone()]))
        }
    }
}

/// Kernel numbers of `pus`.
fn numbers(machine: &Machine, pus: &[PuIdx]) -> impl Iterator<Item = PuNr> {
    pus.iter().map(|pu| machine.pus[pu.idx()].os)
}

/// Groups of `machine` at a level, as reported. A PU without a cache is a group of its own.
fn groups_of(machine: &Machine, level: SharingLevel) -> PuPartition {
    let parts = machine.parts(match level {
        SharingLevel::Core => SharedPart::Core,
        SharingLevel::Cache => SharedPart::Cache,
        SharingLevel::Package => SharedPart::Package,
    });
    let groups = parts.iter().map(|pus| numbers(machine, pus).collect());
    let mut groups: PuPartition = groups.collect();
    let mut alone: BTreeSet<PuNr> = machine.pus.iter().map(|pu| pu.os).collect();
    groups.iter().flatten().for_each(|pu| _ = alone.remove(pu));
    groups.extend(singletons(&alone));
    groups
}

/// `PUs 0-3 | 4-7 share a last cache by measurement (50 ns within, 150 ns across); reported: 0-7`.
fn line(
    level: SharingLevel,
    said: &PuPartition,
    groups: &PuPartition,
    sorted: &[Latency],
) -> String {
    let within = median(groups, sorted, true).map(|ns| format!("{ns:.0} ns within"));
    let across = median(groups, sorted, false).map(|ns| format!("{ns:.0} ns across"));
    let times: Vec<String> = within.into_iter().chain(across).collect();
    format!(
        "PUs that share {} by measurement: {}; reported: {}; a cache line takes {}",
        level.name(),
        text(groups),
        text(said),
        times.join(", ")
    )
}

/// `0-3 | 4-7`, `none` where every PU is alone.
fn text(groups: &PuPartition) -> String {
    if groups.iter().all(|group| group.len() == 1) {
        return "none".to_owned();
    }
    let mut groups: Vec<&BTreeSet<PuNr>> = groups.iter().collect();
    groups.sort();
    let lists = groups.into_iter().map(|group| group.iter().copied().collect::<PuSet>());
    lists.map(|list| list.to_string()).collect::<Vec<_>>().join(" | ")
}

/// Members of each group, as the parts of a machine list them.
fn lists(groups: &PuPartition) -> Vec<Vec<PuNr>> {
    groups.iter().map(|group| group.iter().copied().collect()).collect()
}

/// Caches of `machine` over other `groups`: the last level over the groups of caches, lower levels over the cores. Sizes stay.
fn cache_parts(
    machine: &Machine,
    reported: &[PuPartition; 3],
    groups: [&PuPartition; 3],
) -> Vec<CachePart> {
    let highest = machine.caches.iter().map(|cache| cache.level).max();
    let mut caches = Vec::new();
    let mut done: BTreeSet<(u8, CacheKind)> = BTreeSet::new();
    for cache in &machine.caches {
        let level =
            if Some(cache.level) == highest { SharingLevel::Cache } else { SharingLevel::Core }
                as usize;
        let shared = if groups[level] == &reported[level] {
            vec![numbers(machine, &cache.pus).collect()]
        } else if done.insert((cache.level, cache.kind)) {
            // Other groups replace all caches of a level and kind at once.
            lists(groups[level])
        } else {
            Vec::new()
        };
        // `CachePart` has 0 for an unknown size.
        let size = cache.size.unwrap_or(Bytes(0));
        let parts = shared.into_iter().map(|pus| CachePart {
            level: cache.level,
            kind: cache.kind,
            size,
            pus,
        });
        caches.extend(parts);
    }
    caches
}

fn node_part(machine: &Machine, (index, node): (usize, &Node)) -> NodePart {
    NodePart {
        os: node.os,
        memory: node.memory,
        pus: numbers(machine, &node.pus).collect(),
        may_be_home: machine.home_pus(NodeIdx::new(index)).next().is_some(),
    }
}

fn kind_part(machine: &Machine, (index, kind): (usize, &CoreKind)) -> KindPart {
    let cores = machine.cores.iter().filter(|core| core.kind.idx() == index);
    KindPart {
        pus: cores.flat_map(|core| numbers(machine, &core.pus)).collect(),
        name: Some(kind.name.clone()),
        capacity: kind.capacity,
        max_frequency: kind.max_frequency,
    }
}

/// Number of cores without a home node.
fn homeless(machine: &Machine) -> usize {
    machine.cores.iter().filter(|core| core.node.is_none()).count()
}

/// Builds `machine` with the groups `found`. `None` if no machine can have the groups, for example if a measured core has PUs of two nodes.
fn rebuilt(
    machine: &Machine,
    reported: &[PuPartition; 3],
    found: &BTreeMap<SharingLevel, PuPartition>,
) -> Option<Machine> {
    let groups =
        SharingLevel::ALL.map(|level| found.get(&level).unwrap_or(&reported[level as usize]));
    let [cores, caches, packages] = groups;
    let nodes = machine.nodes.iter().enumerate();
    let kinds = machine.kinds.iter().enumerate();
    let parts = MachineParts {
        name: machine.name.clone(),
        processor: machine.processor.clone(),
        pus: grouped(machine, packages, caches, cores),
        offline: machine.offline.iter().copied().collect(),
        cores: lists(cores),
        packages: lists(packages),
        nodes: nodes.map(|node| node_part(machine, node)).collect(),
        caches: cache_parts(machine, reported, groups),
        kinds: kinds.map(|kind| kind_part(machine, kind)).collect(),
        distances: machine.distances.as_ref().map(|distances| DistancePart {
            nodes: machine.nodes.iter().map(|node| node.os).collect(),
            values: distances.rows.iter().flatten().map(|&it| it.into()).collect(),
        }),
    };
    // A core with PUs of two nodes has no home.
    parts.assemble().ok().filter(|found| homeless(found) <= homeless(machine))
}

/// The lowest PU of the group that contains `pu`.
fn first_of(groups: &PuPartition, pu: PuNr) -> Option<PuNr> {
    groups.iter().find(|group| group.contains(&pu)).and_then(|group| group.first().copied())
}

/// All PUs in logical order: by package, cache and core.
fn grouped(
    machine: &Machine,
    packages: &PuPartition,
    caches: &PuPartition,
    cores: &PuPartition,
) -> Vec<PuNr> {
    let mut pus: Vec<PuNr> = machine.pus.iter().map(|pu| pu.os).collect();
    pus.sort_by_key(|&pu| (first_of(packages, pu), first_of(caches, pu), first_of(cores, pu), pu));
    pus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described;
    use proptest::prelude::*;

    /// A machine of packages, caches in each, cores in each and PUs of each; PUs numbered in order.
    fn machine(packages: u32, caches: u32, cores: u32, pus: u32) -> Machine {
        let text = format!(
            "version = 1\nname = \"made up\"\n[shape]\npackages = {packages}\ncores-per-package = {}\n\
             pus-per-core = {pus}\nnodes = {packages}\n[numbering]\npus = \"in-order\"\n\
             [memory]\nper-node = \"1 GiB\"\n\
             [[cache]]\nlevel = 1\nkind = \"data\"\nsize = \"32 KiB\"\ncores = 1\n\
             [[cache]]\nlevel = 3\nkind = \"unified\"\nsize = \"8 MiB\"\ncores = {cores}\n",
            caches * cores
        );
        described::from_toml(&text).unwrap().machine
    }

    /// Latencies of a machine that is really so: siblings 12 ns, a cache 45, a package 90, else 150.
    fn of(real: &Machine, noise: impl Fn(usize) -> f64) -> Vec<Latency> {
        let groups = SharingLevel::ALL.map(|level| groups_of(real, level));
        let pus: Vec<PuNr> = (0..u32::try_from(real.pus.len()).unwrap()).map(PuNr).collect();
        let mut found = Vec::new();
        for (at, &a) in pus.iter().enumerate() {
            for &b in &pus[at + 1..] {
                let level = groups.iter().position(|groups| are_together(groups, (a, b)));
                let ns = level.map_or(150.0, |level| [12.0, 45.0, 90.0][level]);
                let ns = ns * noise(found.len());
                found.push(Latency { pus: (a, b), ns, most_ns: ns * 1.1 });
            }
        }
        found
    }

    /// What is said where `reported` is really `real`; the machine that comes out must be `real`.
    fn said(reported: &Machine, real: &Machine) -> Vec<String> {
        let found = sharing(reported, &of(real, |_| 1.0));
        for level in SharingLevel::ALL {
            assert_eq!(groups_of(&found.machine, level), groups_of(real, level), "{level:?}");
        }
        assert_eq!(found.machine.check(), Ok(()));
        found.disagreements
    }

    #[test]
    fn agreement_is_silent() {
        for (packages, caches, cores, pus) in
            [(1, 1, 4, 2), (2, 1, 4, 1), (2, 1, 2, 2), (2, 2, 2, 2), (1, 2, 2, 1), (1, 1, 1, 2)]
        {
            let machine = machine(packages, caches, cores, pus);
            let found = sharing(&machine, &of(&machine, |_| 1.0));
            assert_eq!(found, CorrectedMachine { machine, disagreements: vec![] });
        }
    }

    #[test]
    fn contradictions_are_found() {
        // Siblings that are reported as cores.
        assert_eq!(
            said(&machine(1, 1, 4, 1), &machine(1, 1, 2, 2)),
            [
                "PUs that share a core by measurement: 0-1 | 2-3; reported: none; a cache line takes 12 ns within, 45 ns across"
            ]
        );
        // Cores that are reported as siblings.
        assert_eq!(
            said(&machine(1, 1, 2, 2), &machine(1, 1, 4, 1)),
            [
                "PUs that share a core by measurement: none; reported: 0-1 | 2-3; a cache line takes 45 ns across"
            ]
        );
        // Two caches that are reported as one.
        assert_eq!(
            said(&machine(1, 1, 4, 1), &machine(1, 2, 2, 1)),
            [
                "PUs that share a last cache by measurement: 0-1 | 2-3; reported: 0-3; a cache line takes 45 ns within, 90 ns across"
            ]
        );
    }

    /// Every PU is reported as a package, as hypervisors do, and all share a cache.
    #[test]
    fn packages_that_are_none() {
        let found = sharing(&machine(4, 1, 1, 1), &of(&machine(1, 1, 4, 1), |_| 1.0));
        assert_eq!(
            found.disagreements,
            [
                "PUs that share a package by measurement: 0-3; reported: none; a cache line takes 45 ns within"
            ]
        );
        assert_eq!(found.machine.packages.len(), 1);
        assert_eq!(found.machine.check(), Ok(()));
    }

    #[test]
    fn flat_latencies_say_little() {
        let machine = machine(1, 1, 4, 1);
        let flat = |ns| of(&machine, |_| ns / 45.0);
        assert_eq!(sharing(&machine, &flat(60.0)).disagreements, [""; 0]);
        assert_eq!(sharing(&machine, &[]).disagreements, [""; 0]);
        assert_eq!(
            sharing(&machine, &flat(150.0)).disagreements,
            [
                "PUs that share a last cache by measurement: none; reported: 0-3; a cache line takes 150 ns across"
            ]
        );
    }

    #[test]
    fn pus_that_move_share_what_is_reported() {
        let (reported, real) = (machine(1, 1, 4, 1), machine(1, 2, 2, 1));
        let mut latencies = of(&real, |_| 1.0);
        latencies[0].most_ns = 150.0;
        let found = sharing(&reported, &latencies);
        assert_eq!(found.machine, reported);
        assert_eq!(
            found.disagreements,
            [
                "passing a cache line between PUs 0 and 1 takes 45 to 150 ns in repeated measurements: a hypervisor moves \
              them among cores, and the reported groups are kept"
            ]
        );
    }

    /// On a ring the neighbours of neighbours are near, and no groups come of it.
    #[test]
    fn nearness_without_groups_is_no_boundary() {
        let machine = machine(1, 1, 8, 1);
        let mut ring = of(&machine, |_| 1.0);
        for pair in &mut ring {
            let apart = pair.pus.1.0 - pair.pus.0.0;
            pair.ns = if apart.min(8 - apart) == 1 { 30.0 } else { 60.0 };
        }
        assert_eq!(sharing(&machine, &ring).disagreements, [""; 0]);
    }

    proptest! {
        #[test]
        fn noise_changes_nothing(
            noise in prop::collection::vec(0.84..1.2_f64, 120),
            shape in prop::sample::select(vec![(1, 1, 4, 2), (2, 1, 4, 1), (2, 1, 4, 2), (1, 1, 8, 1)]),
        ) {
            let real = machine(shape.0, shape.1, shape.2, shape.3);
            let found = sharing(&real, &of(&real, |pair| noise[pair]));
            prop_assert_eq!(found.disagreements, [""; 0]);
            let flat = machine(1, 1, shape.0 * shape.2 * shape.3, 1);
            let found = sharing(&flat, &of(&real, |pair| noise[pair]));
            prop_assert_eq!(groups_of(&found.machine, SharingLevel::Core), groups_of(&real, SharingLevel::Core));
        }
    }
}
