//! Counts each thread of running programs, from its creation to its exit.

use super::counters::{Counters, OpenCounters};
use super::extras::{ExtraEvents, Extras};
use super::open::Start;
use crate::event::TaskEvent;
use crate::lifecycle::{LifecycleEvents, LifecycleOptions};
use colocate_linux::clock::now;
use colocate_linux::limits::Descriptors;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use colocate_model::{Mix, Share, ThreadProfile};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Counts of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedThreads {
    /// Threads, in the order of creation.
    pub threads: Vec<ThreadProfile>,
    /// Duration of the watch.
    pub watched: Nanos,
    /// Whether all threads had exited.
    pub complete: bool,
    /// Notes for readers of the figures, one sentence each.
    pub notes: Vec<String>,
}

/// Thread, alive or exited.
#[derive(Debug)]
struct CountedThread {
    pid: Pid,
    name: String,
    created: Nanos,
    ended: Option<Nanos>,
    found: CounterState,
}

#[derive(Debug)]
enum CounterState {
    /// Counters are open.
    Open(OpenCounters),
    /// Totals at the thread's exit, and its CPU time in ns.
    Read(Box<super::scale::ThreadTotals>, u64),
    /// Not counted.
    Nothing,
}

/// Descriptors reserved for the rest of the program: files, pipes and scans of `/proc`. Chosen.
const RESERVE: usize = 64;

/// Counts every thread of a process and of its descendants.
#[derive(Debug)]
pub struct ProcessCounters {
    counters: Counters,
    /// Limit of the counters' descriptors.
    most_open: usize,
    /// Threads with open counters.
    open: usize,
    lifecycle: LifecycleEvents,
    proc: Proc,
    began: Nanos,
    /// Threads, in the order of reports.
    threads: Vec<CountedThread>,
    /// Index in `threads` of each living thread.
    alive: HashMap<Tid, usize>,
    /// Processes, in the order of reports.
    processes: Vec<Pid>,
    /// Threads that exited before their counters were open.
    too_short: u64,
    /// Threads not counted for another reason, and the first such reason.
    refused: u64,
    reason: Option<SysError>,
    /// Threads whose counters the kernel has taken away.
    withdrawn: u64,
    lost: u64,
    events: Vec<TaskEvent>,
}

impl ProcessCounters {
    /// Counts process `root` and all its future threads and children.
    ///
    /// With [`Start::AtExec`], `root` is a child that waits before its exec, and nothing before the
    /// exec is counted. With [`Start::Now`] it runs already, and its threads are counted from now
    /// on.
    ///
    /// # Errors
    /// If no thread can be counted: as [`Counters::open`].
    pub fn start(
        counters: Counters,
        root: Pid,
        start: Start,
        options: &LifecycleOptions,
    ) -> Result<Self, SysError> {
        let lifecycle = LifecycleEvents::watch(root, options);
        // The soft limit is raised when descriptors run out.
        let hard = usize::try_from(Descriptors::now().hard).unwrap_or(usize::MAX);
        let mut watch = Self {
            counters,
            most_open: hard.saturating_sub(RESERVE + lifecycle.fds().len()),
            open: 0,
            lifecycle,
            proc: options.proc.clone(),
            began: now(),
            threads: Vec::new(),
            alive: HashMap::new(),
            processes: Vec::new(),
            too_short: 0,
            refused: 0,
            reason: None,
            withdrawn: 0,
            lost: 0,
            events: Vec::new(),
        };
        watch.take_events(start);
        let counting =
            watch.threads.iter().any(|thread| matches!(thread.found, CounterState::Open(_)));
        // One counted thread is enough to go on.
        match watch.reason.take_if(|_| !counting) {
            Some(reason) => Err(reason),
            None => Ok(watch),
        }
    }

