//! Samples of instruction pointers on the software clock, one sampler for all that need them.
//!
//! Subscribers of one rate share the events and rings of a [`Clock`]. Each subscriber gets the
//! records of its own processes, in the order of time, and processes the records when it chooses.

use super::RATES_HZ;
use crate::lifecycle::{LifecycleOptions, attach_all};
use crate::perf::{Attr, PerfEvent, PerfRecord, Rings, SampleId, split};
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::{Nanos, PuNr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Upper bound of the delay from a record's time stamp to its writing: the kernel writes it with
/// interrupts off. Chosen with a margin.
pub(crate) const SETTLED: Nanos = Nanos::from_millis(1);

/// Pages of each CPU's ring, 128 KiB: 3,000 samples, 12 s of one CPU at the default rate; with
/// registers 700 samples. Within the 516 KiB that an unprivileged user may lock
/// (`perf_event_mlock_kb`).
const RING_PAGES: usize = 32;

/// Bytes waiting in a ring before poll(2) wakes: some 25 samples, 0.1 s of one CPU at the default
/// rate. Code that a JIT compiler moves sooner is misread.
const WAKE_B: u32 = 1024;

/// Limit of the records that wait for a subscriber, in bytes; further records are lost. Chosen:
/// some seconds of a hundred CPUs.
const MOST_QUEUED_B: usize = 16 << 20;

/// Number of member processes above which ended processes are forgotten. Chosen: 3 MiB.
const MOST_MEMBERS: usize = 1 << 16;

/// Contents of samples beside the instruction pointer in user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Samples in the kernel, if permitted.
    kernel: bool,
    /// The user-mode instruction pointer of samples in the kernel.
    caller: bool,
    /// The general registers of x86-64.
    registers: bool,
}

impl Contents {
    /// Contents for instruction mixes.
    pub const MIX: Self = Self { kernel: true, caller: false, registers: false };
    /// Contents for spinning threads.
    pub const SPINNING: Self = Self { kernel: true, caller: true, registers: false };
    /// Contents for memory accesses.
    pub const ACCESSES: Self =
        Self { kernel: false, caller: false, registers: cfg!(target_arch = "x86_64") };

    const fn and(self, other: Self) -> Self {
        Self {
            kernel: self.kernel || other.kernel,
            caller: self.caller || other.caller,
            registers: self.registers || other.registers,
        }
    }

    fn covers(self, other: Self) -> bool {
        self.and(other) == self
    }
}

/// Clocks on some CPUs. Copies share their clocks.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// CPUs, `/proc` and the size of the rings.
    pub watch: LifecycleOptions,
    /// Rates and contents of all expected subscribers.
    expected: Vec<(u32, Contents)>,
    open: Arc<Mutex<Vec<Weak<Mutex<Clock>>>>>,
}

impl Clocks {
    /// Clocks on the CPUs of `watch`, with rings of the default size.
    #[must_use]
    pub fn new(watch: LifecycleOptions) -> Self {
        let watch = LifecycleOptions { ring_pages: RING_PAGES, ..watch };
        Self { watch, expected: Vec::new(), open: Arc::default() }
    }

    /// Clocks on this machine's online CPUs.
    ///
    /// # Errors
    /// As [`LifecycleOptions::here`].
    pub fn here() -> Result<Self, SysError> {
        LifecycleOptions::here().map(Self::new)
    }

    /// Announces subscribers, each by its samples per second and their contents: a clock opened
    /// from now on suits all of its rate.
    pub fn expect(&mut self, subscribers: Vec<(u32, Contents)>) {
        self.expected = subscribers;
    }

    /// Whether samples of spinning threads are expected at this rate. They are taken as long as the
    /// programs run, unlike those of mixes.
    pub(crate) fn expects_spinning(&self, rate_hz: u32) -> bool {
        self.expected.contains(&(rate_hz, Contents::SPINNING))
    }

    /// Adds a subscriber without processes to the clock that suits it, or else to a new clock.
    pub(crate) fn subscribe(
        &self,
        rate_hz: u32,
        contents: Contents,
    ) -> Result<Subscription, SysError> {
        let period = period(rate_hz);
        let mut open = lock(&self.open);
        open.retain(|clock| clock.strong_count() > 0);
        let mut clocks = open.iter().filter_map(Weak::upgrade);
        let found = clocks.find(|clock| lock(clock).suits(period, contents, &self.watch));
        if let Some(clock) = found {
            return Ok(Subscription::of(clock));
        }
        let same_rate = self.expected.iter().filter(|(rate, _)| *rate == rate_hz);
        let all = same_rate.fold(contents, |all, (_, other)| all.and(*other));
        let clock = Arc::new(Mutex::new(Clock::map(period, all, &self.watch)?));
        open.push(Arc::downgrade(&clock));
        Ok(Subscription::of(clock))
    }

