//! Finds threads that share memory, by samples of their accesses.
//!
//! # Problem
//! Threads that share data may never wake each other. Sharing shows in the caches, but no stock
//! processor reports it without counters that few virtual machines have.
//! # Approach
//! Some hundred times per second of its CPU time a memory access of each thread is sampled
//! ([`AccessSampler`]). Processors with such events sample by themselves (`events`). Otherwise the
//! software clock interrupts the thread, and code and registers give the address of the next access
//! (`code`). A page used by several threads within a second, and written, is shared; each sample in
//! such a page stands for one sampling period ([`table`]). SPCD (Diener et al., IPDPS 2013) samples
//! by induced page faults; here the program is unchanged.
//! # Limits
//! Without processor events x86-64 only. Within one process only. Two threads that use different
//! lines of a page count as sharing the page. An address computed by the instructions just before
//! the access gives no sample. Measurements are in `docs/results/sharing.md`.

mod code;
mod events;
pub mod groups;
pub mod table;

use crate::perf::{Accessed, Attr, EVERY, PerfRecord, Rings, accessed, general_registers, parse};
use crate::pmu::Start;
use crate::sample::RATES_HZ;
use crate::sample::clock::{Clocks, Contents, Subscription, period};
use crate::sample::followed::FollowedSamples;
use code::OperandCache;
use colocate_linux::clock::now;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::{Nanos, PuNr};
use groups::RegionSamples;
use std::collections::BTreeMap;
use std::path::Path;
use table::{SharedTime, SharingTable};

/// Default sampling rate, per second of CPU time. Its cost is in docs/results/sharing.md.
pub const DEFAULT_RATE_HZ: u32 = 250;

/// Pages of each CPU's ring: some 700 samples, 3 s of one CPU at the default rate.
const RING_PAGES: usize = 32;

/// Bytes waiting in a ring before poll(2) reports it readable; the rings are never polled.
const WAKE_B: u32 = 1 << 16;

/// Time after which cached code is read again. Chosen: a JIT compiler may have replaced the code.
const CODE_FOR: Nanos = Nanos::from_secs(5);

/// Samples the memory accesses of programs' threads.
#[derive(Debug)]
pub struct AccessSampler {
    samples: SamplingScope,
    /// Sampling method, for messages.
    pub(crate) name: &'static str,
    /// Whether registers and the decoded instruction give the access, not events of the processor.
    by_registers: bool,
    /// Sampling period of a thread, in CPU time.
    pub(crate) period: Nanos,
    cpus: Vec<PuNr>,
    code: OperandCache,
    table: SharingTable,
    groups: RegionSamples,
    forget_code: Nanos,
}

/// Scope of the sampling events.
#[derive(Debug)]
enum SamplingScope {
    /// Per-CPU events, for all threads of the machine.
    OfAll(Rings),
    /// Per-thread events, which cost some microseconds at each context switch.
    OfEach(Box<FollowedSamples>),
}

impl AccessSampler {
    /// Creates a sampler that samples no process yet. Its rate is `rate_hz` per second of each
    /// thread's CPU time, on the CPUs of `clocks` only.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`]: `EACCES`, `EPERM` or `ENOSYS` where events are denied;
    /// `EOPNOTSUPP` on a processor without access events other than x86-64.
    pub fn new(rate_hz: u32, clocks: &Clocks) -> Result<Self, SysError> {
        let rate_hz = rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        let period = period(rate_hz);
        let by_events = events::find(Path::new("/sys"), rate_hz).and_then(|events| {
            let samples = SamplingScope::by_events(&events.attrs, period, clocks).ok()?;
            Some((samples, events.name))
        });
        let by_registers = by_events.is_none();
        let (samples, name) = match by_events {
            Some(found) => found,
            None if cfg!(target_arch = "x86_64") => {
                let name = "perf events: registers, and the code that uses them";
                (SamplingScope::by_clock(rate_hz, clocks)?, name)
            }
            None => return Err(SysError::of("perf_event_open", libc::EOPNOTSUPP)),
        };
        Ok(Self {
            samples,
            name,
            by_registers,
            period,
            cpus: clocks.watch.cpus.clone(),
            code: OperandCache::default(),
            table: SharingTable::default(),
            groups: RegionSamples::new(),
            forget_code: now() + CODE_FOR,
        })
    }

