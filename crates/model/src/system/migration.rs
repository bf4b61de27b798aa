//! What it costs a task to go on on another PU: its data is not in the caches there.

use super::{Model, Prediction, Seat};
use crate::cache::cold_misses;
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// What a task loses by a move.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Migration {
    /// Lines that it has to fetch on top of those that it always misses.
    pub lines: f64,
    /// Seconds that it is stalled by them.
    pub seconds: f64,
}

impl Model<'_> {
    /// What the task of `seat` loses by going on there after it ran on `from`, where it held the bytes
    /// `occupancy` of each data cache, nearest first (as in [`super::TaskRate`]).
    ///
    /// It finds again what is in caches that both PUs share, and fetches the rest as it needs it: from the
    /// nearest cache that both share, or from memory if there is none, at the latencies and waits of
    /// `now`. Data that streams through is not lost. Lines that it has written come from the old cache,
    /// which is assumed to take as long. What the kernel does to move a task is not counted.
    ///
    /// # Panics
    /// If a PU is not of the machine.
    #[must_use]
    pub fn migration(
        &self,
        seat: &Seat<'_>,
        from: PuIdx,
        occupancy: &[f64],
        now: &Prediction,
    ) -> Migration {
        let (here, there) = (&self.parts.places[seat.pu.idx()], &self.parts.places[from.idx()]);
        let common = there.caches.iter().position(|cache| here.caches.contains(cache));
        let lost = &there.caches[..common.unwrap_or(there.caches.len())];
        let mut bytes = 0.0_f64;
        for (&cache, &held) in lost.iter().zip(occupancy) {
            bytes = match self.parts.caches[cache].inclusion {
                Inclusion::Exclusive => bytes + held,
                Inclusion::Neither | Inclusion::Inclusive => bytes.max(held),
            };
        }
        let line = self.parts.ways[here.node][here.node].line;
        let lines = cold_misses(&seat.demand.misses, bytes, line);
        let each = match common {
            Some(level) => self.parts.caches[there.caches[level]].latency / here.clock,
            None => self.to_memory(seat, now),
        };
        Migration { lines, seconds: lines * each / seat.demand.parallel_misses.max(1.0) }
    }

    /// Seconds of an access to the task's memory, with waits.
    fn to_memory(&self, seat: &Seat<'_>, now: &Prediction) -> f64 {
        let ways = &self.parts.ways[self.parts.places[seat.pu.idx()].node];
        let (mut seconds, mut sum) = (0.0, 0.0);
        for (way, &share) in ways.iter().zip(seat.pages).filter(|(_, share)| **share > 0.0) {
            let waits = way.queues.iter().map(|&queue| now.end.waited(queue));
            seconds += share * (way.latency + waits.sum::<f64>());
            sum += share;
        }
        if sum > 0.0 {
            return seconds / sum;
        }
        let node = self.parts.places[seat.pu.idx()].node;
        ways[node].latency + now.end.waited(node)
    }
}
