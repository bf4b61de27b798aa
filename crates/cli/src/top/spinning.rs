//! Which threads only wait for others in a loop, by samples of those that run ([`colocate_observe::spin`]).
//!
//! A process is sampled from the first look on at which it has run for a good part of the time: one that sleeps costs
//! nothing, and there may be thousands.

use colocate_machine::Nanos;
use colocate_observe::lifecycle::Options;
use colocate_observe::limits::Descriptors;
use colocate_observe::proc::Proc;
use colocate_observe::spin::Share;
use colocate_observe::spin::judging::Judging;
use colocate_observe::spin::spun::{Spun, Times};
use colocate_observe::{Pid, SysError, Tid};
use std::collections::{BTreeMap, BTreeSet};

/// A process is sampled that has run for this part of the time between two looks. Chosen: half of what makes a phase
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
pub struct Spinning {
    judging: Judging,
    proc: Proc,
    /// How many CPUs each thread has events for.
    cpus: usize,
    /// How many events may be open.
    most: usize,
    /// What threads were seen doing until this look.
    shares: BTreeMap<Tid, Share>,
    /// Processes that must not be sampled, or have too many threads.
    refused: BTreeSet<Pid>,
}

impl Spinning {
    /// Samples no process yet, so often a second of each thread's CPU time.
    ///
    /// # Errors
    /// Where events are denied.
    pub fn new(rate_hz: u32) -> Result<Self, SysError> {
        let here = Options::here()?;
        let judging = Judging::new(rate_hz, &here, || {})?;
        let (proc, cpus, most) =
            (here.proc, here.cpus.len(), most_events(Descriptors::now()?.hard));
        Ok(Self { judging, proc, cpus, most, shares: BTreeMap::new(), refused: BTreeSet::new() })
    }

    /// Takes in what has been sampled since the last look.
    pub fn begin_look(&mut self) {
        self.shares = self.judging.take();
    }

    /// Samples a process that has run for so long in this time, if it is worth while. False if it would be and cannot:
    /// then it is unknown which of its threads wait.
    pub fn sees(&mut self, pid: Pid, ran: Nanos, took: Nanos) -> bool {
        if self.judging.samples(pid) || ran.0 <= took.0 / BUSY {
            return true;
        }
        if self.refused.contains(&pid) {
            return false;
        }
        let events = self.proc.tasks(pid).map_or(0, |tids| tids.len() * self.cpus);
        let fits = self.judging.events() + events <= self.most;
        let done = fits && self.judging.also_alone(pid).is_ok();
        if !done {
            self.refused.insert(pid);
        }
        done
    }

    /// A process has ended, or is watched no more.
    pub fn forget(&mut self, pid: Pid) {
        self.judging.forget(pid);
        self.refused.remove(&pid);
    }

    /// For how long a thread has waited in a loop since the last look, of what it `did` since; `None` if its code cannot be
    /// read.
    pub fn waited(&self, tid: Tid, spun: &mut Spun, did: Times) -> Option<Nanos> {
        let before = spun.waited().unwrap_or(Nanos::ZERO);
        let share = self.shares.get(&tid).copied().unwrap_or_default();
        spun.add(share, did, self.judging.most());
        Some(spun.waited()?.saturating_sub(before))
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
