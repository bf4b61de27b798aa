//! What each thread has done, from look to look: CPU time in nanoseconds and what counters say.

use crate::book::Task;
use colocate_machine::{CacheKind, Machine, PuNr};
use colocate_model::stack::Parts;
use colocate_observe::SysError;
use colocate_observe::limits::Descriptors;
use colocate_observe::pmu::{Counters, Meter, Metered, Start};
use colocate_observe::runstate::RunTime;
use colocate_policy::TaskId;
use std::collections::HashMap;
use std::path::Path;

/// The open counters and files of living tasks.
#[derive(Debug)]
pub struct Gauges {
    counters: Option<Counters>,
    /// Whether CPU time is asked for in nanoseconds, not in clock ticks.
    fine: bool,
    of: HashMap<TaskId, Gauge>,
    /// Why a thread could not be counted, until that is told.
    why: Option<SysError>,
    told: bool,
}

#[derive(Debug, Default)]
struct Gauge {
    meter: Option<Meter>,
    time: Option<RunTime>,
    /// Whether its CPU time was asked for in vain.
    no_time: bool,
}

impl Gauges {
    /// With these counters, if any, and CPU time in nanoseconds if `fine`.
    #[must_use]
    pub fn new(counters: Option<Counters>, fine: bool) -> Self {
        Self { counters, fine, of: HashMap::new(), why: None, told: false }
    }

    /// Opens the counters of a newborn; of one that waits to become a program, from then on.
    pub fn born(&mut self, task: &Task, waits: bool) {
        let Some(counters) = &self.counters else { return };
        let start = if waits { Start::AtExec } else { Start::Now };
        let meter = match counters.meter(task.tid, start) {
            Err(error) if error.errno() == Some(libc::EMFILE) => {
                Descriptors::raise().and_then(|_| counters.meter(task.tid, start))
            }
            done => done,
        };
        match meter {
            Ok(meter) => {
                self.of.insert(task.id, Gauge { meter: Some(meter), ..Gauge::default() });
            }
            // It has ended already.
            Err(error) if error.errno() == Some(libc::ESRCH) => {}
            Err(error) => self.why = Some(error),
        }
    }

    /// Asks what a living task has done.
    pub fn read(&mut self, task: &mut Task, proc: &Path) {
        if self.counters.is_none() && !self.fine {
            return;
        }
        let gauge = self.of.entry(task.id).or_default();
        if self.fine && gauge.time.is_none() && !gauge.no_time {
            gauge.time = RunTime::open(proc, task.pid, task.tid).ok();
            gauge.no_time = gauge.time.is_none();
        }
        let time = gauge.time.as_ref().and_then(RunTime::read);
        task.cpu_time = task.cpu_time.max(time);
        gauge.count(self.counters.as_ref(), task, false);
    }

    /// Asks what a task has done that has ended, and closes what was open for it.
    pub fn ended(&mut self, task: &mut Task) {
        if let Some(mut gauge) = self.of.remove(&task.id) {
            gauge.count(self.counters.as_ref(), task, true);
        }
    }

    /// Whether anything is counted.
    #[must_use]
    pub const fn counts(&self) -> bool {
        self.counters.is_some()
    }

    /// The parts of the stacks that are counted.
    ///
    /// # Errors
    /// Why none are, in a line.
    pub fn stack_parts(&self) -> Result<Parts, String> {
        let counters = self.counters.as_ref().ok_or("nothing is counted")?;
        let why = || counters.no_stacks.clone().unwrap_or_else(|| "nobody asked for them".into());
        counters.stack_parts().ok_or_else(why)
    }

    /// A line that threads cannot be counted, once.
    pub fn trouble(&mut self) -> Option<String> {
        let why = self.why.take().filter(|_| !self.told)?;
        self.told = true;
        Some(format!("some threads are not counted ({why}); their instructions are unknown"))
    }
}

impl Gauge {
    fn count(&mut self, counters: Option<&Counters>, task: &mut Task, ended: bool) {
        let Some((meter, counters)) = self.meter.as_mut().zip(counters) else { return };
        if let Ok(counted) = meter.read(counters, ended) {
            task.cpu_time = task.cpu_time.max(Some(counted.on_cpu));
            task.counted = counted;
        }
    }
}

/// Levels of the data caches over each PU, nearest first.
#[derive(Clone, Debug, Default)]
pub struct DataLevels(HashMap<PuNr, Vec<u8>>);

impl DataLevels {
    /// Those of a machine.
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

    /// Misses of each data cache over a PU, nearest first, as far as they are known without a gap.
    #[must_use]
    pub fn misses(&self, counted: &Metered, pu: PuNr) -> Option<Vec<u64>> {
        let of_level = |level: &u8| *counted.misses.get(usize::from(*level).checked_sub(1)?)?;
        let misses: Vec<u64> = self.0.get(&pu)?.iter().map_while(of_level).collect();
        (!misses.is_empty()).then_some(misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
