//! What happens at each access.

use super::GeometryError;
use super::cache::{Cache, DIRTY, Line, SIBLINGS, UNIQUE, USED};
use super::detector::{DetectAt, Detector};
use super::directory::{Directory, Entry};
use super::geometry::{CacheSet, Geometry, PuSet};
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// What becomes of a line that its owner has written when another cache reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// It is written back: all copies are shared and clean.
    #[default]
    Mesi,
    /// The owner stays the one that has to write it back.
    Moesi,
}

/// Where the data of an access came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From a cache of the PU's path, by its place in the path.
    Path(u8),
    /// From a cache beside the path, by way of the one with this place in the path.
    Shared(u8),
    /// From a cache of the same package with which no cache is shared.
    Package,
    /// From a cache of another package.
    Machine,
    /// From memory.
    Memory,
}

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses.
    pub accesses: u64,
    /// By place in the path: those that looked for a line there.
    pub lookups: Vec<u64>,
    /// Of these, those that did not find it.
    pub misses: Vec<u64>,
    /// By place in the path of its PUs: copies lost since another PU wrote.
    pub invalidations: Vec<u64>,
    /// From a cache beside the path, by way of a shared one, from the same package, and from another one.
    pub transfers: [u64; 3],
    /// Lines from memory.
    pub from_memory: u64,
    /// Lines written to memory.
    pub to_memory: u64,
}

/// The caches of a machine.
#[derive(Clone, Debug)]
pub struct Coherent {
    geometry: Geometry,
    protocol: Protocol,
    shift: u32,
    caches: Vec<Cache>,
    /// By PU.
    paths: Vec<Path>,
    /// By cache: all that are nearer to one of its PUs or beyond it, with itself; the next one beyond; its PUs; its place in their paths.
    lineage: Vec<CacheSet>,
    beyond: Vec<Option<u8>>,
    pus: Vec<PuSet>,
    depth: Vec<u8>,
    /// By PU: the caches of its path up to the one where communication is detected.
    inside: Vec<CacheSet>,
    directory: Directory,
    detector: Detector,
    counts: Counts,
}

/// The caches that a PU's accesses pass.
#[derive(Clone, Debug)]
struct Path {
    /// The nearest one, and all of them, nearest first.
    first: u8,
    caches: Vec<u8>,
    set: CacheSet,
    /// The PU's bit among those of the nearest one.
    used: u64,
    /// How long data takes from each of them, in picoseconds.
    latencies: Vec<u64>,
}

const fn bit(cache: u8) -> CacheSet {
    1 << cache
}

/// The members of a set, lowest first.
fn members(mut set: CacheSet) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let first = u8::try_from(set.trailing_zeros()).ok().filter(|_| set != 0)?;
        set &= set - 1;
        Some(first)
    })
}

#[allow(clippy::cast_possible_truncation)] // at most MOST caches
fn path_of(geometry: &Geometry, pu: PuIdx) -> Result<Path, GeometryError> {
    let caches: Vec<u8> = geometry.path(pu).into_iter().map(|cache| cache as u8).collect();
    let siblings = &geometry.caches[usize::from(caches[0])].pus;
    if siblings.len() > SIBLINGS as usize {
        return Err(GeometryError::TooManySiblings(siblings.len()));
    }
    let at = siblings.iter().position(|other| *other == pu).unwrap_or(0);
    let set = caches.iter().fold(0, |set, cache| set | bit(*cache));
    let latency = |cache: &u8| geometry.caches[usize::from(*cache)].latency_ps;
    let latencies = caches.iter().map(latency).collect();
    Ok(Path { first: caches[0], set, used: 1 << (USED as usize + at), latencies, caches })
}

