//! Who is born, who ends and who takes a new name among the threads of running programs.
//!
//! The kernel tells: one event that counts nothing, a CPU, inherited by every thread and process
//! that the watched one creates. It needs no preload and no tracing, works for static, Go and JVM
//! programs, and reports a birth before the newborn has run its first instruction; a reader that
//! waits on [`Births::fds`] is woken at once (median 40–45 µs in a 2-CPU virtual machine). Where
//! the kernel does not let us open events, `/proc` is looked through again and again instead:
//! the same events, but later, and short lives are missed.
//!
//! ```no_run
//! # fn main() -> Result<(), colocate_observe::SysError> {
//! # let child = colocate_observe::Pid(1);
//! use colocate_observe::{Births, Options, sys};
//! // `child` waits before its exec.
//! let mut births = Births::watch(child, &Options::here()?);
//! // … let it go on …
//! let mut events = Vec::new();
//! while !births.all_ended() {
//!     sys::wait_readable(&births.fds(), births.next_look())?;
//!     births.drain(&mut events);
//!     for event in events.drain(..) { /* pin it, count it, forget it */ }
//! }
//! # Ok(()) }
//! ```

mod storm;

pub use storm::AT_ONCE;

use crate::limits::Descriptors;
use crate::perf::{Attr, Record, Rings, Stamp, parse};
use crate::proc::{Proc, Tree, online_cpus};
use crate::sys::{SysError, exists, now};
use crate::task::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use storm::{Storms, Verdict};

/// Something that happened to a task. Times are on `CLOCK_MONOTONIC`.
///
/// For every task `Born` comes first and once, `Ended` last; between tasks the order is that of
/// time, but an event can come after a later one of another CPU.
///
/// A thread that is not its process's first and executes a program goes on under the first one's
/// number: the first one has ended, one with its number is born, and then the thread ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// It was created, or was there already when watching began.
    Born {
        /// When; for a task found in `/proc`, when it was found.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The process that created it: its own for a further thread, another one for the first
        /// thread of a process.
        parent_pid: Pid,
        /// The thread that created it, or that goes on as it; the first thread of that process where
        /// unknown.
        parent_tid: Tid,
        /// Whether it was found in `/proc`, which does not say what thread created it.
        found: bool,
    },
    /// It has ended.
    Ended {
        /// When.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// It has a new name. A newborn has its creator's name and reports none until it changes.
    Named {
        /// When.
        at: Nanos,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The name, at most 15 bytes.
        name: String,
        /// Whether it is new because the process executes another program now.
        exec: bool,
    },
    /// Notes of the kernel were lost. Births and ends among them follow, found in `/proc`.
    Lost {
        /// How many.
        count: u64,
    },
    /// A process creates threads faster than [`Options::most_a_second`]. As long as it does, those that live on are born
    /// late, as found, and of others nothing is told.
    Storm {
        /// When.
        at: Nanos,
        /// The process.
        pid: Pid,
    },
}

impl TaskEvent {
    /// When it happened; `None` for losses.
    #[must_use]
    pub fn at(&self) -> Option<Nanos> {
        match self {
            Self::Born { at, .. }
            | Self::Ended { at, .. }
            | Self::Named { at, .. }
            | Self::Storm { at, .. } => Some(*at),
            Self::Lost { .. } => None,
        }
    }
}

/// Where and how to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// CPUs on which tasks may run; what happens on others goes unseen, unless [`Births::may_run_on`]
    /// is told of them.
    pub cpus: Vec<PuNr>,
    /// Where processes are looked up.
    pub proc: Proc,
    /// Size of each CPU's ring in pages, a power of two; less is taken where less is allowed.
    pub ring_pages: usize,
    /// Whether to do without kernel events, as where they are denied.
    pub without_perf: bool,
    /// How many new threads a second are told of, of each process that is given and of all that it creates; all without a
    /// number. As many as [`AT_ONCE`] may come at once.
    pub most_a_second: Option<u32>,
}

