//! Task lifecycle events: the threads of running programs that are created, end, or change their name.
//!
//! The kernel reports them by perf events that count nothing. They need no preload and no tracing, work for static, Go and JVM
//! programs, and report a creation before the new thread has run its first instruction. A reader that
//! waits on [`LifecycleEvents::fds`] is woken at once (median 40–45 µs in a 2-CPU virtual machine).
//!
//! One event a CPU reports of every task on the machine, and what is of others is passed over: nothing is opened for each
//! process, so that a program costs no more when it creates many. Where that is not permitted, or others create and end many,
//! one event a CPU is opened on each watched thread instead, and inherited by all that it creates. Where the kernel denies that
//! too, `/proc` is scanned periodically: it yields the same events, but later, and short-lived threads are missed.
//!
//! Where no new thread has to be placed, [`LifecycleEvents::set_prompt`] lets events wait: to be woken at each is what costs most.
//!
//! ```no_run
//! # fn main() -> Result<(), colocate_linux::SysError> {
//! # let child = colocate_linux::Pid(1);
//! use colocate_linux::poll::wait_readable;
//! use colocate_observe::{LifecycleEvents, LifecycleOptions};
//! // `child` waits before its exec.
//! let mut lifecycle = LifecycleEvents::watch(child, &LifecycleOptions::here()?);
//! // … let it go on …
//! let mut events = Vec::new();
//! while !lifecycle.all_ended() {
//!     wait_readable(&lifecycle.fds(), lifecycle.poll_timeout())?;
//!     lifecycle.drain(&mut events);
//!     for event in events.drain(..) { /* pin it, count it, forget it */ }
//! }
//! # Ok(()) }
//! ```

mod order;
mod reports;
mod scans;
mod storm;

pub use storm::BURST;

use crate::event::TaskEvent;
use crate::perf::{PerfRecord, SampleId};
use colocate_linux::clock::now;
use colocate_linux::proc::{Proc, online_cpus};
use colocate_linux::{Pid, SysError, Tid, affinity};
use colocate_machine::PuNr;
use order::EventOrder;
use reports::TaskRings;
pub(crate) use reports::attach_all;
use scans::Scans;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Options of watching.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// CPUs on which tasks may run. Events on further CPUs are missed, unless passed to
    /// [`LifecycleEvents::set_allowed_cpus`].
    pub cpus: Vec<PuNr>,
    /// The `/proc` in use.
    pub proc: Proc,
    /// Size of each CPU's ring in pages, a power of two; less is taken where less is allowed.
    pub ring_pages: usize,
    /// Whether to work without kernel events, as if denied.
    pub without_perf: bool,
    /// Maximum number of new threads reported per second, per given process with its descendants;
    /// `None` for all. [`BURST`] threads may come at once.
    pub most_a_second: Option<u32>,
}

impl LifecycleOptions {
    /// Online CPUs and `/proc` of this machine. Without a `/sys` that lists the CPUs, the CPUs of
    /// this thread's own affinity mask.
    ///
    /// # Errors
    /// If the mask cannot be read either.
    pub fn here() -> Result<Self, SysError> {
        let cpus = online_cpus(Path::new("/sys/devices/system"))
            .or_else(|_| Ok(affinity::of(Tid(0))?.iter().collect()))?;
        Ok(Self {
            cpus,
            proc: Proc::default(),
            ring_pages: RING_PAGES,
            without_perf: false,
            most_a_second: None,
        })
    }
}

/// Pages of a ring. A creation record takes 64 bytes, so a ring has room for 1,000 between two
/// reads. Chosen, not measured.
const RING_PAGES: usize = 16;

/// Time between two reads of the rings while no new thread is to be placed. Chosen: of
/// shorter-lived threads mask and CPU time are not read.
const READ_LATER: Duration = Duration::from_millis(100);

/// Time between two reads in a storm. Chosen: a ring has room for several times as long.
const READ_IN_STORM: Duration = Duration::from_millis(10);

/// Maximum number of ring reads until every watched task has events of its own. Chosen: meanwhile a
/// new thread inherits the events of its creator, if any.
const READS_TO_LEAVE: usize = 8;

/// Number of tasks above which no per-task events are opened, and the rings are read as in a storm.
/// Chosen: an event takes a descriptor per CPU.
const MOST_TO_OPEN: usize = 64;

/// Watcher of the tasks of one or more programs.
#[derive(Debug)]
pub struct LifecycleEvents {
    /// Reports of the kernel, if used.
    reports: Option<TaskRings>,
    /// Reason for the lack of reports, unless the options request none.
    without_perf: Option<SysError>,
    proc: Proc,
    order: EventOrder,
    /// Events found when watching began.
    first: Vec<TaskEvent>,
    bytes: Vec<u8>,
    scans: Scans,
    /// Next read of the rings in a storm.
    next_read: Instant,
    /// CPUs allowed for tasks, as last set.
    allowed: Vec<PuNr>,
    /// Whether tasks may run on CPUs without a ring, so that their events are missed.
    has_uncovered_cpus: bool,
}

