//! Detects threads in spin loops, by samples of their instruction pointers.
//!
//! # Problem
//! A thread in a spin loop occupies its PU, so the kernel sees a busy thread. Only its code shows
//! that it waits.
//! # Approach
//! The software clock interrupts each thread some hundred times per second of its CPU time
//! ([`SpinSampler`]). The loop around the sampled instruction shows whether the thread waits
//! ([`loops`]). Another thread judges each address now and then ([`judge`]), since judging reads
//! files ([`Spinning`](crate::sources::spinning::Spinning)). The share of a thread's samples in
//! spin loops is the share of its CPU time spent waiting ([`spun`]).
//! # Limits
//! Samples in the kernel count as work, except in `sched_yield`, which idle threads call. Samples
//! in `[vdso]` count as work, too: a loop there reads the time until it is consistent. Measurements
//! are in `docs/results/spinning.md`.

pub mod judge;
pub mod loops;
mod sites;
pub mod spun;

pub use crate::sample::maps::CodeLocation;

use crate::perf::{PerfRecord, SampleId, caller};
use crate::pmu::Start;
use crate::sample::clock::{Clocks, Contents};
use crate::sample::followed::FollowedSamples;
use colocate_linux::clock::now;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use judge::CodeSource;
use loops::CodeVerdict;
use sites::Sites;
use std::collections::BTreeMap;

/// Default sampling rate, per second of CPU time. Its cost is in docs/results/spinning.md.
pub const DEFAULT_RATE_HZ: u32 = 250;

/// Lifetime of verdicts on code in memory, and of "unreadable". Chosen: JIT compilers replace code.
const MEMORY_FOR: Nanos = Nanos::from_secs(1);

/// Time after which verdicts on file code are renewed and unmapped files forgotten. Chosen: a
/// replaced file has a new identity at once; only a file written in place, as some linkers do,
/// keeps its own.
const FILES_FOR: Nanos = Nanos::from_secs(10);

/// Code location at which a thread was sampled, and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledSite {
    /// Location in the thread's own code, or the return address of its system call.
    pub place: CodeLocation,
    /// Mode of the thread.
    pub seen: ThreadMode,
}

/// Mode of a sampled thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadMode {
    /// In user mode, at the location.
    Running,
    /// In the kernel; the thread returns to the location.
    Calling,
}

/// Request to judge code.
#[derive(Clone, Debug)]
pub struct Question {
    /// Location and mode.
    pub site: SampledSite,
    /// Source of the code.
    pub source: CodeSource,
    /// Sampled process, and the sampled address in its memory.
    pub of: (Pid, u64),
}

/// Samples of a thread since the last call of [`SpinSampler::take`], by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Samples in wait loops.
    pub waits: u32,
    /// Samples in working code or in the kernel.
    pub works: u32,
    /// Samples in unreadable code.
    pub unknown: u32,
}

impl Share {
    /// Part of `time` spent waiting; unreadable code counts as work. `None` without samples.
    #[must_use]
    pub fn of(self, time: Nanos) -> Option<Nanos> {
        let all = [self.waits, self.works, self.unknown].map(u128::from).into_iter().sum();
        let part = (u128::from(time.0) * u128::from(self.waits)).checked_div(all)?;
        u64::try_from(part).ok().map(Nanos)
    }

    fn add(&mut self, verdict: Option<CodeVerdict>, samples: u32) {
        let count = match verdict {
            Some(verdict) if verdict.waits() => &mut self.waits,
            Some(_) => &mut self.works,
            None => &mut self.unknown,
        };
        *count = count.saturating_add(samples);
    }
}

/// Samples the instruction pointers of the threads of one or more programs.
#[derive(Debug)]
pub struct SpinSampler {
    pub(crate) followed: FollowedSamples,
    sites: Sites,
    questions: Vec<Question>,
    forget_memory: Nanos,
    forget_files: Nanos,
}

impl SpinSampler {
    /// Creates a sampler that samples no process yet. Its rate is `rate_hz` per second of each
    /// thread's CPU time, on the CPUs of `clocks` only. Time on a CPU onlined later gives no
    /// samples.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`]: `EACCES`, `EPERM` or `ENOSYS` where events are denied.
    pub fn new(rate_hz: u32, clocks: &Clocks) -> Result<Self, SysError> {
        Ok(Self {
            followed: FollowedSamples::new(clocks.subscribe(rate_hz, Contents::SPINNING)?),
            sites: Sites::default(),
            questions: Vec::new(),
            forget_memory: Nanos::ZERO,
            forget_files: now() + FILES_FOR,
        })
    }