impl Options {
    /// This machine's online CPUs and its `/proc`.
    ///
    /// # Errors
    /// If `/sys/devices/system/cpu/online` cannot be read.
    pub fn here() -> Result<Self, SysError> {
        let cpus = online_cpus(Path::new("/sys/devices/system"))
            .map_err(|source| SysError { call: "read /sys/devices/system/cpu/online", source })?;
        let (proc, ring_pages) = (Proc::default(), RING_PAGES);
        Ok(Self { cpus, proc, ring_pages, without_perf: false, most_a_second: None })
    }
}

/// A note of a birth takes 64 bytes, so 1,000 fit between two reads. Chosen, not measured.
const RING_PAGES: usize = 16;

/// Least time between two looks through `/proc`. Chosen: a thread that lives for less is not worth
/// placing.
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// Time between the first two looks through `/proc` that make up for lost notes. Chosen.
const LOOK_AFTER_LOSS: Duration = Duration::from_secs(1);

/// The last of these looks comes so long after the one before. Chosen: no thread takes longer to end.
const LAST_LOOK_AFTER_LOSS: Duration = Duration::from_secs(60);

/// Looking through `/proc` takes at most one part in this many of a core. Chosen: half of what watching may take.
const LOOK_SHARE: u32 = 100;

/// Time between two readings of the rings in a storm. Chosen: a ring has room for what is created in several times as long.
const READ_IN_STORM: Duration = Duration::from_millis(10);

/// How often the rings are read again for what comes before that which has already been heard of.
///
/// Twice is enough unless notes were lost: a birth is written before the newborn runs.
const READS_FOR_ORDER: usize = 4;

/// How long after the ends of its other threads a process is seen to execute another program, at most. Chosen: the
/// thread that executes it may wait for a PU in between, on a busy machine for some slices of others.
const EXEC_TAKES: Nanos = Nanos::from_secs(1);

/// How long an event is kept for those that belong before it. Chosen: they are in the rings already.
const KEPT_EARLY: Nanos = Nanos::from_secs(1);

/// Watches the tasks of one or more programs.
#[derive(Debug)]
pub struct Births {
    source: Source,
    proc: Proc,
    tree: Tree,
    /// Events that others belong before which have not been heard of yet.
    early: Vec<TaskEvent>,
    /// Events found when watching began.
    first: Vec<TaskEvent>,
    bytes: Vec<u8>,
    /// When `/proc` is to be looked through; `None` as long as the kernel tells everything.
    next_look: Option<Instant>,
    /// Time between the next look that makes up for lost notes and the one after it.
    after_loss: Duration,
    storms: Storms,
    /// When the rings are to be read next in a storm.
    next_read: Instant,
    /// Whether tasks may run on CPUs of which the kernel tells nothing, as they have no ring.
    is_deaf: bool,
    /// Why `/proc` cannot be used at all.
    without_proc: Option<String>,
}

#[derive(Debug)]
enum Source {
    Perf(Rings),
    Proc { why: Option<SysError> },
}

impl Births {
    /// Watches process `pid` and all it creates from now on.
    ///
    /// For a whole record, call it while `pid` is a child that waits before its exec. A process
    /// that runs already may be given as well: its threads are found in `/proc`.
    ///
    /// Never fails: where the kernel denies events, [`Births::without_perf`] says why and `/proc`
    /// is used; where that cannot be used either, [`Births::without_proc`] says why, and of each process that is given
    /// no more is known than that it lives. A process that is gone is reported as ended.
    #[must_use]
    pub fn watch(pid: Pid, options: &Options) -> Self {
        let rings = || Rings::map(&Attr::task_notes(), &options.cpus, options.ring_pages);
        let source = match (!options.without_perf).then(rings) {
            Some(Ok(rings)) => Source::Perf(rings),
            Some(Err(why)) => Source::Proc { why: Some(why) },
            None => Source::Proc { why: None },
        };
        let mut births = Self {
            source,
            next_look: None,
            after_loss: LOOK_AFTER_LOSS,
            storms: Storms::new(options.most_a_second),
            next_read: Instant::now(),
            proc: options.proc.clone(),
            tree: Tree::default(),
            early: Vec::new(),
            first: Vec::new(),
            bytes: Vec::new(),
            is_deaf: false,
            without_proc: options.proc.check().err(),
        };
        if births.needs_proc() {
            births.look_soon();
        }
        births.also(pid);
        births
    }

