//! The tree of a machine's caches: their places among each other, and the path of each PU.

use super::super::GeometryError;
use super::super::cache::{SIBLINGS, SetAssociativeCache, USED};
use super::super::geometry::Geometry;
use super::super::sets::IndexSet;
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// A cache and its place among the others.
#[derive(Clone, Debug)]
pub(super) struct CoherentCache<S> {
    pub content: SetAssociativeCache,
    /// The set of only this cache.
    pub bit: S,
    pub inclusion: Inclusion,
    /// Its PUs.
    pub pus: S,
    /// The caches of its PUs' paths, nearer or farther, with itself.
    pub lineage: S,
    /// The next cache beyond; `None` for the outermost.
    pub beyond: Option<u8>,
    /// Its place in the paths of its PUs.
    pub depth: u8,
}

/// The caches that a PU's accesses pass.
#[derive(Clone, Debug)]
pub(super) struct CachePath<S> {
    /// Nearest cache.
    pub first: u8,
    /// All caches, nearest first.
    pub caches: Vec<u8>,
    /// The set of only this PU.
    pub pu: S,
    pub set: S,
    /// The caches up to the detecting cache.
    pub inside: S,
    /// The set of only the second cache; the empty set without one, or with an exclusive cache.
    pub second: S,
    /// The PU's bit among the flags of a line in the nearest cache.
    pub used: u64,
    /// Time until data arrives from each cache, in picoseconds.
    pub latencies: Vec<u64>,
}

fn set_of<S: IndexSet>(numbers: impl IntoIterator<Item = u8>) -> S {
    numbers.into_iter().fold(S::default(), |set, number| set | S::only(number))
}

#[allow(clippy::cast_possible_truncation)] // at most MOST
fn set_of_pus<S: IndexSet>(pus: &[PuIdx]) -> S {
    set_of(pus.iter().map(|pu| pu.0 as u8))
}

/// Path of a PU. Refuses more than eight PUs that share a nearest cache. `domain` is the detecting
/// cache.
#[allow(clippy::cast_possible_truncation)] // at most MOST caches
pub(super) fn path<S: IndexSet>(
    geometry: &Geometry,
    pu: PuIdx,
    domain: usize,
) -> Result<CachePath<S>, GeometryError> {
    let caches: Vec<u8> = geometry.path(pu).into_iter().map(|cache| cache as u8).collect();
    let siblings = &geometry.caches[usize::from(caches[0])].pus;
    if siblings.len() > SIBLINGS as usize {
        return Err(GeometryError(format!(
            "expected at most 8 PUs that share a nearest cache, found {}",
            siblings.len()
        )));
    }
    let at = siblings.iter().position(|other| *other == pu).unwrap_or(0);
    let set = set_of(caches.iter().copied());
    let inner = caches.iter().position(|cache| usize::from(*cache) == domain).unwrap_or(0);
    let inside = set_of(caches[..=inner].iter().copied());
    let latencies = caches.iter().map(|cache| geometry.caches[usize::from(*cache)].latency_ps);
    let latencies = latencies.collect();
    let inclusion = |cache: &u8| geometry.caches[usize::from(*cache)].inclusion;
    let has_exclusive = caches[1..].iter().any(|cache| inclusion(cache) == Inclusion::Exclusive);
    let second = caches.get(1).copied().filter(|_| !has_exclusive);
    Ok(CachePath {
        first: caches[0],
        pu: set_of_pus(&[pu]),
        set,
        inside,
        second: set_of(second),
        used: 1 << (USED as usize + at),
        latencies,
        caches,
    })
}

/// Empty caches of a machine.
pub(super) fn caches<S: IndexSet>(
    geometry: &Geometry,
    paths: &[CachePath<S>],
) -> Vec<CoherentCache<S>> {
    let caches = geometry.caches.iter().enumerate().map(|(index, shape)| {
        let path = shape.pus.first().map_or(&[][..], |pu| &paths[pu.idx()].caches);
        let at = path.iter().position(|other| usize::from(*other) == index).unwrap_or(0);
        CoherentCache {
            content: SetAssociativeCache::new(shape),
            inclusion: shape.inclusion,
            bit: set_of(u8::try_from(index)),
            pus: set_of_pus(&shape.pus),
            lineage: shape.pus.iter().fold(S::default(), |set, pu| set | paths[pu.idx()].set),
            beyond: path.get(at + 1).copied(),
            depth: u8::try_from(at).unwrap_or(u8::MAX),
        }
    });
    caches.collect()
}
