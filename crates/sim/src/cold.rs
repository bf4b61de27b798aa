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

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::{Bytes, described};
    use colocate_model::phase::{Guesses, Known};
    use colocate_model::{Assumptions, MissCurve, Phase};

    /// A working set of 1 MiB that stays in the L3, four misses at a time; memory takes 90 ns. To another L3:
    /// 16,384 lines. To the other core under the L3: at most the 8,192 of the L2, from 40 cycles at 2.7 GHz.
    #[test]
    fn as_far_as_the_caches_that_are_left() {
        let text = described::MACHINES[0].1;
        let machine = described::from_toml(text).unwrap().machine;
        let performance = described::performance(text).unwrap().unwrap();
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let curve = MissCurve::new([(Bytes(64), 0.1), (Bytes::mib(1), 0.0)]).unwrap();
        let phase = Phase {
            misses: Known::new(curve, "made up for a test"),
            parallel_misses: Known::new(4.0, "made up for a test"),
            ..Phase::default()
        };
        let demand = phase.on(&performance.kinds[0], &Guesses::default()).unwrap().demand;
        let held = [32.0 * 1024.0, 512.0 * 1024.0, 1024.0 * 1024.0];
        let to = |pu: u32| seconds(&platform, &demand, &held, PuIdx(0), PuIdx(pu));
        assert!(to(1) == 0.0, "siblings share all caches");
        assert!((to(4) - 16_384.0 * 90e-9 / 4.0).abs() < 1e-9, "{}", to(4));
        assert!((to(63) - to(4)).abs() < 1e-12);
        let near = to(2);
        assert!(near > 0.0 && near < 8_192.0 * 40.0 / 2.7e9 / 4.0, "{near}");
    }
}
