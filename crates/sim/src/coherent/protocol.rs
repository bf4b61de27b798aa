//! The coherence protocol: caches, directory and counters at each access.

use super::GeometryError;
use super::cache::{DIRTY, LineNr, SILENT, UNIQUE};
use super::detector::{DetectAt, Detector};
use super::directory::{Directory, DirectoryEntry, Slot};
use super::geometry::Geometry;
use super::sets::IndexSet;
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

mod run;
mod tree;

pub(super) use run::run;
use tree::{CachePath, CoherentCache};

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

/// Coherent caches of a machine with at most [`IndexSet::MOST`] caches and PUs.
#[derive(Clone, Debug)]
pub(super) struct CoherentCaches<S> {
    geometry: Geometry,
    protocol: Protocol,
    /// log2 of a line's bytes.
    shift: u32,
    caches: Vec<CoherentCache<S>>,
    /// By PU.
    paths: Vec<CachePath<S>>,
    directory: Directory<S>,
    detector: Detector,
    counts: CoherenceCounts,
}

impl<S: IndexSet> CoherentCaches<S> {
    /// Empty caches of a checked geometry. Refuses more than eight PUs that share a nearest cache.
    pub fn new(
        geometry: Geometry,
        protocol: Protocol,
        at: DetectAt,
    ) -> Result<Self, GeometryError> {
        let domains = match at {
            DetectAt::PrivateCache => geometry.private_caches(),
            DetectAt::LastCache => geometry.last_caches(),
        };
        let paths = (0..).map(PuIdx).zip(&domains);
        let paths = paths.map(|(pu, domain)| tree::path(&geometry, pu, *domain));
        let paths = paths.collect::<Result<Vec<CachePath<S>>, _>>()?;
        let caches = tree::caches(&geometry, &paths);
        let zeros = vec![0; paths.iter().map(|path| path.caches.len()).max().unwrap_or(0)];
        let counts = CoherenceCounts {
            misses: zeros.clone(),
            invalidations: zeros,
            ..CoherenceCounts::default()
        };
        Ok(Self {
            shift: geometry.line.trailing_zeros(),
            caches,
            paths,
            directory: Directory::new(),
            detector: Detector::new(at, domains),
            counts,
            protocol,
            geometry,
        })
    }

    /// Number of PUs of the machine.
    pub fn pus(&self) -> usize {
        self.paths.len()
    }

    /// Counts of all accesses so far.
    pub fn counts(&self) -> &CoherenceCounts {
        &self.counts
    }

    /// Takes and clears the communication vector of a PU.
    pub fn take_vector(&mut self, pu: PuIdx) -> Vec<u32> {
        self.detector.take(pu)
    }

    /// Number of an address's line.
    #[inline]
    fn line(&self, address: u64) -> LineNr {
        // A cache's entry has 53 bits for the number; with 52 it never equals `cache::EMPTY`.
        (address >> self.shift) & ((1 << 52) - 1)
    }

