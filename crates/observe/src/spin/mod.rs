//! Threads that only wait for others in a loop, found by samples of their instruction pointers.
//!
//! # Problem
//! A thread that waits in a loop has a PU and uses it, so to the kernel it is as busy as one that works. Nothing but its code
//! says that it waits, and nobody but the program has to tell.
//! # Approach
//! The software clock interrupts each thread some hundred times a second of its CPU time ([`SpinSampler`]). The loop around the
//! instruction that it finds says whether the thread waits there ([`loops`]); that is asked once for each address
//! ([`judge`]), by another thread, since files are read for it ([`judging`]). The share of a thread's samples that wait is the share
//! of its CPU time in which it waited ([`spun`]).
//! # Limits
//! Samples in the kernel count as work, except in `sched_yield`, by which a thread says that it has nothing to do; so do those in
//! `[vdso]`, where a loop reads the time until it is consistent.
//! See `docs/spinning.md` for what is measured.

pub mod judge;
pub mod judging;
pub mod loops;
pub mod spun;

use crate::births::attach_all;
use crate::perf::{Attr, Record, Rings, Stamp, split};
use crate::pmu::Start;
use crate::proc::{Proc, Tree};
use crate::sample::live;
use crate::sample::maps::{FileIdx, Origin, Spaces};
use crate::sys::{SysError, now};
use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use judge::Source;
use loops::Verdict;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Samples a second of CPU time, unless something else is asked for: see docs/spinning.md for what they cost.
pub const DEFAULT_RATE_HZ: u32 = 250;

/// Pages of a ring, on each CPU: some 1,300 samples, 5 s of one CPU at the default rate.
const RING_PAGES: usize = 16;

/// Bytes that wait before somebody who polls would be woken; nobody does.
const WAKE_B: u32 = 1 << 15;

/// A record is written to its ring within this time of being stamped; see [`crate::sample`].
const SETTLED: Nanos = Nanos::from_millis(1);

/// How long what was said of code in memory only is believed. Chosen: a JIT compiler may have put other code there.
const MEMORY_FOR: Nanos = Nanos::from_secs(1);

/// Where a thread was seen, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Where its own code was, or goes on.
    pub place: Place,
    /// How it was seen there.
    pub seen: Seen,
}

/// How a thread was seen at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It ran there.
    Running,
    /// It was in the kernel, and goes on there.
    Calling,
}

/// A place in a program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a file, so many bytes from its start.
    File(FileIdx, u64),
    /// In the memory of a process, at an address.
    Memory(Pid, u64),
}

/// Code that is to be judged.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where it is.
    pub site: Site,
    /// How to come by it.
    pub source: Source,
}

/// What a thread was seen doing since that was last asked for, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// It only waited.
    pub waits: u32,
    /// It worked, or was in the kernel.
    pub works: u32,
    /// Its code could not be read.
    pub unknown: u32,
}

impl Share {
    /// The part of a time that it waited; `None` without samples that tell.
    #[must_use]
    pub fn of(self, time: Nanos) -> Option<Nanos> {
        let all = u128::from(self.waits) + u128::from(self.works);
        let part = (u128::from(time.0) * u128::from(self.waits)).checked_div(all)?;
        u64::try_from(part).ok().map(Nanos)
    }

    fn add(&mut self, verdict: Option<Verdict>, samples: u32) {
        let count = match verdict {
            Some(verdict) if verdict.waits() => &mut self.waits,
            Some(_) => &mut self.works,
            None => &mut self.unknown,
        };
        *count = count.saturating_add(samples);
    }
}

/// What is known of a site.
#[derive(Debug)]
enum Known {
    /// It is asked for; meanwhile so many samples of each thread wait for the answer.
    Asked(BTreeMap<Tid, u32>),
    Judged(Option<Verdict>),
}

