//! Samples by thread.

use super::LEAST_SAMPLES;
use super::shares::Shares;
use super::weigh::{SiteIdx, Weigher};
use crate::event::TaskEvent;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_model::{Mix, ThreadProfile};
use std::collections::{BTreeMap, HashMap};

/// Samples and mix of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSamples {
    /// Process.
    pub pid: Pid,
    /// Index of the process in the job, from 0 in the order of creation.
    pub process: u32,
    /// Thread. The kernel reuses TIDs; together with `created` the TID is unique.
    pub tid: Tid,
    /// Latest name.
    pub name: String,
    /// Creation, or first scan that found the thread, on `CLOCK_MONOTONIC`.
    pub created: Nanos,
    /// Exit; `None` for a living thread.
    pub ended: Option<Nanos>,
    /// CPU time since `created`, exact to a sampling period; `None` if unknown.
    pub cpu_time: Option<Nanos>,
    /// Decoded samples in user mode, the basis of `mix`.
    pub samples: u64,
    /// Samples in user mode in code that could not be read or decoded.
    pub unattributed: u64,
    /// Samples in the kernel, if permitted.
    pub in_kernel: u64,
    /// Share of each class; all unknown with fewer than [`LEAST_SAMPLES`] samples.
    pub mix: Mix,
}

impl ThreadSamples {
    /// Converts to the form of a profile.
    #[must_use]
    pub fn profile(self, order: u32, began: Nanos) -> ThreadProfile {
        ThreadProfile {
            order,
            process: self.process,
            name: self.name,
            start_ns: self.created.saturating_sub(began),
            end_ns: self.ended.map(|ended| ended.saturating_sub(began)),
            cpu_time_ns: self.cpu_time,
            instructions: None,
            cycles: None,
            samples: Some(self.samples),
            mix: self.mix,
        }
    }
}

/// Threads of the sampled programs, exited threads included.
#[derive(Debug, Default)]
pub(super) struct SampledThreads {
    /// Threads in the order they were reported.
    all: Vec<SampledThread>,
    /// Index in `all` of each living thread.
    alive: BTreeMap<Tid, usize>,
    /// Index of each exited thread whose final CPU time may still come.
    ending: HashMap<Tid, usize>,
    /// Index of each living process among all processes, and its number of living threads.
    processes: BTreeMap<Pid, (u32, usize)>,
    /// Number of processes reported so far.
    process_count: u32,
}

#[derive(Debug)]
struct SampledThread {
    /// State so far; its `samples` are those in live code.
    seen: ThreadSamples,
    /// CPU time used before sampling began.
    cpu_time_before: Nanos,
    /// Part of the kernel's final count that is older than the sampling.
    counted_before: Nanos,
    cpu_time: CpuTime,
    sites: HashMap<SiteIdx, u32>,
    live: Shares,
}

#[derive(Clone, Copy, Debug)]
enum CpuTime {
    /// The kernel's count at the thread's exit.
    Final(Nanos),
    /// Last value of `/proc`, with the number of samples before it.
    Read(Nanos, u64),
    /// Unknown except for the samples.
    Unknown,
}

impl SampledThreads {
    pub(super) fn apply(&mut self, event: &TaskEvent, proc: &Proc) {
        match event {
            TaskEvent::Created { at, pid, tid, parent_tid, found, .. } => {
                self.add_thread(*at, *pid, *tid, *parent_tid, *found, proc);
            }
            TaskEvent::Named { pid, tid, name, at, .. } => {
                // An exec by another thread gives it the process's TID, first in this record.
                self.add_thread(*at, *pid, *tid, *tid, true, proc);
                if let Some(place) = self.alive.get(tid) {
                    self.all[*place].seen.name.clone_from(name);
                }
            }
            TaskEvent::Ended { at, tid, .. } => self.ended(*at, *tid),
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => {}
        }
    }

    /// Adds a thread just created by `parent`; or, if `found`, a thread that may be older.
    fn add_thread(&mut self, at: Nanos, pid: Pid, tid: Tid, parent: Tid, found: bool, proc: &Proc) {
        if self.alive.contains_key(&tid) {
            return;
        }
        let creator = self.alive.get(&parent).map(|place| self.all[*place].seen.name.clone());
        let is_new = creator.is_some() && !found;
        let before = if is_new { None } else { proc.cpu_time(pid, tid) };
        // A new thread has its creator's name, and may be gone from /proc already.
        let name = creator.filter(|_| is_new).or_else(|| proc.name(pid, tid));
        let process = self.processes.entry(pid).or_insert_with(|| {
            self.process_count += 1;
            (self.process_count - 1, 0)
        });
        process.1 += 1;
        self.alive.insert(tid, self.all.len());
        let seen = ThreadSamples {
            pid,
            process: process.0,
            tid,
            name: name.unwrap_or_default(),
            created: at,
            ended: None,
            cpu_time: None,
            samples: 0,
            unattributed: 0,
            in_kernel: 0,
            mix: Mix::default(),
        };
        self.all.push(SampledThread {
            seen,
            cpu_time_before: before.unwrap_or_default(),
            counted_before: Nanos::ZERO,
            cpu_time: CpuTime::Unknown,
            sites: HashMap::new(),
            live: Shares::default(),
        });
    }

