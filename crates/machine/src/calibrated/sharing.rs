//! Which PUs share a core, a last cache and a package, by what passing a cache line between them takes.
//!
//! # Problem
//! A hypervisor reports a topology that it need not keep to: PUs that share a cache come out as packages of their own,
//! and PUs of two packages as neighbours.
//!
//! # Approach
//! Passing a line takes the longer the further apart two PUs are, in steps: siblings, a cache, a package, the machine.
//! Steps are where sorted latencies leave a gap, and count only if the PUs that are nearer than the gap form groups. The
//! groups replace those that are reported where both differ.
//!
//! # Terms
//! - *latency* of a pair: nanoseconds that a line takes one way.
//! - *boundary*: a gap between latencies; its *groups* are the PUs that pairs below it connect.
//!
//! # Algorithm
//! 0. Pairs whose measurements differ by more than [`STEADY`] are left out. If they are more than [`STRAY`] of all, PUs move among
//!    cores, and nothing follows.
//! 1. Every gap of [`GAP`] and more between neighbours in the sorted latencies is a candidate. It is a boundary if at
//!    most [`STRAY`] of the pairs within its groups lie above it.
//! 2. A boundary whose groups are reported as cores, last caches or packages confirms those. Of the others one is of cores
//!    if its latencies are siblings' ([`SIBLINGS_MOST`]), the next one of caches, the next of packages.
//! 3. Reported groups without a boundary are contradicted if no parts of one core, one cache or two packages can have such
//!    latencies; else they are kept.
//!
//! # Properties
//! - **Agrees**: latencies of the reported topology change nothing.      -> test `agreement_is_silent`
//! - **Finds**: other siblings, caches and packages are found.           -> test `contradictions_are_found`
//! - **Noise**: up to 20 % on every latency changes nothing.             -> test `noise_changes_nothing`
//! - **Steady**: what changes from measurement to measurement changes nothing. -> test `pus_that_move_share_what_is_reported`
//! - **Admits**: flat latencies that fit the report, and none, change nothing. -> test `flat_latencies_say_little`

use crate::cpulist::PuSet;
use crate::ids::{NodeIdx, PuNr};
use crate::machine::{CacheKind, Machine};
use crate::measured::cores_of;
use crate::parts::{CachePart, DistancePart, KindPart, NodePart, Parts};
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Least ratio of two neighbours in the sorted latencies that a boundary lies between. Chosen: parts of a machine differ
/// by 2 and more, and PUs of one part by 1.3 (a mesh of 40 cores).
pub const GAP: f64 = 1.45;
/// Up to which ratio measurements of one pair agree. Chosen: parts of a machine differ by more, and repetitions on a busy one by
/// less.
const STEADY: f64 = 1.8;
/// Share of the pairs within a boundary's groups that may lie above it: where other load hit them. Chosen.
const STRAY: f64 = 0.1;
/// Most that siblings take, in ns: the line stays in their first cache. Published for desktop processors: 4 to 7; guests of
/// slower servers take up to 20.
pub const SIBLINGS_MOST: f64 = 25.0;
/// Most that two PUs of one cache take, in ns. Published: 15 to 35 in a cache of AMD's Zen, up to 85 across Intel's meshes.
pub const CACHE_MOST: f64 = 100.0;
/// Least that two packages take, in ns. Published: 100 to 140 on Intel's, 180 to 220 on AMD's servers.
pub const PACKAGES_LEAST: f64 = 80.0;
/// Most PUs of a core: POWER has eight.
const CORE_MOST: usize = 8;

/// What passing a line between two PUs takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Two different PUs.
    pub pus: (PuNr, PuNr),
    /// One way, in nanoseconds: the least of several measurements. Above 0.
    pub ns: f64,
    /// The greatest of them.
    pub most_ns: f64,
}

impl Latency {
    /// Whether measurements agree.
    fn is_steady(&self) -> bool {
        self.most_ns <= STEADY * self.ns
    }
}

/// Which PUs share what, by report and measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// The machine with the measured groups where they differ.
    pub machine: Machine,
    /// Where both differ: one line each.
    pub disagreements: Vec<String>,
}

/// Groups of PUs, each in ascending order; every PU is in one.
type Groups = BTreeSet<BTreeSet<PuNr>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Core,
    Cache,
    Package,
}

