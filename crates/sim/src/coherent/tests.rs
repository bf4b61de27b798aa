//! Protocols by hand, the paper's examples, and a plain model beside ours.

use super::patterns::{Pattern, Synthetic};
use super::replay::{CommunicationMapping, Fixed, Replayed, ThreadMapping, Timing, replay, task};
use super::*;
use colocate_evidence::TaskId;
use colocate_machine::performance::{Inclusion, Replacement};
use colocate_machine::{Machine, PuIdx, described};
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::UsableMachine;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Packages of two L2 caches, each of two cores with an L1 and so many PUs; with a third level a cache for each package.
#[derive(Clone, Copy, Debug)]
struct Small {
    packages: u32,
    siblings: u32,
    /// Of the second and the third level.
    outer: [Option<Inclusion>; 2],
    random: bool,
}

impl Small {
    const PLAIN: Self =
        Self { packages: 2, siblings: 1, outer: [Some(Inclusion::Neither), None], random: false };

    fn geometry(self) -> Geometry {
        let pus = self.packages * 4 * self.siblings;
        let shape = |level, sets, ways, inclusion, first: u32, pus: u32| CacheShape {
            level,
            sets,
            ways,
            inclusion,
            replacement: if self.random { Replacement::Random } else { Replacement::Lru },
            latency_ps: 1000 * u64::from(level).pow(3),
            pus: (first..first + pus).map(PuIdx).collect(),
        };
        let mut caches = Vec::new();
        let mut level = |level, sets, ways, inclusion, each: u32| {
            let all = (0..pus / each).map(|n| shape(level, sets, ways, inclusion, n * each, each));
            caches.extend(all);
        };
        level(1, 2, 2, Inclusion::Neither, self.siblings);
        if let Some(inclusion) = self.outer[0] {
            level(2, 4, 3, inclusion, 2 * self.siblings);
        }
        if let Some(inclusion) = self.outer[1] {
            level(3, 4, 4, inclusion, 4 * self.siblings);
        }
        Geometry {
            caches,
            line: 64,
            transfers: Transfers { package_ps: 50_000, machine_ps: 90_000, memory_ps: 80_000 },
            cores: (0..pus).map(|pu| pu / self.siblings).collect(),
            packages: (0..pus).map(|pu| pu / (4 * self.siblings)).collect(),
        }
    }

    fn coherent(self, protocol: Protocol, at: DetectAt) -> Coherent {
        Coherent::new(self.geometry(), protocol, at).unwrap()
    }
}

fn read(caches: &mut Coherent, pu: u32) -> Served {
    caches.serve(PuIdx(pu), 0x1000, false)
}

fn write(caches: &mut Coherent, pu: u32) -> Served {
    caches.serve(PuIdx(pu), 0x1000, true)
}

/// PUs 0 and 1 share an L2, 2 is in the same package, 4 in the other one.
#[test]
fn mesi_by_hand() {
    let mut caches = Small::PLAIN.coherent(Protocol::Mesi, DetectAt::PrivateCache);
    assert_eq!(read(&mut caches, 0), Served::Memory, "I to E");
    assert_eq!(write(&mut caches, 0), Served::Path(0), "E to M, silently");
    assert_eq!(read(&mut caches, 1), Served::Shared(1), "M to S, written back to the L2");
    assert_eq!((read(&mut caches, 0), read(&mut caches, 1)), (Served::Path(0), Served::Path(0)));
    assert_eq!(read(&mut caches, 4), Served::Machine, "the L2 owns it");
    assert_eq!(caches.counts().to_memory, 1);
    assert_eq!(read(&mut caches, 2), Served::Memory, "memory has the same, and no shared cache");
    assert_eq!(caches.counts().invalidations, [0, 0]);
    assert_eq!(write(&mut caches, 1), Served::Machine, "S to M, and as far as PU 4");
    // The L1 of 0, 2 and 4, and the L2 of 2 and 4.
    assert_eq!(caches.counts().invalidations, [3, 2]);
    assert_eq!(write(&mut caches, 1), Served::Path(0));
    assert_eq!(write(&mut caches, 2), Served::Package, "M to I");
    assert_eq!(caches.counts().invalidations, [4, 3]);
    assert_eq!(caches.counts().to_memory, 1, "what is written goes along");
    assert_eq!(caches.counts().transfers, [1, 1, 1]);
    assert_eq!(caches.counts().from_memory, 2);
    caches.check().unwrap();
}