    /// Subscriber of samples of `events` instead of the clock's, each for `period`. User mode only.
    pub(crate) fn subscribe_to(
        &self,
        events: &[Attr],
        period: Nanos,
    ) -> Result<Subscription, SysError> {
        let tasks = Attr::task_events_and_maps(WAKE_B);
        // Opening the events shows whether the processor has them.
        for attr in events {
            Rings::map(attr, &self.watch.cpus, 1)?;
        }
        let rings = Rings::map(&tasks, &self.watch.cpus, self.watch.ring_pages)?;
        let attrs = std::iter::once(&tasks).chain(events).map(|attr| attr.inherited()).collect();
        let clock = Clock::new(rings, attrs, (period, Contents::default(), false), &self.watch);
        Ok(Subscription::of(Arc::new(Mutex::new(clock))))
    }
}

/// CPU time between two samples at `rate_hz`, limited to [`RATES_HZ`].
pub(crate) fn period(rate_hz: u32) -> Nanos {
    Nanos(1_000_000_000 / u64::from(rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end())))
}

/// State of a lock, also after a panic of another thread: each record is processed whole.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records for a subscriber.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The records, in the order of time.
    pub bytes: Vec<u8>,
    /// Whether a ring was so full that a record of an exit may be missing.
    pub full: bool,
    /// Records lost.
    pub lost: u64,
}

/// Events on threads, and the rings to which they write.
#[derive(Debug)]
struct Clock {
    rings: Rings,
    /// Events opened on each thread.
    attrs: Vec<Attr>,
    period: Nanos,
    contents: Contents,
    with_kernel: bool,
    cpus: Vec<PuNr>,
    proc: Proc,
    /// Living sampled processes, with the process whose events each inherits (or its own).
    events_of: BTreeMap<Pid, Pid>,
    opened: BTreeMap<Pid, Opened>,
    subscribers: BTreeMap<u32, Subscriber>,
    /// Records too new to be sorted.
    bytes: Vec<u8>,
}

/// Events of a process and of all that it creates.
#[derive(Debug)]
struct Opened {
    tids: Vec<Tid>,
    /// Whether the kernel will report the exit of each thread.
    reports_exits: bool,
}

/// Processes of a subscriber, and the records that wait for it.
#[derive(Debug, Default)]
struct Subscriber {
    added: BTreeSet<Pid>,
    members: BTreeMap<Pid, Member>,
    queued: Taken,
}

/// Process whose records a subscriber gets.
#[derive(Debug)]
struct Member {
    /// The process or ancestor that the subscriber has added.
    of: Pid,
    /// Whether the first thread has ended. Others may live.
    has_ended: bool,
}

impl Clock {
    fn map(period: Nanos, contents: Contents, watch: &LifecycleOptions) -> Result<Self, SysError> {
        let plain = Attr::clock_samples(period.0, WAKE_B);
        let plain = if contents.registers { plain.with_registers() } else { plain };
        let attr = match (contents.kernel, contents.caller) {
            (false, _) => plain,
            (true, false) => plain.with_kernel(),
            (true, true) => plain.with_kernel_and_caller(),
        };
        let mapped = Rings::map(&attr, &watch.cpus, watch.ring_pages);
        let is_denied = |why: &SysError| matches!(why.errno(), Some(libc::EACCES | libc::EPERM));
        let (rings, attr, with_kernel) = match mapped {
            Ok(rings) => (rings, attr, contents.kernel),
            Err(why) if contents.kernel && is_denied(&why) => {
                (Rings::map(&plain, &watch.cpus, watch.ring_pages)?, plain, false)
            }
            Err(why) => return Err(why),
        };
        let sampled = (period, contents, with_kernel);
        Ok(Self::new(rings, vec![attr.inherited()], sampled, watch))
    }

    fn new(
        rings: Rings,
        attrs: Vec<Attr>,
        (period, contents, with_kernel): (Nanos, Contents, bool),
        watch: &LifecycleOptions,
    ) -> Self {
        Self {
            rings,
            attrs,
            period,
            contents,
            with_kernel,
            cpus: watch.cpus.clone(),
            proc: watch.proc.clone(),
            events_of: BTreeMap::new(),
            opened: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            bytes: Vec::new(),
        }
    }

