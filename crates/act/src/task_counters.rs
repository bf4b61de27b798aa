//! What each thread has done, from look to look: CPU time in nanoseconds and what counters say.
//!
//! A wait for a PU that goes on is added at the cost of nothing but remembering the state of those threads that are asked
//! where they run anyway, and who sleeps is not asked at all ([`colocate_observe::asleep`]).

mod boost;

use crate::task_table::Task;
use boost::PriorityBoost;
use colocate_machine::{CacheKind, Machine, Nanos, PuNr};
use colocate_model::stack::Parts;
use colocate_observe::asleep::{Waits, Whole};
use colocate_observe::limits::Descriptors;
use colocate_observe::pmu::{Counters, Meter, Metered, Start};
use colocate_observe::runstate::RunTime;
use colocate_observe::sys::process_time;
use colocate_observe::{Pid, SysError, Tid};
use colocate_policy::TaskId;
use std::collections::HashMap;
use std::path::Path;

/// For so long for each of its threads a process's clock is not asked again. Chosen: the kernel takes 0.17 µs for each of
/// 20,000 threads on a virtual machine with 2 CPUs, so asking takes less than half a percent of a PU.
const CLOCK_RESTS: Nanos = Nanos(40_000);

/// The open counters and files of living tasks.
#[derive(Debug)]
pub struct TaskCounters {
    counters: Option<Counters>,
    /// Whether CPU time is asked for in nanoseconds, not in clock ticks.
    fine: bool,
    of: HashMap<TaskId, CountersOfTask>,
    /// Meters that are open, and how many descriptors they may hold.
    meters: usize,
    most_open: usize,
    /// Processes with several threads, and the number of the look at which they were last there.
    wholes: HashMap<Pid, (Whole, u64)>,
    looks: u64,
    /// Files of tasks that are kept open.
    files: usize,
    /// Whether our own thread waits too long.
    pub boost: PriorityBoost,
    /// Why a thread could not be counted, until that is told.
    why: Option<SysError>,
    said: bool,
}

#[derive(Debug, Default)]
struct CountersOfTask {
    meter: Option<Meter>,
    time: Option<RunTime>,
    /// Whether its CPU time was asked for in vain, other than for want of descriptors.
    no_time: bool,
    waits: Waits,
}

impl TaskCounters {
    /// With these counters, if any, and CPU time in nanoseconds if `fine`.
    #[must_use]
    pub fn new(counters: Option<Counters>, fine: bool) -> Self {
        let (of, wholes) = (HashMap::new(), HashMap::new());
        let boost = PriorityBoost::default();
        // Half of what we may have: programs are launched and read from the rest.
        let hard = Descriptors::now().map_or(0, |limits| limits.hard);
        let most_open = usize::try_from(hard / 2).unwrap_or(usize::MAX);
        let (why, said) = (None, false);
        let (meters, looks, files) = (0, 0, 0);
        Self { counters, fine, of, meters, most_open, wholes, looks, files, boost, why, said }
    }

    /// Opens the counters of a newborn; of one that waits to become a program, from then on.
    pub fn born(&mut self, task: &Task, waits: bool) {
        let start = if waits { Start::AtExec } else { Start::Now };
        match self.meter(task.tid, start) {
            Some(Ok(meter)) => {
                let gauge = CountersOfTask { meter: Some(meter), ..CountersOfTask::default() };
                let old = self.of.insert(task.id, gauge);
                self.files -= usize::from(old.as_ref().is_some_and(|old| old.time.is_some()));
                self.meters += usize::from(old.is_none_or(|old| old.meter.is_none()));
            }
            // It has ended already.
            Some(Err(error)) if error.errno() == Some(libc::ESRCH) => {}
            Some(Err(error)) => self.why = Some(error),
            None => {}
        }
    }