    /// Watches process `pid` and all it creates, too.
    pub fn also(&mut self, pid: Pid) {
        // Who was watched before has its events, and so has all that it creates.
        let before: BTreeSet<Pid> = self.tree.processes().collect();
        self.tree.add(pid);
        self.look_below(pid);
        if let Source::Perf(rings) = &mut self.source {
            let (attr, mut late) = (Attr::task_notes().inherited(), false);
            for process in self.tree.processes().filter(|process| !before.contains(process)) {
                match attach_all(rings, &attr, &self.proc, process, &mut self.bytes) {
                    Ok(true) => {}
                    Ok(false) => late = true,
                    Err(why) => {
                        (self.source, late) = (Source::Proc { why: Some(why) }, true);
                        break;
                    }
                }
            }
            if late {
                self.look_soon();
            }
            // Some may have been born before their creator was watched.
            self.look_below(pid);
        }
    }

    /// Looks for tasks of process `pid` and below. It has one, its first thread, whether or not `/proc` shows that: a
    /// caller must not wait for the birth of what it has launched itself.
    fn look_below(&mut self, pid: Pid) {
        let (at, tid) = (now(), pid.first_thread());
        if self.without_proc.is_none() {
            self.tree.look_below(&self.proc, pid, at, &mut self.first);
        }
        let is_unread = self.without_proc.is_some() || self.tree.has_unread();
        if is_unread && !self.tree.has(tid) && exists(pid, tid) {
            let (parent_pid, parent_tid) = (pid, tid);
            let born = TaskEvent::Born { at, pid, tid, parent_pid, parent_tid, found: true };
            self.tree.learn(&born);
            self.first.push(born);
        }
    }

    /// Has `/proc` looked through at the next call of [`Births::drain`], if it can be used.
    fn look_soon(&mut self) {
        self.next_look = self.without_proc.is_none().then(Instant::now);
        self.after_loss = LOOK_AFTER_LOSS;
    }

    /// Notes that these threads have ended, whatever `/proc` or the kernel's notes will say, as their process was reaped.
    pub fn reaped(&mut self, tids: impl IntoIterator<Item = Tid>) {
        for tid in tids {
            self.tree.forget(tid);
        }
    }

    /// Forgets a process that [`Births::also`] was called for, when it and all it has created have
    /// ended: its descriptors are closed.
    pub fn forget(&mut self, pid: Pid) {
        if let Source::Perf(rings) = &mut self.source {
            rings.detach(pid.first_thread());
        }
        self.storms.forget(pid);
    }

    /// From now on tells of every new thread, and of those that were not told of at once.
    pub fn tell_all(&mut self) {
        self.storms.pass_all_on();
    }

    /// Takes in on which CPUs tasks may run now, and says on which of them the kernel tells nothing,
    /// because they were not among [`Options::cpus`]. As long as there are such, `/proc` is looked
    /// through again and again as well, as where events are denied.
    ///
    /// No rings are added: everybody who is watched already would need events there, and those that
    /// are inherited cannot be had afterwards without gaps. A CPU that goes and comes back keeps its
    /// ring and its events.
    pub fn may_run_on(&mut self, cpus: impl IntoIterator<Item = PuNr>) -> Vec<PuNr> {
        let Source::Perf(rings) = &self.source else { return Vec::new() };
        let unheard: Vec<PuNr> = cpus.into_iter().filter(|cpu| !rings.has(*cpu)).collect();
        self.is_deaf = !unheard.is_empty();
        if self.is_deaf {
            self.look_soon();
        }
        unheard
    }

    /// Whether there are births and ends that only `/proc` tells of.
    fn needs_proc(&self) -> bool {
        self.is_deaf || matches!(self.source, Source::Proc { .. })
    }

    /// Why `/proc` is used and not the kernel's events; `None` if they are used, or if the options
    /// asked for none.
    #[must_use]
    pub fn without_perf(&self) -> Option<&SysError> {
        match &self.source {
            Source::Perf(_) => None,
            Source::Proc { why } => why.as_ref(),
        }
    }