    fn suits(&self, period: Nanos, contents: Contents, watch: &LifecycleOptions) -> bool {
        self.period == period && self.contents.covers(contents) && self.cpus == watch.cpus
    }

    /// Adds process `pid` to a subscriber; whether the kernel will report the exit of each thread.
    fn add(&mut self, id: u32, pid: Pid) -> Result<bool, SysError> {
        if self.subscribers.len() > 1 {
            // The process may have inherited events that another subscriber has opened, as the
            // records show; further events would sample it twice.
            self.take(Nanos(u64::MAX));
        }
        if !self.events_of.contains_key(&pid) {
            self.open(pid)?;
        }
        let opened = self.opened.get(&self.events_of[&pid]);
        let reports_exits = opened.is_some_and(|opened| opened.reports_exits);
        let subscriber = self.subscribers.entry(id).or_default();
        subscriber.added.insert(pid);
        subscriber.members.insert(pid, Member { of: pid, has_ended: false });
        Ok(reports_exits)
    }

    /// Opens the events on all threads of process `pid`, or on none.
    fn open(&mut self, pid: Pid) -> Result<(), SysError> {
        let before = self.rings.tids().len();
        let Self { rings, attrs, proc, bytes, .. } = self;
        let done = attrs.iter().try_fold(true, |all, attr| {
            attach_all(rings, attr, proc, pid, bytes).map(|reports| all && reports)
        });
        let all = Opened { tids: Vec::new(), reports_exits: true };
        let opened = self.opened.entry(pid).or_insert(all);
        opened.tids.extend(self.rings.tids().skip(before));
        opened.reports_exits &= *done.as_ref().unwrap_or(&false);
        self.events_of.insert(pid, pid);
        if done.is_err() {
            self.close(pid);
        }
        done.map(drop)
    }

    fn close(&mut self, pid: Pid) {
        for tid in self.opened.remove(&pid).map(|opened| opened.tids).unwrap_or_default() {
            self.rings.detach(tid);
        }
        self.events_of.retain(|_, of| *of != pid);
    }

    /// Closes the events from which no process of a subscriber inherits.
    fn close_unused(&mut self) {
        let mut used: BTreeSet<Pid> = BTreeSet::new();
        for subscriber in self.subscribers.values() {
            used.extend(&subscriber.added);
            used.extend(subscriber.members.keys().filter_map(|pid| self.events_of.get(pid)));
        }
        let unused: Vec<Pid> =
            self.opened.keys().filter(|pid| !used.contains(pid)).copied().collect();
        unused.into_iter().for_each(|pid| self.close(pid));
    }

    fn forget(&mut self, id: u32, pid: Pid) {
        if let Some(subscriber) = self.subscribers.get_mut(&id) {
            subscriber.added.remove(&pid);
            subscriber.members.retain(|_, member| member.of != pid);
        }
        self.close_unused();
    }

    /// Closes the events that only one subscriber needs. Its records up to now wait for it.
    fn stop(&mut self, id: u32) {
        let Some(stopped) = self.subscribers.remove(&id) else { return };
        self.close_unused();
        self.subscribers.insert(id, stopped);
        self.take(Nanos(u64::MAX));
        // The kernel reports a loss with the next record: the last losses are only in the counts.
        self.count_lost(0);
        if let Some(stopped) = self.subscribers.get_mut(&id) {
            stopped.added.clear();
            stopped.members.clear();
        }
    }