    /// Opens the counters of a thread, if there are any.
    fn meter(&self, tid: Tid, start: Start) -> Option<Result<Meter, SysError>> {
        let counters = self.counters.as_ref()?;
        if (self.meters + 1) * counters.descriptors() > self.most_open {
            let source = std::io::Error::from_raw_os_error(libc::EMFILE);
            return Some(Err(SysError { call: "perf_event_open", source }));
        }
        Some(counters.meter(tid, start))
    }

    /// Asks for the clocks of processes with so many threads, before these are read at `at`. Who is not among them has
    /// its threads read one by one. The kernel takes longer to tell the more threads there are, so large ones are asked
    /// less often.
    pub fn begin(&mut self, processes: impl Iterator<Item = (Pid, usize)>, at: Nanos) {
        if !self.fine {
            return;
        }
        self.looks += 1;
        for (pid, threads) in processes {
            let rests = Nanos(CLOCK_RESTS.0.saturating_mul(threads as u64));
            if let Some(whole) = self.wholes.get_mut(&pid) {
                whole.1 = self.looks;
                if at < whole.0.asked() + rests {
                    continue;
                }
            }
            match (process_time(pid), self.wholes.get_mut(&pid)) {
                (Some(time), Some(whole)) => whole.0.begin(time, at),
                (Some(time), None) => {
                    self.wholes.insert(pid, (Whole::unread(time, at), self.looks));
                }
                (None, _) => drop(self.wholes.remove(&pid)),
            }
        }
        self.wholes.retain(|_, whole| whole.1 == self.looks);
    }

    /// Whether threads of a process have run since all were read that were not read since, as far as that can be
    /// told.
    #[must_use]
    pub fn stirred(&self, pid: Pid) -> bool {
        self.wholes.get(&pid).is_none_or(|whole| whole.0.stirred())
    }

    /// Notes that all threads of a process have been read since [`TaskCounters::begin`].
    pub fn all_read(&mut self, pid: Pid) {
        if let Some(whole) = self.wholes.get_mut(&pid) {
            whole.0.all_read();
        }
    }

    /// Asks at `at`, on the kernel's clock, what a living task has done.
    pub fn read(&mut self, task: &mut Task, proc: &Path, at: Nanos) {
        if self.counters.is_none() && !self.fine {
            return;
        }
        let gauge = self.of.entry(task.id).or_default();
        let (was_open, room) = (gauge.time.is_some(), self.files < self.most_open / 2);
        let sums = self.fine.then(|| gauge.sums(task, proc, room)).flatten();
        self.files += usize::from(!was_open && gauge.time.is_some());
        if let Some(sums) = sums {
            let before = (task.cpu_time, task.waited);
            task.cpu_time = task.cpu_time.max(Some(sums.0));
            task.waited = task.waited.max(Some(gauge.waits.read(sums, at)));
            task.sleeps = before == (task.cpu_time, task.waited);
            if let Some(whole) = self.wholes.get_mut(&task.pid) {
                let grown = sums.0.saturating_sub(before.0.unwrap_or(Nanos::ZERO));
                whole.0.add(grown);
            }
        }
        gauge.count(self.counters.as_ref(), task, false);
    }

    /// Closes the files of all tasks, and opens none any more: from now on CPU times are unknown. Counters stay, as jobs
    /// may have them for their targets.
    pub fn close_files(&mut self) {
        (self.fine, self.files) = (false, 0);
        self.of.values_mut().for_each(|gauge| gauge.time = None);
        self.wholes.clear();
    }

    /// Notes whether a living task could run when it was asked for its state, at `at` or later, and after
    /// [`TaskCounters::read`].
    pub fn could_run(&mut self, id: TaskId, could: bool, at: Nanos) {
        if let Some(gauge) = self.of.get_mut(&id) {
            gauge.waits.could_run(could, at);
        }
    }

