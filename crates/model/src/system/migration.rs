//! Cost of a migration, or of a pause in which others used the caches: cold misses.

use super::{Model, PlacedTask, Prediction};
use crate::cache::cold_misses;
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// Loss of a task by a migration or a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Migration {
    /// Lines fetched in addition to the misses of a warm cache.
    pub lines: f64,
    /// Stall time for these lines, in seconds.
    pub seconds: f64,
}

impl Model<'_> {
    /// Loss of the task of `seat` after it ran on `from`, with the occupancy `occupancy`, in bytes,
    /// of each data cache there, nearest first (as in [`super::TaskRate`]). After a pause in which
    /// others used these caches, `left` is the share of the task's data still there, in 0 ..= 1,
    /// nearest first; 1 where `left` has no entry.
    ///
    /// Data in caches of both PUs is found again. The rest is fetched on demand: from the nearest
    /// cache of both PUs that still has it, or from memory if there is none, at the latencies and
    /// waits of `now`. Streaming data is not lost. Lines modified by the task come from the old
    /// cache, which is assumed to take as long; lines lost in a pause are assumed random. The
    /// kernel's work for the migration is not included.
    ///
    /// # Panics
    /// If a PU is not of the machine.
    #[must_use]
    pub fn refill(
        &self,
        seat: &PlacedTask<'_>,
        from: PuIdx,
        occupancy: &[f64],
        left: &[f64],
        now: &Prediction,
    ) -> Migration {
        let here = &self.parts.places[seat.pu.idx()];
        let there = &self.parts.places[from.idx()];
        let line = self.parts.ways[here.node][here.node].line;
        // Bytes held in the caches so far, those of them still in a cache, and the share found from
        // the new PU.
        let mut held = 0.0_f64;
        let mut left_of_it = 0.0_f64;
        let mut found = 1.0_f64;
        let mut lines = 0.0;
        let mut seconds = 0.0;
        let mut fetch = |bytes: f64, share: f64, each: f64| {
            if share > 0.0 {
                let fetched = cold_misses(&seat.demand.misses, bytes, line) * share;
                lines += fetched;
                seconds += fetched * each;
            }
        };
        for (level, (&cache, &here_held)) in there.caches.iter().zip(occupancy).enumerate() {
            let part = &self.parts.caches[cache];
            let still = left.get(level).copied().unwrap_or(1.0);
            let nearer = held;
            match part.inclusion {
                Inclusion::Exclusive => {
                    held += here_held;
                    left_of_it += still * here_held;
                }
                // This cache may hold the content of nearer caches too: the larger counts.
                Inclusion::Neither | Inclusion::Inclusive => {
                    held = held.max(here_held);
                    left_of_it = left_of_it.max(still * held);
                }
            }
            // Only caches above both PUs still have the data after the migration.
            let both = here.caches.contains(&cache);
            // Nothing held is found entirely or not at all; the quotient would be 0 / 0.
            let share = if both && held > 0.0 { left_of_it / held } else { f64::from(both) };
            // Nearer caches have lost these lines, and this cache is the first to have them.
            fetch(nearer, (1.0 - found) * share, part.latency / here.clock);
            found = share;
        }
        fetch(held, 1.0 - found, self.to_memory(seat, now));
        // Misses outstanding at the same time wait together.
        Migration { lines, seconds: seconds / seat.demand.parallel_misses.max(1.0) }
    }

    /// Time of an access to the task's memory, in seconds, with waits.
    fn to_memory(&self, seat: &PlacedTask<'_>, now: &Prediction) -> f64 {
        let ways = &self.parts.ways[self.parts.places[seat.pu.idx()].node];
        let mut seconds = 0.0;
        let mut sum = 0.0;
        for (way, &share) in ways.iter().zip(seat.pages).filter(|(_, share)| **share > 0.0) {
            let waits = way.queues.iter().map(|&queue| now.waited(queue));
            seconds += share * (way.latency + waits.sum::<f64>());
            sum += share;
        }
        if sum > 0.0 {
            return seconds / sum;
        }
        // Without a page map all accesses are local, as in the search.
        let node = self.parts.places[seat.pu.idx()].node;
        ways[node].latency + now.waited(node)
    }
}
