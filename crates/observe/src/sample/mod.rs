//! Instruction-pointer samples on the software clock: the instruction mix of each thread, without
//! counters.
//!
//! # Problem
//! A timer interrupt shows *where* a thread is, not the instructions it has executed. Slow
//! instructions are hit more often than fast ones, so the class of the hit instruction alone is
//! misleading: wrong by up to 46 percentage points on compressors.
//! # Approach
//! A sample represents the surrounding code that runs as often as the sampled instruction. The
//! binary shows this code: see [`weigh`].
//! # Terms
//! *Site*: an instruction of a file, however many processes have mapped it. *Live code*: code in
//! memory only, as a JIT compiler makes it; it is read at the time of the sample.
//! # Parts
//! [`Sampler`] empties the kernel's rings and files samples by thread and site, about a microsecond
//! per sample, without decoding. [`Sampler::snapshot`] decodes. [`maps`] tracks mappings,
//! [`mod@file`] distinguishes files of one path, [`image`] and [`elf`] read files, [`flow`] finds
//! loops, [`live`] reads memory, and [`budget`] limits the cost of all.
//!
//! ```no_run
//! # fn main() -> Result<(), colocate_linux::SysError> {
//! # let child = colocate_linux::Pid(1);
//! use colocate_observe::sample::{Sampler, SampleOptions, Start};
//! // `child` waits before its exec.
//! let mut sampler = Sampler::start(child, Start::AtExec, SampleOptions::here()?)?;
//! // … let it go on; whenever `fds` are readable:
//! sampler.drain();
//! // … after some seconds:
//! sampler.stop();
//! for thread in sampler.snapshot() { /* thread.mix, thread.samples */ }
//! # Ok(()) }
//! ```

pub mod budget;
pub mod clock;
pub mod elf;
pub mod file;
pub mod flow;
pub(crate) mod followed;
pub mod image;
pub mod live;
pub mod maps;
pub mod rates;
mod shares;
mod threads;
mod weigh;

pub use crate::pmu::{CountedThreads, Start};
pub use clock::Clocks;
pub use threads::ThreadSamples;

use crate::code::Stretch;
use crate::event::TaskEvent;
use crate::perf::{PerfEvent, PerfRecord, SampleId, split};
use crate::tree::Tree;
use budget::StepBudget;
use clock::{Contents, SETTLED};
use colocate_isa::Isa;
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use followed::FollowedSamples;
use maps::CodeLocation;
use shares::Shares;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use threads::SampledThreads;
use weigh::Weigher;

/// Default sampling rate, per second of CPU time. At 1,000 the watched program ran 3–5 % slower in
/// a 2-CPU virtual machine, so 250 costs about 1 %.
pub const DEFAULT_RATE_HZ: u32 = 250;

/// Accepted sampling rates, per second. The kernel's own limit is `perf_event_max_sample_rate`.
pub const RATES_HZ: std::ops::RangeInclusive<u32> = 1..=10_000;

/// Fewest samples for a thread's mix. With 20, a class's share of 30 % has a standard error of 10
/// points if every sample is of another loop, and none if all samples are of one loop. Chosen; see
/// docs/reference/sampling.md.
pub const LEAST_SAMPLES: u64 = 20;

/// Default budget ([`budget`]) of one pass over all sampled code, about ten seconds. Chosen: enough
/// for some 6,000 of the large functions of Rust's compiler or LLVM, and some 40,000 of node
/// (docs/reference/sampling.md).
pub const MOST_STEPS: u64 = 10_000_000_000;

/// Period of `/proc` scans for thread creations and exits, once records may have been lost. Chosen.
const SCAN_EVERY: Nanos = Nanos::from_secs(1);

/// Options of a sampler.
#[derive(Clone, Debug)]
pub struct SampleOptions {
    /// Samples per second of CPU time, in [`RATES_HZ`].
    pub rate_hz: u32,
    /// Clocks, shared with other samplers.
    pub clocks: Clocks,
    /// Budget ([`budget`]) of each call of [`Sampler::snapshot`] and [`Sampler::stretches`];
    /// samples in code beyond it count as samples in unreadable code.
    pub most_steps: u64,
}