    /// Adds process `pid` and all its future children. With [`Start::AtExec`] the process waits
    /// before its exec, and nothing before the exec is counted.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.followed.also(pid, start, &mut Vec::new()).map(drop)
    }

    /// Adds process `pid`, and the threads and processes created from now on.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`].
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
        self.followed.also_alone(pid).map(drop)
    }

    /// Whether process `pid` is sampled, as far as the kernel has reported process creations.
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.followed.samples.has(pid)
    }

    /// Stops sampling process `pid` and the processes it created since it was added.
    pub fn forget(&mut self, pid: Pid) {
        self.followed.forget(pid);
    }

    /// Number of open events: one for each CPU and each thread found at the start. Inherited events
    /// do not count.
    #[must_use]
    pub fn events(&self) -> usize {
        self.followed.samples.events()
    }

    /// Records all samples in the rings. Reads no files; see [`SpinSampler::questions`].
    pub fn drain(&mut self) {
        let begun = now();
        if begun >= self.forget_memory {
            self.sites.forget_memory();
            self.forget_memory = begun + MEMORY_FOR;
        }
        if begun >= self.forget_files {
            self.sites.age();
            self.followed.spaces.forget_unmapped();
            self.forget_files = begun + FILES_FOR;
        }
        let Self { followed, sites, questions, .. } = self;
        followed.each(|followed, record| {
            if let PerfRecord::Sample { of, ip, user, rest } = record {
                // In the kernel, the user-mode instruction pointer is the system call's end.
                let at = if *user {
                    Some((*ip, ThreadMode::Running))
                } else {
                    caller(rest).map(|caller| (caller, ThreadMode::Calling))
                };
                questions.extend(file_sample(followed, sites, of, at));
            }
        });
    }

    /// Sites sampled since the last call that have no recent verdict.
    pub fn questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions)
    }

    /// Stores the verdict on the code at a site.
    pub fn learn(&mut self, site: SampledSite, verdict: Option<CodeVerdict>) {
        self.sites.learn(site, verdict);
    }

    /// Judged samples of each thread since the last call.
    pub fn take(&mut self) -> BTreeMap<Tid, Share> {
        self.sites.take()
    }
}

/// Records one sample; returns the request to judge, if the site needs a verdict.
fn file_sample(
    followed: &FollowedSamples,
    sites: &mut Sites,
    of: &SampleId,
    at: Option<(u64, ThreadMode)>,
) -> Option<Question> {
    // Before its exec the process runs the launcher's code.
    if followed.is_waiting(of.pid) {
        return None;
    }
    let Some((ip, seen)) = at.filter(|(ip, _)| !followed.spaces.in_vdso(of.pid, *ip)) else {
        sites.works(of.tid);
        return None;
    };
    let place = followed.spaces.origin(of.pid, ip);
    let site = SampledSite { place, seen };
    if !sites.sample(site, of.tid) {
        return None;
    }
    let source = match place {
        CodeLocation::File(file, at) => {
            followed.spaces.file(file).map(|file| CodeSource::File(file.clone(), at))
        }
        CodeLocation::Memory(pid, ip) => CodeSource::in_memory(pid, ip),
    };
    let Some(source) = source else {
        // Unreadable now; the site is forgotten and tried again after `MEMORY_FOR`.
        sites.learn(site, None);
        return None;
    };
    Some(Question { site, source, of: (of.pid, ip) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock::SETTLED;
    use crate::sample::file::FileId;
    use colocate_testing::skip;
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    /// A program is run, replaced by a copy, and run again. According to the kernel, two files were mapped.
    #[test]
    fn a_program_that_is_replaced_is_another_file() {
        let mut sampler = match SpinSampler::new(DEFAULT_RATE_HZ, &Clocks::here().unwrap()) {
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
        let ids: Vec<FileId> = sampler.followed.spaces.ids_of(&path).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert!(ids.iter().all(|id| id.generation.is_some()), "{ids:?}");
        assert_eq!(ids.iter().map(|id| id.inode).collect::<BTreeSet<_>>(), inodes);
    }
}