    /// Asks what a task has done that has ended, and closes what was open for it.
    pub fn ended(&mut self, task: &mut Task) {
        if let Some(mut gauge) = self.of.remove(&task.id) {
            self.meters -= usize::from(gauge.meter.is_some());
            self.files -= usize::from(gauge.time.is_some());
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
        let why = self.why.take().filter(|_| !self.said)?;
        self.said = true;
        Some(format!("some threads are not counted ({why}); their instructions are unknown"))
    }
}

impl CountersOfTask {
    /// What the kernel has summed up of a task. The file stays open if there is `room` for it.
    fn sums(&mut self, task: &Task, proc: &Path, room: bool) -> Option<(Nanos, Nanos)> {
        if self.time.is_some() || self.no_time {
            return self.time.as_ref().and_then(RunTime::read_both);
        }
        match RunTime::open(proc, task.pid, task.tid) {
            Ok(time) => {
                let sums = time.read_both();
                self.time = room.then_some(time);
                sums
            }
            Err(why) => {
                self.no_time = why.raw_os_error() != Some(libc::EMFILE);
                None
            }
        }
    }

    fn count(&mut self, counters: Option<&Counters>, task: &mut Task, ended: bool) {
        let open = self.meter.as_mut().zip(counters);
        match open.and_then(|(meter, counters)| meter.read(counters, ended).ok()) {
            Some(counted) => {
                task.cpu_time = task.cpu_time.max(Some(counted.on_cpu));
                task.counted = counted;
            }
            // It never was counted; or it is not any more, as the kernel takes the counters from who gains privileges.
            // It did what was counted before, but what it does now is unknown.
            None => {
                let instructions = task.counted.instructions;
                task.counted = Metered { instructions, ..Metered::default() };
            }
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
        // Where nobody counts, this is asked of every thread in every quantum.
        counted.misses.iter().flatten().next()?;
        let of_level = |level: &u8| *counted.misses.get(usize::from(*level).checked_sub(1)?)?;
        let misses: Vec<u64> = self.0.get(&pu)?.iter().map_while(of_level).collect();
        (!misses.is_empty()).then_some(misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::task_table::{Birth, TaskTable};
    use colocate_model::Class;
    use colocate_observe::pmu::plan::Role;

    /// Nanoseconds on CPUs and page faults (linux/perf_event.h): two descriptors for each thread.
    #[test]
    fn counters_leave_descriptors_for_programs() {
        let events = [(Role::Instructions, 1), (Role::Class(Class::Load), 2)];
        let mut counters_of_tasks = TaskCounters::new(Some(Counters::of_software(&events)), false);
        let limits = Descriptors::now().unwrap();
        assert_eq!(counters_of_tasks.most_open as u64, limits.hard / 2);
        (counters_of_tasks.meters, counters_of_tasks.most_open) = (3, 9);
        assert!(counters_of_tasks.meter(Tid(0), Start::Now).unwrap().is_ok());
        counters_of_tasks.meters = 4;
        let refused = counters_of_tasks.meter(Tid(0), Start::Now).unwrap().unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EMFILE));
    }

    /// Who has gained privileges is told to have ended, and lives on without counters.
    #[test]
    fn what_is_not_counted_any_more_is_unknown() {
        let mut table = TaskTable::default();
        let (pid, tid) = (Pid(10), Tid(10));
        table.add_job("job".into(), pid, Runtime::Plain);
        let (at, parent_pid, parent_tid) = (Nanos(1), Pid(1), Tid(1));
        let id = table.born(Birth { at, pid, tid, parent_pid, parent_tid, lost: false }).unwrap();
        let task = table.task(id).unwrap();
        let counted = Metered { instructions: Some(7), ..Metered::default() };
        task.counted = Metered { cycles: Some(9), misses: [Some(1); 3], ..counted };
        let mut counters_of_tasks =
            TaskCounters::new(Some(Counters::of_software(&[(Role::Cycles, 1)])), false);
        counters_of_tasks.read(task, Path::new("/proc"), Nanos(2));
        assert_eq!(task.counted, counted, "its instructions are not lost");
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
