//! What the actuators for threads share: the journal, and which masks are ours.

use crate::actuator::Actuator;
use crate::journal::{JournalEntry, Writer};
use crate::pause::stop::Stop;
use crate::thread::ManagedThread;
use colocate_linux::handle::is_gone;
use colocate_machine::PuSet;
use colocate_machine::read::Cpusets;
use std::io;
use std::path::PathBuf;

/// Actions on threads, each written to the journal first. Each kind of action has a file of its
/// own: [`crate::affinity`], [`crate::sched_class`].
#[derive(Debug)]
pub struct Actuators {
    /// Journal of all changes.
    pub journal: Writer,
    /// `/proc`.
    pub proc: PathBuf,
    /// Usable PUs now.
    pub usable: PuSet,
    /// Mask of threads that were not placed; see [`crate::original`].
    pub original: PuSet,
    /// Reads the cpusets of threads.
    pub cpusets: Cpusets,
}

impl Actuators {
    /// Writes a thread to the journal, so that it can be restored. False if the thread has ended or
    /// is unreadable.
    pub fn note(&mut self, thread: &mut ManagedThread) -> bool {
        thread.slot.is_some() || self.write::<Stop>(thread, ()).is_ok_and(|written| written)
    }

    /// Writes a pending change to the journal. False if the thread has ended.
    ///
    /// # Errors
    /// If the thread may live and is unreadable.
    pub(crate) fn write<A: Actuator<Line = JournalEntry>>(
        &mut self,
        thread: &mut ManagedThread,
        record: A::Record,
    ) -> io::Result<bool> {
        // Without a handle, a later process could have the thread's number.
        let Some(process) = &thread.process else { return Ok(false) };
        let start_ticks = match thread.start_ticks {
            Some(start_ticks) => start_ticks,
            None => match process.try_stat_of(thread.tid) {
                Ok(stat) => *thread.start_ticks.insert(stat.start_ticks),
                Err(why) if is_gone(&why) => return Ok(false),
                Err(why) => return Err(why),
            },
        };
        // Changes by other actuators stay as written.
        let earlier = thread.slot.map_or(JournalEntry::EMPTY, |slot| self.journal.entry(slot));
        let slot = *thread.slot.get_or_insert_with(|| self.journal.slot());
        let mut entry = JournalEntry {
            pid: thread.pid,
            tid: thread.tid,
            start_ticks,
            mark: thread.mark,
            // A crash before the change leaves the earlier mask in force.
            was: thread.mark,
            ..earlier
        };
        A::journal(&mut entry, record);
        self.journal.write(slot, &entry);
        Ok(true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::owner::Owner;
    use colocate_linux::Pid;
    use colocate_machine::read::Sysfs;
    use std::path::Path;

    /// The same with sets of PUs.
    pub fn with_sets(actuators: Actuators, sets: &[PuSet]) -> Actuators {
        let journal = actuators.journal.with_sets(sets.iter().cloned());
        Actuators { journal, ..actuators }
    }

    /// With a journal in memory.
    pub fn actuators(original: &PuSet) -> Actuators {
        let owner = Owner { pid: Pid(1), start_ticks: 0 };
        let journal = Writer::begin(Err(String::new()), owner, None, original, None);
        let (original, usable) = (original.clone(), original.clone());
        let cpusets = Cpusets::new(Sysfs::at(Path::new("/")));
        Actuators { journal, proc: PathBuf::from("/proc"), original, usable, cpusets }
    }
}