impl Coherent {
    /// Empty caches.
    ///
    /// # Errors
    /// If [`Geometry::check`] has one, or more than eight PUs share a nearest cache.
    pub fn new(
        geometry: Geometry,
        protocol: Protocol,
        at: DetectAt,
    ) -> Result<Self, GeometryError> {
        geometry.check()?;
        let pus = || (0..).map(PuIdx).take(geometry.packages.len());
        let paths = pus().map(|pu| path_of(&geometry, pu)).collect::<Result<Vec<Path>, _>>()?;
        let set = |pus: &[PuIdx]| pus.iter().fold(0, |set: PuSet, pu| set | 1 << pu.0);
        let (mut lineage, mut beyond, mut depth) = (Vec::new(), Vec::new(), Vec::new());
        for (index, cache) in geometry.caches.iter().enumerate() {
            lineage.push(cache.pus.iter().fold(0, |set, pu| set | paths[pu.idx()].set));
            let path = cache.pus.first().map_or(&[][..], |pu| &paths[pu.idx()].caches);
            let at = path.iter().position(|other| usize::from(*other) == index).unwrap_or(0);
            beyond.push(path.get(at + 1).copied());
            depth.push(u8::try_from(at).unwrap_or(u8::MAX));
        }
        let domains = match at {
            DetectAt::PrivateCache => geometry.private_caches(),
            DetectAt::LastCache => geometry.last_caches(),
        };
        let upto = |(path, domain): (&Path, &usize)| {
            let inner = path.caches.iter().filter(|it| depth[usize::from(**it)] <= depth[*domain]);
            inner.fold(0, |set, inner| set | bit(*inner))
        };
        let inside = paths.iter().zip(&domains).map(upto).collect();
        let zeros = vec![0; paths.iter().map(|path| path.caches.len()).max().unwrap_or(0)];
        let counts = Counts {
            lookups: zeros.clone(),
            misses: zeros.clone(),
            invalidations: zeros,
            ..Counts::default()
        };
        Ok(Self {
            shift: geometry.line.trailing_zeros(),
            caches: geometry.caches.iter().map(Cache::new).collect(),
            pus: geometry.caches.iter().map(|cache| set(&cache.pus)).collect(),
            paths,
            lineage,
            beyond,
            depth,
            inside,
            directory: Directory::new(geometry.caches.len(), geometry.packages.len()),
            detector: Detector::new(at, domains),
            counts,
            protocol,
            geometry,
        })
    }