/// The owner serves all that read, and nothing is written back.
#[test]
fn moesi_by_hand() {
    let mut caches = Small::PLAIN.coherent(Protocol::Moesi, DetectAt::PrivateCache);
    write(&mut caches, 0);
    assert_eq!(read(&mut caches, 1), Served::Shared(1), "M to O");
    assert_eq!(read(&mut caches, 2), Served::Package, "the L1 of PU 0 has it");
    assert_eq!(read(&mut caches, 4), Served::Machine);
    assert_eq!(caches.counts().to_memory, 0);
    assert_eq!(write(&mut caches, 0), Served::Machine, "O to M");
    // The L1 of 1, 2 and 4, and the L2 of 2 and 4.
    assert_eq!(caches.counts().invalidations, [3, 2]);
    assert_eq!(read(&mut caches, 4), Served::Machine);
    assert_eq!(write(&mut caches, 4), Served::Machine, "the owner loses it to one that shares it");
    assert_eq!(caches.counts().to_memory, 0);
    caches.check().unwrap();
}

/// Cores 2, 5 and 6 have a line, and core 5 writes it.
#[test]
fn example_of_3_2() {
    let mut caches = Small::PLAIN.coherent(Protocol::Mesi, DetectAt::PrivateCache);
    for pu in [2, 5, 6] {
        read(&mut caches, pu);
    }
    write(&mut caches, 5);
    for pu in 0..8 {
        let mut expected = vec![0; 8];
        expected[5] = u32::from([2, 6].contains(&pu));
        assert_eq!(caches.take_vector(PuIdx(pu)), expected, "of core {pu}");
        assert_eq!(caches.take_vector(PuIdx(pu)), [0; 8], "it was cleared");
    }
}

/// Four cores share a last cache. Cores 0, 1, 3 and 5 have used a line, and core 6 writes it.
#[test]
fn example_of_3_3_2() {
    let small = Small { outer: [None, Some(Inclusion::Inclusive)], ..Small::PLAIN };
    let mut caches = small.coherent(Protocol::Mesi, DetectAt::LastCache);
    for pu in [0, 1, 3, 5] {
        read(&mut caches, pu);
    }
    write(&mut caches, 6);
    for pu in 0..8 {
        let mut expected = vec![0; 8];
        expected[6] = u32::from([0, 1, 3, 5].contains(&pu));
        assert_eq!(caches.take_vector(PuIdx(pu)), expected, "of core {pu}");
    }
}

/// Two PUs of a core have used a line: both vectors count the writer, by its PU (sections 3.3.1 and 3.3.3).
#[test]
fn siblings_have_vectors_of_their_own() {
    let small = Small { siblings: 2, ..Small::PLAIN };
    let mut caches = small.coherent(Protocol::Mesi, DetectAt::PrivateCache);
    read(&mut caches, 0);
    assert_eq!(read(&mut caches, 1), Served::Path(0), "they share the cache");
    write(&mut caches, 9);
    write(&mut caches, 8);
    let vector = |caches: &mut Coherent, pu| caches.take_vector(PuIdx(pu));
    for pu in [0, 1] {
        let mut expected = vec![0; 16];
        expected[9] = 1;
        assert_eq!(vector(&mut caches, pu), expected);
    }
    assert_eq!(vector(&mut caches, 9), [0; 16], "its sibling wrote to the same cache");
}

/// Counters of 32 bits stay at their largest value.
#[test]
fn counters_saturate() {
    let mut detector = detector::Detector::new(DetectAt::PrivateCache, vec![0, 1]);
    detector.vectors_mut()[1] = u32::MAX - 1;
    (0..3).for_each(|_| detector.writes(PuIdx(1), 0b01_u32));
    assert_eq!(detector.take(PuIdx(0)), [0, u32::MAX]);
}

/// A line that the private cache has evicted does not count any more.
#[test]
fn what_was_evicted_does_not_count() {
    let mut caches = Small::PLAIN.coherent(Protocol::Mesi, DetectAt::PrivateCache);
    read(&mut caches, 0);
    // Two more of the same set of the L1.
    caches.serve(PuIdx(0), 0x2000, false);
    caches.serve(PuIdx(0), 0x3000, false);
    write(&mut caches, 4);
    assert_eq!(caches.take_vector(PuIdx(0)), [0; 8]);
    assert_eq!(caches.counts().invalidations, [0, 1], "the L2 had it");
}

