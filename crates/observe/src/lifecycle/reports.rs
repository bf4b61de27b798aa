//! What the kernel reports of tasks: of every one there is, or of those that are watched.

use super::LifecycleOptions;
use crate::perf::{Attr, PerfRecord, Rings, parse};
use colocate_linux::limits::Descriptors;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Maximum number of records of unwatched tasks per second that are skipped. Chosen: each wakes
/// colocate; at 10 µs each (not measured) they are a quarter of a percent of a PU.
const MOST_OF_OTHERS: usize = 250;

/// Bytes of records that wake a reader: any record does.
const AT_ONCE: u32 = 1;
/// Bytes of records that wake a reader while no new thread is to be placed. Chosen: some 250
/// records, half of a ring with the default size.
const LATER: u32 = 32 << 10;

/// Rings with records of tasks.
#[derive(Debug)]
pub(super) struct TaskRings {
    /// A reader is woken at each of their records.
    pub rings: Rings,
    /// Rings of system-wide records while no reader has to be woken at once; disabled otherwise.
    lazy: Option<Rings>,
    /// Whether each event wakes a reader.
    pub is_prompt: bool,
    /// Number of records of unwatched tasks, and the beginning of the count.
    of_others: (usize, Instant),
    /// Whether opening per-task events has failed.
    pub stays: bool,
}

impl TaskRings {
    /// Opens system-wide events if permitted, and otherwise no event yet.
    pub fn open(options: &LifecycleOptions) -> Result<Self, SysError> {
        let cpus = &options.cpus;
        let pages = options.ring_pages;
        let attr = Attr::task_events(AT_ONCE);
        let every = Rings::map_every(&attr, cpus, pages);
        let rings = every.or_else(|_| Rings::map(&attr, cpus, pages))?;
        let later = Attr::task_events(LATER).disabled();
        let lazy = rings.every.then(|| Rings::map_every(&later, cpus, pages).ok());
        let of_others = (0, Instant::now());
        Ok(Self { rings, lazy: lazy.flatten(), is_prompt: true, of_others, stays: false })
    }

    pub fn of_every_task(&self) -> bool {
        self.rings.every
    }

    /// Opens events on all threads of a process; whether the kernel will report the end of each.
    pub fn open_on(
        &mut self,
        proc: &Proc,
        pid: Pid,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, SysError> {
        let attr = Attr::task_events(AT_ONCE).inherited();
        attach_all(&mut self.rings, &attr, proc, pid, bytes)
    }

    /// Opens events on these threads, too. After a failure the system-wide events stay for good.
    pub fn open_also(&mut self, tids: Vec<Tid>) -> bool {
        let attr = Attr::task_events(AT_ONCE).inherited();
        let rings = &mut self.rings;
        let done = tids.into_iter().try_for_each(|tid| attach(rings, &attr, tid).map(drop));
        if done.is_err() {
            self.rings.detach_if(|_| true);
            self.stays = true;
        }
        done.is_ok()
    }

    /// Closes the system-wide events. `bytes` receives their last records.
    pub fn leave_others(&mut self, bytes: &mut Vec<u8>) {
        if let Some(mut lazy) = self.lazy.take() {
            lazy.take(bytes);
        }
        self.is_prompt = true;
        // Where one cannot be switched off, others are passed over as before.
        let _ = self.rings.end_every();
    }

    /// Sets whether each event wakes a reader, where every task is reported.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        let Some(lazy) = self.lazy.as_ref().filter(|_| self.is_prompt != is_prompt) else { return };
        let (before, now) = if is_prompt { (lazy, &self.rings) } else { (&self.rings, lazy) };
        // What happens in between is reported twice, which is once too often only for names.
        if now.switch(true).is_ok() && before.switch(false).is_ok() {
            self.is_prompt = is_prompt;
        }
    }

    /// Descriptors that become readable when records are available.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let lazy = self.lazy.as_ref().filter(|_| !self.is_prompt);
        lazy.unwrap_or(&self.rings).fds().collect()
    }

    /// As [`Rings::take`].
    pub fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let full = self.rings.take(into);
        // In this order, as `||` would leave the lazy rings unread.
        self.lazy.as_mut().is_some_and(|lazy| lazy.take(into)) || full
    }

    /// As [`Rings::newly_lost`].
    pub fn newly_lost(&mut self, recorded: u64) -> u64 {
        let of_lazy = self.lazy.as_mut().map_or(0, |lazy| lazy.newly_lost(0));
        self.rings.newly_lost(recorded) + of_lazy
    }

    /// Counts `count` skipped records of unwatched tasks.
    pub fn pass_over(&mut self, count: usize) {
        if self.of_others.1.elapsed() > Duration::from_secs(1) {
            self.of_others = (0, Instant::now());
        }
        self.of_others.0 += count;
    }

    /// Whether records of unwatched tasks are so frequent that per-task events cost less.
    pub fn has_many_others(&self) -> bool {
        self.of_every_task() && self.of_others.0 > MOST_OF_OTHERS
    }
}

/// Opens `attr` on all threads of `pid`, also new ones; `bytes` collects incoming records.
///
/// Returns whether the kernel will report the end of each thread. An exiting thread cannot be
/// watched any more, but `/proc` lists it until its memory is freed.
/// Ended threads are skipped.
pub(crate) fn attach_all(
    rings: &mut Rings,
    attr: &Attr,
    proc: &Proc,
    pid: Pid,
    bytes: &mut Vec<u8>,
) -> Result<bool, SysError> {
    let mut attached = BTreeSet::new();
    let mut all = true;
    loop {
        // A child of a thread attached already has inherited its events, and a second event
        // would count everything twice. Listed threads exist, so their records are read after the list.
        let tasks = match proc.tasks(pid) {
            Ok(tasks) => tasks,
            Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => Vec::new(),
            // Of a child that waits before its exec this is all.
            Err(_) => vec![pid.first_thread()],
        };
        // A full ring may have dropped the record of a creation.
        all &= !rings.take(bytes);
        attached.extend(parse(bytes).filter_map(|record| match record {
            PerfRecord::Fork { created, .. } => Some(created.tid),
            _ => None,
        }));
        let new: Vec<Tid> = tasks.into_iter().filter(|tid| attached.insert(*tid)).collect();
        if new.is_empty() {
            return Ok(all);
        }
        for tid in new {
            all &= attach(rings, attr, tid)?;
        }
    }
}

/// Opens `attr` on a thread; false after the thread's end.
fn attach(rings: &mut Rings, attr: &Attr, tid: Tid) -> Result<bool, SysError> {
    let done = match rings.attach(attr, tid) {
        Err(error) if error.errno() == Some(libc::EMFILE) => {
            Descriptors::raise()?;
            rings.attach(attr, tid)
        }
        done => done,
    };
    match done {
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(false),
        done => done.map(|()| true),
    }
}
