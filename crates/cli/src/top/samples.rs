//! Choice of the processes that are sampled for spinning threads ([`colocate_observe::spin`]).
//!
//! A process is sampled from the first poll at which it has run for a good part of the time: a
//! sleeping process costs nothing, and there may be thousands.

use colocate_linux::limits::Descriptors;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use colocate_observe::sample::Clocks;
use colocate_observe::sources::spinning::Spinning;
use std::collections::BTreeSet;

/// Inverse share of the time between two polls: a process that runs for more is sampled. Chosen:
/// half the share of a serial phase, to miss little of it.
const BUSY: u64 = 10;
/// Most events open at once, one a CPU for each thread. Chosen: opens in some tenths of a second.
const MOST_EVENTS: usize = 16_384;

/// Most events at once with a limit of `files`: at most half of it, to leave room for /proc.
fn most_events(files: u64) -> usize {
    usize::try_from(files / 2).unwrap_or(usize::MAX).min(MOST_EVENTS)
}

/// Samples of running processes.
pub struct ProcessSamples {
    pub backend: Spinning<Tid>,
    proc: Proc,
    /// CPUs for which each thread has events.
    cpus: usize,
    /// Most events open at once.
    most: usize,
    /// Processes that may not be sampled, or have too many threads.
    refused: BTreeSet<Pid>,
}

impl ProcessSamples {
    /// Samples no process yet; `rate_hz` is the rate a second of each thread's CPU time.
    pub fn new(rate_hz: u32) -> Result<Self, SysError> {
        let clocks = Clocks::here()?;
        let backend = Spinning::new(rate_hz, &clocks, || {})?;
        let proc = clocks.watch.proc;
        let cpus = clocks.watch.cpus.len();
        let most = most_events(Descriptors::now().hard);
        Ok(Self { backend, proc, cpus, most, refused: BTreeSet::new() })
    }

    /// Samples a process that has run for `ran` in `took`, if busy enough. Returns false if a busy
    /// process cannot be sampled: its spinning threads are unknown.
    pub fn sees(&mut self, pid: Pid, ran: Nanos, took: Nanos) -> bool {
        if self.backend.samples(pid) || ran.0 <= took.0 / BUSY {
            return true;
        }
        if self.refused.contains(&pid) {
            return false;
        }
        let events = self.proc.tasks(pid).map_or(0, |tids| tids.len() * self.cpus);
        let fits = self.backend.events() + events <= self.most;
        let done = fits && self.backend.also_running(pid).is_ok();
        if !done {
            self.refused.insert(pid);
        }
        done
    }

    /// Forgets a process that has ended or is watched no more.
    pub fn forget(&mut self, pid: Pid) {
        self.backend.forget(pid);
        self.refused.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_room_for_files() {
        assert_eq!([1_024, 1_048_576, u64::MAX].map(most_events), [512, MOST_EVENTS, MOST_EVENTS]);
    }
}