#[test]
fn machines_that_cannot_be_simulated() {
    let with = |change: fn(&mut Geometry)| {
        let mut geometry = Small::PLAIN.geometry();
        change(&mut geometry);
        geometry.check().unwrap_err().to_string()
    };
    assert_eq!(with(|it| it.line = 48), "expected lines of a power of two of bytes, found 48");
    let removed = with(|it| it.caches.retain(|cache| !cache.pus.contains(&PuIdx(3))));
    assert_eq!(removed, "expected a cache for each PU, found none for PU 3");
    let crossing = with(|it| it.caches[0].pus = vec![PuIdx(0), PuIdx(2)]);
    assert_eq!(
        crossing,
        "expected caches that form a tree: PUs that share an L1 do not share all caches beyond it"
    );
}

/// Its simulation would take all memory.
#[test]
fn caches_of_a_terabyte_are_refused() {
    let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "xeon-e5405").unwrap();
    let exact = described::from_toml(text).unwrap();
    let refused = |bytes: u64| {
        let mut machine = exact.machine.clone();
        machine.caches.last_mut().unwrap().size = Some(colocate_machine::Bytes(bytes));
        Geometry::of(&machine, exact.performance.as_ref().unwrap()).err().map(|why| why.to_string())
    };
    let expected = "expected caches of at most 67108864 lines together (4 GiB with lines of 64 bytes), found L2 with";
    for (bytes, lines) in [(2 << 40, 1_u64 << 35), (1 << 50, 1 << 44), (4 << 30, 1 << 26)] {
        assert_eq!(refused(bytes), Some(format!("{expected} {lines} lines")));
    }
    assert_eq!(refused(3 << 30), None);
}

/// The machine of the paper.
fn e5405() -> (Machine, Geometry) {
    let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "xeon-e5405").unwrap();
    let exact = described::from_toml(text).unwrap();
    let geometry = Geometry::of(&exact.machine, exact.performance.as_ref().unwrap()).unwrap();
    (exact.machine, geometry)
}

fn run(
    pattern: Pattern,
    iterations: u32,
    mapping: &mut dyn ThreadMapping,
) -> (Replayed, CoherenceCounts, Synthetic) {
    let (_, geometry) = e5405();
    let mut caches = Coherent::new(geometry, Protocol::Mesi, DetectAt::PrivateCache).unwrap();
    let mut program = Synthetic::new(pattern, 8, iterations);
    let replayed = replay(&mut caches, &mut program, mapping, Timing::default());
    caches.check().unwrap();
    (replayed, caches.counts().clone(), program)
}

/// By the places of `machines/xeon-e5405.toml` two PUs that follow each other share an L2. In order the pairs of even
/// phases share one; `apart` shares none in either phase.
fn in_order() -> Vec<PuIdx> {
    (0..8).map(PuIdx).collect()
}

fn apart() -> Vec<PuIdx> {
    [0, 4, 2, 6, 3, 7, 1, 5].map(PuIdx).to_vec()
}

/// Knows the phases.
struct Oracle {
    barriers: u32,
    phase: u32,
}

impl Oracle {
    fn places(&self) -> Vec<PuIdx> {
        let is_even = (self.barriers / (2 * self.phase)).is_multiple_of(2);
        if is_even { in_order() } else { [0, 2, 4, 6, 1, 3, 5, 7].map(PuIdx).to_vec() }
    }
}

impl ThreadMapping for Oracle {
    fn first(&mut self) -> Vec<PuIdx> {
        self.places()
    }

    fn decide(&mut self, _new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        self.barriers += 1;
        Some(live.iter().copied().zip(self.places()).collect())
    }
}