    /// Latency of data from a source, in picoseconds.
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
        let line = self.line(address);
        let CachePath { first, used, .. } = self.paths[pu.idx()];
        self.counts.accesses += 1;
        // Most accesses end in this branch: they change nothing.
        let flags = if writes { used | UNIQUE | DIRTY } else { used };
        if self.caches[usize::from(first)].content.is_latest(line, flags) {
            return Served::Path(0);
        }
        self.look_up(pu, line, writes)
    }

    /// Continues [`Self::serve`] for a line that is not the last used of its set, or without some
    /// flag.
    #[inline]
    fn look_up(&mut self, pu: PuIdx, line: LineNr, writes: bool) -> Served {
        let CachePath { first, used, .. } = self.paths[pu.idx()];
        let Some(flags) = self.caches[usize::from(first)].content.touch(line) else {
            self.counts.misses[0] += 1;
            return self.fetch(pu, line, writes);
        };
        let has_used = *flags & used != 0;
        *flags |= used;
        if writes && *flags & UNIQUE == 0 {
            *flags |= UNIQUE | DIRTY;
            return self.upgrade(pu, line);
        }
        *flags |= if writes { DIRTY } else { 0 };
        if !has_used {
            self.note_use(pu, line);
        }
        Served::Path(0)
    }

    /// An entry of the directory without a cache that has evicted the line silently.
    #[inline]
    fn entry(&self, line: LineNr, at: Slot) -> DirectoryEntry<S> {
        let mut entry = self.directory.get(at);
        match entry.unique {
            Some(unique) if !self.caches[usize::from(unique)].content.has(line) => {
                self.remove_holder(unique, &mut entry);
            }
            _ => {}
        }
        entry
    }

    /// Removes a cache that has lost a line from the line's holders.
    fn remove_holder(&self, cache: u8, entry: &mut DirectoryEntry<S>) {
        let CoherentCache { bit, pus, .. } = self.caches[usize::from(cache)];
        entry.holders = entry.holders & !bit;
        entry.unique = entry.unique.filter(|unique| *unique != cache);
        // Access bits are lost with the line.
        for pu in (entry.used_by & pus).members() {
            let path = &self.paths[usize::from(pu)];
            if (path.inside & entry.holders).is_empty() {
                entry.used_by = entry.used_by & !path.pu;
            }
        }
    }

    /// Marks a cached line as used by another PU of the core.
    fn note_use(&mut self, pu: PuIdx, line: LineNr) {
        let at = self.directory.find(line);
        let mut entry = self.entry(line, at);
        entry.used_by = entry.used_by | self.paths[pu.idx()].pu;
        self.directory.set(at, entry);
    }

    /// Ends the right of all other caches to a line of the nearest cache that is written.
    fn upgrade(&mut self, pu: PuIdx, line: LineNr) -> Served {
        let at = self.directory.find(line);
        let mut entry = self.entry(line, at);
        entry.used_by = entry.used_by | self.paths[pu.idx()].pu;
        let others = entry.holders & !self.paths[pu.idx()].set;
        let served = self.farthest(pu, others).unwrap_or(Served::Path(0));
        self.invalidate_others(pu, line, &mut entry);
        self.directory.set(at, entry);
        served
    }

    /// Slowest source among some caches; `None` for an empty set.
    fn farthest(&self, pu: PuIdx, caches: S) -> Option<Served> {
        caches
            .members()
            .map(|cache| self.distance(pu, cache))
            .max_by_key(|served| self.time(pu, *served))
    }

    /// Distance of a cache beside a PU's path.
    fn distance(&self, pu: PuIdx, cache: u8) -> Served {
        let pus = self.caches[usize::from(cache)].pus;
        let path = &self.paths[pu.idx()].caches;
        let shared =
            path.iter().position(|outer| !(self.caches[usize::from(*outer)].pus & pus).is_empty());
        if let Some(place) = shared {
            return Served::Shared(u8::try_from(place).unwrap_or(u8::MAX));
        }
        let packages = &self.geometry.packages;
        let there = packages[usize::from(pus.lowest().unwrap_or(0))];
        if there == packages[pu.idx()] { Served::Package } else { Served::Machine }
    }

    /// Whether a cache is a member of a set.
    fn is_in(&self, cache: u8, set: S) -> bool {
        !(set & self.caches[usize::from(cache)].bit).is_empty()
    }

    fn inclusion(&self, cache: u8) -> Inclusion {
        self.caches[usize::from(cache)].inclusion
    }

    /// Invalidates all copies beside a PU's path, before a write.
    fn invalidate_others(&mut self, pu: PuIdx, line: LineNr, entry: &mut DirectoryEntry<S>) {
        self.detector.writes(pu, entry.used_by);
        let path = self.paths[pu.idx()].set;
        for other in (entry.holders & !path).members() {
            let other = &mut self.caches[usize::from(other)];
            other.content.remove(line);
            self.counts.invalidations[usize::from(other.depth)] += 1;
        }
        let first = self.paths[pu.idx()].first;
        entry.holders = entry.holders & path;
        entry.used_by = entry.used_by & self.caches[usize::from(first)].pus;
        entry.unique = Some(first);
        entry.owner = None;
    }

    /// Fetches a line after a miss in the nearest cache. Returns as [`Self::serve`].
    #[inline(never)] // so that the loop over hits stays small
    fn fetch(&mut self, pu: PuIdx, line: LineNr, writes: bool) -> Served {
        let at = self.directory.find_or_insert(line);
        if !writes && self.is_private(pu, self.directory.get(at)) {
            return self.fetch_private(pu, line, at);
        }
        let mut entry = self.entry(line, at);
        self.downgrade(line, &mut entry);
        let path_set = self.paths[pu.idx()].set;
        let depth = self.paths[pu.idx()].caches.len();
        // Caches beyond the first one with the line are not looked up.
        let found = (1..depth).find(|place| {
            let cache = self.paths[pu.idx()].caches[*place];
            let is_there = self.is_in(cache, entry.holders);
            self.counts.misses[*place] += u64::from(!is_there);
            is_there
        });
        let others = entry.holders & !path_set;
        // An owner on the path is no transfer: the path serves its line.
        let owner = entry.owner.filter(|owner| self.is_in(*owner, others));
        let served = match (owner, found) {
            (Some(owner), _) => self.distance(pu, owner),
            #[allow(clippy::cast_possible_truncation)] // few levels
            (None, Some(place)) => Served::Path(place as u8),
            (None, None) if others.is_empty() => Served::Memory,
            (None, None) => self.nearest_shared(pu, others),
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
        self.fill(pu, line, writes, at, entry, reach);
        match farthest {
            Some(farthest) if self.time(pu, farthest) > self.time(pu, served) => farthest,
            _ => served,
        }
    }

    /// Whether the second cache of a path has a line, and no cache or PU beside the path.
    fn is_private(&self, pu: PuIdx, entry: DirectoryEntry<S>) -> bool {
        let path = &self.paths[pu.idx()];
        let has_second = !(entry.holders & path.second).is_empty();
        has_second && (entry.holders & !path.set | entry.used_by & !path.pu).is_empty()
    }

    /// Does the same as [`Self::fetch`] for reads of private lines, in fewer steps: most misses.
    fn fetch_private(&mut self, pu: PuIdx, line: LineNr, at: Slot) -> Served {
        let path = &self.paths[pu.idx()];
        let mut entry = self.directory.get(at);
        for cache in &path.caches[1..] {
            let cache = &mut self.caches[usize::from(*cache)];
            if !(entry.holders & cache.bit).is_empty() {
                cache.content.touch(line);
            }
        }
        let first = path.first;
        let nearest = &mut self.caches[usize::from(first)];
        entry.holders = entry.holders | nearest.bit;
        entry.used_by = path.pu;
        entry.unique = Some(first);
        self.directory.set(at, entry);
        let out = nearest.content.insert(line, path.used | UNIQUE | SILENT);
        self.evict(first, out);
        Served::Path(1)
    }

    /// The nearest of some caches that share a cache with the path; memory if none does.
    fn nearest_shared(&self, pu: PuIdx, caches: S) -> Served {
        caches
            .members()
            .map(|cache| self.distance(pu, cache))
            .filter(|served| matches!(served, Served::Shared(_)))
            .min_by_key(|served| self.time(pu, *served))
            .unwrap_or(Served::Memory)
    }

    /// Ends the right of a cache to write a line silently. A cache with a written line becomes the
    /// owner.
    fn downgrade(&mut self, line: LineNr, entry: &mut DirectoryEntry<S>) {
        let Some(unique) = entry.unique.take() else { return };
        let Some(flags) = self.caches[usize::from(unique)].content.peek(line) else { return };
        if *flags & DIRTY != 0 {
            entry.owner = Some(unique);
        }
        *flags &= !(UNIQUE | DIRTY | SILENT);
    }

    /// The owner writes a line back: to the nearest cache that it shares with the reader, which
    /// becomes the owner, else to memory.
    fn write_back(&mut self, pu: PuIdx, owner: u8, entry: &mut DirectoryEntry<S>, reach: usize) {
        let shared = self.paths[pu.idx()].caches.get(reach).copied();
        let keeps = shared.filter(|shared| {
            self.is_in(owner, self.caches[usize::from(*shared)].lineage)
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
        at: Slot,
        mut entry: DirectoryEntry<S>,
        reach: usize,
    ) {
        let path = &self.paths[pu.idx()];
        let first = path.first;
        let before = entry.holders;
        // An eviction can change this entry, too, so it is complete before all of them.
        for (place, index) in path.caches.iter().enumerate() {
            let cache = &self.caches[usize::from(*index)];
            if cache.inclusion == Inclusion::Exclusive && place > 0 {
                entry.holders = entry.holders & !cache.bit;
                // The line moves to the nearest cache, and its ownership with it.
                if entry.owner == Some(*index) {
                    entry.owner = Some(first);
                }
            } else if place <= reach {
                entry.holders = entry.holders | cache.bit;
            }
        }
        entry.used_by = entry.used_by | path.pu;
        // Not before the nearest cache has the line: else it looks evicted.
        entry.unique = None;
        self.directory.set(at, entry);
        for place in (1..self.paths[pu.idx()].caches.len()).rev() {
            let index = self.paths[pu.idx()].caches[place];
            let is_there = self.is_in(index, before);
            let cache = &mut self.caches[usize::from(index)];
            if cache.inclusion == Inclusion::Exclusive {
                if is_there {
                    cache.content.remove(line);
                }
            } else if is_there {
                cache.content.touch(line);
            } else if place <= reach {
                let out = cache.content.insert(line, 0);
                self.evict(index, out);
            }
        }
        let flags = self.new_flags(pu, writes, at);
        let out = self.caches[usize::from(first)].content.insert(line, flags);
        self.evict(first, out);
    }

    /// Flags of a line to be inserted in the nearest cache. Makes the line unique if it is in no
    /// cache beside the path.
    fn new_flags(&mut self, pu: PuIdx, writes: bool, at: Slot) -> u64 {
        let path = &self.paths[pu.idx()];
        let first = path.first;
        let mut flags = path.used | if writes { DIRTY } else { 0 };
        let mut entry = self.directory.get(at);
        if (entry.holders & !path.set).is_empty() {
            flags |= UNIQUE;
            let has_second = !(entry.holders & path.second).is_empty();
            if has_second && entry.owner != Some(first) {
                flags |= SILENT;
            }
            entry.unique = Some(first);
            self.directory.set(at, entry);
        }
        flags
    }

    /// Handles an evicted line.
    #[inline]
    fn evict(&mut self, cache: u8, out: Option<(LineNr, u64)>) {
        match out {
            Some((line, flags)) if flags & (SILENT | DIRTY) != SILENT => {
                self.write_victim(cache, line, flags);
            }
            _ => {}
        }
    }

    /// Writes an evicted line's data to the next cache of the path or to memory.
    fn write_victim(&mut self, cache: u8, line: LineNr, flags: u64) {
        let at = self.directory.find(line);
        let mut entry = self.entry(line, at);
        let CoherentCache { inclusion, lineage, beyond, depth, .. } =
            self.caches[usize::from(cache)];
        let mut is_dirty = entry.owner == Some(cache) || flags & DIRTY != 0;
        // Nearer caches must not have lines that an inclusive cache has lost.
        if inclusion == Inclusion::Inclusive {
            for inner in (entry.holders & lineage).members() {
                let nearer = &mut self.caches[usize::from(inner)];
                if nearer.depth < depth {
                    let flags = nearer.content.remove(line).unwrap_or(0);
                    is_dirty |= flags & DIRTY != 0 || entry.owner == Some(inner);
                    self.remove_holder(inner, &mut entry);
                }
            }
        }
        self.remove_holder(cache, &mut entry);
        if let Some(unique) = entry.unique {
            // The nearest cache may be the last one with the line.
            let flags = self.caches[usize::from(unique)].content.peek(line);
            flags.into_iter().for_each(|flags| *flags &= !SILENT);
        }
        let next = beyond.filter(|next| is_dirty || self.inclusion(*next) == Inclusion::Exclusive);
        let Some(next) = next else {
            if is_dirty {
                entry.owner = None;
                self.counts.to_memory += 1;
            }
            self.directory.set(at, entry);
            return;
        };
        entry.owner = if is_dirty { Some(next) } else { entry.owner };
        let is_there = self.is_in(next, entry.holders);
        entry.holders = entry.holders | self.caches[usize::from(next)].bit;
        self.directory.set(at, entry);
        if !is_there {
            let out = self.caches[usize::from(next)].content.insert(line, 0);
            self.evict(next, out);
        }
    }

    /// Checks caches and directory against each other.
    ///
    /// # Errors
    /// A line about the first contradiction.
    pub fn check(&self) -> Result<(), String> {
        let mut holders = std::collections::HashMap::<LineNr, S>::new();
        for (index, cache) in self.caches.iter().enumerate() {
            for (line, flags) in cache.content.lines() {
                let found = holders.entry(line).or_default();
                *found = *found | cache.bit;
                let entry = self.entry(line, self.directory.find(line));
                let is_unique = flags & UNIQUE != 0;
                if is_unique
                    && (usize::from(entry.unique.unwrap_or(u8::MAX)) != index
                        || !(entry.holders & !cache.lineage).is_empty())
                {
                    return Err(format!("cache {index}, line {line:#x}: unique, and {entry:?}"));
                }
                if flags & DIRTY != 0 && !is_unique {
                    return Err(format!("cache {index}, line {line:#x}: written, and not unique"));
                }
            }
        }
        for (line, _) in self.directory.all() {
            let entry = self.entry(line, self.directory.find(line));
            if holders.remove(&line) != Some(entry.holders) {
                return Err(format!("line {line:#x}: {entry:?} is not what the caches have"));
            }
            if entry.owner.is_some_and(|owner| !self.is_in(owner, entry.holders)) {
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
