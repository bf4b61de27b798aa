//! How long each task has had a PU or waited for one: the kernel's sums in `/proc/PID/task/TID/schedstat`.
//!
//! Adding a wait for a PU that goes on costs nothing but remembering the state of tasks whose
//! PU is read anyway, and a task that sleeps is not read at all ([`colocate_linux::accounting`]).

use crate::doctor::finding::{Finding, Inputs};
use colocate_evidence::Provider;
use colocate_linux::accounting::{ProcessClock, RunqueueWait};
use colocate_linux::clock::process_time;
use colocate_linux::limits::Descriptors;
use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

/// Minimum time between two readings of a process's clock, per thread of the process. Chosen: the
/// kernel takes 0.17 µs for each of 20,000 threads on a virtual machine with 2 CPUs, so reading
/// takes less than half a percent of a PU.
const CLOCK_RESTS: Nanos = Nanos(40_000);

/// Errors for want of descriptors or memory, without information about the task.
pub const WANT_OF_ROOM: [i32; 3] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];

/// Open files of living tasks by keys of type `K`, and the clocks of their processes.
#[derive(Debug)]
pub struct RunStates<K> {
    /// Whether times are read.
    on: bool,
    of: HashMap<K, PolledTimes>,
    /// Processes with several threads, and the number of the last poll that included each.
    clocks: HashMap<Pid, (ProcessClock, u64)>,
    polls: u64,
    /// Number of open files, and below its maximum.
    open: usize,
    most_open: usize,
}

/// Times of one task, from poll to poll.
#[derive(Debug, Default)]
struct PolledTimes {
    /// File of the sums; `None` while closed.
    file: Option<RunTime>,
    /// Error of reading the times (errno), if any.
    failure: Option<i32>,
    waits: RunqueueWait,
    last: Option<SchedulerTimes>,
    /// Wait before the task's exact times, which begin later, were known.
    before: Option<Nanos>,
}

/// Times of a task since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerTimes {
    /// CPU time.
    pub cpu_time: Nanos,
    /// Run-queue wait, with a wait in progress.
    pub waited: Nanos,
}

/// Result of reading a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Times.
    pub times: SchedulerTimes,
    /// Whether the task neither ran nor waited for a PU since the last reading.
    pub sleeps: bool,
}