    /// Descriptors that become readable when [`ProcessCounters::pump`] has work.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.lifecycle.fds()
    }

    /// Longest sleep of a reader; `None` if [`ProcessCounters::fds`] report all events.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.lifecycle.poll_timeout()
    }

    /// Whether every watched thread has exited.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.lifecycle.all_ended()
    }

    /// Opens counters of new threads and reads those of exited threads. Never waits.
    pub fn pump(&mut self) {
        self.take_events(Start::Now);
    }

    fn take_events(&mut self, start: Start) {
        let mut events = std::mem::take(&mut self.events);
        self.lifecycle.drain(&mut events);
        for event in events.drain(..) {
            self.take(event, start);
        }
        self.events = events;
    }

    fn take(&mut self, event: TaskEvent, start: Start) {
        match event {
            TaskEvent::Created { at, pid, tid, parent_tid, .. } => {
                self.add_thread(at, pid, tid, parent_tid, start);
            }
            TaskEvent::Named { tid, name, .. } => {
                if let Some(place) = self.alive.get(&tid) {
                    self.threads[*place].name = name;
                }
            }
            TaskEvent::Ended { at, pid, tid } => {
                if let Some(place) = self.alive.remove(&tid) {
                    self.ended(place, at, pid, tid);
                }
            }
            TaskEvent::Lost { count } => self.lost += count,
            // Threads are reported here even in a storm of creations.
            TaskEvent::Storm { .. } => {}
        }
    }

    fn ended(&mut self, place: usize, at: Nanos, pid: Pid, tid: Tid) {
        if self.lives_on(pid, tid) {
            self.withdrawn += 1;
            self.open -= usize::from(matches!(self.threads[place].found, CounterState::Open(_)));
            self.threads[place].found = CounterState::Nothing;
        } else {
            self.threads[place].ended = Some(at);
            self.read(place);
        }
    }

    /// Whether a process lives on although the kernel reported the exit of its last thread. The
    /// kernel reports this, too, when it removes all events from a process that gains privileges,
    /// or that executes a file its user may not read. Such a process may no longer be watched, so
    /// its counts are incomplete.
    fn lives_on(&self, pid: Pid, tid: Tid) -> bool {
        // If other threads live, one of them may have taken over this TID by an exec.
        let has_others = self.alive.values().any(|place| self.threads[*place].pid == pid);
        if tid != pid.first_thread() || has_others {
            return false;
        }
        self.proc.is_exiting(pid, tid) == Some(false)
    }

    fn add_thread(&mut self, at: Nanos, pid: Pid, tid: Tid, parent: Tid, start: Start) {
        // A new thread has its creator's name until it sets its own.
        let creator = self.alive.get(&parent).map(|place| self.threads[*place].name.clone());
        let name = creator.or_else(|| self.proc.name(pid, tid)).unwrap_or_default();
        let found = match self.open(tid, start) {
            Ok(open) => {
                self.open += 1;
                CounterState::Open(open)
            }
            Err(error) if error.errno() == Some(libc::ESRCH) => {
                self.too_short += 1;
                CounterState::Nothing
            }
            Err(error) => {
                self.refused += 1;
                self.reason.get_or_insert(error);
                CounterState::Nothing
            }
        };
        if !self.processes.contains(&pid) {
            self.processes.push(pid);
        }
        self.alive.insert(tid, self.threads.len());
        self.threads.push(CountedThread { pid, name, created: at, ended: None, found });
    }

    /// Opens the counters on `tid`; without free descriptors raises the limit and retries. The
    /// programs have been started by then and do not inherit the limit.
    fn open(&self, tid: Tid, start: Start) -> Result<OpenCounters, SysError> {
        if (self.open + 1) * self.counters.descriptors() > self.most_open {
            return Err(SysError::of("perf_event_open", libc::EMFILE));
        }
        match self.counters.open(tid, start) {
            Err(error) if error.errno() == Some(libc::EMFILE) => {
                Descriptors::raise()?;
                self.counters.open(tid, start)
            }
            done => done,
        }
    }

    /// Reads a thread's counters and closes them.
    fn read(&mut self, place: usize) {
        let thread = &mut self.threads[place];
        if let CounterState::Open(open) = &thread.found {
            self.open -= 1;
            thread.found = match self.counters.read(open) {
                Ok((totals, on_cpu_ns)) => CounterState::Read(Box::new(totals), on_cpu_ns),
                Err(error) => {
                    self.refused += 1;
                    self.reason.get_or_insert(error);
                    CounterState::Nothing
                }
            };
        }
    }

    /// Reads the counters of living threads; returns all counts.
    #[must_use]
    pub fn finish(self) -> CountedThreads {
        self.finish_all().0
    }

    /// As [`ProcessCounters::finish`], with other components of demand vectors, and their events.
    #[must_use]
    pub fn finish_all(mut self) -> (CountedThreads, Vec<Extras>, ExtraEvents) {
        self.pump();
        let complete = self.all_ended() && self.withdrawn == 0;
        for place in 0..self.threads.len() {
            self.read(place);
        }
        let watched = now().saturating_sub(self.began);
        let notes = self.notes();
        let mut all: Vec<(ThreadProfile, Extras)> = self
            .threads
            .iter()
            .map(|thread| {
                let process = self.processes.iter().position(|pid| *pid == thread.pid);
                let process = u32::try_from(process.unwrap_or(0)).unwrap_or(u32::MAX);
                thread.profile(process, self.began)
            })
            .collect();
        all.sort_by_key(|(thread, _)| thread.start_ns);
        let (mut threads, extras): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (order, thread) in (0..).zip(&mut threads) {
            thread.order = order;
        }
        (CountedThreads { threads, watched, complete, notes }, extras, self.counters.events())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.counters.notes.clone();
        if self.too_short > 0 {
            notes.push(format!(
                "threads that ended before they could be counted, whose figures are unknown: {}",
                self.too_short
            ));
        }
        if let Some(reason) = &self.reason {
            notes.push(format!("threads that could not be counted: {} ({reason})", self.refused));
        }
        if self.withdrawn > 0 {
            notes.push(format!(
                "processes that may not be watched since they gained privileges or executed \
                 what their user may not read, whose figures are unknown: {}",
                self.withdrawn
            ));
        }
        if self.lost > 0 {
            notes.push(format!("lost records of thread creations and ends: {}", self.lost));
        }
        if let Some(why) = self.lifecycle.without_perf() {
            notes.push(format!(
                "thread creation is detected by scanning /proc, because {why}: threads are counted late"
            ));
        }
        notes.extend(self.scaling());
        notes
    }

    /// Notes on threads with multiplexed or missing counters.
    fn scaling(&self) -> Vec<String> {
        let read = self.threads.iter().filter_map(|thread| match &thread.found {
            CounterState::Read(totals, _) => Some(totals),
            _ => None,
        });
        let mut notes = Vec::new();
        let parts: Vec<Share> = read.clone().filter_map(|totals| totals.scaled).collect();
        if let Some(least) = parts.iter().copied().min_by(|a, b| a.get().total_cmp(&b.get())) {
            notes.push(format!(
                "threads whose instructions and cycles are scaled, since counters took turns: {} \
                 (counted for {least} of their time or more)",
                parts.len()
            ));
        }
        let unknown = read.filter(|totals| totals.instructions.is_none()).count();
        if unknown > 0 {
            notes.push(format!(
                "threads whose figures are unknown, since others held the counters nearly all of \
                 their time: {unknown}"
            ));
        }
        notes
    }
}

impl CountedThread {
    fn profile(&self, process: u32, began: Nanos) -> (ThreadProfile, Extras) {
        let (totals, on_cpu_ns) = match &self.found {
            CounterState::Read(totals, on_cpu_ns) => (**totals, Some(*on_cpu_ns)),
            CounterState::Open(_) | CounterState::Nothing => Default::default(),
        };
        let profile = ThreadProfile {
            order: 0,
            process,
            name: self.name.clone(),
            start_ns: self.created.saturating_sub(began),
            end_ns: self.ended.map(|ended| ended.saturating_sub(began)),
            cpu_time_ns: on_cpu_ns.map(Nanos),
            instructions: totals.instructions,
            cycles: totals.cycles,
            samples: None,
            // Without instructions there are no shares.
            mix: if totals.instructions == Some(0) { Mix::default() } else { totals.mix },
        };
        (profile, totals.extras)
    }
}

#[allow(unsafe_code)] // the child asks for small pages
#[cfg(test)]
mod tests;