    /// Adds process `pid` and all its future children, with [`Start::AtExec`] before its exec.
    ///
    /// # Errors
    /// As [`crate::perf::PerfEvent::open`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        match &mut self.samples {
            SamplingScope::OfAll(_) => Ok(()),
            SamplingScope::OfEach(followed) => followed.also(pid, start, &mut Vec::new()).map(drop),
        }
    }

    /// Stops sampling process `pid` and the processes it created since it was added.
    pub fn forget(&mut self, pid: Pid) {
        if let SamplingScope::OfEach(followed) = &mut self.samples {
            followed.forget(pid);
        }
    }

    /// Records the samples of watched threads in the rings.
    pub fn drain(&mut self, is_watched: impl Fn(Tid) -> bool) {
        if now() >= self.forget_code {
            self.code = OperandCache::default();
            self.forget_code = now() + CODE_FOR;
        }
        let Self { samples, by_registers, period, code, table, groups, .. } = self;
        let mut file = |record: &PerfRecord<'_>| match record {
            PerfRecord::Sample { of, ip, user: true, rest } if is_watched(of.tid) => {
                let found = match by_registers {
                    true => next_access(code, of.pid, *ip, rest),
                    false => accessed(rest),
                };
                if let Some(access) = found {
                    groups::count(groups, of.pid, of.tid, &access);
                    table.accessed(of, access, *period);
                }
            }
            // An exec replaces the code.
            PerfRecord::Comm { of, exec: true, .. } => code.forget(of.pid),
            _ => {}
        };
        match samples {
            SamplingScope::OfAll(rings) => {
                let mut bytes = Vec::new();
                rings.take(&mut bytes);
                let mut records: Vec<PerfRecord<'_>> = parse(&bytes).collect();
                // The rings are read one after the other.
                records.sort_by_key(PerfRecord::at);
                records.iter().for_each(file);
            }
            SamplingScope::OfEach(followed) => followed.each(|followed, record| {
                if !record.of().is_some_and(|of| followed.is_waiting(of.pid)) {
                    file(record);
                }
            }),
        }
    }

    /// CPU time for which threads used memory that another thread had used, since the last call.
    /// Keys: (thread whose time is counted, other thread).
    pub fn take(&mut self) -> BTreeMap<(Tid, Tid), SharedTime> {
        self.table.take()
    }

    /// Access samples by region of memory, since the last call.
    pub fn take_groups(&mut self) -> RegionSamples {
        std::mem::take(&mut self.groups)
    }

    /// Samples by events per CPU, not per thread, from now on. False if that is denied.
    pub fn sample_each_pu(&mut self) -> bool {
        if matches!(self.samples, SamplingScope::OfAll(_)) {
            return true;
        }
        let rings = SamplingScope::clock_of_all(self.period, &self.cpus);
        let Some(rings) = rings.ok().filter(|_| self.by_registers) else { return false };
        self.samples = SamplingScope::OfAll(rings);
        true
    }
}

impl SamplingScope {
    fn by_clock(rate_hz: u32, clocks: &Clocks) -> Result<Self, SysError> {
        // Where threads have events for other samples, these have the registers, too.
        if !clocks.expects_spinning(rate_hz)
            && let Ok(rings) = Self::clock_of_all(period(rate_hz), &clocks.watch.cpus)
        {
            return Ok(Self::OfAll(rings));
        }
        // Per-CPU events need CAP_PERFMON or a low perf_event_paranoid; per-thread events do not.
        Self::of_each(clocks.subscribe(rate_hz, Contents::ACCESSES))
    }