    /// Leaves out the earlier CPU time of found threads, counted by events of another sampler.
    pub(super) fn leave_out_earlier(&mut self, found: &[TaskEvent]) {
        for event in found {
            if let TaskEvent::Created { tid, .. } = event
                && let Some(thread) = self.get(*tid)
            {
                thread.counted_before = thread.cpu_time_before;
            }
        }
    }

    pub(super) fn ended(&mut self, at: Nanos, tid: Tid) {
        let Some(place) = self.alive.remove(&tid) else { return };
        let thread = &mut self.all[place];
        thread.seen.ended = Some(at);
        self.ending.insert(tid, place);
        if let Some(process) = self.processes.get_mut(&thread.seen.pid) {
            process.1 -= 1;
            if process.1 == 0 {
                self.processes.remove(&thread.seen.pid);
            }
        }
    }

    /// Living processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    pub(super) fn lives(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }

    pub(super) fn all_ended(&self) -> bool {
        self.alive.is_empty()
    }

    pub(super) fn living(&self) -> Vec<(Tid, Nanos)> {
        self.alive.iter().map(|(tid, place)| (*tid, self.all[*place].seen.created)).collect()
    }

    /// Thread that has the number `tid`, or had it last.
    fn get(&mut self, tid: Tid) -> Option<&mut SampledThread> {
        let place = self.alive.get(&tid).or_else(|| self.ending.get(&tid))?;
        Some(&mut self.all[*place])
    }

    pub(super) fn at_site(&mut self, tid: Tid, site: SiteIdx) {
        if let Some(thread) = self.get(tid) {
            *thread.sites.entry(site).or_default() += 1;
        }
    }

    pub(super) fn in_memory(&mut self, tid: Tid, shares: Option<Shares>) {
        let Some(thread) = self.get(tid) else { return };
        match shares {
            Some(shares) => {
                thread.live.add(&shares, 1);
                thread.seen.samples += 1;
            }
            None => thread.seen.unattributed += 1,
        }
    }

    pub(super) fn in_kernel(&mut self, tid: Tid) {
        if let Some(thread) = self.get(tid) {
            thread.seen.in_kernel += 1;
        }
    }

    /// Adds a part of an exited thread's final CPU time; the kernel reports a part for each CPU.
    pub(super) fn final_cpu_time(&mut self, tid: Tid, part: Nanos) {
        if let Some(thread) = self.get(tid) {
            let before = match thread.cpu_time {
                CpuTime::Final(before) => before,
                CpuTime::Read(..) | CpuTime::Unknown => Nanos::ZERO,
            };
            thread.cpu_time = CpuTime::Final(before + part);
        }
    }

    /// Reads the CPU time of all living threads and of zombies from `/proc`.
    pub(super) fn read_cpu_times(&mut self, proc: &Proc) {
        // Only a main thread stays a zombie until its process is reaped.
        let zombies = self.ending.iter();
        let zombies =
            zombies.filter(|(tid, place)| self.all[**place].seen.pid.first_thread() == **tid);
        let read = self.alive.iter().chain(zombies);
        let read: Vec<(Tid, usize)> = read.map(|(tid, place)| (*tid, *place)).collect();
        for (tid, place) in read {
            let thread = &mut self.all[place];
            if matches!(thread.cpu_time, CpuTime::Final(_)) {
                continue;
            }
            if let Some(time) = proc.cpu_time(thread.seen.pid, tid) {
                let used = time.saturating_sub(thread.cpu_time_before);
                thread.cpu_time = CpuTime::Read(used, thread.all_samples());
            }
        }
    }

    /// Number of exited threads whose CPU time is known from samples only.
    pub(super) fn guessed_cpu_times(&self) -> usize {
        let guessed = self.all.iter().filter(|thread| {
            matches!(thread.cpu_time, CpuTime::Unknown) && thread.all_samples() > 0
        });
        guessed.count()
    }

    pub(super) fn snapshot(&self, weigher: &Weigher, period: Nanos) -> Vec<ThreadSamples> {
        let mut all: Vec<ThreadSamples> =
            self.all.iter().map(|thread| thread.samples(weigher, period)).collect();
        all.sort_by_key(|thread| thread.created);
        all
    }
}

impl SampledThread {
    fn all_samples(&self) -> u64 {
        let at_sites: u64 = self.sites.values().map(|count| u64::from(*count)).sum();
        at_sites + self.seen.samples + self.seen.unattributed + self.seen.in_kernel
    }

    fn samples(&self, weigher: &Weigher, period: Nanos) -> ThreadSamples {
        let mut shares = self.live;
        let mut seen = self.seen.clone();
        for (site, count) in &self.sites {
            match weigher.shares(*site) {
                Some(found) => {
                    shares.add(found, u64::from(*count));
                    seen.samples += u64::from(*count);
                }
                None => seen.unattributed += u64::from(*count),
            }
        }
        seen.cpu_time = self.cpu_time(period);
        if seen.samples >= LEAST_SAMPLES {
            seen.mix = shares.mix();
        }
        seen
    }

    fn cpu_time(&self, period: Nanos) -> Option<Nanos> {
        let sampled = self.all_samples();
        let (known, newer) = match self.cpu_time {
            CpuTime::Final(time) => return Some(time.saturating_sub(self.counted_before)),
            CpuTime::Read(time, before) => (time, sampled - before),
            CpuTime::Unknown if sampled == 0 => return None,
            CpuTime::Unknown => (Nanos::ZERO, sampled),
        };
        Some(known + Nanos(newer.saturating_mul(period.0)))
    }
}