    /// Why `/proc` cannot be used; `None` if it can.
    #[must_use]
    pub fn without_proc(&self) -> Option<&str> {
        self.without_proc.as_deref()
    }

    /// Descriptors that become readable when something happens; none where `/proc` is used, and in a storm, when
    /// each new thread would wake the reader.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match &self.source {
            Source::Perf(rings) if !self.storms.is_any() => rings.fds().collect(),
            _ => Vec::new(),
        }
    }

    /// How long a reader may sleep without missing anything, unless [`Births::fds`] wake it; `None`
    /// if they always do.
    #[must_use]
    pub fn next_look(&self) -> Option<Duration> {
        if !self.first.is_empty() {
            return Some(Duration::ZERO);
        }
        let read = self.storms.is_any().then_some(self.next_read);
        let next = [self.next_look, read].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Whether every watched task has ended and been reported.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.tree.is_empty() && self.first.is_empty()
    }

    /// Adds what has happened since the last call to `events`. Never waits.
    pub fn drain(&mut self, events: &mut Vec<TaskEvent>) {
        events.append(&mut self.first);
        self.drain_rings(events);
        let begun = Instant::now();
        self.next_read = begun + READ_IN_STORM;
        if self.next_look.is_some_and(|next| next <= begun) {
            let mut found = Vec::new();
            self.tree.look(&self.proc, now(), &mut found);
            if self.needs_proc() {
                found = self.renumbered(found);
            }
            found.into_iter().for_each(|event| self.tell(event, events));
            self.plan_look(begun);
        }
        let (at, tree) = (now(), &mut self.tree);
        let due = self.storms.due(at, |tid| tree.is_hidden(tid));
        due.into_iter().for_each(|tid| tree.reveal(tid, at, events));
    }

    /// Says when `/proc` is to be looked through next, after a look that has begun at `begun`.
    fn plan_look(&mut self, begun: Instant) {
        let end = Instant::now();
        let share = (end - begun) * LOOK_SHARE;
        if self.needs_proc() {
            self.next_look = Some(end + LEAST_LOOK.max(share));
            return;
        }
        // Whoever was about to end when notes were lost may still be listed, but not for long.
        let after = self.after_loss;
        self.after_loss = 2 * after;
        self.next_look = (after <= LAST_LOOK_AFTER_LOSS).then(|| end + after.max(share));
    }

    /// Passes on what the tree has learned, but for threads of a storm.
    fn tell(&mut self, event: TaskEvent, events: &mut Vec<TaskEvent>) {
        if let TaskEvent::Born { at, pid, tid, parent_tid, .. } = event {
            let verdict = self.storms.created(self.tree.root_of(pid), pid, tid, at);
            if verdict == Verdict::HideFirst {
                events.push(TaskEvent::Storm { at, pid });
            }
            if verdict != Verdict::PassOn {
                self.tree.hide(tid, parent_tid);
                return;
            }
        }
        events.push(event);
    }

    /// Rings are read one after another, so the end of a creator can be read while the birth that it is
    /// the creator of, on another CPU, is not. What is older than the beginning of a reading is complete
    /// with that reading; what is newer waits for the next.
    fn drain_rings(&mut self, events: &mut Vec<TaskEvent>) {
        let mut lost = 0;
        for _ in 0..READS_FOR_ORDER {
            let begun = now();
            lost += self.read_rings();
            self.deliver(begun, events);
            if self.early.is_empty() {
                break;
            }
        }
        self.deliver(Nanos(u64::MAX), events);
        // What is left over is about tasks that ended before watching began; it must not pile up.
        let oldest = now().saturating_sub(KEPT_EARLY);
        self.early.retain(|event| event.at() > Some(oldest));
        if lost > 0 {
            events.push(TaskEvent::Lost { count: lost });
            self.early.clear();
        }
    }

    /// Moves what waits in the rings to `early`, in the order of time, and says how many notes the
    /// kernel had to drop.
    ///
    /// If some may be missing, `/proc` is due at once and from time to time from then on: whoever
    /// ends while it is looked through is still there, and nothing else tells of that end.
    fn read_rings(&mut self) -> u64 {
        let Source::Perf(rings) = &mut self.source else { return 0 };
        let full = rings.take(&mut self.bytes);
        let mut lost = 0;
        for record in parse(&self.bytes) {
            if let Record::Lost { count } = record {
                lost += count;
            }
            self.early.extend(event(&record));
        }
        if full || lost > 0 {
            self.look_soon();
        }
        self.bytes.clear();
        self.early.sort_by_key(TaskEvent::at);
        lost
    }

    /// Moves from `early` to `events` what is known to be in order and happened before `limit`.
    fn deliver(&mut self, limit: Nanos, events: &mut Vec<TaskEvent>) {
        for event in std::mem::take(&mut self.early) {
            if event.at() >= Some(limit) {
                self.early.push(event);
                continue;
            }
            if let TaskEvent::Named { at, pid, tid, exec: true, .. } = &event
                && *tid == pid.first_thread()
                && !self.tree.has(*tid)
            {
                self.take_over(*at, *pid, events);
            }
            let is_of_hidden = match &event {
                TaskEvent::Ended { tid, .. } | TaskEvent::Named { tid, .. } => {
                    self.tree.is_hidden(*tid)
                }
                _ => false,
            };
            if self.is_early(&event) {
                self.early.push(event);
            } else if self.tree.learn(&event) && !is_of_hidden {
                self.tell(event, events);
            }
            // Else it is the birth of a task that was found in /proc before its note was read.
        }
    }

    /// Whether the birth of the task that an event is about, or of its creator's process, has not been
    /// heard of.
    fn is_early(&self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Ended { tid, .. } | TaskEvent::Named { tid, .. } => !self.tree.has(*tid),
            TaskEvent::Born { pid, parent_pid, .. } => {
                !self.tree.has_process(*pid) && !self.tree.has_process(*parent_pid)
            }
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => false,
        }
    }

    /// A thread that is not its process's first executes a program: all others have ended, and it
    /// goes on under the first one's number (execve(2)). The kernel has reported the end of the
    /// first one but not that its number lives on.
    ///
    /// It is born under that number before it ends under its own, so that its process is never
    /// without a task.
    fn take_over(&mut self, at: Nanos, pid: Pid, events: &mut Vec<TaskEvent>) {
        let tid = pid.first_thread();
        let others: Vec<Tid> = self.tree.tasks_of(pid).collect();
        let parent_tid = match others[..] {
            [] => return,
            [executing] => executing,
            // Of the ends of others no note has come.
            _ => tid,
        };
        let born = TaskEvent::Born { at, pid, tid, parent_pid: pid, parent_tid, found: false };
        let ended = others.into_iter().map(|tid| TaskEvent::Ended { at, pid, tid });
        for event in std::iter::once(born).chain(ended) {
            self.tree.learn(&event);
            events.push(event);
        }
    }

    /// What a look through `/proc` has found, with the first threads renewed of those processes that execute another
    /// program and have lost threads by that.
    ///
    /// Any of these may have executed it and have the first one's number now; `/proc` shows no more than that there is
    /// one with that number, as before. The kernel's notes would tell that the first one has ended.
    ///
    /// The kernel ends the others before it shows the new program, and looks may come in between.
    fn renumbered(&self, found: Vec<TaskEvent>) -> Vec<TaskEvent> {
        let lost_thread = |pid: Pid, at: Nanos| {
            self.tree.lost_thread(pid).is_some_and(|lost| lost + EXEC_TAKES >= at)
        };
        let executes = |event: &TaskEvent| match event {
            TaskEvent::Named { at, pid, tid, exec: true, .. } => {
                let is_first = *tid == pid.first_thread();
                (is_first && lost_thread(*pid, *at)).then_some((*at, *pid, *tid))
            }
            _ => None,
        };
        if !found.iter().any(|event| executes(event).is_some()) {
            return found;
        }
        let is_new = |of: Tid| {
            found.iter().any(|event| matches!(event, TaskEvent::Born { tid, .. } if *tid == of))
        };
        let mut all = Vec::new();
        for event in &found {
            if let Some((at, pid, tid)) = executes(event).filter(|(_, _, tid)| !is_new(*tid)) {
                let (parent_pid, parent_tid) = (pid, tid);
                all.push(TaskEvent::Ended { at, pid, tid });
                all.push(TaskEvent::Born { at, pid, tid, parent_pid, parent_tid, found: true });
            }
            all.push(event.clone());
        }
        all
    }
}