impl Level {
    const ALL: [Self; 3] = [Self::Core, Self::Cache, Self::Package];

    const fn name(self) -> &'static str {
        ["a core", "a last cache", "a package"][self as usize]
    }
}

/// Holds `machine` as it is reported against `latencies`, which need not be of all pairs.
#[must_use]
pub fn sharing(machine: &Machine, latencies: &[Latency]) -> Sharing {
    let (steady, unsteady): (Vec<Latency>, Vec<Latency>) =
        latencies.iter().copied().partition(Latency::is_steady);
    #[allow(clippy::cast_precision_loss)] // few pairs
    let moves = unsteady.len() as f64 > STRAY * latencies.len() as f64;
    if let (true, Some(Latency { pus: (a, b), ns, most_ns })) = (moves, unsteady.first()) {
        let line = format!(
            "passing a cache line between PUs {} and {} takes {ns:.0} to {most_ns:.0} ns in repeated measurements: a \
             hypervisor moves them among cores, and the reported groups are kept",
            a.0, b.0
        );
        return Sharing { machine: machine.clone(), disagreements: vec![line] };
    }
    let mut sorted = steady;
    sorted.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    let all: BTreeSet<PuNr> = machine.pus.iter().map(|pu| pu.os).collect();
    let reported = Level::ALL.map(|level| groups_of(machine, level));
    let mut found: BTreeMap<Level, Groups> = BTreeMap::new();
    let mut others: Vec<(Groups, f64)> = Vec::new();
    for boundary in boundaries(&sorted, &all) {
        match Level::ALL.into_iter().find(|&level| reported[level as usize] == boundary.0) {
            // Caches and packages are often the same groups: one boundary confirms both.
            Some(_) => found.extend(
                Level::ALL
                    .into_iter()
                    .filter(|&it| reported[it as usize] == boundary.0)
                    .map(|level| (level, boundary.0.clone())),
            ),
            None => others.push(boundary),
        }
    }
    for (groups, within) in others {
        let small = groups.iter().all(|group| group.len() <= CORE_MOST);
        let fits = |level: &Level| match level {
            Level::Core => small && within <= SIBLINGS_MOST,
            Level::Cache => within <= CACHE_MOST,
            Level::Package => true,
        };
        let free = |level: &Level| !found.contains_key(level);
        if let Some(level) = Level::ALL.into_iter().find(|level| free(level) && fits(level)) {
            found.insert(level, groups);
        }
    }
    for level in Level::ALL {
        if !found.contains_key(&level)
            && let Some(groups) = contradicted(level, &reported[level as usize], &sorted, &all)
        {
            found.insert(level, groups);
        }
    }
    let lines = |(level, groups): (&Level, &Groups)| {
        let said = &reported[*level as usize];
        (said != groups).then(|| line(*level, said, groups, &sorted))
    };
    let mut disagreements: Vec<String> = found.iter().filter_map(lines).collect();
    if disagreements.is_empty() {
        return Sharing { machine: machine.clone(), disagreements };
    }
    let made = rebuilt(machine, &reported, &found);
    if made.is_none() {
        disagreements
            .push("no machine has all of these groups: the reported ones are kept".to_owned());
    }
    Sharing { machine: made.unwrap_or_else(|| machine.clone()), disagreements }
}

/// The groups of every boundary, finest first, with the median latency below it.
fn boundaries(sorted: &[Latency], all: &BTreeSet<PuNr>) -> Vec<(Groups, f64)> {
    let mut found: Vec<(Groups, f64)> = Vec::new();
    for cut in 1..sorted.len() {
        let (below, above) = sorted.split_at(cut);
        if above[0].ns / below[cut - 1].ns < GAP {
            continue;
        }
        let groups = connected(below, all);
        let within = |pair: &&Latency| together(&groups, pair.pus);
        let stray = above.iter().filter(within).count();
        #[allow(clippy::cast_precision_loss)] // few pairs
        let is_group = stray as f64 <= STRAY * (stray + cut) as f64;
        if is_group && groups.len() > 1 {
            let connects = |pair: &&Latency| {
                together(&groups, pair.pus)
                    && found.last().is_none_or(|(finer, _)| !together(finer, pair.pus))
            };
            let own: Vec<f64> = below.iter().filter(connects).map(|pair| pair.ns).collect();
            let within = own.get(own.len() / 2).map_or(below[cut - 1].ns, |&ns| ns);
            found.push((groups, within));
        }
    }
    found
}