/// Four phases: the pipeline loses a few iterations at the beginning of each, as in the paper.
#[test]
fn producers_and_consumers() {
    let (machine, _) = e5405();
    let phase = 200;
    let pattern = Pattern::ProducerConsumer { phase };
    let places = UsableMachine::new(&machine, &in_order());
    let mut followed =
        CommunicationMapping { first: apart(), places, pipeline: Pipeline::default() };
    let (kernel, kernel_counts, _) = run(pattern, 4 * phase, &mut Fixed(apart()));
    let (found, found_counts, _) = run(pattern, 4 * phase, &mut followed);
    let (known, known_counts, _) = run(pattern, 4 * phase, &mut Oracle { barriers: 0, phase });
    let part = |of: u64, all: u64| of as f64 / all as f64;
    let [time, misses, invalidations] = [
        part(found.time_ps, kernel.time_ps),
        part(found_counts.misses[1], kernel_counts.misses[1]),
        part(found_counts.invalidations[1], kernel_counts.invalidations[1]),
    ];
    assert!(time < 0.2 && misses < 0.06 && invalidations < 0.06, "{time} {misses} {invalidations}");
    assert!(known.time_ps < found.time_ps && known_counts.misses[1] < found_counts.misses[1]);
    assert!((4..=12).contains(&found.migrations), "{}", found.migrations);
}

