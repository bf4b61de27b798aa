//! Caches of a machine: size, sharing PUs, and the time of an access.

use super::GeometryError;
use colocate_machine::performance::{Inclusion, Performance, Replacement};
use colocate_machine::{Cache, CacheKind, Hertz, Machine, PuIdx};

/// Most caches, and most PUs, of a machine: the width of the widest sets of both.
pub const MOST: usize = 128;
/// Most lines of all caches of a machine: each takes 8 bytes of the simulation. Chosen: enough for
/// all caches of the largest machines in 2026, with 2.3 GiB.
pub const MOST_LINES: u64 = 1 << 26;
/// Fewest ways of a cache whose associativity is not described. Chosen: most caches have 8 to 20.
const FEWEST_WAYS: u64 = 8;

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheShape {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Sets, a power of two.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// Relation of its content to nearer levels.
    pub inclusion: Inclusion,
    /// Replacement policy of a set's lines.
    pub replacement: Replacement,
    /// Time from a load to its use, in picoseconds.
    pub latency_ps: u64,
    /// PUs sharing the cache.
    pub pus: Vec<PuIdx>,
}

/// Latencies of data from outside of a PU's own caches, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// From a cache of the same package, where no cache is shared.
    pub package_ps: u64,
    /// From a cache of another package.
    pub machine_ps: u64,
    /// From memory.
    pub memory_ps: u64,
}

/// Properties of a machine for coherence.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Caches, nearest level first.
    pub caches: Vec<CacheShape>,
    /// Bytes of a line, a power of two.
    pub line: u32,
    /// Latencies of data from other caches and memory.
    pub transfers: Transfers,
    /// The core of each PU.
    pub cores: Vec<u32>,
    /// The package of each PU.
    pub packages: Vec<u32>,
}

impl Geometry {
    /// Geometry of a machine with known speeds.
    ///
    /// A cache without described associativity has the fewest ways, 8 or more, with a power of two
    /// of sets; the rest of its size is not used. The latency of transfers between caches is not
    /// described either: the memory's is assumed, from another package with the longest hop between
    /// nodes.
    ///
    /// # Errors
    /// [`GeometryError`] if the machine has more caches or PUs than [`MOST`], more lines than
    /// [`MOST_LINES`], a PU without a cache, or a cache of unknown size.
    pub fn of(machine: &Machine, speeds: &Performance) -> Result<Self, GeometryError> {
        let memory = speeds.memory.first().ok_or_else(no_memory)?;
        // `check` refuses 0.
        let line = u32::try_from(memory.line.0).unwrap_or(0);
        // Cycles of all caches are taken to be those of the first kind of core.
        let clock = speeds.kinds.first().ok_or_else(no_memory)?.clock;
        let mut caches = Vec::new();
        for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            caches.push(shape(cache, speeds, line, clock)?);
        }
        let farthest = speeds.hops.iter().flatten().map(|hop| hop.0).max().unwrap_or(0);
        // Latencies of memory and hops are in nanoseconds.
        let memory_ps = memory.latency.0.saturating_mul(1000);
        let transfers = Transfers {
            package_ps: memory_ps,
            machine_ps: memory_ps.saturating_add(farthest.saturating_mul(1000)),
            memory_ps,
        };
        let cores = machine.all_pus().map(|pu| machine.core_of(pu).0).collect();
        let packages =
            machine.all_pus().map(|pu| machine.cores[machine.core_of(pu).idx()].package.0);
        let found = Self { caches, line, transfers, cores, packages: packages.collect() };
        found.check()?;
        Ok(found)
    }

    /// Checks the requirements of [`super::Coherent`].
    ///
    /// # Errors
    /// [`GeometryError`] with the first violation.
    pub fn check(&self) -> Result<(), GeometryError> {
        let caches = self.caches.len();
        let pus = self.packages.len();
        if caches > MOST || pus > MOST || self.cores.len() != pus {
            return refuse(format!(
                "expected at most {MOST} caches and PUs, found {caches} and {pus}"
            ));
        }
        if !self.line.is_power_of_two() {
            let found = self.line;
            return refuse(format!("expected lines of a power of two of bytes, found {found}"));
        }
        let mut all_lines = 0_u64;
        for cache in &self.caches {
            let lines = u64::from(cache.sets) * u64::from(cache.ways);
            all_lines = all_lines.saturating_add(lines);
            if all_lines > MOST_LINES {
                return Err(too_large(cache.level, lines));
            }
            if !cache.sets.is_power_of_two() || cache.ways == 0 {
                return Err(too_small(cache.level, 0));
            }
        }
        for pu in (0..).map(PuIdx).take(pus) {
            let path = self.path(pu);
            if path.is_empty() {
                return refuse(format!("expected a cache for each PU, found none for PU {}", pu.0));
            }
            for (at, inner) in path.iter().map(|cache| &self.caches[*cache]).enumerate() {
                let outer = path[at..].iter().map(|cache| &self.caches[*cache]);
                let mut beyond = outer.filter(|outer| outer.level > inner.level);
                if !beyond.all(|outer| inner.pus.iter().all(|pu| outer.pus.contains(pu))) {
                    return refuse(format!(
                        "expected caches that form a tree: PUs that share an L{} do not share all caches beyond it",
                        inner.level
                    ));
                }
            }
        }
        Ok(())
    }

    /// Caches that a PU's accesses pass, nearest first.
    #[must_use]
    pub fn path(&self, pu: PuIdx) -> Vec<usize> {
        let caches = self.caches.iter().enumerate();
        let mut path: Vec<usize> =
            caches.filter(|(_, cache)| cache.pus.contains(&pu)).map(|(index, _)| index).collect();
        path.sort_by_key(|index| self.caches[*index].level);
        path
    }

    /// For each PU the outermost private cache of its core: the lowest private cache level of the
    /// paper. The nearest cache if several cores share even the nearest.
    #[must_use]
    pub fn private_caches(&self) -> Vec<usize> {
        let private = (0..).map(PuIdx).take(self.packages.len()).map(|pu| {
            let path = self.path(pu);
            path.iter().copied().rfind(|&cache| self.is_private(cache)).unwrap_or(path[0])
        });
        private.collect()
    }

    /// Whether all PUs of a cache are of the same core.
    fn is_private(&self, cache: usize) -> bool {
        let pus = &self.caches[cache].pus;
        pus.iter().all(|pu| self.cores[pu.idx()] == self.cores[pus[0].idx()])
    }

    /// For each PU the outermost cache.
    #[must_use]
    pub fn last_caches(&self) -> Vec<usize> {
        let pus = (0..).map(PuIdx).take(self.packages.len());
        pus.map(|pu| self.path(pu).last().copied().unwrap_or(0)).collect()
    }
}

