//! What a move costs: the caches that a task comes to hold nothing of it.
//!
//! Lines that it would have hit come from farther away once more. How many these are is
//! [`cold_misses`] of what it held in the largest cache that it leaves; each takes as long as an access
//! to the nearest cache that is over both PUs, or to memory, by as many as are under way at a time.

use crate::platform::Platform;
use colocate_machine::{CacheKind, PuIdx};
use colocate_model::cache::cold_misses;
use colocate_model::phase::Demand;

/// Seconds that a task loses by a move, which held `occupancy` bytes of the data caches over `from`, nearest
/// first. `far` is the part of its memory that is on other nodes than `to`'s.
pub(crate) fn seconds(
    platform: &Platform<'_>,
    demand: &Demand,
    occupancy: &[f64],
    from: PuIdx,
    to: PuIdx,
) -> f64 {
    let machine = platform.machine();
    let over = |cache: &&colocate_machine::Cache| {
        cache.kind != CacheKind::Instruction && cache.pus.contains(&from)
    };
    let mut left = 0.0_f64;
    let mut source = None;
    for (cache, &held) in machine.caches.iter().filter(over).zip(occupancy) {
        if cache.pus.contains(&to) {
            source = Some(cache.level);
            break;
        }
        left = left.max(held);
    }
    let performance = platform.performance();
    let node = platform.node_of(to).unwrap_or(0);
    let memory = &performance.memory[node];
    let latency_of = |level: u8| performance.caches.iter().find(|cache| cache.level == level);
    let latency = match source.and_then(latency_of) {
        Some(cache) => cache.latency.0 / platform.clock_of(to),
        None => memory.latency.as_secs_f64(),
    };
    #[allow(clippy::cast_precision_loss)] // a line is small
    let lines = cold_misses(&demand.misses, left, memory.line.0 as f64);
    lines * latency * platform.assumptions().latency / demand.parallel_misses.max(1.0)
}