impl SampleOptions {
    /// Default rate on this machine's online CPUs.
    ///
    /// # Errors
    /// As [`Clocks::here`].
    pub fn here() -> Result<Self, SysError> {
        Ok(Self { rate_hz: DEFAULT_RATE_HZ, clocks: Clocks::here()?, most_steps: MOST_STEPS })
    }
}

/// Samples the threads of one or more programs.
#[derive(Debug)]
pub struct Sampler {
    followed: FollowedSamples,
    /// Events whose descriptors become readable when samples wait.
    polled: Vec<Arc<PerfEvent>>,
    most_steps: u64,
    began: Nanos,
    threads: SampledThreads,
    weigher: Weigher,
    lost: u64,
    /// Time of the next `/proc` scan for creations and exits; `None` as long as none can be lost.
    next_scan: Option<Nanos>,
}

impl Sampler {
    /// Samples process `pid` and all its future children.
    ///
    /// With [`Start::AtExec`], `pid` is a child that waits before its exec, and nothing before the
    /// exec is counted. With [`Start::Now`] it runs already; its threads and its children's are
    /// found in `/proc`.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`]: `EACCES`, `EPERM` or `ENOSYS` where events are denied,
    /// `ESRCH` if the process is gone.
    pub fn start(pid: Pid, start: Start, options: SampleOptions) -> Result<Self, SysError> {
        let mut sampler = Self::open(&options)?;
        sampler.also(pid, start)?;
        Ok(sampler)
    }

    /// Creates a sampler that samples no process yet.
    ///
    /// # Errors
    /// As [`Sampler::start`].
    pub fn open(options: &SampleOptions) -> Result<Self, SysError> {
        let samples = options.clocks.subscribe(options.rate_hz, Contents::MIX)?;
        Ok(Self {
            polled: samples.polled(),
            followed: FollowedSamples::new(samples),
            most_steps: options.most_steps,
            began: now(),
            threads: SampledThreads::default(),
            weigher: Weigher::default(),
            lost: 0,
            next_scan: None,
        })
    }

