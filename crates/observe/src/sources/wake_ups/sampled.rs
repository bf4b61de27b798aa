//! Wake-ups sampled by perf events at the tracepoint `sched:sched_waking`.
//!
//! # Problem
//! Without an eBPF program nothing is summed up in the kernel, and a busy server has too many wake-ups to record each.
//! # Approach
//! One event on each PU takes a limited number of samples a second, of all threads that run there. The kernel says how many wake-ups
//! come between two samples ([`Stream`]). The data of a sample names the woken thread. Its waker is the thread that ran, unless an
//! interrupt has come.
//!
//! Events of the watched threads alone would not do: they show no wake-ups by others, and the kernel reports a wake-up to
//! those of the woken thread as well, or not, by its version. Between threads of a process it swaps events, so a reader cannot
//! tell whose event a sample is from.
//! # Limits
//! A pair that has few of a PU's wake-ups may have no sample. Where and when woken threads run is unknown: that takes a sample of
//! `sched_switch` for each of `sched_waking`.
//!
//! Privilege: `CAP_PERFMON`, or a `perf_event_paranoid` of -1; a tracefs that may be read, which is as a rule root's.

use super::Pair;
use crate::perf::{Attr, Rings, Traced, Tracepoint, TracepointError};
use crate::sys::SysError;
use colocate_machine::{Nanos, PuNr};
use colocate_policy::source::Backend;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use thiserror::Error;

/// Samples a second on each PU. Chosen: each costs about a microsecond, so a thousandth of a PU.
const RATE_HZ: u64 = 1_000;

/// Pages of a ring, on each PU. Chosen: 2,520 samples of 104 bytes, as many as in 2.5 s. Rings are read once a second or more often.
const RING_PAGES: usize = 64;

/// Where tracefs is mounted (the kernel's Documentation/trace/ftrace.rst); the second one by debugfs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why there is nothing to sample with.
#[derive(Debug, Error)]
pub(crate) enum SampleError {
    #[error(transparent)]
    Tracepoint(#[from] TracepointError),
    #[error("perf events at sched_waking: {0}")]
    Perf(#[from] SysError),
}

/// What it is and costs.
pub(super) fn backend() -> Backend {
    Backend {
        name: "perf events: sched_waking, sampled",
        cost: format!("up to {RATE_HZ} samples a second on each PU"),
        limits: vec![
            "wake-ups are sampled, so their counts are estimates; unknown are the PU that a woken thread had, how long it \
             waited for it, and for how long both threads ran"
                .to_owned(),
        ],
    }
}

/// Samples of wake-ups.
#[derive(Debug)]
pub(crate) struct WakingSamples {
    waking: Tracepoint,
    rings: Rings,
    /// By the kernel's number: one for each PU.
    streams: HashMap<u64, Stream>,
    /// Samples that found no room.
    lost: u64,
}

impl WakingSamples {
    /// Begins to sample wake-ups on `cpus`.
    pub fn start(cpus: &[PuNr]) -> Result<Self, SampleError> {
        let waking = Tracepoint::find(&TRACEFS.map(Path::new), "sched/sched_waking")?;
        let rings = Rings::map_every(&Attr::tracepoint(waking.id, RATE_HZ), cpus, RING_PAGES)?;
        Ok(Self { waking, rings, streams: HashMap::new(), lost: 0 })
    }

    /// What was sampled since this was last called, as so many wake-ups as that stands for. Wakers may be threads that are not watched.
    pub(super) fn take(&mut self) -> Vec<Pair> {
        let mut bytes = Vec::new();
        let (full, mut recorded) = (self.rings.take(&mut bytes), 0);
        let mut counts = BTreeMap::<_, u64>::new();
        for record in self.waking.records(&bytes) {
            match record {
                Traced::Lost { count } => recorded += count,
                Traced::Sample { stream, at, current, in_interrupt, about, period } => {
                    let count = self.streams.entry(stream).or_default().count(at, period);
                    let waker = (!in_interrupt).then_some(current);
                    *counts.entry((waker, about)).or_default() += count;
                }
            }
        }
        if full || recorded > 0 {
            self.lost += self.rings.newly_lost(recorded);
        }
        let pair = |((waker, wakee), count)| Pair { waker, wakee, count, ran: None };
        counts.into_iter().map(pair).collect()
    }

    /// A line about samples that found no room so far, if some have not.
    pub fn lost(&self) -> Option<String> {
        let lost = self.lost;
        let line = || {
            format!(
                "{lost} samples of wake-ups have found no room so far, so the counts are too low"
            )
        };
        (lost > 0).then(line)
    }
}

/// The last sample of an event: when it was taken, and after how many wake-ups the kernel then took the next one.
///
/// The kernel takes the first sample at the first wake-up, where it may repeat it. It adapts the number to the rate of wake-ups
/// (`perf_swevent_set_period` and `perf_adjust_period` of its kernel/events/core.c).
#[derive(Debug, Default)]
struct Stream(Option<(Nanos, u64)>);

impl Stream {
    /// How many wake-ups there were since the last sample, with that of this sample.
    fn count(&mut self, at: Nanos, period: u64) -> u64 {
        match self.0.replace((at, period)) {
            Some((last, _)) if last == at => 0,
            Some((_, announced)) => announced,
            None => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_as_the_one_before_it_has_announced() {
        let mut stream = Stream::default();
        let mut count = |at, period| stream.count(Nanos(at), period);
        // The first one, three times at the same wake-up.
        assert_eq!([count(10, 1), count(10, 1), count(10, 1)], [1, 0, 0]);
        assert_eq!(
            [count(20, 1), count(30, 90), count(120, 400), count(520, 400)],
            [1, 1, 90, 400]
        );
    }
}