impl<K> Default for RunStates<K> {
    fn default() -> Self {
        Self {
            on: false,
            of: HashMap::new(),
            clocks: HashMap::new(),
            polls: 0,
            open: 0,
            most_open: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> RunStates<K> {
    /// Begins to ask for times.
    pub fn start(&mut self) -> Provider {
        // A quarter of what we may have: programs are launched and read, and counters opened, from the rest.
        let hard = Descriptors::now().hard;
        self.on = true;
        self.most_open = usize::try_from(hard / 4).unwrap_or(usize::MAX);
        provider()
    }

    /// Closes the files of all tasks, and opens none any more: from now on times are unknown.
    pub fn stop(&mut self) {
        self.on = false;
        self.open = 0;
        self.of.clear();
        self.clocks.clear();
    }

    /// Reads at `at` the clocks of the processes with these numbers of threads, before the threads
    /// themselves. For processes without a clock the threads are read one by one. The kernel's time
    /// for a clock grows with the number of threads, so clocks of large processes are read less
    /// often.
    pub fn begin(&mut self, processes: impl Iterator<Item = (Pid, usize)>, at: Nanos) {
        if !self.on {
            return;
        }
        self.polls += 1;
        for (pid, threads) in processes {
            let rests = Nanos(CLOCK_RESTS.0.saturating_mul(threads as u64));
            if let Some(clock) = self.clocks.get_mut(&pid) {
                clock.1 = self.polls;
                if at < clock.0.asked() + rests {
                    continue;
                }
            }
            match (process_time(pid), self.clocks.get_mut(&pid)) {
                (Some(time), Some(clock)) => clock.0.begin(time, at),
                (Some(time), None) => {
                    self.clocks.insert(pid, (ProcessClock::unread(time, at), self.polls));
                }
                (None, _) => drop(self.clocks.remove(&pid)),
            }
        }
        self.clocks.retain(|_, clock| clock.1 == self.polls);
    }

    /// Adds the clock of a process new to [`RunStates::begin`], as if all its threads had been read
    /// at `at`; returns its CPU time. `None` after its end.
    pub fn add(&mut self, pid: Pid, at: Nanos) -> Option<Nanos> {
        let mut clock = ProcessClock::unread(process_time(pid)?, at);
        clock.all_read();
        self.clocks.insert(pid, (clock, self.polls));
        Some(clock.time())
    }

    /// CPU time of a process at the last reading of its clock; `None` after its end.
    #[must_use]
    pub fn process_time(&self, pid: Pid) -> Option<Nanos> {
        self.clocks.get(&pid).map(|clock| clock.0.time())
    }

    /// Error of reading the times of a task (errno), if any.
    #[must_use]
    pub fn failure(&self, task: K) -> Option<i32> {
        self.of.get(&task)?.failure
    }

    /// Whether unread threads of a process have used CPU time since all were read, as far as known.
    #[must_use]
    pub fn has_new_cpu_time(&self, pid: Pid) -> bool {
        self.clocks.get(&pid).is_none_or(|clock| clock.0.has_new_cpu_time())
    }

    /// Records that all threads of a process have been read since [`RunStates::begin`].
    pub fn all_read(&mut self, pid: Pid) {
        if let Some(clock) = self.clocks.get_mut(&pid) {
            clock.0.all_read();
        }
    }

    /// Reads at `at`, on the kernel's clock, the times of a living task; `None` if unknown. `exact`
    /// are the times of another source, if any.
    pub fn read(
        &mut self,
        task: K,
        (pid, tid): (Pid, Tid),
        exact: Option<SchedulerTimes>,
        proc: &Path,
        at: Nanos,
    ) -> Option<Read> {
        if !self.on {
            return None;
        }
        let times = self.of.entry(task).or_default();
        let was_open = times.file.is_some();
        let before = times.last.unwrap_or_default();
        let read = match exact {
            Some(exact) => Some(times.take(exact)),
            None => {
                times.open((pid, tid), proc);
                times.read(at)
            }
        };
        // The file stays open if there is room for it.
        times.file.take_if(|_| !was_open && self.open >= self.most_open);
        self.open += usize::from(!was_open && times.file.is_some());
        let read = read?;
        if let Some(clock) = self.clocks.get_mut(&pid) {
            clock.0.add(read.times.cpu_time.saturating_sub(before.cpu_time));
        }
        Some(read)
    }

    /// Whether a task was runnable when sampled, at `at` or later and after [`RunStates::read`].
    pub fn could_run(&mut self, task: K, could: bool, at: Nanos) {
        if let Some(of) = self.of.get_mut(&task) {
            of.waits.could_run(could, at);
        }
    }

    /// Forgets an ended task.
    pub fn ended(&mut self, task: K) {
        let of = self.of.remove(&task);
        self.open -= usize::from(of.is_some_and(|of| of.file.is_some()));
    }
}

/// The mechanism of [`RunStates`] and its cost.
#[must_use]
pub fn provider() -> Provider {
    let cost = "two system calls for each task that runs, in each quantum".to_owned();
    Provider { name: "/proc: schedstat", cost, limits: Vec::new() }
}

impl PolledTimes {
    /// Reads the times at `at`, on the kernel's clock; `None` if ended or without a file.
    fn read(&mut self, at: Nanos) -> Option<Read> {
        let (cpu_time, waited) = self.file.as_ref()?.read_both()?;
        let waited = self.waits.read((cpu_time, waited), at);
        Some(self.note(SchedulerTimes { cpu_time, waited }))
    }

    /// Adopts the times of another source.
    fn take(&mut self, exact: SchedulerTimes) -> Read {
        let before = *self.before.get_or_insert(self.last.unwrap_or_default().waited);
        self.note(SchedulerTimes { waited: exact.waited + before, ..exact })
    }

    /// Updates the times without a decrease: the sum of a running thread may be read too high, as
    /// steal time is known later.
    fn note(&mut self, times: SchedulerTimes) -> Read {
        let last = self.last.unwrap_or_default();
        let times = SchedulerTimes {
            cpu_time: times.cpu_time.max(last.cpu_time),
            waited: times.waited.max(last.waited),
        };
        let sleeps = self.last.replace(times) == Some(times);
        Read { times, sleeps }
    }

    /// Opens the task's file, unless open or refused.
    fn open(&mut self, (pid, tid): (Pid, Tid), proc: &Path) {
        let is_final = self.failure.is_some_and(|errno| !WANT_OF_ROOM.contains(&errno));
        if self.file.is_some() || is_final {
            return;
        }
        match RunTime::open(proc, pid, tid) {
            Ok(file) => (self.file, self.failure) = (Some(file), None),
            Err(why) => self.failure = Some(why.raw_os_error().unwrap_or(0)),
        }
    }
}

/// Check of the kernel's times of threads.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    if inputs.place.schedstat {
        return Finding::yes("/proc/self/schedstat is there");
    }
    let why = "expected a kernel with CONFIG_SCHED_INFO, found no /proc/self/schedstat";
    Finding::no("/proc/self/schedstat is missing", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pretended `/proc` with one thread. It runs, sleeps, and its file cannot be had after a stop.
    #[test]
    fn times_and_sleep() {
        let proc = tempfile::tempdir().unwrap();
        let (task, thread) = ((), (Pid(7), Tid(8)));
        let folder = proc.path().join("7/task/8");
        std::fs::create_dir_all(&folder).unwrap();
        let sums = |text: &str| std::fs::write(folder.join("schedstat"), text).unwrap();
        sums("5000 300 2\n");
        let mut states = RunStates::default();
        assert_eq!(
            states.read(task, thread, None, proc.path(), Nanos(1)),
            None,
            "they were not asked for"
        );
        states.start();
        let times = |cpu, waited| SchedulerTimes { cpu_time: Nanos(cpu), waited: Nanos(waited) };
        let mut read = |at| states.read(task, thread, None, proc.path(), Nanos(at));
        assert_eq!(read(10), Some(Read { times: times(5000, 300), sleeps: false }));
        assert_eq!(read(20), Some(Read { times: times(5000, 300), sleeps: true }));
        sums("5400 300 3\n");
        assert_eq!(read(30), Some(Read { times: times(5400, 300), sleeps: false }));
        states.could_run(task, true, Nanos(30));
        assert_eq!(
            states.read(task, thread, None, proc.path(), Nanos(70)),
            Some(Read { times: times(5400, 340), sleeps: false }),
            "it waits"
        );
        let exact = Some(times(5500, 7));
        assert_eq!(
            states.read(task, thread, exact, proc.path(), Nanos(71)),
            Some(Read { times: times(5500, 347), sleeps: false }),
            "another source knows it better"
        );
        assert_eq!(states.open, 1);
        states.ended(task);
        assert_eq!(states.open, 0);
        states.stop();
        assert_eq!(states.read(task, thread, None, proc.path(), Nanos(80)), None);
    }
}
