//! Threads that only wait for others in a loop, found by samples of their instruction pointers.
//!
//! # Problem
//! A thread that waits in a loop has a PU and uses it, so to the kernel it is as busy as one that works. Nothing but its code
//! says that it waits.
//! # Approach
//! The software clock interrupts each thread some hundred times a second of its CPU time ([`SpinSampler`]). The loop
//! around the instruction that it finds says whether the thread waits there ([`loops`]); that is requested for each
//! address now and then ([`judge`]), by another thread, since files are read for it ([`Spinning`](crate::sources::spinning::Spinning)). The share of a
//! thread's samples that wait is the share of its CPU time in which it waited ([`spun`]).
//! # Limits
//! Samples in the kernel count as work, except in `sched_yield`, which a thread calls when it has nothing to do; so do those in
//! `[vdso]`, where a loop reads the time until it is consistent.
//! See `docs/spinning.md` for what is measured.

pub mod judge;
pub mod loops;
mod sites;
pub mod spun;

use crate::perf::{Attr, Record, Stamp, registers};
use crate::pmu::Start;
use crate::sample::clock::Clock;
use crate::sample::followed::Followed;
use crate::sample::maps::{FileIdx, Origin};
use colocate_linux::SysError;
use colocate_linux::clock::now;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use judge::Source;
use loops::Verdict;
use sites::Sites;
use std::collections::BTreeMap;

/// Samples a second of CPU time, unless something else is requested: see docs/spinning.md for what they cost.
pub const DEFAULT_RATE_HZ: u32 = 250;

/// Pages of a ring, on each CPU: some 1,300 samples, 5 s of one CPU at the default rate.
const RING_PAGES: usize = 16;

/// Bytes that wait before a poll(2) of the rings would be woken; none is made.
const WAKE_B: u32 = 1 << 15;

/// How long a verdict on code in memory only holds, and that code cannot be read. Chosen: a JIT compiler
/// may have put other code there.
const MEMORY_FOR: Nanos = Nanos::from_secs(1);

/// After so long verdicts on code in files are requested again, and files that are not mapped any more are forgotten.
/// Chosen: a file that is replaced is another one at once; only one that is written to, as some linkers do, is the
/// same.
const FILES_FOR: Nanos = Nanos::from_secs(10);

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
    /// The process seen there, and at which address of its memory.
    pub of: (Pid, u64),
}

/// What a thread was seen doing since that was last taken, in samples.
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
    /// The part of a time that it was seen to wait: where its code could not be read, it was not. `None` without
    /// samples.
    #[must_use]
    pub fn of(self, time: Nanos) -> Option<Nanos> {
        let all = [self.waits, self.works, self.unknown].map(u128::from).into_iter().sum();
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

/// Samples where the threads of one or more programs are.
#[derive(Debug)]
pub struct SpinSampler {
    followed: Followed,
    sites: Sites,
    questions: Vec<Question>,
    forget_memory: Nanos,
    forget_files: Nanos,
}

impl SpinSampler {
    /// Samples nothing yet. Takes `rate_hz` samples a second of each thread's CPU time, on the CPUs of `watch` and on no other:
    /// of a thread that runs on one that comes later nothing new is known.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`]: `EACCES`, `EPERM` or `ENOSYS` where events are denied.
    pub fn new(rate_hz: u32, watch: &crate::lifecycle::Options) -> Result<Self, SysError> {
        let watch = (watch, RING_PAGES);
        let clock = Clock::map((rate_hz, WAKE_B), watch, Attr::with_kernel_and_caller)?;
        Ok(Self {
            followed: Followed::new(clock),
            sites: Sites::default(),
            questions: Vec::new(),
            forget_memory: Nanos::ZERO,
            forget_files: now() + FILES_FOR,
        })
    }

    /// Samples process `pid` and all that it creates, too; with [`Start::AtExec`] it waits before its exec, and nothing
    /// that it does before is counted.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.followed.also(pid, start)
    }

    /// Samples process `pid` and all that it creates from now on.
    ///
    /// # Errors
    /// As [`crate::perf::Event::open`].
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
        self.followed.also_alone(pid)
    }

    /// Whether process `pid` is sampled, as far as the kernel has reported created processes.
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.followed.samples(pid)
    }

    /// Samples process `pid` no more, nor what it has created since it was sampled.
    pub fn forget(&mut self, pid: Pid) {
        self.followed.forget(pid);
    }

    /// How many events are open: one for each CPU and each thread that was found running, not for those that these create.
    #[must_use]
    pub fn events(&self) -> usize {
        self.followed.events()
    }

    /// Time between two samples of a thread.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.followed.clock.period
    }

    /// Whether a thread is sampled in the kernel, too. Otherwise its samples say nothing of its time there.
    #[must_use]
    pub fn with_kernel(&self) -> bool {
        self.followed.clock.with_kernel
    }

    /// Files what the rings hold. Reads no files; see [`SpinSampler::questions`].
    pub fn drain(&mut self) {
        let begun = now();
        if begun >= self.forget_memory {
            self.sites.forget_memory();
            self.forget_memory = begun + MEMORY_FOR;
        }
        if begun >= self.forget_files {
            self.sites.age();
            self.followed.clock.spaces.forget_unmapped();
            self.forget_files = begun + FILES_FOR;
        }
        let bytes = self.followed.take();
        let Self { followed, sites, questions, .. } = self;
        followed.each(&bytes, |clock, record| {
            if let Record::Sample { of, ip, user, rest } = record {
                let caller = registers(rest).next().map(|caller| (caller, Seen::Calling));
                let at = if *user { Some((*ip, Seen::Running)) } else { caller };
                questions.extend(file_sample(clock, sites, of, at));
            }
        });
    }

    /// Code that has come up since the last call and has no recent verdict.
    pub fn questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions)
    }

    /// Takes in the verdict on the code at a site.
    pub fn learn(&mut self, site: Site, verdict: Option<Verdict>) {
        self.sites.learn(site, verdict);
    }

    /// What threads were seen doing since the last call, as far as it is judged.
    pub fn take(&mut self) -> BTreeMap<Tid, Share> {
        self.sites.take()
    }
}