    /// Passes the records stamped until `settled` to the subscribers.
    fn take(&mut self, settled: Nanos) {
        let bytes = &mut std::mem::take(&mut self.bytes);
        if self.rings.take(bytes) {
            self.subscribers.values_mut().for_each(|subscriber| subscriber.queued.full = true);
        }
        let mut records: Vec<(&[u8], PerfRecord<'_>)> = split(bytes).collect();
        // The rings are read one after the other: a record may be newer than one of a later ring.
        records.sort_by_key(|(_, record)| record.at());
        for (whole, record) in records {
            // Records without a time, as of losses, are older than any.
            if record.at() > Some(settled) {
                self.bytes.extend_from_slice(whole);
            } else {
                self.deliver(whole, &record);
            }
        }
    }

    fn deliver(&mut self, whole: &[u8], record: &PerfRecord<'_>) {
        match record {
            PerfRecord::Lost(count) => self.count_lost(*count),
            PerfRecord::Fork { created, parent_pid, .. } if created.pid != *parent_pid => {
                if let Some(of) = self.events_of.get(parent_pid) {
                    self.events_of.insert(created.pid, *of);
                }
            }
            PerfRecord::Exit(SampleId { pid, tid, .. }) if *tid == pid.first_thread() => {
                self.events_of.remove(pid);
            }
            _ => {}
        }
        for subscriber in self.subscribers.values_mut() {
            subscriber.deliver(whole, record);
        }
    }

    /// Counts records dropped by the rings; `recorded` is the number reported by a record.
    fn count_lost(&mut self, recorded: u64) {
        let lost = self.rings.newly_lost(recorded);
        self.subscribers.values_mut().for_each(|subscriber| subscriber.queued.lost += lost);
    }
}

impl Subscriber {
    fn deliver(&mut self, whole: &[u8], record: &PerfRecord<'_>) {
        let of = match record {
            PerfRecord::Fork { created, parent_pid, .. } => {
                if created.pid != *parent_pid {
                    self.fork(*parent_pid, created.pid);
                }
                Some(*parent_pid)
            }
            _ => record.of().map(|of| of.pid),
        };
        if !of.is_some_and(|pid| self.members.contains_key(&pid)) {
            return;
        }
        if self.queued.bytes.len() + whole.len() > MOST_QUEUED_B {
            self.queued.full = true;
            self.queued.lost += 1;
        } else {
            self.queued.bytes.extend_from_slice(whole);
        }
        if let PerfRecord::Exit(SampleId { pid, tid, .. }) = record
            && *tid == pid.first_thread()
            && let Some(member) = self.members.get_mut(pid)
        {
            member.has_ended = true;
        }
    }

    fn fork(&mut self, parent: Pid, created: Pid) {
        match self.members.get(&parent) {
            Some(Member { of, .. }) => {
                self.members.insert(created, Member { of: *of, has_ended: false });
            }
            // An ended member had this number before.
            None => {
                self.members.remove(&created);
            }
        }
        if self.members.len() > MOST_MEMBERS {
            self.members.retain(|_, member| !member.has_ended);
        }
    }
}

/// A subscriber's handle. On drop its events are closed, unless another subscriber needs them.
#[derive(Debug)]
pub(crate) struct Subscription {
    clock: Arc<Mutex<Clock>>,
    id: u32,
    /// Sampling period of a thread, in CPU time.
    pub period: Nanos,
    /// Whether the kernel is sampled, too.
    pub with_kernel: bool,
    pub proc: Proc,
}

impl Subscription {
    fn of(clock: Arc<Mutex<Clock>>) -> Self {
        let mut state = lock(&clock);
        let id = state.subscribers.last_key_value().map_or(0, |(last, _)| last + 1);
        state.subscribers.insert(id, Subscriber::default());
        let (period, with_kernel, proc) = (state.period, state.with_kernel, state.proc.clone());
        drop(state);
        Self { clock, id, period, with_kernel, proc }
    }

    /// As [`Clock::add`]: process `pid` and all that it creates.
    pub fn add(&self, pid: Pid) -> Result<bool, SysError> {
        lock(&self.clock).add(self.id, pid)
    }

    /// Removes process `pid` and the processes it created since it was added.
    pub fn forget(&self, pid: Pid) {
        lock(&self.clock).forget(self.id, pid);
    }

    /// Ends the sampling. Records up to now can be taken.
    pub fn stop(&self) {
        lock(&self.clock).stop(self.id);
    }

    /// Whether process `pid` is sampled, as far as the kernel has reported process creations.
    pub fn has(&self, pid: Pid) -> bool {
        let clock = lock(&self.clock);
        clock.subscribers[&self.id].members.get(&pid).is_some_and(|member| !member.has_ended)
    }

    /// Number of the clock's open events: one for each CPU and each thread found at the start.
    /// Inherited events do not count.
    pub fn events(&self) -> usize {
        lock(&self.clock).rings.tids().len()
    }

    /// Events whose descriptors become readable when records wait.
    pub fn polled(&self) -> Vec<Arc<PerfEvent>> {
        lock(&self.clock).rings.polled()
    }

    /// Records of this subscriber stamped until `settled`.
    pub fn take(&self, settled: Nanos) -> Taken {
        let mut clock = lock(&self.clock);
        clock.take(settled);
        let subscriber = clock.subscribers.get_mut(&self.id);
        subscriber.map(|subscriber| std::mem::take(&mut subscriber.queued)).unwrap_or_default()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut clock = lock(&self.clock);
        clock.subscribers.remove(&self.id);
        clock.close_unused();
    }
}