/// The groups that `pairs` connect.
fn connected(pairs: &[Latency], all: &BTreeSet<PuNr>) -> Groups {
    let mut groups: Vec<BTreeSet<PuNr>> = all.iter().map(|&pu| BTreeSet::from([pu])).collect();
    for Latency { pus: (a, b), .. } in pairs {
        let touches = |group: &mut BTreeSet<PuNr>| group.contains(a) || group.contains(b);
        let joined: BTreeSet<PuNr> = groups.extract_if(.., touches).flatten().collect();
        groups.push(joined);
    }
    groups.into_iter().collect()
}

fn together(groups: &Groups, (a, b): (PuNr, PuNr)) -> bool {
    groups.iter().any(|group| group.contains(&a) && group.contains(&b))
}

/// What must be instead of `reported`, to which no boundary belongs; `None` if the latencies allow it.
fn contradicted(
    level: Level,
    reported: &Groups,
    sorted: &[Latency],
    all: &BTreeSet<PuNr>,
) -> Option<Groups> {
    let median = |within: bool| {
        let of: Vec<f64> = sorted
            .iter()
            .filter(|pair| together(reported, pair.pus) == within)
            .map(|pair| pair.ns)
            .collect();
        of.get(of.len() / 2).copied()
    };
    let alone = || all.iter().map(|&pu| BTreeSet::from([pu])).collect();
    let one = || Groups::from([all.clone()]);
    let (within, across) = (median(true), median(false));
    match level {
        Level::Core => within.filter(|&ns| ns > SIBLINGS_MOST).map(|_| alone()),
        Level::Cache => within.filter(|&ns| ns > CACHE_MOST).map(|_| alone()),
        Level::Package => across.filter(|&ns| ns < PACKAGES_LEAST).map(|_| one()),
    }
}

fn groups_of(machine: &Machine, level: Level) -> Groups {
    let os = |pu: &crate::ids::PuIdx| machine.pus[pu.idx()].os;
    match level {
        Level::Core => cores_of(machine).iter().map(|core| core.iter().collect()).collect(),
        Level::Package => {
            let pus = |core: &crate::ids::CoreIdx| machine.cores[core.idx()].pus.iter().map(os);
            machine
                .packages
                .iter()
                .map(|package| package.cores.iter().flat_map(pus).collect())
                .collect()
        }
        Level::Cache => {
            let mut groups: BTreeMap<usize, BTreeSet<PuNr>> = BTreeMap::new();
            let mut alone = Groups::new();
            for pu in machine.all_pus() {
                let of = BTreeSet::from([os(&pu)]);
                match machine.last_level_cache(pu) {
                    Some(cache) => groups.entry(cache.idx()).or_default().extend(of),
                    None => _ = alone.insert(of),
                }
            }
            alone.extend(groups.into_values());
            alone
        }
    }
}

/// `PUs 0-3 | 4-7 share a last cache by measurement (50 ns within, 150 ns across); reported: 0-7`.
fn line(level: Level, said: &Groups, groups: &Groups, sorted: &[Latency]) -> String {
    let median = |within: bool| {
        let of: Vec<f64> = sorted
            .iter()
            .filter(|pair| together(groups, pair.pus) == within)
            .map(|pair| pair.ns)
            .collect();
        of.get(of.len() / 2)
            .map(|ns| format!("{ns:.0} ns {}", if within { "within" } else { "across" }))
    };
    let times: Vec<String> = [true, false].into_iter().filter_map(median).collect();
    format!(
        "PUs that share {} by measurement: {}; reported: {}; a cache line takes {}",
        level.name(),
        text(groups),
        text(said),
        times.join(", ")
    )
}

/// `0-3 | 4-7`, `none` where every PU is alone.
fn text(groups: &Groups) -> String {
    if groups.iter().all(|group| group.len() == 1) {
        return "none".to_owned();
    }
    let list = |group: &BTreeSet<PuNr>| group.iter().copied().collect::<PuSet>().to_string();
    let mut groups: Vec<&BTreeSet<PuNr>> = groups.iter().collect();
    groups.sort();
    groups.into_iter().map(list).collect::<Vec<_>>().join(" | ")
}