impl LifecycleEvents {
    /// Watches process `pid` and its descendants from now on.
    ///
    /// For a complete record, call it while `pid` is a child that waits before its exec. A running
    /// process may be given as well: its threads are found in `/proc`.
    ///
    /// Never fails. If the kernel denies events, `/proc` is used, and
    /// [`LifecycleEvents::without_perf`] has the reason. If `/proc` is not usable either,
    /// [`LifecycleEvents::without_proc`] has the reason, and of each given process only its life is
    /// known. A process that is gone is reported as ended.
    #[must_use]
    pub fn watch(pid: Pid, options: &LifecycleOptions) -> Self {
        let opened = (!options.without_perf).then(|| TaskRings::open(options)).transpose();
        let (reports, without_perf) =
            opened.map_or_else(|why| (None, Some(why)), |reports| (reports, None));
        let mut lifecycle = Self {
            reports,
            without_perf,
            scans: Scans::new(options.proc.check().err()),
            next_read: Instant::now(),
            proc: options.proc.clone(),
            order: EventOrder::new(options.most_a_second),
            first: Vec::new(),
            bytes: Vec::new(),
            allowed: Vec::new(),
            has_uncovered_cpus: false,
        };
        if lifecycle.needs_proc() {
            lifecycle.scans.soon();
        }
        lifecycle.add(pid);
        lifecycle
    }

    /// Adds process `pid` and its descendants to the watched tasks.
    pub fn add(&mut self, pid: Pid) {
        self.add_all(&[pid]);
    }

    /// Adds these processes and their descendants, found by a single scan of `/proc`.
    pub fn add_all(&mut self, pids: &[Pid]) {
        // Processes watched before have their events, and so has all that they create.
        let before: BTreeSet<Pid> = self.order.tree.processes().collect();
        pids.iter().for_each(|pid| self.order.tree.add(*pid));
        self.scan_below(pids);
        if self.reports.as_ref().is_some_and(TaskRings::of_every_task) {
            return;
        }
        let mut late = false;
        for process in self.order.tree.processes().filter(|process| !before.contains(process)) {
            let Some(reports) = &mut self.reports else { break };
            match reports.open_on(&self.proc, process, &mut self.bytes) {
                Ok(all) => late |= !all,
                Err(why) => {
                    (self.reports, self.without_perf) = (None, Some(why));
                    late = true;
                }
            }
        }
        if late {
            self.scans.soon();
        }
        // Some threads may have been created before their creator was watched.
        self.scan_below(pids);
    }

