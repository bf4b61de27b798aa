//! Rings of software-clock samples, and the records that both kinds of samplers track.

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

/// Upper bound of the delay from a record's time stamp to its writing: the kernel writes it with
/// interrupts off. Chosen with a margin.
pub(crate) const SETTLED: Nanos = Nanos::from_millis(1);

/// Samples of threads, and the executable mappings of their processes.
#[derive(Debug)]
pub(crate) struct Clock {
    pub rings: Rings,
    /// Events opened on each thread.
    attrs: Vec<Attr>,
    /// Sampling period of a thread, in CPU time.
    pub period: Nanos,
    /// Whether the kernel is sampled, too.
    pub with_kernel: bool,
    pub proc: Proc,
    pub spaces: Spaces,
    /// Launched processes before their exec.
    waiting: BTreeSet<Pid>,
    /// Records too new to be sorted.
    bytes: Vec<u8>,
}

impl Clock {
    /// Creates a clock that samples no process yet. A poll(2) wakes when `wake_b` bytes wait.
    /// Samples the kernel, too, by `in_kernel`, if permitted.
    pub fn map(
        (rate_hz, wake_b): (u32, u32),
        (watch, ring_pages): (&Options, usize),
        in_kernel: fn(Attr) -> Attr,
    ) -> Result<Self, SysError> {
        let rate_hz = rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        let period = Nanos(1_000_000_000 / u64::from(rate_hz));
        let attr = Attr::clock_samples(period.0, wake_b);
        let (rings, attr, with_kernel) = match Rings::map(&in_kernel(attr), &watch.cpus, ring_pages)
        {
            Ok(rings) => (rings, in_kernel(attr), true),
            Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => {
                (Rings::map(&attr, &watch.cpus, ring_pages)?, attr, false)
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

    /// As [`Clock::map`], with samples of `events` instead of the clock; each stands for `period`.
    /// User mode only.
    pub fn map_events(
        events: &[Attr],
        (period, wake_b): (Nanos, u32),
        (watch, ring_pages): (&Options, usize),
    ) -> Result<Self, SysError> {
        let tasks = Attr::task_events_and_maps(wake_b);
        // Opening the events shows whether the processor has them.
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

    /// Announces process `pid`; with [`Start::AtExec`] its samples before its exec are dropped.
    pub fn expect(&mut self, pid: Pid, start: Start) {
        if start == Start::AtExec {
            self.waiting.insert(pid);
        }
    }

    /// Opens the events on the threads of process `pid`. Returns whether the kernel will report the
    /// exit of each.
    pub fn attach(&mut self, pid: Pid) -> Result<bool, SysError> {
        let mut all = true;
        for attr in &self.attrs {
            all &= attach_all(&mut self.rings, attr, &self.proc, pid, &mut self.bytes)?;
        }
        Ok(all)
    }

    /// Records stamped until `settled`, in the order of time, and whether a ring was full.
    pub fn take(&mut self, settled: Nanos) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let full = self.rings.take(&mut bytes);
        let mut records: Vec<(&[u8], Record<'_>)> = split(&bytes).collect();
        // The rings are read one after the other, and a record may be newer than one of a later
        // ring.
        records.sort_by_key(|(_, record)| record.at());
        let mut old = Vec::with_capacity(bytes.len());
        for (whole, record) in records {
            let to = if record.at() > Some(settled) { &mut self.bytes } else { &mut old };
            to.extend_from_slice(whole);
        }
        (old, full)
    }

    /// Updates the mappings and waiting processes by a record; `whole` is the record's bytes.
    pub fn follow(&mut self, whole: &[u8], record: &Record<'_>) {
        match record {
            // The record of a new thread has its process as both; only a new process copies
            // mappings.
            Record::Fork { created, parent_pid, .. } if created.pid != *parent_pid => {
                self.spaces.fork(*parent_pid, created.pid);
                // A child of a process before its exec has not executed its program either.
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

    /// Whether process `pid` has not yet executed its program.
    pub fn is_waiting(&self, pid: Pid) -> bool {
        self.waiting.contains(&pid)
    }

    /// Removes process `pid` from the waiting processes.
    pub fn forget(&mut self, pid: Pid) {
        self.waiting.remove(&pid);
    }
}