    /// PUs of the machine.
    #[must_use]
    pub fn pus(&self) -> usize {
        self.paths.len()
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The communication vector of a PU, which is cleared.
    pub fn take_vector(&mut self, pu: PuIdx) -> Vec<u32> {
        self.detector.take(pu)
    }

    /// A PU reads or writes at an address. How long it takes, in picoseconds.
    #[inline]
    pub fn access(&mut self, pu: PuIdx, address: u64, writes: bool) -> u64 {
        let served = self.serve(pu, address, writes);
        self.time(pu, served)
    }

    /// How long data takes from there, in picoseconds.
    #[must_use]
    #[inline]
    pub fn time(&self, pu: PuIdx, served: Served) -> u64 {
        let latency = |place: u8| self.paths[pu.idx()].latencies[usize::from(place)];
        match served {
            Served::Path(place) => latency(place),
            // The shared cache, and the nearer one that has it.
            Served::Shared(place) => latency(place) + latency(place.saturating_sub(1)),
            Served::Package => self.geometry.transfers.package_ps,
            Served::Machine => self.geometry.transfers.machine_ps,
            Served::Memory => self.geometry.transfers.memory_ps,
        }
    }

    /// A PU reads or writes at an address. Where the data comes from; for a write to a line that others have, where the
    /// farthest of them is.
    #[inline]
    pub fn serve(&mut self, pu: PuIdx, address: u64, writes: bool) -> Served {
        let line = (address >> self.shift) & ((1 << 53) - 1);
        let Path { first, used, .. } = self.paths[pu.idx()];
        self.counts.accesses += 1;
        self.counts.lookups[0] += 1;
        if let Some(flags) = self.caches[usize::from(first)].touch(line) {
            let may = !writes || *flags & UNIQUE != 0;
            if may && *flags & used != 0 {
                *flags |= if writes { DIRTY } else { 0 };
                return Served::Path(0);
            }
            *flags |= used;
            if may {
                *flags |= if writes { DIRTY } else { 0 };
                self.note_use(pu, line);
                return Served::Path(0);
            }
            return self.upgrade(pu, line);
        }
        self.counts.misses[0] += 1;
        self.fetch(pu, line, writes)
    }

    /// Another PU of the core uses a line that its cache has.
    fn note_use(&mut self, pu: PuIdx, line: Line) {
        let mut entry = self.directory.get(line);
        entry.used_by |= 1 << pu.0;
        self.directory.set(line, entry);
    }

    /// A write to a line that the nearest cache has, and that is not unique there.
    fn upgrade(&mut self, pu: PuIdx, line: Line) -> Served {
        let mut entry = self.directory.get(line);
        entry.used_by |= 1 << pu.0;
        let others = entry.holders & !self.paths[pu.idx()].set;
        let served = self.farthest(pu, others).unwrap_or(Served::Path(0));
        self.invalidate_others(pu, line, &mut entry);
        self.directory.set(line, entry);
        let first = usize::from(self.paths[pu.idx()].first);
        if let Some(flags) = self.caches[first].peek(line) {
            *flags |= UNIQUE | DIRTY;
        }
        served
    }

    /// Where the farthest of some caches is.
    fn farthest(&self, pu: PuIdx, caches: CacheSet) -> Option<Served> {
        members(caches)
            .map(|cache| self.distance(pu, cache))
            .max_by_key(|served| self.time(pu, *served))
    }

    /// Where a cache beside a PU's path is.
    fn distance(&self, pu: PuIdx, cache: u8) -> Served {
        let pus = self.pus[usize::from(cache)];
        let shares = |outer: &&u8| self.pus[usize::from(**outer)] & pus != 0;
        let path = &self.paths[pu.idx()].caches;
        if let Some(place) = path.iter().position(|outer| shares(&outer)) {
            return Served::Shared(u8::try_from(place).unwrap_or(u8::MAX));
        }
        let package = |pu: usize| self.geometry.packages[pu];
        let there = package(pus.trailing_zeros() as usize);
        if there == package(pu.idx()) { Served::Package } else { Served::Machine }
    }

    /// A PU is about to write: all copies beside its path are invalidated.
    fn invalidate_others(&mut self, pu: PuIdx, line: Line, entry: &mut Entry) {
        self.detector.writes(pu, entry.used_by);
        let path = self.paths[pu.idx()].set;
        for other in members(entry.holders & !path) {
            self.caches[usize::from(other)].remove(line);
            self.counts.invalidations[usize::from(self.depth[usize::from(other)])] += 1;
        }
        let first = self.paths[pu.idx()].first;
        entry.holders &= path;
        entry.used_by &= self.pus[usize::from(first)];
        (entry.unique, entry.owner) = (Some(first), None);
    }

    /// Fetches a line that the nearest cache does not have.
    fn fetch(&mut self, pu: PuIdx, line: Line, writes: bool) -> Served {
        let mut entry = self.directory.get(line);
        self.downgrade(line, &mut entry);
        let path_set = self.paths[pu.idx()].set;
        let depth = self.paths[pu.idx()].caches.len();
        let found = (1..depth).find(|place| {
            self.counts.lookups[*place] += 1;
            let cache = self.paths[pu.idx()].caches[*place];
            let is_there = entry.holders & bit(cache) != 0;
            self.counts.misses[*place] += u64::from(!is_there);
            is_there
        });
        let owner = entry.owner.filter(|owner| path_set & bit(*owner) == 0);
        let others = entry.holders & !path_set;
        let served = match (owner, found) {
            (Some(owner), _) => self.distance(pu, owner),
            #[allow(clippy::cast_possible_truncation)] // few levels
            (None, Some(place)) => Served::Path(place as u8),
            (None, None) => members(others)
                .map(|other| self.distance(pu, other))
                .filter(|served| matches!(served, Served::Shared(_)))
                .min_by_key(|served| self.time(pu, *served))
                .unwrap_or(Served::Memory),
        };
        match served {
            Served::Path(_) => {}
            Served::Shared(_) => self.counts.transfers[0] += 1,
            Served::Package => self.counts.transfers[1] += 1,
            Served::Machine => self.counts.transfers[2] += 1,
            Served::Memory => self.counts.from_memory += 1,
        }
        let reach = match served {
            Served::Path(place) | Served::Shared(place) => usize::from(place),
            _ => depth,
        };
        let farthest = if writes { self.farthest(pu, others) } else { None };
        if writes {
            self.invalidate_others(pu, line, &mut entry);
        } else if let (Some(owner), Protocol::Mesi) = (owner, self.protocol) {
            self.write_back(pu, owner, &mut entry, reach);
        }
        self.fill(pu, line, writes, entry, reach);
        match farthest {
            Some(farthest) if self.time(pu, farthest) > self.time(pu, served) => farthest,
            _ => served,
        }
    }

    /// The nearest cache that may write a line silently may not any more. If it has written, it is its owner.
    fn downgrade(&mut self, line: Line, entry: &mut Entry) {
        let Some(unique) = entry.unique.take() else { return };
        let Some(flags) = self.caches[usize::from(unique)].peek(line) else { return };
        if *flags & DIRTY != 0 {
            entry.owner = Some(unique);
        }
        *flags &= !(UNIQUE | DIRTY);
    }

    /// The owner writes a line back: the nearest cache that it shares with the reader is its owner then, or memory has it.
    fn write_back(&mut self, pu: PuIdx, owner: u8, entry: &mut Entry, reach: usize) {
        let shared = self.paths[pu.idx()].caches.get(reach).copied();
        let keeps = shared.filter(|shared| {
            self.lineage[usize::from(*shared)] & bit(owner) != 0
                && self.geometry.caches[usize::from(*shared)].inclusion != Inclusion::Exclusive
        });
        entry.owner = keeps;
        self.counts.to_memory += u64::from(keeps.is_none());
    }

    /// Fills the caches of the path up to the one that served, farthest first.
    fn fill(&mut self, pu: PuIdx, line: Line, writes: bool, mut entry: Entry, reach: usize) {
        let path_set = self.paths[pu.idx()].set;
        for place in (1..self.paths[pu.idx()].caches.len()).rev() {
            let cache = self.paths[pu.idx()].caches[place];
            let is_there = entry.holders & bit(cache) != 0;
            if self.geometry.caches[usize::from(cache)].inclusion == Inclusion::Exclusive {
                if is_there {
                    self.caches[usize::from(cache)].remove(line);
                    entry.holders &= !bit(cache);
                    // Its ownership moves, too.
                    entry.owner = entry.owner.map(|owner| {
                        if owner == cache { self.paths[pu.idx()].first } else { owner }
                    });
                }
            } else if is_there {
                self.caches[usize::from(cache)].touch(line);
            } else if place <= reach {
                entry.holders |= bit(cache);
                self.directory.set(line, entry);
                let out = self.caches[usize::from(cache)].insert(line, 0);
                self.evict(cache, out);
                entry = self.directory.get(line);
            }
        }
        let first = self.paths[pu.idx()].first;
        entry.holders |= bit(first);
        entry.used_by |= 1 << pu.0;
        let is_unique = entry.holders & !path_set == 0;
        entry.unique = is_unique.then_some(first);
        let mut flags = self.paths[pu.idx()].used;
        flags |= if is_unique { UNIQUE } else { 0 };
        flags |= if writes { DIRTY } else { 0 };
        self.directory.set(line, entry);
        let out = self.caches[usize::from(first)].insert(line, flags);
        self.evict(first, out);
    }

    /// A cache has evicted a line for another one.
    fn evict(&mut self, cache: u8, out: Option<(Line, u64)>) {
        let Some((line, flags)) = out else { return };
        let mut entry = self.directory.get(line);
        let index = usize::from(cache);
        let mut is_dirty = entry.owner == Some(cache) || flags & DIRTY != 0;
        entry.holders &= !bit(cache);
        if entry.unique == Some(cache) {
            entry.unique = None;
        }
        if self.geometry.caches[index].inclusion == Inclusion::Inclusive {
            for inner in members(entry.holders & self.lineage[index]) {
                if self.depth[usize::from(inner)] < self.depth[index] {
                    let flags = self.caches[usize::from(inner)].remove(line).unwrap_or(0);
                    is_dirty |= flags & DIRTY != 0 || entry.owner == Some(inner);
                    entry.holders &= !bit(inner);
                    entry.unique = entry.unique.filter(|unique| *unique != inner);
                }
            }
        }
        self.clear_access_bits(cache, &mut entry);
        let next = self.beyond[index];
        let takes = |next: &u8| {
            is_dirty || self.geometry.caches[usize::from(*next)].inclusion == Inclusion::Exclusive
        };
        match next.filter(takes) {
            Some(next) => {
                entry.owner = if is_dirty { Some(next) } else { entry.owner };
                let is_there = entry.holders & bit(next) != 0;
                entry.holders |= bit(next);
                self.directory.set(line, entry);
                if !is_there {
                    let out = self.caches[usize::from(next)].insert(line, 0);
                    self.evict(next, out);
                }
            }
            None => {
                if is_dirty {
                    entry.owner = None;
                    self.counts.to_memory += 1;
                }
                self.directory.set(line, entry);
            }
        }
    }

    /// Once a cache has evicted a line its access bits are lost.
    fn clear_access_bits(&self, cache: u8, entry: &mut Entry) {
        let pus = self.pus[usize::from(cache)];
        let mut left = entry.used_by & pus;
        while left != 0 {
            let pu = left.trailing_zeros();
            left &= left - 1;
            if self.inside[pu as usize] & entry.holders == 0 {
                entry.used_by &= !(1 << pu);
            }
        }
    }

    /// What has to be true at any time; else a line about what is not.
    ///
    /// # Errors
    /// What is wrong.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let mut holders = std::collections::HashMap::<Line, CacheSet>::new();
        for (index, cache) in self.caches.iter().enumerate() {
            for (line, flags) in cache.lines() {
                *holders.entry(line).or_default() |= 1 << index;
                let entry = self.directory.get(line);
                let is_unique = flags & UNIQUE != 0;
                if is_unique
                    && (usize::from(entry.unique.unwrap_or(u8::MAX)) != index
                        || entry.holders & !self.lineage[index] != 0)
                {
                    return Err(format!("cache {index}, line {line:#x}: unique, and {entry:?}"));
                }
                if flags & DIRTY != 0 && !is_unique {
                    return Err(format!("cache {index}, line {line:#x}: written, and not unique"));
                }
            }
        }
        for (line, entry) in self.directory.all() {
            if holders.remove(&line) != Some(entry.holders) {
                return Err(format!("line {line:#x}: {entry:?} is not what the caches have"));
            }
            if entry.owner.is_some_and(|owner| entry.holders & bit(owner) == 0) {
                return Err(format!("line {line:#x}: its owner does not have it: {entry:?}"));
            }
        }
        match holders.is_empty() {
            true => Ok(()),
            false => Err("a cache has a line that the directory does not know".into()),
        }
    }
}
