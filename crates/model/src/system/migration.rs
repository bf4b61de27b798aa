//! What it costs a task to go on on another PU, or after others had its caches: its data is not there.

use super::{Model, Prediction, Seat};
use crate::cache::cold_misses;
use colocate_machine::PuIdx;
use colocate_machine::performance::Inclusion;

/// What a task loses by a move, or by a pause.
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
        self.refill(seat, from, occupancy, &[], now)
    }

    /// The same after a pause in which others have used the caches over `from`: `left` is the share of what
    /// it held that is still there, in 0 ..= 1, nearest first; all of it where `left` says nothing.
    ///
    /// What a cache has lost comes from the next one over both PUs as far as it is still there, and from
    /// memory what no cache has. Which lines are lost is taken to be chance.
    ///
    /// # Panics
    /// If a PU is not of the machine.
    #[must_use]
    pub fn refill(
        &self,
        seat: &Seat<'_>,
        from: PuIdx,
        occupancy: &[f64],
        left: &[f64],
        now: &Prediction,
    ) -> Migration {
        let (here, there) = (&self.parts.places[seat.pu.idx()], &self.parts.places[from.idx()]);
        let line = self.parts.ways[here.node][here.node].line;
        // Bytes that it held within the caches so far, that are still somewhere in them, and the share of them
        // that is found there from its new PU.
        let (mut held, mut left_of_it, mut found) = (0.0_f64, 0.0_f64, 1.0_f64);
        let (mut lines, mut seconds) = (0.0, 0.0);
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
            (held, left_of_it) = match part.inclusion {
                Inclusion::Exclusive => (held + here_held, left_of_it + still * here_held),
                Inclusion::Neither | Inclusion::Inclusive => {
                    (held.max(here_held), left_of_it.max(still * held.max(here_held)))
                }
            };
            let both = here.caches.contains(&cache);
            let share = if both && held > 0.0 { left_of_it / held } else { f64::from(both) };
            fetch(nearer, (1.0 - found) * share, part.latency / here.clock);
            found = share;
        }
        fetch(held, 1.0 - found, self.to_memory(seat, now));
        Migration { lines, seconds: seconds / seat.demand.parallel_misses.max(1.0) }
    }

    /// Seconds of an access to the task's memory, with waits.
    fn to_memory(&self, seat: &Seat<'_>, now: &Prediction) -> f64 {
        let ways = &self.parts.ways[self.parts.places[seat.pu.idx()].node];
        let (mut seconds, mut sum) = (0.0, 0.0);
        for (way, &share) in ways.iter().zip(seat.pages).filter(|(_, share)| **share > 0.0) {
            let waits = way.queues.iter().map(|&queue| now.waited(queue));
            seconds += share * (way.latency + waits.sum::<f64>());
            sum += share;
        }
        if sum > 0.0 {
            return seconds / sum;
        }
        let node = self.parts.places[seat.pu.idx()].node;
        ways[node].latency + now.waited(node)
    }
}