    /// Adds process `pid` and all its future children.
    ///
    /// # Errors
    /// As [`Sampler::start`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        let mut found = Vec::new();
        let (mut tree, reports_exits) = self.followed.also(pid, start, &mut found)?;
        if tree.is_empty() {
            return Err(SysError::of("perf_event_open", libc::ESRCH));
        }
        if !reports_exits {
            self.next_scan.get_or_insert(Nanos::ZERO);
        }
        // Threads created after the first scan, before the events were open, are found now.
        tree.scan(self.proc(), now(), &mut found);
        self.apply(&found);
        self.threads.leave_out_earlier(&found);
        Ok(())
    }

    fn proc(&self) -> &Proc {
        &self.followed.samples.proc
    }

    fn apply(&mut self, events: &[TaskEvent]) {
        for event in events {
            self.threads.apply(event, &self.followed.samples.proc);
        }
    }

    /// Descriptors that become readable when samples wait.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.polled.iter().map(|event| event.as_fd()).collect()
    }

    /// Whether every sampled thread has exited and been reported.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.threads.all_ended()
    }

    /// Files the records in the rings. Never waits and never decodes files.
    ///
    /// A record is filed once earlier records of all CPUs must have been written, so the newest
    /// millisecond is left for the next call. After an overflow of the rings, `/proc` is scanned
    /// for creations and exits, too, at most once a second.
    pub fn drain(&mut self) {
        let begun = now();
        self.file_until(begun.saturating_sub(SETTLED));
        if self.next_scan.is_some_and(|next| next <= begun) {
            self.scan();
            self.next_scan = Some(now() + SCAN_EVERY);
        }
    }

    /// Records the CPU time of all threads from `/proc`. Call before reaping a process: afterwards
    /// the CPU time of its main thread is gone.
    pub fn read_cpu_times(&mut self) {
        self.threads.read_cpu_times(&self.followed.samples.proc);
    }

    /// Stops sampling; the programs run on, and the records in the rings are filed.
    pub fn stop(&mut self) {
        self.threads.read_cpu_times(&self.followed.samples.proc);
        self.followed.samples.stop();
        self.file_until(Nanos(u64::MAX));
        if self.next_scan.take().is_some() {
            self.scan();
        }
    }

    /// Samples and mix of every thread so far, in the order of creation.
    ///
    /// Decodes every sampled function at each call: 2 ms for gzip, 60 ms for bash, and at most
    /// [`SampleOptions::most_steps`]. The rings fill up meanwhile.
    #[must_use]
    pub fn snapshot(&mut self) -> Vec<ThreadSamples> {
        self.threads.read_cpu_times(&self.followed.samples.proc);
        self.weigher.weigh(&self.followed.spaces, &mut StepBudget::of(self.most_steps));
        self.threads.snapshot(&self.weigher, self.followed.samples.period)
    }

    /// At most `count` stretches of the code sampled so far. Decodes as
    /// [`snapshot`](Self::snapshot) does.
    #[must_use]
    pub fn stretches(&mut self, count: usize) -> Vec<Stretch> {
        self.weigher.stretches(&self.followed.spaces, count, &mut StepBudget::of(self.most_steps))
    }

    /// Stops, and returns the samples and mix of each thread.
    #[must_use]
    pub fn finish(mut self) -> CountedThreads {
        self.stop();
        let complete = self.all_ended();
        let threads = self.snapshot();
        let watched = now().saturating_sub(self.began);
        let notes = self.notes(&threads);
        let threads = (0..).zip(threads).map(|(order, thread)| thread.profile(order, self.began));
        CountedThreads { threads: threads.collect(), watched, complete, notes }
    }

    fn notes(&self, threads: &[ThreadSamples]) -> Vec<String> {
        let mut notes = vec![format!(
            "instruction-pointer samples at {} Hz on the software clock; shares are estimates",
            1_000_000_000 / self.followed.samples.period.0.max(1)
        )];
        let few = threads.iter().filter(|thread| thread.samples < LEAST_SAMPLES).count();
        if few > 0 {
            notes.push(format!(
                "{few} of {} threads have fewer than {LEAST_SAMPLES} samples; their mix is unknown",
                threads.len()
            ));
        }
        let used: u64 = threads.iter().map(|thread| thread.samples).sum();
        let unknown: u64 = threads.iter().map(|thread| thread.unattributed).sum();
        if unknown > 0 {
            notes.push(format!(
                "{unknown} of {} samples hit code that could not be read or decoded",
                used + unknown
            ));
        }
        let guessed = self.threads.guessed_cpu_times();
        if guessed > 0 {
            let without = if self.followed.samples.with_kernel {
                ""
            } else {
                ", without its time in the kernel"
            };
            notes.push(format!("CPU time of {guessed} threads is that of their samples{without}"));
        }
        if self.lost > 0 {
            notes.push(format!("{} samples or notes were lost", self.lost));
        }
        notes
    }

    fn file_until(&mut self, settled: Nanos) {
        let taken = self.followed.samples.take(settled);
        self.lost += taken.lost;
        if taken.full || taken.lost > 0 {
            self.next_scan.get_or_insert(Nanos::ZERO);
        }
        split(&taken.bytes).for_each(|(whole, record)| self.file(whole, &record));
    }

    fn file(&mut self, whole: &[u8], record: &PerfRecord<'_>) {
        if let Some(event) = crate::lifecycle::event(record) {
            self.apply(&[event]);
        }
        self.followed.follow(whole, record);
        match record {
            // Other threads of the process still need its mappings.
            PerfRecord::Exit(SampleId { pid, .. }) if !self.threads.lives(*pid) => {
                self.followed.spaces.clear(*pid);
            }
            PerfRecord::Sample { of, ip, user, .. } if !self.followed.is_waiting(of.pid) => {
                self.file_sample(of, *ip, *user);
            }
            PerfRecord::Count(of, value) => self.threads.final_cpu_time(of.tid, Nanos(*value)),
            _ => {}
        }
    }

    /// Recovers lost creations and exits by a scan of `/proc`.
    fn scan(&mut self) {
        let at = now();
        let mut found = Vec::new();
        let mut tree = Tree::default();
        self.threads.processes().for_each(|process| tree.add(process));
        tree.scan(self.proc(), at, &mut found);
        for process in tree.processes().filter(|process| !self.threads.lives(*process)) {
            self.followed.spaces.find(process, &self.followed.samples.proc);
        }
        self.apply(&found);
        for (tid, _) in self.threads.living() {
            if !tree.has(tid) {
                self.threads.ended(at, tid);
            }
        }
    }

    fn file_sample(&mut self, of: &SampleId, ip: u64, user: bool) {
        let SampleId { pid, tid, .. } = *of;
        if !user {
            self.threads.in_kernel(tid);
            return;
        }
        match self.followed.spaces.origin(pid, ip) {
            CodeLocation::File(file, offset) => {
                let site = self.weigher.site(file, offset);
                self.threads.at_site(tid, site);
            }
            CodeLocation::Memory(pid, ip) => self.threads.in_memory(tid, live_shares(pid, ip)),
        }
    }

    /// TIDs of the sampled living threads, with the creation time that distinguishes reused TIDs.
    #[must_use]
    pub fn living(&self) -> Vec<(Tid, Nanos)> {
        self.threads.living()
    }
}