    /// Replaces system-wide events by events on each watched task. The system-wide events end last,
    /// so that nothing is missed. They stay if per-task events cannot be opened.
    fn leave_others(&mut self, events: &mut Vec<TaskEvent>) {
        let mut watched = BTreeSet::new();
        for _ in 0..READS_TO_LEAVE {
            self.read_in_order(events);
            let Some(reports) = &mut self.reports else { return };
            let new: Vec<Tid> =
                self.order.tree.tasks().filter(|tid| watched.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            if !reports.open_also(new) {
                return;
            }
        }
        if let Some(reports) = &mut self.reports {
            reports.leave_others(&mut self.bytes);
        }
    }

    /// Scans `/proc` for tasks of these processes and of their descendants. Reports their first
    /// threads even if `/proc` does not show them: a caller must not wait for the creation of a
    /// process launched by itself.
    fn scan_below(&mut self, pids: &[Pid]) {
        let at = now();
        if self.scans.without_proc.is_none() {
            self.order.tree.scan_below(&self.proc, pids, at, &mut self.first);
        }
        if self.scans.without_proc.is_some() || self.order.tree.unread {
            pids.iter().for_each(|pid| self.order.add_unread(*pid, at, &mut self.first));
        }
    }

    /// Records the end of a reaped process's threads, whatever `/proc` or the kernel reports.
    pub fn reaped(&mut self, tids: impl IntoIterator<Item = Tid>) {
        for tid in tids {
            self.order.tree.forget(tid);
        }
    }

    /// Forgets an added process after its end and its descendants', and closes its descriptors.
    pub fn forget(&mut self, pid: Pid) {
        if let Some(reports) = &mut self.reports {
            reports.rings.detach(pid.first_thread());
        }
        self.order.storms.forget(pid);
    }

    /// Reports every new thread from now on, and the threads held back so far.
    pub fn report_all(&mut self) {
        self.order.storms.report_all();
    }

    /// Sets whether [`LifecycleEvents::fds`] become readable at each event, the default, or events
    /// may wait for 0.1 s. The interrupts that wake a reader cost a program that runs 500 short
    /// programs 4 % of its time (virtual machine with 2 PUs). Without permission to watch every
    /// task, events do not wait.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        if let Some(reports) = &mut self.reports {
            reports.set_prompt(is_prompt);
        }
    }

    /// Sets the CPUs on which tasks may run now. Returns the CPUs whose events are missed because
    /// they were not in [`LifecycleOptions::cpus`]. While there are any, `/proc` is scanned as
    /// well, as if events were denied.
    ///
    /// No rings are added: every watched task would need events there, and inherited events cannot
    /// be opened afterwards without gaps. A CPU that goes offline and returns keeps its ring and
    /// the per-task events. The CPU-wide event is lost when its CPU goes offline; per-task events
    /// replace it.
    pub fn set_allowed_cpus(&mut self, cpus: impl IntoIterator<Item = PuNr>) -> Vec<PuNr> {
        let Some(reports) = &self.reports else { return Vec::new() };
        let cpus: Vec<PuNr> = cpus.into_iter().collect();
        let uncovered =
            cpus.iter().copied().filter(|cpu| !reports.rings.has(*cpu)).collect::<Vec<_>>();
        self.has_uncovered_cpus = !uncovered.is_empty();
        if reports.of_every_task() && self.allowed.iter().any(|cpu| !cpus.contains(cpu)) {
            let mut first = std::mem::take(&mut self.first);
            self.leave_others(&mut first);
            self.first = first;
        }
        self.allowed = cpus;
        if self.has_uncovered_cpus {
            self.scans.soon();
        }
        uncovered
    }

    /// Whether some creations and ends are only visible in `/proc`.
    fn needs_proc(&self) -> bool {
        self.has_uncovered_cpus || self.reports.is_none()
    }

    /// Reason for the use of `/proc` instead of kernel events; `None` if they are used or unwanted.
    #[must_use]
    pub fn without_perf(&self) -> Option<&SysError> {
        self.without_perf.as_ref()
    }

    /// Reason why `/proc` is unusable; `None` if usable.
    #[must_use]
    pub fn without_proc(&self) -> Option<&str> {
        self.scans.without_proc.as_deref()
    }

    /// Descriptors that become readable at an event. None if `/proc` is used, and none in a storm,
    /// when each new thread would wake the reader.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let reports = self.reports.as_ref().filter(|_| !self.reads_by_time());
        reports.map(TaskRings::fds).unwrap_or_default()
    }

    /// Longest sleep of a reader unless [`LifecycleEvents::fds`] wake it; `None` if they always do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        // Events that were read already make no descriptor readable.
        if !self.first.is_empty() || self.order.has_newer {
            return Some(Duration::ZERO);
        }
        let waits = self.reports.as_ref().is_some_and(|reports| !reports.is_prompt);
        let read = (self.reads_by_time() || waits).then_some(self.next_read);
        let next = [self.scans.next, read].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Whether every watched task has ended and been reported.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.order.tree.is_empty() && self.first.is_empty()
    }

    /// Appends the events since the last call to `events`. Never waits. If too many of the kernel's
    /// records belong to unwatched tasks, switches to per-task events.
    pub fn drain(&mut self, events: &mut Vec<TaskEvent>) {
        events.append(&mut self.first);
        self.read_in_order(events);
        if self.reports.as_ref().is_some_and(|reports| reports.has_many_others() && !reports.stays)
            && self.order.tree.tasks().nth(MOST_TO_OPEN).is_none()
        {
            self.leave_others(events);
        }
        let begun = Instant::now();
        self.next_read = begun + if self.reads_by_time() { READ_IN_STORM } else { READ_LATER };
        if self.scans.next.is_some_and(|next| next <= begun) {
            let mut found = Vec::new();
            self.order.tree.scan(&self.proc, now(), &mut found);
            if self.needs_proc() {
                found = self.order.renumbered(found);
            }
            found.into_iter().for_each(|event| self.order.report(event, events));
            self.scans.plan(begun, self.needs_proc());
        }
        let at = now();
        let EventOrder { tree, storms, .. } = &mut self.order;
        let due = storms.due(at, |tid| tree.is_hidden(tid));
        due.into_iter().for_each(|tid| tree.reveal(tid, at, events));
    }

    /// Whether the rings are read at intervals, and no event wakes a reader.
    fn reads_by_time(&self) -> bool {
        self.order.storms.is_any() || self.reports.as_ref().is_some_and(TaskRings::has_many_others)
    }
}

/// Event reported by a kernel record, if any.
pub(crate) fn event(record: &PerfRecord<'_>) -> Option<TaskEvent> {
    Some(match *record {
        PerfRecord::Fork { created: SampleId { at, pid, tid }, parent_pid, parent_tid } => {
            TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found: false }
        }
        PerfRecord::Exit(SampleId { at, pid, tid }) => TaskEvent::Ended { at, pid, tid },
        PerfRecord::Comm { of: SampleId { at, pid, tid }, name, exec } => {
            let name = String::from_utf8_lossy(name).into_owned();
            TaskEvent::Named { at, pid, tid, name, exec }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