    fn clock_of_all(period: Nanos, cpus: &[PuNr]) -> Result<Rings, SysError> {
        Rings::map_every(&Attr::clock(period.0, WAKE_B).with_registers(), cpus, RING_PAGES)
    }

    fn by_events(attrs: &[Attr], period: Nanos, clocks: &Clocks) -> Result<Self, SysError> {
        let Some((first, others)) = attrs.split_first() else {
            return Err(SysError::of("perf_event_open", libc::ENOENT));
        };
        let rings =
            Rings::map_every(first, &clocks.watch.cpus, RING_PAGES).and_then(|mut rings| {
                others.iter().try_for_each(|attr| rings.attach(attr, EVERY))?;
                Ok(rings)
            });
        rings.map(Self::OfAll).or_else(|_| Self::of_each(clocks.subscribe_to(attrs, period)))
    }

    fn of_each(samples: Result<Subscription, SysError>) -> Result<Self, SysError> {
        samples.map(|samples| Self::OfEach(Box::new(FollowedSamples::new(samples))))
    }
}

/// Next memory access of a thread at `ip`, by its sampled registers.
fn next_access(code: &mut OperandCache, pid: Pid, ip: u64, rest: &[u8]) -> Option<Accessed> {
    let held = general_registers(rest)?;
    let operand = code.next_access(pid, ip)?;
    let address = operand.address(&held);
    Some(Accessed { address, writes: operand.writes, was_modified: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::skip::Requirement;
    use colocate_testing::{need, skip};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Memory on a page of its own.
    #[repr(align(4096))]
    struct Page([AtomicU64; 512]);

    impl Page {
        fn new() -> Self {
            Self(std::array::from_fn(|_| AtomicU64::new(0)))
        }

        fn write(&self, until: &AtomicBool) {
            while !until.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    self.0.iter().for_each(|word| word.store(1, Ordering::Relaxed));
                }
            }
        }
    }

    /// Two threads write to one page, and a third to its own.
    #[test]
    fn threads_of_this_process() {
        need!(Requirement::X86_64.if_there(cfg!(target_arch = "x86_64"), "not on x86-64"));
        let mut sampler = match AccessSampler::new(1_000, &Clocks::here().unwrap()) {
            Ok(sampler) => sampler,
            Err(why) => skip!(Perf, "{why}"),
        };
        let (shared, own) = (Page::new(), Page::new());
        sampler.also(Pid(std::process::id().cast_signed()), Start::Now).unwrap();
        let (done, give_up) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
        let (send, tids) = mpsc::channel();
        let write = |page: &Page| {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            send.send(Tid(link.file_name().unwrap().to_str().unwrap().parse().unwrap())).unwrap();
            page.write(&done);
        };
        let mut found = BTreeMap::new();
        let [a, b, c] = std::thread::scope(|scope| {
            let of = [&shared, &shared, &own].map(|page| {
                scope.spawn(|| write(page));
                tids.recv().unwrap()
            });
            // Few samples of code that is not optimized say what it accesses, and other tests run beside this one.
            let is_seen = |found: &BTreeMap<(Tid, Tid), Nanos>| {
                let between = |x, y| found.get(&(x, y)).copied().unwrap_or_default();
                let [a, b, _] = of;
                between(a, b).min(between(b, a)) > Nanos::from_millis(2)
            };
            while !is_seen(&found) && Instant::now() < give_up {
                std::thread::sleep(Duration::from_millis(50));
                sampler.drain(|_| true);
                for (pair, of) in sampler.take() {
                    *found.entry(pair).or_default() += of.time;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(is_seen(&found), "{found:?} of {of:?}");
            of
        });
        let between = |x: Tid, y: Tid| found.get(&(x, y)).copied().unwrap_or_default();
        for with in [a, b] {
            assert_eq!(between(c, with) + between(with, c), Nanos::ZERO, "{found:?}");
        }
    }
}