/// `machine` with other groups. Caches of a core are its PUs', the last ones those of the groups of caches; their sizes
/// stay. `None` if no machine can be so, as where a measured core has PUs of two nodes.
fn rebuilt(
    machine: &Machine,
    reported: &[Groups; 3],
    found: &BTreeMap<Level, Groups>,
) -> Option<Machine> {
    let groups = |level: Level| found.get(&level).unwrap_or(&reported[level as usize]);
    let os = |pu: &crate::ids::PuIdx| machine.pus[pu.idx()].os;
    let lists =
        |groups: &Groups| groups.iter().map(|group| group.iter().copied().collect()).collect();
    let last = |level: u8| machine.caches.iter().all(|cache| cache.level <= level);
    let mut caches = Vec::new();
    let mut done: BTreeSet<(u8, CacheKind)> = BTreeSet::new();
    for cache in &machine.caches {
        let of = if last(cache.level) { Level::Cache } else { Level::Core };
        let pus: Vec<PuNr> = cache.pus.iter().map(os).collect();
        let part = |pus| CachePart {
            level: cache.level,
            kind: cache.kind,
            size: cache.size.unwrap_or(Bytes(0)),
            pus,
        };
        if groups(of) == &reported[of as usize] {
            caches.push(part(pus));
        } else if done.insert((cache.level, cache.kind)) {
            let lists: Vec<Vec<PuNr>> = lists(groups(of));
            caches.extend(lists.into_iter().map(part));
        }
    }
    let node = |(index, node): (usize, &crate::machine::Node)| NodePart {
        os: node.os,
        memory: node.memory,
        pus: node.pus.iter().map(os).collect(),
        may_be_home: machine.home_pus(NodeIdx::new(index)).next().is_some(),
    };
    let kind = |(index, kind): (usize, &crate::machine::CoreKind)| KindPart {
        pus: machine
            .pus
            .iter()
            .filter(|pu| machine.cores[pu.core.idx()].kind.idx() == index)
            .map(|pu| pu.os)
            .collect(),
        name: Some(kind.name.clone()),
        capacity: kind.capacity,
        max_frequency: kind.max_frequency,
    };
    let parts = Parts {
        name: machine.name.clone(),
        processor: machine.processor.clone(),
        pus: grouped(machine, groups(Level::Package), groups(Level::Cache), groups(Level::Core)),
        offline: machine.offline.iter().copied().collect(),
        cores: lists(groups(Level::Core)),
        packages: lists(groups(Level::Package)),
        nodes: machine.nodes.iter().enumerate().map(node).collect(),
        caches,
        kinds: machine.kinds.iter().enumerate().map(kind).collect(),
        distances: machine.distances.as_ref().map(|distances| DistancePart {
            nodes: machine.nodes.iter().map(|node| node.os).collect(),
            values: distances.rows.iter().flatten().map(|&it| it.into()).collect(),
        }),
    };
    let homeless = |it: &Machine| it.cores.iter().filter(|core| core.node.is_none()).count();
    parts.assemble().ok().filter(|found| homeless(found) <= homeless(machine))
}

/// All PUs in logical order: package by package, cache by cache, core by core.
fn grouped(machine: &Machine, packages: &Groups, caches: &Groups, cores: &Groups) -> Vec<PuNr> {
    let first = |groups: &Groups, pu: PuNr| {
        groups.iter().find(|group| group.contains(&pu)).and_then(|group| group.first().copied())
    };
    let mut pus: Vec<PuNr> = machine.pus.iter().map(|pu| pu.os).collect();
    pus.sort_by_key(|&pu| (first(packages, pu), first(caches, pu), first(cores, pu), pu));
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
        let groups = Level::ALL.map(|level| groups_of(real, level));
        let pus: Vec<PuNr> = (0..u32::try_from(real.pus.len()).unwrap()).map(PuNr).collect();
        let mut found = Vec::new();
        for (at, &a) in pus.iter().enumerate() {
            for &b in &pus[at + 1..] {
                let level = groups.iter().position(|groups| together(groups, (a, b)));
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
        for level in Level::ALL {
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
            assert_eq!(found, Sharing { machine, disagreements: vec![] });
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
            prop_assert_eq!(groups_of(&found.machine, Level::Core), groups_of(&real, Level::Core));
        }
    }
}
