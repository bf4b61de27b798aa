//! Accesses of a PU one after the other.

use super::super::cache::{DIRTY, UNIQUE};
use super::super::replay::MemoryAccess;
use super::super::sets::IndexSet;
use super::{CoherentCaches, Served};
use colocate_machine::PuIdx;
use std::hint::black_box;

/// Number of accesses whose entries are read at once after a miss in all caches. Chosen: a processor
/// reads 10 to 48 lines of memory at a time.
const LOOK_AHEAD: usize = 16;

/// Makes accesses of a PU one after the other while its clock is before a time, and advances the
/// clock. Returns the number of accesses made.
pub fn run<S: IndexSet>(
    caches: &mut CoherentCaches<S>,
    pu: PuIdx,
    accesses: &[MemoryAccess],
    clock: &mut u64,
    until: u64,
    instruction_ps: u64,
) -> usize {
    let mut done = 0;
    let mut loaded = 0;
    loop {
        let hits = hits(caches, pu, &accesses[done..], clock, until, instruction_ps);
        caches.counts.accesses += hits as u64;
        done += hits;
        let Some(access) = accesses.get(done).filter(|_| *clock < until) else { return done };
        caches.counts.accesses += 1;
        done += 1;
        let served = caches.look_up(pu, caches.line(access.address), access.writes);
        *clock += u64::from(access.instructions) * instruction_ps + caches.time(pu, served);
        if served == Served::Memory && done > loaded {
            loaded = (done + LOOK_AHEAD).min(accesses.len());
            load(caches, pu, &accesses[done..loaded]);
        }
    }
}

/// Makes accesses up to the first one that changes a cache. Most accesses change nothing.
#[inline]
fn hits<S: IndexSet>(
    caches: &CoherentCaches<S>,
    pu: PuIdx,
    accesses: &[MemoryAccess],
    clock: &mut u64,
    until: u64,
    instruction_ps: u64,
) -> usize {
    let path = &caches.paths[pu.idx()];
    let nearest = &caches.caches[usize::from(path.first)].content;
    let hits = accesses.iter().position(|access| {
        let flags = path.used | if access.writes { UNIQUE | DIRTY } else { 0 };
        if *clock >= until || !nearest.is_latest(caches.line(access.address), flags) {
            return true;
        }
        *clock += u64::from(access.instructions) * instruction_ps + path.latencies[0];
        false
    });
    hits.unwrap_or(accesses.len())
}

/// Reads the entries that misses of these accesses will need: the processor waits for all of
/// them at once, and in [`CoherentCaches::fetch`] for one after the other.
fn load<S: IndexSet>(caches: &CoherentCaches<S>, pu: PuIdx, accesses: &[MemoryAccess]) {
    let path = &caches.paths[pu.idx()];
    let nearest = &caches.caches[usize::from(path.first)].content;
    let mut read = 0;
    let mut last = None;
    for line in accesses.iter().map(|access| caches.line(access.address)) {
        if last == Some(line) || nearest.is_latest(line, 0) {
            continue;
        }
        last = Some(line);
        read ^= caches.directory.load(line);
        for cache in &path.caches[1..] {
            let cache = &caches.caches[usize::from(*cache)].content;
            read ^= cache.load(line) ^ caches.directory.load(cache.next_victim(line));
        }
    }
    black_box(read);
}
