//! Wake-ups sampled by perf events at the tracepoint `sched:sched_waking`.
//!
//! # Problem
//! Without an eBPF program nothing is summed up in the kernel, and a busy server has too many wake-ups to record each.
//! # Approach
//! One event on each PU takes a limited number of samples a second, of all threads that run there. Each says how many wake-ups there
//! have been on the PU, and stands for those since the last one; what has come after the last one of all is added in proportion. The
//! data of a sample names the woken thread. Its waker is the thread that ran, unless an
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

use super::WakeUpPair;
use crate::perf::{Attr, Rings, Tracepoint, TracepointError, TracepointRecord};
use colocate_evidence::Provider;
use colocate_files::kernel;
use colocate_linux::SysError;
use colocate_linux::Tid;
use colocate_machine::PuNr;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use thiserror::Error;

/// Samples per second on each PU. Chosen: a sample costs about a microsecond, so a thousandth of a
/// PU.
const RATE_HZ: u64 = 1_000;

/// Pages of a ring, on each PU. Chosen: 2,520 samples of 104 bytes, as many as in 2.5 s. Rings are
/// read once a second or more often.
const RING_PAGES: usize = 64;

/// Mount points of tracefs (the kernel's Documentation/trace/ftrace.rst); the second is by debugfs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Reason why sampling is impossible.
#[derive(Debug, Error)]
pub(crate) enum SampleError {
    #[error(transparent)]
    Tracepoint(#[from] TracepointError),
    #[error("perf events at sched_waking: {0}")]
    Perf(#[from] SysError),
    /// Samples name threads by the numbers of the first PID namespace, and this is another
    /// namespace.
    #[error("perf events at sched_waking number threads otherwise than this PID namespace")]
    Numbers,
}

/// Whether this process is in the first PID namespace, or the kernel has no namespaces.
fn is_first_namespace() -> bool {
    // Its number: PID_NS_INIT_INO of the kernel's linux/nsfs.h.
    let namespace = kernel::link(Path::new("/proc/self/ns/pid"));
    namespace.map_or(true, |of| of == Path::new("pid:[4026531836]"))
}

/// Name and cost.
pub(super) fn provider() -> Provider {
    Provider {
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
    /// Number of wake-ups on each PU when last known.
    so_far: HashMap<PuNr, u64>,
    /// Samples lost for want of room.
    lost: u64,
}

impl WakingSamples {
    /// Begins to sample wake-ups on `cpus`.
    pub fn start(cpus: &[PuNr]) -> Result<Self, SampleError> {
        if !is_first_namespace() {
            return Err(SampleError::Numbers);
        }
        let waking = Tracepoint::find(&TRACEFS.map(Path::new), "sched/sched_waking")?;
        let rings = Rings::map_every(&Attr::tracepoint(waking.id, RATE_HZ), cpus, RING_PAGES)?;
        Ok(Self { waking, rings, so_far: HashMap::new(), lost: 0 })
    }

    /// Samples since the last call, as the number of wake-ups represented by them. Wakers may be
    /// unwatched threads.
    pub(super) fn take(&mut self) -> Vec<WakeUpPair> {
        let mut bytes = Vec::new();
        let full = self.rings.take(&mut bytes);
        let mut recorded = 0;
        let mut on_pus = BTreeMap::<PuNr, SampledWakeUps>::new();
        for record in self.waking.records(&bytes, self.rings.counts_lost()) {
            match record {
                TracepointRecord::Lost { count } => recorded += count,
                TracepointRecord::Sample { on, current, in_interrupt, about, so_far } => {
                    let waker = (!in_interrupt).then_some(current);
                    let count = self.new_on(on, so_far);
                    *on_pus.entry(on).or_default().entry((waker, about)).or_default() += count;
                }
            }
        }
        if full || recorded > 0 {
            self.lost += self.rings.newly_lost(recorded);
        }
        let so_far: Vec<(PuNr, u64)> = self.rings.counts().collect();
        for (on, so_far) in so_far {
            // Without a sample, the next one stands for these.
            let Some(counts) = on_pus.get_mut(&on) else { continue };
            add_in_proportion(counts, self.new_on(on, so_far));
        }
        on_pus
            .into_values()
            .flatten()
            .map(|((waker, wakee), count)| WakeUpPair { waker, wakee, count, ran: None })
            .collect()
    }

    /// New wake-ups on a PU, given its total so far.
    fn new_on(&mut self, on: PuNr, so_far: u64) -> u64 {
        let before = self.so_far.insert(on, so_far).unwrap_or(0);
        so_far.saturating_sub(before)
    }

    /// Message about samples lost for want of room, if any.
    pub fn lost(&self) -> Option<String> {
        let lost = self.lost;
        (lost > 0).then(|| {
            format!(
                "{lost} samples of wake-ups have found no room so far, so the counts are less exact"
            )
        })
    }
}

/// Numbers of wake-ups by waker and wakee.
type SampledWakeUps = BTreeMap<(Option<Tid>, Tid), u64>;

/// Adds `more` to the counts in proportion to each count, rounded down.
fn add_in_proportion(counts: &mut SampledWakeUps, more: u64) {
    let all: u128 = counts.values().map(|count| u128::from(*count)).sum();
    for count in counts.values_mut() {
        let share = u128::from(*count) * u128::from(more) / all.max(1);
        *count += u64::try_from(share).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_sample_stands_for_is_added_in_proportion() {
        let pair = |waker| (waker, Tid(9));
        let mut counts = SampledWakeUps::from([(pair(Some(Tid(1))), 30), (pair(None), 10)]);
        add_in_proportion(&mut counts, 200);
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [60, 180]);
        add_in_proportion(&mut SampledWakeUps::new(), 5);
    }
}