/// Samples where the threads of one or more programs are.
#[derive(Debug)]
pub struct SpinSampler {
    rings: Rings,
    attr: Attr,
    period: Nanos,
    with_kernel: bool,
    proc: Proc,
    spaces: Spaces,
    /// Launched processes that have not executed their program yet.
    waiting: BTreeSet<Pid>,
    /// Living processes that are sampled, and whose events they have: their own, or those of one that created them.
    events_of: BTreeMap<Pid, Pid>,
    /// The threads that events were opened for, of each process that was not sampled by way of another one.
    opened: BTreeMap<Pid, Vec<Tid>>,
    bytes: Vec<u8>,
    known: HashMap<Site, Known>,
    questions: Vec<Question>,
    seen: BTreeMap<Tid, Share>,
    forget_memory: Nanos,
}

impl SpinSampler {
    /// Samples nobody yet, `rate_hz` times a second of each thread's CPU time.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`]: `EACCES`, `EPERM` or `ENOSYS` where events are denied.
    pub fn new(rate_hz: u32, watch: &crate::births::Options) -> Result<Self, SysError> {
        let rates = crate::sample::RATES_HZ;
        let period = Nanos(1_000_000_000 / u64::from(rate_hz.clamp(*rates.start(), *rates.end())));
        let attr = Attr::clock_samples(period.0, WAKE_B);
        let (rings, attr, with_kernel) =
            match Rings::map(&attr.with_kernel_and_caller(), &watch.cpus, RING_PAGES) {
                Ok(rings) => (rings, attr.with_kernel_and_caller(), true),
                Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => {
                    (Rings::map(&attr, &watch.cpus, RING_PAGES)?, attr, false)
                }
                Err(error) => return Err(error),
            };
        Ok(Self {
            rings,
            attr: attr.inherited(),
            period,
            with_kernel,
            proc: watch.proc.clone(),
            spaces: Spaces::default(),
            waiting: BTreeSet::new(),
            events_of: BTreeMap::new(),
            opened: BTreeMap::new(),
            bytes: Vec::new(),
            known: HashMap::new(),
            questions: Vec::new(),
            seen: BTreeMap::new(),
            forget_memory: Nanos::ZERO,
        })
    }