/// Files one sample; what is to be judged.
fn file_sample(
    clock: &Clock,
    sites: &mut Sites,
    of: &Stamp,
    at: Option<(u64, Seen)>,
) -> Option<Question> {
    if clock.is_waiting(of.pid) {
        return None;
    }
    let Some((ip, seen)) = at.filter(|(ip, _)| !clock.spaces.in_vdso(of.pid, *ip)) else {
        sites.works(of.tid);
        return None;
    };
    let place = match clock.spaces.origin(of.pid, ip) {
        Origin::File(file, offset_b) => Place::File(file, offset_b),
        Origin::Memory => Place::Memory(of.pid, ip),
    };
    let site = Site { place, seen };
    if !sites.sample(site, of.tid) {
        return None;
    }
    let source = match place {
        Place::File(file, at) => clock.spaces.file(file).map(|file| Source::File(file.clone(), at)),
        Place::Memory(pid, ip) => Source::in_memory(pid, ip),
    };
    let Some(source) = source else {
        sites.learn(site, None);
        return None;
    };
    Some(Question { site, source, of: (of.pid, ip) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Options;
    use crate::sample::clock::SETTLED;
    use crate::sample::file::FileId;
    use colocate_testing::skip;
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    /// A program is run, replaced by a copy, and run again. According to the kernel, two files were mapped.
    #[test]
    fn a_program_that_is_replaced_is_another_file() {
        let mut sampler = match SpinSampler::new(DEFAULT_RATE_HZ, &Options::here().unwrap()) {
            Ok(sampler) => sampler,
            Err(why) => skip!(Perf, "{why}"),
        };
        sampler.also(Pid(std::process::id().cast_signed()), Start::Now).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [path, new] = ["a.out", "new"].map(|name| folder.path().join(name));
        let mut inodes = BTreeSet::new();
        for _ in 0..2 {
            std::fs::copy("/bin/true", &new).unwrap();
            std::fs::rename(&new, &path).unwrap();
            inodes.insert(std::fs::metadata(&path).unwrap().ino());
            assert!(Command::new(&path).status().unwrap().success());
        }
        std::thread::sleep(2 * std::time::Duration::from(SETTLED));
        sampler.drain();
        let ids: Vec<FileId> = sampler.followed.clock.spaces.ids_of(&path).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert!(ids.iter().all(|id| id.generation.is_some()), "{ids:?}");
        assert_eq!(ids.iter().map(|id| id.inode).collect::<BTreeSet<_>>(), inodes);
    }
}