/// Opens `attr` on every thread of `pid`, also on those born meanwhile; `bytes` collects records
/// that come in.
///
/// Says whether the kernel will tell of the end of each. A thread that is about to end cannot be
/// watched any more, but `/proc` lists it for as long as it takes to give its memory back.
///
/// # Errors
/// As [`Rings::attach`], except that threads which have ended are passed over.
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
        // Who was born of a thread that was attached already has inherited its events, and a second
        // one would count everything twice. Those listed are born, so their notes are read after.
        let tasks = match proc.tasks(pid) {
            Ok(tasks) => tasks,
            Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => Vec::new(),
            // Of a child that waits before its exec this is all.
            Err(_) => vec![pid.first_thread()],
        };
        all &= !rings.take(bytes);
        attached.extend(parse(bytes).filter_map(|record| match record {
            Record::Fork { born, .. } => Some(born.tid),
            _ => None,
        }));
        let new: Vec<Tid> = tasks.into_iter().filter(|tid| attached.insert(*tid)).collect();
        if new.is_empty() {
            return Ok(all);
        }
        for tid in new {
            match rings.attach(attr, tid) {
                Ok(()) => {}
                Err(error) if error.errno() == Some(libc::ESRCH) => all = false,
                Err(error) if error.errno() == Some(libc::EMFILE) => {
                    Descriptors::raise()?;
                    rings.attach(attr, tid)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The event that a record of the kernel tells of, if any.
pub(crate) fn event(record: &Record<'_>) -> Option<TaskEvent> {
    Some(match *record {
        Record::Fork { born: Stamp { at, pid, tid }, parent_pid, parent_tid } => {
            TaskEvent::Born { at, pid, tid, parent_pid, parent_tid, found: false }
        }
        Record::Exit(Stamp { at, pid, tid }) => TaskEvent::Ended { at, pid, tid },
        Record::Comm { of: Stamp { at, pid, tid }, name, exec } => {
            let name = String::from_utf8_lossy(name).into_owned();
            TaskEvent::Named { at, pid, tid, name, exec }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn born(at: u64, pid: i32, tid: i32, parent: i32) -> TaskEvent {
        let (pid, parent_pid) = (Pid(pid), Pid(parent));
        let parent_tid = parent_pid.first_thread();
        TaskEvent::Born { at: Nanos(at), pid, tid: Tid(tid), parent_pid, parent_tid, found: false }
    }

    fn ended(at: u64, tid: i32) -> TaskEvent {
        TaskEvent::Ended { at: Nanos(at), pid: Pid(tid), tid: Tid(tid) }
    }

    /// Watches process 10, whose birth has been heard of.
    fn births() -> Births {
        let mut tree = Tree::default();
        tree.learn(&born(0, 10, 10, 1));
        Births {
            source: Source::Proc { why: None },
            proc: Proc::default(),
            tree,
            early: Vec::new(),
            first: Vec::new(),
            bytes: Vec::new(),
            next_look: None,
            is_deaf: false,
            without_proc: None,
            after_loss: LOOK_AFTER_LOSS,
            storms: Storms::new(None),
            next_read: Instant::now(),
        }
    }

    /// Process 10 creates 20, which creates thread 21; the note of 21 is read before that of 20.
    #[test]
    fn a_birth_waits_for_that_of_its_creator() {
        let (mut births, mut events) = (births(), Vec::new());
        births.early = vec![born(2, 20, 21, 20)];
        births.deliver(Nanos(5), &mut events);
        assert_eq!(events, []);
        births.early.insert(0, born(1, 20, 20, 10));
        births.deliver(Nanos(5), &mut events);
        assert_eq!(events, [born(1, 20, 20, 10), born(2, 20, 21, 20)]);
        assert!(births.early.is_empty());
    }

    /// Process 20 creates 30 and ends; its end is read before the birth. The reading began at 3, so what
    /// is from then on may have something older before it.
    #[test]
    fn the_end_of_a_creator_does_not_overtake_a_birth() {
        let (mut births, mut events) = (births(), Vec::new());
        births.early = vec![born(1, 20, 20, 10), ended(4, 20)];
        births.deliver(Nanos(3), &mut events);
        births.early.insert(0, born(3, 30, 30, 20));
        births.deliver(Nanos(5), &mut events);
        let all = [born(1, 20, 20, 10), born(3, 30, 30, 20), ended(4, 20)];
        assert_eq!(events, all);
    }

    fn ended_of(at: u64, pid: i32, tid: i32) -> TaskEvent {
        TaskEvent::Ended { at: Nanos(at), pid: Pid(pid), tid: Tid(tid) }
    }

    fn executes(at: u64, pid: i32) -> TaskEvent {
        let (pid, tid, name) = (Pid(pid), Tid(pid), "new".to_owned());
        TaskEvent::Named { at: Nanos(at), pid, tid, name, exec: true }
    }

    /// Who goes on as the first thread of process 10.
    fn goes_on(at: u64, parent: i32, found: bool) -> TaskEvent {
        let (pid, tid, parent_tid) = (Pid(10), Tid(10), Tid(parent));
        TaskEvent::Born { at: Nanos(at), pid, tid, parent_pid: pid, parent_tid, found }
    }

    /// Process 10 has the threads 10, 11 and 12. 12 executes a program: the kernel tells that 10 and 11 have ended and
    /// that the program of 10 is new. Between the events there is always one task of the process.
    #[test]
    fn who_executes_a_program_is_born_as_the_first_before_it_ends() {
        let (mut births, mut events) = (births(), Vec::new());
        births.early = vec![born(1, 10, 11, 10), born(2, 10, 12, 10)];
        births.deliver(Nanos(3), &mut events);
        events.clear();
        births.early = vec![ended_of(3, 10, 10), ended_of(4, 10, 11), executes(5, 10)];
        births.deliver(Nanos(6), &mut events);
        let ends = [ended_of(3, 10, 10), ended_of(4, 10, 11)];
        let taken = [goes_on(5, 12, false), ended_of(5, 10, 12), executes(5, 10)];
        assert_eq!(events, [&ends[..], &taken].concat());
        assert!(births.tree.has_process(Pid(10)) && !births.all_ended());
    }

    /// The same, and the note of the end of 11 was lost: 11 or 12 goes on.
    #[test]
    fn of_several_nobody_knows_who_goes_on() {
        let (mut births, mut events) = (births(), Vec::new());
        births.early = vec![born(1, 10, 11, 10), born(2, 10, 12, 10)];
        births.early.extend([ended_of(3, 10, 10), executes(5, 10)]);
        births.deliver(Nanos(6), &mut events);
        let taken = [goes_on(5, 10, false), ended_of(5, 10, 11), ended_of(5, 10, 12)];
        assert_eq!(events[3..6], taken);
    }

    /// A saved `/proc` in which process 10 executes `program` and has these threads.
    fn saved(program: &str, threads: &[i32]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("10");
        for tid in threads {
            let task = process.join("task").join(tid.to_string());
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("children"), "").unwrap();
            std::fs::write(task.join("comm"), format!("{program}\n")).unwrap();
        }
        std::fs::write(process.join("stat"), "10 (x) S 1 10 10").unwrap();
        std::os::unix::fs::symlink(program, process.join("exe")).unwrap();
        root
    }

    /// What is new in the last of several looks at process 10, without times.
    fn last_look(looks: &[tempfile::TempDir]) -> Vec<String> {
        let (mut births, mut events) = (births(), Vec::new());
        for root in looks {
            events = look(&mut births, root);
        }
        lines(&events)
    }

    fn look(births: &mut Births, root: &tempfile::TempDir) -> Vec<TaskEvent> {
        let mut events = Vec::new();
        births.proc = Proc::at(root.path());
        births.next_look = Some(Instant::now());
        births.drain(&mut events);
        events
    }

    fn lines(events: &[TaskEvent]) -> Vec<String> {
        let line = |event: &TaskEvent| match event {
            TaskEvent::Born { tid, parent_pid, parent_tid, found, .. } => {
                format!("{tid} born of {parent_pid}/{parent_tid}, found {found}")
            }
            TaskEvent::Ended { tid, .. } => format!("{tid} ended"),
            TaskEvent::Named { tid, name, exec, .. } => format!("{tid} is {name}, exec {exec}"),
            TaskEvent::Lost { count } => format!("{count} lost"),
            TaskEvent::Storm { pid, .. } => format!("{pid} storms"),
        };
        events.iter().map(line).collect()
    }

    /// What is told of process 10 where another of its threads may have executed `new`.
    const RENEWED: [&str; 3] = ["10 ended", "10 born of 10/10, found true", "10 is new, exec true"];

    /// The kernel lists 11 for a moment after it has reported its end, with the flags of one that is about to end.
    #[test]
    fn who_is_about_to_end_is_not_found_again() {
        let root = saved("old", &[10, 11]);
        let mut births = births();
        look(&mut births, &root);
        births.tree.forget(Tid(11));
        let set = |flags: &str| {
            let stat = format!("11 (a) b) R 1 10 10 0 -1 {flags} 0");
            std::fs::write(root.path().join("10/task/11/stat"), stat).unwrap();
        };
        set("4194372");
        assert_eq!(lines(&look(&mut births, &root)), [""; 0]);
        set("4194368");
        assert_eq!(lines(&look(&mut births, &root))[0], "11 born of 10/10, found true");
    }

    /// 11 or 12 may have executed the program; `/proc` shows 10 all the time.
    #[test]
    fn in_proc_the_first_thread_is_renewed_when_others_end_by_an_exec() {
        let seen = last_look(&[saved("old", &[10, 11, 12]), saved("new", &[10])]);
        assert_eq!(seen, [&RENEWED[..], &["11 ended", "12 ended"]].concat());
    }

    /// The kernel ends the other threads first, and shows the new program some time later.
    #[test]
    fn in_proc_it_is_renewed_when_they_were_seen_to_end_before() {
        let looks = [saved("old", &[10, 11]), saved("old", &[10]), saved("new", &[10])];
        assert_eq!(last_look(&looks), RENEWED);
    }

    /// The first thread has just become a zombie, after its state was read, and has no executable.
    #[test]
    fn in_proc_it_is_renewed_when_a_look_has_shown_no_executable() {
        let between = saved("old", &[10, 11]);
        std::fs::remove_file(between.path().join("10/exe")).unwrap();
        let seen = last_look(&[saved("old", &[10, 11]), between, saved("new", &[10])]);
        assert_eq!(seen, [&RENEWED[..], &["11 ended"]].concat());
    }

    #[test]
    fn in_proc_it_stays_the_same_otherwise() {
        let alone = last_look(&[saved("old", &[10]), saved("new", &[10])]);
        assert_eq!(alone, ["10 is new, exec true"]);
        let fewer = last_look(&[saved("old", &[10, 11]), saved("old", &[10])]);
        assert_eq!(fewer, ["11 ended"], "it has executed nothing");
    }

    /// While 10 is looked at, its first thread is a zombie and 11 takes its number: what reads the state from this pipe
    /// has read the list of threads before, or sees only a dead one in it.
    #[test]
    fn in_proc_a_process_does_not_end_while_another_thread_becomes_its_first() {
        let (mut births, before) = (births(), saved("old", &[10, 11]));
        look(&mut births, &before);
        // With as many processes as threads the state is read once: no process is looked up by its parent.
        for other in ["20", "30"] {
            std::fs::create_dir(before.path().join(other)).unwrap();
        }
        let stat = before.path().join("10/stat");
        std::fs::remove_file(&stat).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&stat).status().unwrap().success());
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = std::fs::File::options().write(true).open(&stat).unwrap();
                std::fs::remove_dir_all(before.path().join("10/task/11")).unwrap();
                state.write_all(b"10 (x) Z 1 10 10").unwrap();
            });
            lines(&look(&mut births, &before))
        });
        assert_eq!(seen, ["10 ended"], "11 lives");
        let after = lines(&look(&mut births, &saved("new", &[10])));
        assert_eq!(after, ["10 born of 1/1, found true", "10 is new, exec true", "11 ended"]);
    }
}