    /// Samples process `pid` and all that it creates, too; with [`Start::AtExec`] it waits before its exec, and nothing
    /// that it does before is counted.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        if start == Start::AtExec {
            self.waiting.insert(pid);
        }
        let mut tree = Tree::default();
        tree.add(pid);
        tree.look(&self.proc, now(), &mut Vec::new());
        tree.processes().try_for_each(|process| self.also_alone(process))
    }

    /// Samples process `pid` and all that it creates from now on.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`].
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
        let before = self.rings.tids().len();
        let done = attach_all(&mut self.rings, &self.attr, &self.proc, pid, &mut self.bytes);
        self.opened.entry(pid).or_default().extend(&self.rings.tids()[before..]);
        if let Err(why) = done {
            self.forget(pid);
            return Err(why);
        }
        self.events_of.insert(pid, pid);
        self.spaces.clear(pid);
        for map in self.proc.code_maps(pid) {
            self.spaces.found(pid, &map);
        }
        Ok(())
    }

    /// Whether process `pid` is sampled, as far as the kernel has told of processes that were created.
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.events_of.contains_key(&pid)
    }

    /// Samples process `pid` no more, nor what it has created since it was sampled.
    pub fn forget(&mut self, pid: Pid) {
        for tid in self.opened.remove(&pid).unwrap_or_default() {
            self.rings.detach(tid);
        }
        self.waiting.remove(&pid);
        self.events_of.retain(|_, of| *of != pid);
    }

    /// How many events are open: one for each CPU and each thread that was found running, not for those that these create.
    #[must_use]
    pub fn events(&self) -> usize {
        self.rings.events().len()
    }

    /// Time between two samples of a thread.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period
    }

    /// Whether a thread is sampled in the kernel, too. Otherwise its samples say nothing of its time there.
    #[must_use]
    pub fn with_kernel(&self) -> bool {
        self.with_kernel
    }

    /// Files what the rings hold. Reads no files; see [`SpinSampler::questions`].
    pub fn drain(&mut self) {
        let begun = now();
        if begun >= self.forget_memory {
            self.known.retain(|site, _| matches!(site.place, Place::File(..)));
            self.forget_memory = begun + MEMORY_FOR;
        }
        let settled = begun.saturating_sub(SETTLED);
        let mut bytes = std::mem::take(&mut self.bytes);
        self.rings.take(&mut bytes);
        let mut records: Vec<(&[u8], Record<'_>)> = split(&bytes).collect();
        records.sort_by_key(|(_, record)| record.at());
        for (whole, record) in &records {
            if record.at() > Some(settled) {
                self.bytes.extend_from_slice(whole);
            } else {
                self.file(record);
            }
        }
    }

    /// Code that has come up since the last call and that nobody has judged. Each is asked for once.
    pub fn questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions)
    }

    /// Takes in what was said of the code at a site.
    pub fn learn(&mut self, site: Site, verdict: Option<Verdict>) {
        let before = self.known.insert(site, Known::Judged(verdict));
        if let Some(Known::Asked(samples)) = before {
            for (tid, count) in samples {
                self.seen.entry(tid).or_default().add(verdict, count);
            }
        }
    }

    /// What threads were seen doing since the last call, as far as it is judged.
    pub fn take(&mut self) -> BTreeMap<Tid, Share> {
        std::mem::take(&mut self.seen)
    }

    /// The path of a file.
    #[must_use]
    pub fn path(&self, file: FileIdx) -> &std::path::Path {
        self.spaces.path(file)
    }

    fn file(&mut self, record: &Record<'_>) {
        match record {
            Record::Fork { born, parent_pid, .. } if born.pid != *parent_pid => {
                self.spaces.fork(*parent_pid, born.pid);
                if let Some(of) = self.events_of.get(parent_pid) {
                    self.events_of.insert(born.pid, *of);
                }
                if self.waiting.contains(parent_pid) {
                    self.waiting.insert(born.pid);
                }
            }
            Record::Exit(Stamp { pid, tid, .. }) if *tid == pid.first_thread() => {
                self.spaces.clear(*pid);
                self.events_of.remove(pid);
            }
            Record::Comm { of, exec: true, .. } => {
                self.waiting.remove(&of.pid);
                self.spaces.clear(of.pid);
            }
            Record::Map { by, map } => self.spaces.map(by.pid, map),
            Record::Sample { of, ip, user, caller } if !self.waiting.contains(&of.pid) => {
                let running = user.then_some((*ip, Seen::Running));
                self.file_sample(of, running.or(caller.map(|caller| (caller, Seen::Calling))));
            }
            _ => {}
        }
    }

    fn file_sample(&mut self, of: &Stamp, at: Option<(u64, Seen)>) {
        let Some((ip, seen)) = at.filter(|(ip, _)| !self.spaces.in_vdso(of.pid, *ip)) else {
            let works = &mut self.seen.entry(of.tid).or_default().works;
            *works = works.saturating_add(1);
            return;
        };
        let place = match self.spaces.origin(of.pid, ip) {
            Origin::File(file, offset_b) => Place::File(file, offset_b),
            Origin::Memory => Place::Memory(of.pid, ip),
        };
        let site = Site { place, seen };
        match self.known.get_mut(&site) {
            Some(Known::Judged(verdict)) => {
                self.seen.entry(of.tid).or_default().add(*verdict, 1);
            }
            Some(Known::Asked(samples)) => *samples.entry(of.tid).or_default() += 1,
            None => self.ask(site, of.tid),
        }
    }

    fn ask(&mut self, site: Site, tid: Tid) {
        self.known.insert(site, Known::Asked(BTreeMap::from([(tid, 1)])));
        let source = match site.place {
            Place::File(file, at) => Source::File(self.spaces.path(file).to_owned(), at),
            Place::Memory(pid, ip) => match live::around(pid, ip) {
                Some((start, bytes)) => Source::Memory { start, bytes, ip },
                None => return self.learn(site, None),
            },
        };
        self.questions.push(Question { site, source });
    }
}