/// Pearson's correlation of two matrices over all pairs of eight threads.
fn correlation(a: &Matrix, b: &Matrix) -> f64 {
    let pairs: Vec<(f64, f64)> = (0..8)
        .flat_map(|x| (x + 1..8).map(move |y| (task(x), task(y))))
        .map(|(x, y)| (a.between(x, y), b.between(x, y)))
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let (ma, mb) = (mean(|it| it.0), mean(|it| it.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(a, b)| of(a - ma, b - mb)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

#[test]
fn patterns_are_detected() {
    let uneven = [
        Pattern::ProducerConsumer { phase: 10 },
        Pattern::Stencil,
        Pattern::Ring,
        Pattern::Reduction,
        Pattern::MasterWorker,
    ];
    for pattern in uneven {
        let (found, _, program) = run(pattern, 40, &mut Fixed(apart()));
        let correlation = correlation(&found.detected, &program.truth());
        assert!(correlation > 0.95, "{pattern:?}: {correlation}");
    }
    let (found, ..) = run(Pattern::None, 40, &mut Fixed(apart()));
    assert_eq!(found.detected, Matrix::default());
    let (found, ..) = run(Pattern::AllToAll, 40, &mut Fixed(apart()));
    let amounts: Vec<f64> = found.detected.pairs().map(|(_, amount)| amount).collect();
    assert_eq!(amounts.len(), 28, "all pairs");
    let (least, most) = (
        amounts.iter().fold(f64::MAX, |a, b| a.min(*b)),
        amounts.iter().fold(0.0, |a: f64, b| a.max(*b)),
    );
    assert!(least > 0.8 * most, "{least} to {most}: they communicate alike");
}

/// A copy of a line in a cache of the plain model.
#[derive(Clone, Copy, Debug)]
struct Held {
    line: u64,
    last_use: u64,
    /// How many writes it has seen.
    version: u64,
    /// It has to be written back.
    owned: bool,
    /// It may be written silently.
    unique: bool,
}

/// The same protocol without a directory: each step looks at all caches, and each copy has a version.
struct Plain {
    geometry: Geometry,
    protocol: Protocol,
    caches: Vec<Vec<Held>>,
    memory: HashMap<u64, u64>,
    latest: HashMap<u64, u64>,
    /// Lines with the PUs that have used them, since they came into the private cache.
    used: BTreeSet<(u64, u32)>,
    domains: Vec<usize>,
    counts_neighbours: bool,
    vectors: Vec<Vec<u32>>,
    invalidations: u64,
    clock: u64,
}

impl Plain {
    fn new(geometry: Geometry, protocol: Protocol, at: DetectAt) -> Self {
        let domains = match at {
            DetectAt::PrivateCache => geometry.private_caches(),
            DetectAt::LastCache => geometry.last_caches(),
        };
        let pus = domains.len();
        Self {
            caches: vec![Vec::new(); geometry.caches.len()],
            protocol,
            memory: HashMap::new(),
            latest: HashMap::new(),
            used: BTreeSet::new(),
            domains,
            counts_neighbours: at == DetectAt::LastCache,
            vectors: vec![vec![0; pus]; pus],
            invalidations: 0,
            clock: 0,
            geometry,
        }
    }

    fn copy(&mut self, cache: usize, line: u64) -> Option<&mut Held> {
        self.caches[cache].iter_mut().find(|copy| copy.line == line)
    }

    fn holders(&self, line: u64) -> Vec<usize> {
        let has = |cache: &usize| self.caches[*cache].iter().any(|copy| copy.line == line);
        (0..self.caches.len()).filter(has).collect()
    }

    /// The owner, of which there is one beside the nearest cache that writes.
    fn own(&mut self, line: u64, owner: Option<usize>) {
        for cache in 0..self.caches.len() {
            if let Some(copy) = self.copy(cache, line).filter(|copy| !copy.unique) {
                copy.owned = Some(cache) == owner;
            }
        }
    }

    fn access(&mut self, pu: u32, line: u64, writes: bool) -> Served {
        let path = self.geometry.path(PuIdx(pu));
        let has: Vec<usize> = self.holders(line);
        let found = path.iter().position(|cache| has.contains(cache));
        let nearest = *self.latest.get(&line).unwrap_or(&0);
        if found == Some(0) {
            let last_use = self.tick();
            let copy = self.copy(path[0], line).unwrap();
            copy.last_use = last_use;
            assert_eq!(copy.version, nearest, "a stale read");
        }
        let beside: Vec<usize> = has.iter().copied().filter(|it| !path.contains(it)).collect();
        let served = match found {
            Some(0) if writes => self.upgrade(pu, line, &path, &beside),
            Some(0) => Served::Path(0),
            _ => self.fetch(pu, line, &path, found, &beside, writes),
        };
        self.used.insert((line, pu));
        if writes {
            self.latest.insert(line, nearest + 1);
            let copy = self.copy(path[0], line).unwrap();
            (copy.version, copy.owned, copy.unique) = (nearest + 1, true, true);
        }
        served
    }

    fn upgrade(&mut self, pu: u32, line: u64, path: &[usize], beside: &[usize]) -> Served {
        // A line that is unique is written unseen.
        if self.copy(path[0], line).unwrap().unique {
            return Served::Path(0);
        }
        let far = beside.iter().map(|it| self.distance(pu, *it));
        let far = far.max_by_key(|far| self.time(path, *far)).unwrap_or(Served::Path(0));
        self.invalidate_others(pu, line, path, beside);
        far
    }

    fn fetch(
        &mut self,
        pu: u32,
        line: u64,
        path: &[usize],
        found: Option<usize>,
        beside: &[usize],
        writes: bool,
    ) -> Served {
        let owner = self.holders(line).into_iter().find(|it| self.copy(*it, line).unwrap().owned);
        self.caches
            .iter_mut()
            .flatten()
            .filter(|copy| copy.line == line)
            .for_each(|copy| copy.unique = false);
        self.own(line, owner);
        let owner_beside = owner.filter(|owner| !path.contains(owner));
        let near = beside.iter().map(|other| self.distance(pu, *other));
        let near = near.filter(|served| matches!(served, Served::Shared(_)));
        let near = near.min_by_key(|served| self.time(path, *served));
        let mut served = match (owner_beside, found) {
            (Some(owner), _) => self.distance(pu, owner),
            (None, Some(place)) => Served::Path(u8::try_from(place).unwrap()),
            (None, None) => near.unwrap_or(Served::Memory),
        };
        // Where the latest version is.
        let source = owner.or(found.map(|place| path[place])).or(beside.first().copied());
        let in_memory = self.memory.get(&line).copied().unwrap_or(0);
        let version = source.map_or(in_memory, |cache| self.copy(cache, line).unwrap().version);
        assert_eq!(version, *self.latest.get(&line).unwrap_or(&0), "a stale read");
        let reach = match served {
            Served::Path(place) | Served::Shared(place) => usize::from(place),
            _ => path.len(),
        };
        let mut keeps = None;
        if writes {
            let far = beside.iter().map(|it| self.distance(pu, *it));
            let far = far.max_by_key(|far| self.time(path, *far));
            served =
                far.filter(|far| self.time(path, *far) > self.time(path, served)).unwrap_or(served);
            self.invalidate_others(pu, line, path, beside);
        } else if let (Some(owner), Protocol::Mesi) = (owner_beside, self.protocol) {
            let inclusion = |it: usize| self.geometry.caches[it].inclusion;
            keeps = path.get(reach).copied().filter(|it| inclusion(*it) != Inclusion::Exclusive);
            self.own(line, None);
            // What the data passes has it.
            let level = |cache: usize| self.geometry.caches[cache].level;
            let last = keeps.map_or(u8::MAX, level);
            let passed: Vec<usize> = self.geometry.path(self.geometry.caches[owner].pus[0]);
            for cache in passed.into_iter().filter(|it| level(*it) <= last).collect::<Vec<_>>() {
                if let Some(copy) = self.copy(cache, line) {
                    (copy.version, copy.owned) = (version, Some(cache) == keeps);
                }
            }
            if keeps.is_none() {
                self.memory.insert(line, version);
            }
        }
        self.fill_path(path, line, version, reach, keeps);
        served
    }

    fn time(&self, path: &[usize], served: Served) -> u64 {
        let latency = |place: u8| self.geometry.caches[path[usize::from(place)]].latency_ps;
        match served {
            Served::Path(place) => latency(place),
            Served::Shared(place) => latency(place) + latency(place.saturating_sub(1)),
            Served::Package => self.geometry.transfers.package_ps,
            Served::Machine => self.geometry.transfers.machine_ps,
            Served::Memory => self.geometry.transfers.memory_ps,
        }
    }

    fn distance(&self, pu: u32, cache: usize) -> Served {
        let path = self.geometry.path(PuIdx(pu));
        let there = self.geometry.caches[cache].pus[0];
        let shared = path.iter().position(|it| self.geometry.caches[*it].pus.contains(&there));
        match shared {
            Some(place) => Served::Shared(u8::try_from(place).unwrap()),
            None if self.geometry.packages[there.idx()] == self.geometry.packages[pu as usize] => {
                Served::Package
            }
            None => Served::Machine,
        }
    }

    fn invalidate_others(&mut self, pu: u32, line: u64, path: &[usize], beside: &[usize]) {
        for (_, user) in self.used.clone().into_iter().filter(|it| it.0 == line && it.1 != pu) {
            let is_neighbour = self.domains[user as usize] == self.domains[pu as usize];
            if self.counts_neighbours || !is_neighbour {
                self.vectors[user as usize][pu as usize] += 1;
            }
        }
        let siblings = self.geometry.caches[path[0]].pus.clone();
        self.used.retain(|it| it.0 != line || siblings.contains(&PuIdx(it.1)));
        for cache in beside {
            self.caches[*cache].retain(|copy| copy.line != line);
            self.invalidations += 1;
        }
        self.own(line, None);
    }

    fn fill_path(
        &mut self,
        path: &[usize],
        line: u64,
        version: u64,
        reach: usize,
        keeps: Option<usize>,
    ) {
        let mut owned = false;
        for place in (1..path.len()).rev() {
            let cache = path[place];
            let last_use = self.tick();
            if self.geometry.caches[cache].inclusion == Inclusion::Exclusive {
                owned |= self.copy(cache, line).is_some_and(|copy| copy.owned);
                self.caches[cache].retain(|copy| copy.line != line);
            } else if let Some(copy) = self.copy(cache, line) {
                copy.last_use = last_use;
            } else if place <= reach {
                self.fill(cache, line, version, keeps == Some(cache));
            }
        }
        self.fill(path[0], line, version, owned);
        let is_unique = self.holders(line).iter().all(|cache| path.contains(cache));
        if let Some(copy) = self.copy(path[0], line) {
            copy.unique = is_unique;
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn fill(&mut self, cache: usize, line: u64, version: u64, owned: bool) {
        let last_use = self.tick();
        let shape = &self.geometry.caches[cache];
        let set = |line: u64| line % u64::from(shape.sets);
        let in_set = self.caches[cache].iter().filter(|copy| set(copy.line) == set(line));
        let full = in_set.clone().count() >= shape.ways as usize;
        let out = in_set.min_by_key(|copy| copy.last_use).filter(|_| full).copied();
        self.caches[cache].retain(|copy| Some(copy.line) != out.map(|out| out.line));
        self.caches[cache].push(Held { line, last_use, version, owned, unique: false });
        if let Some(out) = out {
            self.evict(cache, out);
        }
    }

    fn evict(&mut self, cache: usize, mut out: Held) {
        let shape = self.geometry.caches[cache].clone();
        if shape.inclusion == Inclusion::Inclusive {
            for inner in 0..self.caches.len() {
                let other = &self.geometry.caches[inner];
                let is_nearer = other.level < shape.level && shape.pus.contains(&other.pus[0]);
                let Some(copy) = self.copy(inner, out.line).filter(|_| is_nearer).copied() else {
                    continue;
                };
                out.owned |= copy.owned;
                out.version = out.version.max(copy.version);
                self.caches[inner].retain(|it| it.line != out.line);
            }
        }
        let line = out.line;
        for pu in &shape.pus {
            let domain = self.geometry.caches[self.domains[pu.idx()]].level;
            let path = self.geometry.path(*pu);
            let mut inside = path.iter().filter(|it| self.geometry.caches[**it].level <= domain);
            if !inside.any(|it| self.caches[*it].iter().any(|copy| copy.line == line)) {
                self.used.retain(|it| *it != (line, pu.0));
            }
        }
        let next = self
            .geometry
            .path(shape.pus[0])
            .into_iter()
            .find(|it| self.geometry.caches[*it].level > shape.level);
        match next {
            Some(next)
                if out.owned || self.geometry.caches[next].inclusion == Inclusion::Exclusive =>
            {
                if out.owned {
                    self.own(line, None);
                }
                match self.copy(next, line) {
                    Some(copy) if out.owned => (copy.owned, copy.version) = (true, out.version),
                    Some(_) => {}
                    None => self.fill(next, line, out.version, out.owned),
                }
            }
            None if out.owned => {
                self.memory.insert(line, out.version);
            }
            _ => {}
        }
    }
}

fn small() -> impl Strategy<Value = Small> {
    let inclusion = || {
        prop::sample::select(vec![Inclusion::Inclusive, Inclusion::Neither, Inclusion::Exclusive])
    };
    let outer = (prop::option::of(inclusion()), prop::option::of(inclusion()));
    (1..=2_u32, 1..=2_u32, outer).prop_map(|(packages, siblings, outer)| Small {
        packages,
        siblings,
        outer: [outer.0, outer.1],
        random: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any accesses on any such machine: each is served from where the plain model has it, which never reads an old version, and
    /// lines that are there, invalidations and communication vectors are the same.
    #[test]
    fn as_the_plain_model(
        small in small(),
        moesi in any::<bool>(),
        last in any::<bool>(),
        accesses in prop::collection::vec((0_u32..16, 0_u64..24, prop::bool::weighted(0.3)), 1..400),
    ) {
        let geometry = small.geometry();
        let protocol = if moesi { Protocol::Moesi } else { Protocol::Mesi };
        let at = if last { DetectAt::LastCache } else { DetectAt::PrivateCache };
        let pus = u32::try_from(geometry.packages.len()).unwrap();
        let mut plain = Plain::new(geometry.clone(), protocol, at);
        let mut ours = Coherent::new(geometry, protocol, at).unwrap();
        for (number, (pu, line, writes)) in accesses.into_iter().enumerate() {
            let pu = pu % pus;
            let expected = plain.access(pu, line, writes);
            prop_assert_eq!(ours.serve(PuIdx(pu), line * 64, writes), expected, "access {}", number);
            prop_assert_eq!(ours.check(), Ok(()), "access {}", number);
        }
        prop_assert_eq!(ours.counts().invalidations.iter().sum::<u64>(), plain.invalidations);
        for pu in 0..pus {
            prop_assert_eq!(&ours.take_vector(PuIdx(pu)), &plain.vectors[pu as usize]);
        }
    }

    /// With lines evicted at random nothing that has to be true is lost either.
    #[test]
    fn stays_consistent(
        small in small(),
        moesi in any::<bool>(),
        accesses in prop::collection::vec((0_u32..16, 0_u64..60, any::<bool>()), 1..400),
    ) {
        let geometry = Small { random: true, ..small }.geometry();
        let pus = u32::try_from(geometry.packages.len()).unwrap();
        let protocol = if moesi { Protocol::Moesi } else { Protocol::Mesi };
        let mut caches = Coherent::new(geometry, protocol, DetectAt::LastCache).unwrap();
        for (pu, line, writes) in accesses {
            caches.serve(PuIdx(pu % pus), line * 64, writes);
            prop_assert_eq!(caches.check(), Ok(()));
        }
    }
}
