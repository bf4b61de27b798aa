//! The coherence protocol: caches, directory and counters at each access.

use super::GeometryError;
use super::cache::{DIRTY, LineNr, SIBLINGS, SetAssociativeCache, UNIQUE, USED};
use super::detector::{DetectAt, Detector};
use super::directory::{Directory, DirectoryEntry};
use super::geometry::{CacheSet, Geometry, PuSet};
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// Treatment of a written line at a read by another cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The owner writes the line back; all copies are shared and clean.
    #[default]
    Mesi,
    /// The owner still has to write the line back.
    Moesi,
}

/// Source of an access's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// A cache of the PU's path, by its place in the path.
    Path(u8),
    /// A cache beside the path, through the shared cache at this place in the path.
    Shared(u8),
    /// A cache of the same package without a shared cache.
    Package,
    /// A cache of another package.
    Machine,
    /// Memory.
    Memory,
}

/// Counts of all accesses so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoherenceCounts {
    /// Accesses of all PUs.
    pub accesses: u64,
    /// Lookups, by place in the path.
    pub lookups: Vec<u64>,
    /// Lookups without a hit, by place in the path.
    pub misses: Vec<u64>,
    /// Copies lost to writes by other PUs, by place in the losing PUs' path.
    pub invalidations: Vec<u64>,
    /// Lines from caches beside the path: through a shared cache, from the same package, from
    /// another.
    pub transfers: [u64; 3],
    /// Lines from memory.
    pub from_memory: u64,
    /// Lines written to memory.
    pub to_memory: u64,
}

/// Coherent caches of a machine, with the detector of communication.
#[derive(Clone, Debug)]
pub struct Coherent {
    geometry: Geometry,
    protocol: Protocol,
    /// log2 of a line's bytes.
    shift: u32,
    caches: Vec<SetAssociativeCache>,
    /// By PU.
    paths: Vec<CachePath>,
    /// By cache: the caches of its PUs' paths, nearer or farther, with itself.
    lineage: Vec<CacheSet>,
    /// By cache: the next cache beyond; `None` for the outermost.
    beyond: Vec<Option<u8>>,
    /// By cache: its PUs.
    pus: Vec<PuSet>,
    /// By cache: its place in the paths of its PUs.
    depth: Vec<u8>,
    /// By PU: the caches of its path up to the detecting cache.
    inside: Vec<CacheSet>,
    directory: Directory,
    detector: Detector,
    counts: CoherenceCounts,
}

/// The caches that a PU's accesses pass.
#[derive(Clone, Debug)]
struct CachePath {
    /// Nearest cache.
    first: u8,
    /// All caches, nearest first.
    caches: Vec<u8>,
    set: CacheSet,
    /// The PU's bit among the flags of a line in the nearest cache.
    used: u64,
    /// Time until data arrives from each cache, in picoseconds.
    latencies: Vec<u64>,
}

const fn bit(cache: u8) -> CacheSet {
    1 << cache
}

/// Members of a set, lowest first.
fn members(mut set: CacheSet) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let first = u8::try_from(set.trailing_zeros()).ok().filter(|_| set != 0)?;
        set &= set - 1;
        Some(first)
    })
}

#[allow(clippy::cast_possible_truncation)] // at most MOST caches
fn path_of(geometry: &Geometry, pu: PuIdx) -> Result<CachePath, GeometryError> {
    let caches: Vec<u8> = geometry.path(pu).into_iter().map(|cache| cache as u8).collect();
    let siblings = &geometry.caches[usize::from(caches[0])].pus;
    if siblings.len() > SIBLINGS as usize {
        return Err(GeometryError(format!(
            "expected at most 8 PUs that share a nearest cache, found {}",
            siblings.len()
        )));
    }
    let at = siblings.iter().position(|other| *other == pu).unwrap_or(0);
    let set = caches.iter().fold(0, |set, cache| set | bit(*cache));
    let latencies = caches.iter().map(|cache| geometry.caches[usize::from(*cache)].latency_ps);
    let latencies = latencies.collect();
    Ok(CachePath { first: caches[0], set, used: 1 << (USED as usize + at), latencies, caches })
}

