//! Which caches there are, how large, who shares them, and how long an access takes.

use super::GeometryError;
use colocate_machine::performance::{Inclusion, Performance, Replacement};
use colocate_machine::{CacheKind, Hertz, Machine, PuIdx};

/// A set of caches: bit `i` is cache `i` of [`Geometry::caches`].
pub(super) type CacheSet = u128;
/// A set of PUs: bit `i` is PU `i` of the machine.
pub(super) type PuSet = u128;

/// Most caches, and most PUs, of a machine: so many bits say which have a line.
pub const MOST: usize = 128;
/// Most lines of all caches of a machine: their simulation takes 8 bytes for each. Chosen: of the largest machines in 2026,
/// with 2.3 GiB of caches, all.
pub const MOST_LINES: u64 = 1 << 26;
/// Fewest ways that a cache is given where nothing is said of them. Chosen: most caches have 8 to 20.
const FEWEST_WAYS: u64 = 8;

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheShape {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Sets, a power of two.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// How its content relates to that of nearer levels.
    pub inclusion: Inclusion,
    /// Which line it evicts.
    pub replacement: Replacement,
    /// From a load to its use, in picoseconds.
    pub latency_ps: u64,
    /// PUs that share it.
    pub pus: Vec<PuIdx>,
}

/// What data from outside of a PU's own caches takes, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// From a cache of the same package, where no cache is shared.
    pub package_ps: u64,
    /// From a cache of another package.
    pub machine_ps: u64,
    /// From memory.
    pub memory_ps: u64,
}

/// What of a machine matters for coherence.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Nearest level first.
    pub caches: Vec<CacheShape>,
    /// Bytes of a line, a power of two.
    pub line: u32,
    /// Times of what comes from elsewhere.
    pub transfers: Transfers,
    /// The core of each PU.
    pub cores: Vec<u32>,
    /// The package of each PU.
    pub packages: Vec<u32>,
}