/// Mix of the live code around `ip`; `None` if it cannot be read or decoded.
fn live_shares(pid: Pid, ip: u64) -> Option<Shares> {
    let (start, bytes) = live::around(pid, ip)?;
    let budget = &mut StepBudget::of(live::MOST_STEPS);
    let code = live::CodeBytes { isa: Isa::native()?, start, bytes: &bytes };
    live::shares_around(code, ip, budget)
}

#[cfg(test)]
mod tests {
    use super::file::tests::Opened;
    use super::*;
    use crate::spin::SpinSampler;
    use crate::spin::judge::CodeJudge;
    use colocate_testing::skip;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// A shell that runs in a mount namespace of its own from `path`, where something else lies outside of it.
    struct Elsewhere(Child);

    impl Elsewhere {
        /// `None` where no namespace can be had, which takes root.
        fn run(path: &Path) -> Option<Self> {
            let script = r#"mount --bind "$(readlink -f /bin/sh)" "$0" && exec "$0" -c 'while :; do :; done'"#;
            let mut child =
                Command::new("unshare").args(["-m", "sh", "-c", script]).arg(path).spawn().ok()?;
            let link = Proc::default().executable_link(Pid(child.id().cast_signed()));
            for _ in 0..200 {
                std::thread::sleep(Duration::from_millis(20));
                if child.try_wait().unwrap().is_some() {
                    return None;
                }
                if std::fs::read_link(&link).is_ok_and(|to| to == path) {
                    return Some(Self(child));
                }
            }
            drop(Self(child));
            None
        }

        fn pid(&self) -> Pid {
            Pid(self.0.id().cast_signed())
        }
    }

    impl Drop for Elsewhere {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// A program whose path leads to a FIFO or a device here is watched both ways, and what lies here is not opened.
    #[test]
    fn nothing_but_a_plain_file_is_opened_for_a_program_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, numbers) in [("p", &[][..]), ("c", &["1", "7"])] {
            let path = folder.path().join(kind);
            let made = Command::new("mknod").arg(&path).arg(kind).args(numbers).status().unwrap();
            if !made.success() {
                skip!(Root, "mknod cannot make {kind}");
            }
            let opened = Opened::watch(&path);
            let Some(program) = Elsewhere::run(&path) else {
                skip!(Namespaces, "no mount namespace");
            };
            assert_eq!(opened.count(), 0, "the program itself");
            let options = SampleOptions { rate_hz: 1_000, ..SampleOptions::here().unwrap() };
            let (mut sampler, mut spins) = match (
                Sampler::start(program.pid(), Start::Now, options.clone()),
                SpinSampler::new(1_000, &options.clocks),
            ) {
                (Ok(sampler), Ok(spins)) => (sampler, spins),
                (Err(why), _) | (_, Err(why)) => skip!(Perf, "{why}"),
            };
            spins.also(program.pid(), Start::Now).unwrap();
            let (mut judge, mut questions, mut sampled) = (CodeJudge::default(), 0, 0);
            let begun = Instant::now();
            while questions == 0 || sampled == 0 {
                assert!(begun.elapsed() < Duration::from_secs(30), "{questions} {sampled}");
                std::thread::sleep(Duration::from_millis(100));
                sampler.drain();
                sampled = sampler.snapshot().iter().map(|t| t.samples + t.unattributed).sum();
                spins.drain();
                for question in spins.questions() {
                    let _ = judge.judge(&question);
                    questions += 1;
                }
            }
            assert_eq!(opened.count(), 0, "{kind} was opened");
        }
    }
}