impl Coherent {
    /// Empty caches of a machine.
    ///
    /// # Errors
    /// [`GeometryError`] of [`Geometry::check`], or if more than eight PUs share a nearest cache.
    pub fn new(
        geometry: Geometry,
        protocol: Protocol,
        at: DetectAt,
    ) -> Result<Self, GeometryError> {
        geometry.check()?;
        let pus = (0..).map(PuIdx).take(geometry.packages.len());
        let paths = pus.map(|pu| path_of(&geometry, pu)).collect::<Result<Vec<CachePath>, _>>()?;
        let mut pus_of = Vec::new();
        let mut lineage = Vec::new();
        let mut beyond = Vec::new();
        let mut depth = Vec::new();
        for (index, cache) in geometry.caches.iter().enumerate() {
            pus_of.push(cache.pus.iter().fold(0, |set: PuSet, pu| set | 1 << pu.0));
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
        let inside = paths.iter().zip(&domains).map(|(path, domain)| {
            let inner = path.caches.iter().filter(|it| depth[usize::from(**it)] <= depth[*domain]);
            inner.fold(0, |set, inner| set | bit(*inner))
        });
        let inside = inside.collect();
        let zeros = vec![0; paths.iter().map(|path| path.caches.len()).max().unwrap_or(0)];
        let counts = CoherenceCounts {
            lookups: zeros.clone(),
            misses: zeros.clone(),
            invalidations: zeros,
            ..CoherenceCounts::default()
        };
        Ok(Self {
            shift: geometry.line.trailing_zeros(),
            caches: geometry.caches.iter().map(SetAssociativeCache::new).collect(),
            pus: pus_of,
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

    /// Number of PUs of the machine.
    #[must_use]
    pub fn pus(&self) -> usize {
        self.paths.len()
    }

    /// Counts of all accesses so far.
    #[must_use]
    pub fn counts(&self) -> &CoherenceCounts {
        &self.counts
    }

    /// Takes and clears the communication vector of a PU.
    pub fn take_vector(&mut self, pu: PuIdx) -> Vec<u32> {
        self.detector.take(pu)
    }

    /// Reads or writes at an address. Returns the access's latency, in picoseconds.
    #[inline]
    pub fn access(&mut self, pu: PuIdx, address: u64, writes: bool) -> u64 {
        let served = self.serve(pu, address, writes);
        self.time(pu, served)
    }

    /// Latency of data from a source, in picoseconds.
    #[must_use]
    #[inline]
    pub fn time(&self, pu: PuIdx, served: Served) -> u64 {
        let latencies = &self.paths[pu.idx()].latencies;
        match served {
            Served::Path(place) => latencies[usize::from(place)],
            // The shared cache, and the nearer one beside the path that has the line.
            Served::Shared(place) => {
                latencies[usize::from(place)] + latencies[usize::from(place.saturating_sub(1))]
            }
            Served::Package => self.geometry.transfers.package_ps,
            Served::Machine => self.geometry.transfers.machine_ps,
            Served::Memory => self.geometry.transfers.memory_ps,
        }
    }

    /// Reads or writes at an address. Returns the source of the data; for a write to a line with
    /// other copies, the source or the farthest copy, whichever is slower.
    #[inline]
    pub fn serve(&mut self, pu: PuIdx, address: u64, writes: bool) -> Served {
        // A cache's entry has 54 bits for the number; with 53 it never equals `cache::EMPTY`.
        let line = (address >> self.shift) & ((1 << 53) - 1);
        let CachePath { first, used, .. } = self.paths[pu.idx()];
        self.counts.accesses += 1;
        self.counts.lookups[0] += 1;
        // Most accesses end in this branch, without a lookup in the directory.
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

    /// Marks a cached line as used by another PU of the core.
    fn note_use(&mut self, pu: PuIdx, line: LineNr) {
        let mut entry = self.directory.get(line);
        entry.used_by |= 1 << pu.0;
        self.directory.set(line, entry);
    }

    /// Writes to a line of the nearest cache without [`UNIQUE`].
    fn upgrade(&mut self, pu: PuIdx, line: LineNr) -> Served {
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

    /// Slowest source among some caches; `None` for an empty set.
    fn farthest(&self, pu: PuIdx, caches: CacheSet) -> Option<Served> {
        members(caches)
            .map(|cache| self.distance(pu, cache))
            .max_by_key(|served| self.time(pu, *served))
    }

    /// Distance of a cache beside a PU's path.
    fn distance(&self, pu: PuIdx, cache: u8) -> Served {
        let pus = self.pus[usize::from(cache)];
        let path = &self.paths[pu.idx()].caches;
        let shared = path.iter().position(|outer| self.pus[usize::from(*outer)] & pus != 0);
        if let Some(place) = shared {
            return Served::Shared(u8::try_from(place).unwrap_or(u8::MAX));
        }
        let packages = &self.geometry.packages;
        let there = packages[pus.trailing_zeros() as usize];
        if there == packages[pu.idx()] { Served::Package } else { Served::Machine }
    }

    fn inclusion(&self, cache: u8) -> Inclusion {
        self.geometry.caches[usize::from(cache)].inclusion
    }

    /// Invalidates all copies beside a PU's path, before a write.
    fn invalidate_others(&mut self, pu: PuIdx, line: LineNr, entry: &mut DirectoryEntry) {
        self.detector.writes(pu, entry.used_by);
        let path = self.paths[pu.idx()].set;
        for other in members(entry.holders & !path) {
            self.caches[usize::from(other)].remove(line);
            self.counts.invalidations[usize::from(self.depth[usize::from(other)])] += 1;
        }
        let first = self.paths[pu.idx()].first;
        entry.holders &= path;
        entry.used_by &= self.pus[usize::from(first)];
        entry.unique = Some(first);
        entry.owner = None;
    }

    /// Fetches a line after a miss in the nearest cache. Returns as [`Self::serve`].
    fn fetch(&mut self, pu: PuIdx, line: LineNr, writes: bool) -> Served {
        let mut entry = self.directory.get(line);
        self.downgrade(line, &mut entry);
        let path_set = self.paths[pu.idx()].set;
        let depth = self.paths[pu.idx()].caches.len();
        // Caches beyond the first one with the line are not looked up.
        let found = (1..depth).find(|place| {
            self.counts.lookups[*place] += 1;
            let cache = self.paths[pu.idx()].caches[*place];
            let is_there = entry.holders & bit(cache) != 0;
            self.counts.misses[*place] += u64::from(!is_there);
            is_there
        });
        // An owner on the path is no transfer: the path serves its line.
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
        // Data from beyond the path fills all of its caches.
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

    /// Ends the right of a cache to write a line silently. A cache with a written line becomes the
    /// owner.
    fn downgrade(&mut self, line: LineNr, entry: &mut DirectoryEntry) {
        let Some(unique) = entry.unique.take() else { return };
        let Some(flags) = self.caches[usize::from(unique)].peek(line) else { return };
        if *flags & DIRTY != 0 {
            entry.owner = Some(unique);
        }
        *flags &= !(UNIQUE | DIRTY);
    }

    /// The owner writes a line back: to the nearest cache that it shares with the reader, which
    /// becomes the owner, else to memory.
    fn write_back(&mut self, pu: PuIdx, owner: u8, entry: &mut DirectoryEntry, reach: usize) {
        let shared = self.paths[pu.idx()].caches.get(reach).copied();
        let keeps = shared.filter(|shared| {
            self.lineage[usize::from(*shared)] & bit(owner) != 0
                && self.inclusion(*shared) != Inclusion::Exclusive
        });
        entry.owner = keeps;
        self.counts.to_memory += u64::from(keeps.is_none());
    }

    /// Fills the caches of the path up to the serving cache, farthest first.
    fn fill(
        &mut self,
        pu: PuIdx,
        line: LineNr,
        writes: bool,
        mut entry: DirectoryEntry,
        reach: usize,
    ) {
        let path_set = self.paths[pu.idx()].set;
        for place in (1..self.paths[pu.idx()].caches.len()).rev() {
            let cache = self.paths[pu.idx()].caches[place];
            let is_there = entry.holders & bit(cache) != 0;
            if self.inclusion(cache) == Inclusion::Exclusive {
                if is_there {
                    self.caches[usize::from(cache)].remove(line);
                    entry.holders &= !bit(cache);
                    // The line moves to the nearest cache, and its ownership with it.
                    entry.owner = entry.owner.map(|owner| {
                        if owner == cache { self.paths[pu.idx()].first } else { owner }
                    });
                }
            } else if is_there {
                self.caches[usize::from(cache)].touch(line);
            } else if place <= reach {
                entry.holders |= bit(cache);
                // An eviction can change this entry, too: it is written before, and read after.
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

    /// Handles an evicted line: writes the data to the next cache of the path or to memory.
    fn evict(&mut self, cache: u8, out: Option<(LineNr, u64)>) {
        let Some((line, flags)) = out else { return };
        let mut entry = self.directory.get(line);
        let index = usize::from(cache);
        let mut is_dirty = entry.owner == Some(cache) || flags & DIRTY != 0;
        entry.holders &= !bit(cache);
        if entry.unique == Some(cache) {
            entry.unique = None;
        }
        // Nearer caches must not have lines that an inclusive cache has lost.
        if self.inclusion(cache) == Inclusion::Inclusive {
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
        let next = self.beyond[index]
            .filter(|next| is_dirty || self.inclusion(*next) == Inclusion::Exclusive);
        match next {
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

    /// Clears the access bits lost with an evicted line.
    fn clear_access_bits(&self, cache: u8, entry: &mut DirectoryEntry) {
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

    /// Checks caches and directory against each other.
    ///
    /// # Errors
    /// A line about the first contradiction.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let mut holders = std::collections::HashMap::<LineNr, CacheSet>::new();
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
        if holders.is_empty() {
            Ok(())
        } else {
            Err("a cache has a line that the directory does not know".into())
        }
    }
}
