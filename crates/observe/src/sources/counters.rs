//! What the processor counts of each task: instructions, cycles, requests to caches and memory, CPI stacks.

use super::{Backend, NewTask, TaskRef, TaskUsage};
use crate::doctor::finding::{Finding, Inputs};
use crate::doctor::{Probe, advice};
use crate::pmu::{CounterSet, Counters, Meter, Metered, PmuError, Start};
use colocate_evidence::{Provider, Refusal, TaskId};
use colocate_linux::limits::Descriptors;
use colocate_linux::{SysError, Tid};
use colocate_machine::{CacheKind, Machine, Nanos, PuNr};
use colocate_model::stack::StackParts;
use std::collections::HashMap;
use std::path::Path;

/// The open counters of living tasks.
#[derive(Debug)]
pub struct TaskCounters {
    counters: Counters,
    of: HashMap<TaskId, Meter>,
    /// Maximum number of descriptors for counters.
    most_open: usize,
    /// Reason why a task could not be counted, until its report.
    why: Option<SysError>,
    reported: bool,
}

impl TaskCounters {
    /// Finds the counters listed under `proc`; with `stacks`, CPI stacks have precedence.
    ///
    /// # Errors
    /// As [`Counters::find`].
    pub fn find(proc: &Path, stacks: bool) -> Result<Self, PmuError> {
        let set = if stacks { CounterSet::Stacks } else { CounterSet::Traffic };
        Counters::find(proc, Path::new("/sys"), set).map(Self::new)
    }

    /// Source with these counters.
    #[must_use]
    pub fn new(counters: Counters) -> Self {
        // Half of what we may have: programs are launched and read from the rest.
        let hard = Descriptors::now().hard;
        let most_open = usize::try_from(hard / 2).unwrap_or(usize::MAX);
        Self { counters, of: HashMap::new(), most_open, why: None, reported: false }
    }

    /// Parts of the CPI stacks that are counted.
    ///
    /// # Errors
    /// Reason why none is counted.
    pub fn stack_parts(&self) -> Result<StackParts, Refusal> {
        self.counters.stack_parts().ok_or_else(|| {
            let why = self.counters.no_stacks.as_deref();
            Refusal::of(why.unwrap_or("stacks were not requested"))
        })
    }

    fn meter(&self, tid: Tid, start: Start) -> Result<Meter, SysError> {
        if (self.of.len() + 1) * self.counters.descriptors() > self.most_open {
            return Err(SysError::of("perf_event_open", libc::EMFILE));
        }
        self.counters.meter(tid, start)
    }
}

impl Backend for TaskCounters {
    fn provider(&self) -> Provider {
        let each = self.counters.descriptors();
        let cost =
            format!("{each} descriptors for each task, and the time to save them at each switch");
        Provider { name: "perf events: counters", cost, limits: self.counters.notes.clone() }
    }

    /// Opens the counters of a task. On failure, [`Backend::messages`] has the reason, once.
    fn created(&mut self, new: &NewTask) -> Result<(), Refusal> {
        match self.meter(new.task.tid, new.start) {
            Ok(meter) => drop(self.of.insert(new.task.id, meter)),
            // It has ended already.
            Err(error) if error.errno() == Some(libc::ESRCH) => {}
            Err(error) => self.why = Some(error),
        }
        Ok(())
    }

    /// Unreadable counts have ended: the kernel removes counters from tasks that gain privileges.
    fn read(&mut self, task: TaskRef, _at: Nanos, usage: &mut TaskUsage) {
        let meter = self.of.get_mut(&task.id);
        usage.note_counted(meter.and_then(|meter| meter.read(&self.counters, false).ok()));
    }

    fn ended(&mut self, task: TaskRef, usage: &mut TaskUsage) {
        let meter = self.of.remove(&task.id);
        usage.note_counted(meter.and_then(|mut meter| meter.read(&self.counters, true).ok()));
    }

