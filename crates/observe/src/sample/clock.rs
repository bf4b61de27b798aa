//! Rings of samples on the software clock, and what both kinds of samplers keep of their records.

use super::RATES_HZ;
use super::file::FileId;
use super::maps::Spaces;
use crate::lifecycle::{Options, attach_all};
use crate::perf::{Attr, Record, Rings, split};
use crate::pmu::Start;
use colocate_linux::Pid;
use colocate_linux::SysError;
use colocate_linux::proc::Proc;
use colocate_machine::Nanos;
use std::collections::BTreeSet;

/// A record is written to its ring within this time of being stamped: the kernel does it with
/// interrupts off. Chosen with room to spare.
pub(crate) const SETTLED: Nanos = Nanos::from_millis(1);

/// Samples of threads, and where their code is mapped.
#[derive(Debug)]
pub(crate) struct Clock {
    pub rings: Rings,
    /// What is opened on each thread.
    attrs: Vec<Attr>,
    /// Time between two samples of a thread.
    pub period: Nanos,
    /// Whether samples are taken in the kernel, too.
    pub with_kernel: bool,
    pub proc: Proc,
    pub spaces: Spaces,
    /// Launched processes that have not executed their program yet.
    waiting: BTreeSet<Pid>,
    /// Records that are too new.
    bytes: Vec<u8>,
}

impl Clock {
    /// Samples nothing yet; a reader is woken when `wake_b` bytes wait. Where it is permitted also in the kernel, as
    /// `in_kernel` asks for.
    pub fn map(
        (rate_hz, wake_b): (u32, u32),
        (watch, ring_pages): (&Options, usize),
        in_kernel: fn(Attr) -> Attr,
    ) -> Result<Self, SysError> {
        let rate_hz = rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        let period = Nanos(1_000_000_000 / u64::from(rate_hz));
        let attr = Attr::clock_samples(period.0, wake_b);
        let map = |attr: &Attr| Rings::map(attr, &watch.cpus, ring_pages);
        let (rings, attr, with_kernel) = match map(&in_kernel(attr)) {
            Ok(rings) => (rings, in_kernel(attr), true),
            Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => {
                (map(&attr)?, attr, false)
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            rings,
            attrs: vec![attr.inherited()],
            period,
            with_kernel,
            proc: watch.proc.clone(),
            spaces: Spaces::default(),
            waiting: BTreeSet::new(),
            bytes: Vec::new(),
        })
    }

    /// The same with samples of other events, each for so long, in place of the clock's: of the program's own code alone.
    pub fn map_events(
        events: &[Attr],
        (period, wake_b): (Nanos, u32),
        (watch, ring_pages): (&Options, usize),
    ) -> Result<Self, SysError> {
        let tasks = Attr::task_events_and_maps(wake_b);
        // Whether the processor has them shows when they are opened.
        for attr in events {
            Rings::map(attr, &watch.cpus, 1)?;
        }
        Ok(Self {
            rings: Rings::map(&tasks, &watch.cpus, ring_pages)?,
            attrs: std::iter::once(&tasks).chain(events).map(|attr| attr.inherited()).collect(),
            period,
            with_kernel: false,
            proc: watch.proc.clone(),
            spaces: Spaces::default(),
            waiting: BTreeSet::new(),
            bytes: Vec::new(),
        })
    }

    /// Process `pid` is to be sampled; with [`Start::AtExec`] nothing that it does before its exec.
    pub fn expect(&mut self, pid: Pid, start: Start) {
        if start == Start::AtExec {
            self.waiting.insert(pid);
        }
    }

    /// Samples the threads of process `pid`. Says whether the kernel will report the end of each.
    pub fn attach(&mut self, pid: Pid) -> Result<bool, SysError> {
        let mut all = true;
        for attr in &self.attrs {
            all &= attach_all(&mut self.rings, attr, &self.proc, pid, &mut self.bytes)?;
        }
        Ok(all)
    }

    /// The records that were stamped until `settled`, in the order of time, and whether a ring was full.
    pub fn take(&mut self, settled: Nanos) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let full = self.rings.take(&mut bytes);
        let mut records: Vec<(&[u8], Record<'_>)> = split(&bytes).collect();
        records.sort_by_key(|(_, record)| record.at());
        let mut old = Vec::with_capacity(bytes.len());
        for (whole, record) in records {
            let to = if record.at() > Some(settled) { &mut self.bytes } else { &mut old };
            to.extend_from_slice(whole);
        }
        (old, full)
    }

    /// Follows where code is mapped, by a record with its bytes.
    pub fn follow(&mut self, whole: &[u8], record: &Record<'_>) {
        match record {
            Record::Fork { created, parent_pid, .. } if created.pid != *parent_pid => {
                self.spaces.fork(*parent_pid, created.pid);
                if self.waiting.contains(parent_pid) {
                    self.waiting.insert(created.pid);
                }
            }
            Record::Comm { of, exec: true, .. } => {
                self.waiting.remove(&of.pid);
                self.spaces.clear(of.pid);
            }
            Record::Map { by, map } => self.spaces.map(by.pid, map, FileId::of_record(whole)),
            _ => {}
        }
    }

    /// Whether process `pid` has not executed its program yet.
    pub fn is_waiting(&self, pid: Pid) -> bool {
        self.waiting.contains(&pid)
    }

    /// Process `pid` is not to be sampled.
    pub fn forget(&mut self, pid: Pid) {
        self.waiting.remove(&pid);
    }
}
