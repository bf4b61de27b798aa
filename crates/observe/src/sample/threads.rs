//! Samples filed by thread.

use super::LEAST_SAMPLES;
use super::shares::Shares;
use super::weigh::{SiteIdx, Weigher};
use crate::event::TaskEvent;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_model::{Mix, ThreadProfile};
use std::collections::{BTreeMap, HashMap};

/// What one thread was seen doing.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSamples {
    /// Its process.
    pub pid: Pid,
    /// Which process of the job that is, from 0 in the order of creation.
    pub process: u32,
    /// The thread. The kernel reuses numbers: with `created` it is unique.
    pub tid: Tid,
    /// Its latest name.
    pub name: String,
    /// When it was created or found, on `CLOCK_MONOTONIC`.
    pub created: Nanos,
    /// When it ended; `None` if it lives.
    pub ended: Option<Nanos>,
    /// CPU time since it was created or found, exact to a sampling period; `None` if nothing is known.
    pub cpu_time: Option<Nanos>,
    /// Samples in the program's own code, decoded: what `mix` rests on.
    pub samples: u64,
    /// Samples in the program's code that could not be read or decoded.
    pub unattributed: u64,
    /// Samples in the kernel, where those are permitted.
    pub in_kernel: u64,
    /// Share of each class; all unknown with fewer than [`LEAST_SAMPLES`] samples.
    pub mix: Mix,
}

impl ThreadSamples {
    /// The form that a profile keeps.
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

/// The threads of the sampled programs, dead ones too.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// In the order they were reported.
    all: Vec<Thread>,
    /// Those that live, as places in `all`.
    alive: BTreeMap<Tid, usize>,
    /// Those that have ended and whose final CPU time may still come.
    ending: HashMap<Tid, usize>,
    /// Place of each living process among all processes, and how many of its threads live.
    processes: BTreeMap<Pid, (u32, usize)>,
    /// Processes reported so far.
    process_count: u32,
}

#[derive(Debug)]
struct Thread {
    pid: Pid,
    process: u32,
    tid: Tid,
    name: String,
    created: Nanos,
    ended: Option<Nanos>,
    /// CPU time that it had used before it was sampled.
    cpu_time_before: Nanos,
    cpu_time: CpuTime,
    sites: HashMap<SiteIdx, u32>,
    live: Shares,
    live_samples: u64,
    unreadable: u64,
    in_kernel: u64,
}

#[derive(Clone, Copy, Debug)]
enum CpuTime {
    /// Counted by the kernel until the thread's end.
    Final(Nanos),
    /// As `/proc` last said, with the number of samples before that.
    Read(Nanos, u64),
    /// Nothing but the samples.
    Unknown,
}

impl Threads {
    pub(super) fn apply(&mut self, event: &TaskEvent, proc: &Proc) {
        match event {
            TaskEvent::Created { at, pid, tid, parent_tid, found, .. } => {
                self.add_thread(*at, *pid, *tid, *parent_tid, *found, proc);
            }
            TaskEvent::Named { pid, tid, name, at, .. } => {
                // A thread that took over its process's number by an exec is created by its name.
                self.add_thread(*at, *pid, *tid, *tid, true, proc);
                if let Some(place) = self.alive.get(tid) {
                    self.all[*place].name.clone_from(name);
                }
            }
            TaskEvent::Ended { at, tid, .. } => self.ended(*at, *tid),
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => {}
        }
    }

    /// Takes in a thread that `parent` has created now; or, if `found`, one that may have lived before.
    fn add_thread(&mut self, at: Nanos, pid: Pid, tid: Tid, parent: Tid, found: bool, proc: &Proc) {
        if self.alive.contains_key(&tid) {
            return;
        }
        let creator = self.alive.get(&parent).map(|place| self.all[*place].name.clone());
        let is_new = creator.is_some() && !found;
        let before = if is_new { None } else { proc.cpu_time(pid, tid) };
        // What has just been created has its creator's name.
        let name = creator.filter(|_| is_new).or_else(|| proc.name(pid, tid));
        let process = self.processes.entry(pid).or_insert_with(|| {
            self.process_count += 1;
            (self.process_count - 1, 0)
        });
        process.1 += 1;
        self.alive.insert(tid, self.all.len());
        self.all.push(Thread {
            pid,
            process: process.0,
            tid,
            name: name.unwrap_or_default(),
            created: at,
            ended: None,
            cpu_time_before: before.unwrap_or_default(),
            cpu_time: CpuTime::Unknown,
            sites: HashMap::new(),
            live: Shares::default(),
            live_samples: 0,
            unreadable: 0,
            in_kernel: 0,
        });
    }