    fn messages(&mut self) -> Vec<String> {
        let why = self.why.take().filter(|_| !self.reported);
        self.reported |= why.is_some();
        let line =
            |why| format!("some threads are not counted ({why}); their instructions are unknown");
        why.map(line).into_iter().collect()
    }
}

/// Levels of the data caches over each PU, nearest first.
#[derive(Clone, Debug, Default)]
pub struct DataLevels(HashMap<PuNr, Vec<u8>>);

impl DataLevels {
    /// Cache levels of a machine.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let mut levels: HashMap<PuNr, Vec<u8>> = HashMap::new();
        let data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
        for cache in data {
            for pu in &cache.pus {
                levels.entry(machine.pus[pu.idx()].os).or_default().push(cache.level);
            }
        }
        levels.values_mut().for_each(|levels| levels.sort_unstable());
        Self(levels)
    }

    /// Misses of each data cache over a PU, nearest first, up to the first unknown.
    #[must_use]
    pub fn misses(&self, counted: &Metered, pu: PuNr) -> Option<Vec<u64>> {
        // Where nothing counts, this is asked of every thread in every quantum.
        counted.misses.iter().flatten().next()?;
        let levels = self.0.get(&pu)?.iter();
        let known =
            levels.map_while(|level| *counted.misses.get(usize::from(*level).checked_sub(1)?)?);
        Some(known.collect::<Vec<u64>>()).filter(|misses| !misses.is_empty())
    }
}

/// Check of the events of a thread.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    let software = inputs.probes.run(Probe::CountTime);
    let hardware = inputs.probes.run(Probe::CountInstructions);
    match (software, hardware) {
        (_, Ok(())) => match inputs.probes.run(Probe::CountTogether) {
            Ok(()) => Finding::yes("all events of this thread at once: counted"),
            Err(errno) => Finding::partly(
                format!("instructions of this thread: counted; all events at once: {errno}"),
                advice::take_turns(inputs.place),
            ),
        },
        (Ok(()), Err(errno)) => Finding::no(
            format!("task-clock: counted; instructions: {errno}"),
            advice::counters_refused(errno, inputs.place, inputs.own),
        ),
        (Err(errno), Err(_)) => Finding::no(
            format!("task-clock: {errno}; instructions: {errno}"),
            advice::perf_refused(errno, inputs.place, inputs.own),
        ),
    }
}

/// Check of the counters of stalls.
pub(super) fn check_stacks(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.stacks {
        Ok(found) => Finding::yes(found),
        Err(why) => Finding::no(
            why,
            "expected counters of stalls (docs/reference/pmu.md); without them symbiotic needs \
             --machine-speeds and demand vectors, and nothing else needs them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::Role;
    use colocate_model::Class;

    /// Nanoseconds on CPUs and page faults (linux/perf_event.h): two descriptors for each thread.
    #[test]
    fn counters_leave_descriptors_for_programs() {
        let events = [(Role::Instructions, 1), (Role::Class(Class::Load), 2)];
        let mut counters = TaskCounters::new(Counters::of_software(&events));
        let limits = Descriptors::now();
        assert_eq!(counters.most_open as u64, limits.hard / 2);
        counters.most_open = 2;
        assert!(counters.meter(Tid(0), Start::Now).is_ok());
        counters.most_open = 1;
        let refused = counters.meter(Tid(0), Start::Now).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EMFILE));
    }

    /// A second level is not there, a first one for instructions is not asked for.
    #[test]
    fn misses_follow_the_caches() {
        let levels = DataLevels(HashMap::from([(PuNr(4), vec![1, 3]), (PuNr(5), vec![1, 2, 3])]));
        let counted = Metered { misses: [Some(7), None, Some(2)], ..Metered::default() };
        assert_eq!(levels.misses(&counted, PuNr(4)), Some(vec![7, 2]));
        assert_eq!(
            levels.misses(&counted, PuNr(5)),
            Some(vec![7]),
            "what is behind a gap has no place"
        );
        assert_eq!(levels.misses(&counted, PuNr(6)), None);
        assert_eq!(levels.misses(&Metered::default(), PuNr(4)), None);
    }
}
