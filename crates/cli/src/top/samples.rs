//! Which processes are sampled to find threads that only wait for others in a loop ([`colocate_observe::spin`]).
//!
//! A process is sampled from the first poll on at which it has run for a good part of the time: one that sleeps costs
//! nothing, and there may be thousands.

use colocate_linux::limits::Descriptors;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use colocate_observe::lifecycle::Options;
use colocate_observe::sources::spinning::Spinning;
use std::collections::BTreeSet;

/// A process is sampled that has run for this part of the time between two polls. Chosen: half of what makes a phase
/// other than asleep, so that little is missed of one.
const BUSY: u64 = 10;
/// Events that are open at once, at most; a thread that is found running has one for each CPU. Chosen: some tenths of a
/// second to open them all.
const MOST_EVENTS: usize = 16_384;

/// How many may be open where a process may have so many files: half of them at most, so that there is room for those
/// of /proc.
fn most_events(files: u64) -> usize {
    usize::try_from(files / 2).unwrap_or(usize::MAX).min(MOST_EVENTS)
}

/// Samples of processes that run.
pub struct Samples {
    pub backend: Spinning<Tid>,
    proc: Proc,
    /// How many CPUs each thread has events for.
    cpus: usize,
    /// How many events may be open.
    most: usize,
    /// Processes that must not be sampled, or have too many threads.
    refused: BTreeSet<Pid>,
}

impl Samples {
    /// Samples no process yet, so often a second of each thread's CPU time.
    pub fn new(rate_hz: u32) -> Result<Self, SysError> {
        let here = Options::here()?;
        let backend = Spinning::new(rate_hz, &here, || {})?;
        let (proc, cpus, most) = (here.proc, here.cpus.len(), most_events(Descriptors::now().hard));
        Ok(Self { backend, proc, cpus, most, refused: BTreeSet::new() })
    }

    /// Samples a process that has run for so long in this time, if it is worth while. False if it would be and cannot:
    /// then it is unknown which of its threads wait.
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

    /// A process has ended, or is watched no more.
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