    pub(super) fn ended(&mut self, at: Nanos, tid: Tid) {
        let Some(place) = self.alive.remove(&tid) else { return };
        let thread = &mut self.all[place];
        thread.ended = Some(at);
        self.ending.insert(tid, place);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.1 -= 1;
            if process.1 == 0 {
                self.processes.remove(&thread.pid);
            }
        }
    }

    /// The processes that live.
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
        self.alive.iter().map(|(tid, place)| (*tid, self.all[*place].created)).collect()
    }

    /// The thread that has the number `tid`, or had it last.
    fn get(&mut self, tid: Tid) -> Option<&mut Thread> {
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
                thread.live_samples += 1;
            }
            None => thread.unreadable += 1,
        }
    }

    pub(super) fn in_kernel(&mut self, tid: Tid) {
        if let Some(thread) = self.get(tid) {
            thread.in_kernel += 1;
        }
    }

    /// The kernel's count of CPU time of a thread that has ended, one part for each CPU.
    pub(super) fn final_cpu_time(&mut self, tid: Tid, part: Nanos) {
        if let Some(thread) = self.get(tid) {
            let before = match thread.cpu_time {
                CpuTime::Final(before) => before,
                CpuTime::Read(..) | CpuTime::Unknown => Nanos::ZERO,
            };
            thread.cpu_time = CpuTime::Final(before + part);
        }
    }

    /// Reads from `/proc` the CPU time of all that live, and of zombies.
    pub(super) fn read_cpu_times(&mut self, proc: &Proc) {
        let first = |(tid, place): (&Tid, &usize)| (*tid, *place);
        let zombies = self
            .ending
            .iter()
            .map(first)
            .filter(|(tid, place)| self.all[*place].pid.first_thread() == *tid);
        let read: Vec<(Tid, usize)> = self.alive.iter().map(first).chain(zombies).collect();
        for (tid, place) in read {
            let thread = &mut self.all[place];
            if matches!(thread.cpu_time, CpuTime::Final(_)) {
                continue;
            }
            if let Some(time) = proc.cpu_time(thread.pid, tid) {
                let used = time.saturating_sub(thread.cpu_time_before);
                thread.cpu_time = CpuTime::Read(used, thread.all_samples());
            }
        }
    }

    /// How many threads have ended before anything but samples showed their CPU time.
    pub(super) fn guessed_cpu_times(&self) -> usize {
        let guessed = |thread: &&Thread| {
            matches!(thread.cpu_time, CpuTime::Unknown) && thread.all_samples() > 0
        };
        self.all.iter().filter(guessed).count()
    }

    pub(super) fn snapshot(&self, weigher: &Weigher, period: Nanos) -> Vec<ThreadSamples> {
        let mut all: Vec<ThreadSamples> =
            self.all.iter().map(|thread| thread.samples(weigher, period)).collect();
        all.sort_by_key(|thread| thread.created);
        all
    }
}

impl Thread {
    fn all_samples(&self) -> u64 {
        let at_sites: u64 = self.sites.values().map(|count| u64::from(*count)).sum();
        at_sites + self.live_samples + self.unreadable + self.in_kernel
    }

    fn samples(&self, weigher: &Weigher, period: Nanos) -> ThreadSamples {
        let mut shares = self.live;
        let mut samples = self.live_samples;
        let mut unattributed = self.unreadable;
        for (site, count) in &self.sites {
            match weigher.shares(*site) {
                Some(found) => {
                    shares.add(found, u64::from(*count));
                    samples += u64::from(*count);
                }
                None => unattributed += u64::from(*count),
            }
        }
        let enough = samples >= LEAST_SAMPLES;
        ThreadSamples {
            pid: self.pid,
            process: self.process,
            tid: self.tid,
            name: self.name.clone(),
            created: self.created,
            ended: self.ended,
            cpu_time: self.cpu_time(period),
            samples,
            unattributed,
            in_kernel: self.in_kernel,
            mix: if enough { shares.mix() } else { Mix::default() },
        }
    }

    fn cpu_time(&self, period: Nanos) -> Option<Nanos> {
        let sampled = self.all_samples();
        let of = |samples: u64| Nanos(samples.saturating_mul(period.0));
        match self.cpu_time {
            CpuTime::Final(time) => Some(time),
            CpuTime::Read(time, before) => Some(time + of(sampled - before)),
            CpuTime::Unknown => (sampled > 0).then(|| of(sampled)),
        }
    }
}