/// Shape of a cache with lines of this many bytes, on cores with this clock.
fn shape(
    cache: &Cache,
    speeds: &Performance,
    line: u32,
    clock: Hertz,
) -> Result<CacheShape, GeometryError> {
    let level = cache.level;
    let size = cache.size.ok_or_else(|| unknown("size", level))?;
    let described = speeds.caches.iter().find(|described| described.level == level);
    let described = described.ok_or_else(|| unknown("latency", level))?;
    let lines = size.0 / u64::from(line.max(1));
    let sets = previous_power_of_two(lines / FEWEST_WAYS).ok_or_else(|| too_small(level, lines))?;
    Ok(CacheShape {
        level,
        sets: u32::try_from(sets).map_err(|_| too_large(level, lines))?,
        ways: u32::try_from(lines / sets).map_err(|_| too_large(level, lines))?,
        inclusion: described.inclusion,
        replacement: described.replacement,
        latency_ps: picoseconds(described.latency.0, clock),
        pus: cache.pus.clone(),
    })
}

fn refuse(line: String) -> Result<(), GeometryError> {
    Err(GeometryError(line))
}

fn no_memory() -> GeometryError {
    let line = "expected how fast the machine is, found no memory in its description";
    GeometryError(line.to_owned())
}

fn unknown(figure: &str, level: u8) -> GeometryError {
    GeometryError(format!("expected the {figure} of each cache, found none for L{level}"))
}

/// The error of a cache with fewer than 8 lines, or with wrong sets or ways, for which `lines` is 0.
fn too_small(level: u8, lines: u64) -> GeometryError {
    GeometryError(format!(
        "expected caches of 8 lines and more with a power of two of sets, found L{level} with {lines} lines"
    ))
}

/// The error of the first cache above the bound.
fn too_large(level: u8, lines: u64) -> GeometryError {
    GeometryError(format!(
        "expected caches of at most {MOST_LINES} lines together (4 GiB with lines of 64 bytes), found L{level} with {lines} lines"
    ))
}

fn previous_power_of_two(number: u64) -> Option<u64> {
    number.checked_ilog2().map(|log| 1 << log)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // latencies are far below 2^53 ps
fn picoseconds(cycles: f64, clock: Hertz) -> u64 {
    (cycles / clock.0 as f64 * 1e12).round().max(0.0) as u64
}