impl Geometry {
    /// That of a machine of which the speeds are known.
    ///
    /// Where nothing is said of its ways, a cache has at least 8, as few as make the number of its sets a power of two; what is
    /// left over of its size is not used. What a transfer between caches takes is not described either: it is assumed to be the
    /// memory's latency, from another package with the longest hop between nodes.
    ///
    /// # Errors
    /// If it has more caches or PUs than [`MOST`], more lines than [`MOST_LINES`], a PU without a cache, or a cache of unknown
    /// size.
    pub fn of(machine: &Machine, speeds: &Performance) -> Result<Self, GeometryError> {
        let memory = speeds.memory.first().ok_or(GeometryError::NoMemory)?;
        let line = u32::try_from(memory.line.0).unwrap_or(0);
        let clock = speeds.kinds.first().ok_or(GeometryError::NoMemory)?.clock;
        let mut caches = Vec::new();
        for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            let size = cache.size.ok_or(GeometryError::UnknownSize { level: cache.level })?;
            let described = speeds.caches.iter().find(|it| it.level == cache.level);
            let described = described.ok_or(GeometryError::UnknownSpeed { level: cache.level })?;
            let lines = size.0 / u64::from(line.max(1));
            let sets = previous_power_of_two(lines / FEWEST_WAYS)
                .ok_or(GeometryError::TooSmall { level: cache.level, lines })?;
            let too_large = |_| GeometryError::TooLarge { level: cache.level, lines };
            caches.push(CacheShape {
                level: cache.level,
                sets: u32::try_from(sets).map_err(too_large)?,
                ways: u32::try_from(lines / sets).map_err(too_large)?,
                inclusion: described.inclusion,
                replacement: described.replacement,
                latency_ps: picoseconds(described.latency.0, clock),
                pus: cache.pus.clone(),
            });
        }
        let farthest = speeds.hops.iter().flatten().map(|hop| hop.0).max().unwrap_or(0);
        let memory_ps = memory.latency.0.saturating_mul(1000);
        let pus = || (0..).map(PuIdx).take(machine.pus.len());
        let cores = pus().map(|pu| machine.core_of(pu).0).collect();
        let package = |pu| machine.cores[machine.core_of(pu).idx()].package.0;
        let transfers = Transfers {
            package_ps: memory_ps,
            machine_ps: memory_ps.saturating_add(farthest.saturating_mul(1000)),
            memory_ps,
        };
        let packages = pus().map(package).collect();
        let found = Self { caches, line, transfers, cores, packages };
        found.check()?;
        Ok(found)
    }

    /// Checks what [`super::Coherent`] relies on.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), GeometryError> {
        let (caches, pus) = (self.caches.len(), self.packages.len());
        if caches > MOST || pus > MOST || self.cores.len() != pus {
            return Err(GeometryError::TooMany { caches, pus });
        }
        if !self.line.is_power_of_two() {
            return Err(GeometryError::Line(self.line));
        }
        let mut all_lines = 0_u64;
        for cache in &self.caches {
            let lines = u64::from(cache.sets) * u64::from(cache.ways);
            all_lines = all_lines.saturating_add(lines);
            if all_lines > MOST_LINES {
                return Err(GeometryError::TooLarge { level: cache.level, lines });
            }
            if !cache.sets.is_power_of_two() || cache.ways == 0 {
                return Err(GeometryError::TooSmall { level: cache.level, lines: 0 });
            }
        }
        for pu in (0..).map(PuIdx).take(pus) {
            let path = self.path(pu);
            if path.is_empty() {
                return Err(GeometryError::NoCache(pu));
            }
            for inner in &path {
                let shared = |outer: &usize| {
                    let outer = &self.caches[*outer].pus;
                    self.caches[*inner].pus.iter().all(|pu| outer.contains(pu))
                };
                let outer = path
                    .iter()
                    .filter(|outer| self.caches[**outer].level > self.caches[*inner].level);
                if !outer.clone().all(shared) {
                    return Err(GeometryError::NoTree { level: self.caches[*inner].level });
                }
            }
        }
        Ok(())
    }

    /// The caches that a PU's accesses pass, nearest first.
    #[must_use]
    pub fn path(&self, pu: PuIdx) -> Vec<usize> {
        let caches = self.caches.iter().enumerate();
        let mut path: Vec<usize> =
            caches.filter(|(_, cache)| cache.pus.contains(&pu)).map(|(index, _)| index).collect();
        path.sort_by_key(|index| self.caches[*index].level);
        path
    }

    /// The outermost cache that a core has for itself, for each PU: the lowest private cache level of the paper. The nearest
    /// one where several cores share even that.
    #[must_use]
    pub fn private_caches(&self) -> Vec<usize> {
        let core = |pu: &PuIdx| self.cores[pu.idx()];
        let private = |index: &usize| {
            let pus = &self.caches[*index].pus;
            pus.iter().all(|pu| core(pu) == core(&pus[0]))
        };
        let of = |pu| {
            let path = self.path(pu);
            path.iter().copied().rfind(private).unwrap_or(path[0])
        };
        (0..).map(PuIdx).take(self.packages.len()).map(of).collect()
    }

    /// The outermost cache of each PU.
    #[must_use]
    pub fn last_caches(&self) -> Vec<usize> {
        let last = |pu| self.path(pu).last().copied().unwrap_or(0);
        (0..).map(PuIdx).take(self.packages.len()).map(last).collect()
    }
}

fn previous_power_of_two(number: u64) -> Option<u64> {
    number.checked_ilog2().map(|log| 1 << log)
}

#[allow(clippy::cast_precision_loss)] // clocks are far below 2^53 Hz
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // latencies are far below 2^53 ps
fn picoseconds(cycles: f64, clock: Hertz) -> u64 {
    (cycles / clock.0 as f64 * 1e12).round().max(0.0) as u64
}
