//! The backends that watch threads, and their common interface.

use super::Args;
use crate::exit::no_capability;
use colocate_linux::{Pid, SysError};
use colocate_machine::Nanos;
use colocate_model::Backend;
use colocate_observe::LifecycleOptions;
use colocate_observe::code::Stretch;
use colocate_observe::pmu::extras::{ExtraEvents, Extras};
use colocate_observe::pmu::{CountedThreads, CounterSet, Counters, ProcessCounters, Start};
use colocate_observe::sample::{SampleOptions, Sampler};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// The backend that the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendChoice {
    /// The first of pmu and sample that works
    Auto,
    /// Hardware counters
    Pmu,
    /// Instruction-pointer samples
    Sample,
    /// Exact counts under QEMU
    Emulate,
}

/// Results of a backend.
pub struct BackendResults {
    /// Counts of every thread.
    pub counted: CountedThreads,
    /// Stretches of code, if requested and seen by the backend.
    pub stretches: Vec<Stretch>,
    /// Each thread's demand as counted; empty without counters.
    pub extras: Vec<Extras>,
    /// Events of `extras`.
    pub events: ExtraEvents,
}

/// A backend at work.
pub enum Watching {
    /// Hardware counters, one watch for each process in the list.
    Pmu(Vec<ProcessCounters>),
    /// Samples, and the reason why counters are not used, if they were to be.
    Sample { sampler: Box<Sampler>, because: Option<String> },
}

impl Watching {
    /// Begins to watch `pids` and their descendants.
    pub fn start(args: &Args, pids: &[Pid], start: Start) -> anyhow::Result<Self> {
        let set = if args.phase.is_some() { CounterSet::Demand } else { CounterSet::Mix };
        match args.backend {
            BackendChoice::Pmu => {
                pmu(set, pids, start).map_err(|why| denied("pmu", pids, start, &why))
            }
            BackendChoice::Sample => sample(args.rate, pids, start, None),
            // `emulate` runs programs itself and never comes here.
            BackendChoice::Auto | BackendChoice::Emulate => match pmu(set, pids, start) {
                Ok(watching) => Ok(watching),
                Err(why) => sample(args.rate, pids, start, Some(why.to_string())),
            },
        }
    }

    /// The backend, and the reason of its choice.
    pub fn backend(&self) -> (Backend, Option<String>) {
        match self {
            Self::Pmu(_) => (Backend::Pmu, None),
            Self::Sample { because, .. } => {
                let note = |why| format!("backend sample, because pmu does not work: {why}");
                (Backend::Sample, because.as_ref().map(note))
            }
        }
    }

    /// Descriptors that become readable when [`Self::pump`] has work to do.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Pmu(watches) => watches.iter().flat_map(ProcessCounters::fds).collect(),
            Self::Sample { sampler, .. } => sampler.fds(),
        }
    }

    /// Longest time until the next [`Self::pump`]; `None` without a limit.
    pub fn next_look(&self) -> Option<Duration> {
        match self {
            Self::Pmu(watches) => watches.iter().filter_map(ProcessCounters::poll_timeout).min(),
            Self::Sample { .. } => None,
        }
    }

    /// Handles all pending events. Never blocks.
    pub fn pump(&mut self) {
        match self {
            Self::Pmu(watches) => watches.iter_mut().for_each(ProcessCounters::pump),
            Self::Sample { sampler, .. } => sampler.drain(),
        }
    }

    /// Reads the CPU times of an ended process before it is reaped: `/proc` shows them until then.
    pub fn before_reaping(&mut self) {
        self.pump();
        if let Self::Sample { sampler, .. } = self {
            sampler.read_cpu_times();
        }
    }

    /// Whether all watched threads have ended.
    pub fn all_ended(&self) -> bool {
        match self {
            Self::Pmu(watches) => watches.iter().all(ProcessCounters::all_ended),
            Self::Sample { sampler, .. } => sampler.all_ended(),
        }
    }

    /// Ends watching; returns the results with at most `stretches` stretches of code.
    pub fn finish(self, stretches: usize) -> BackendResults {
        match self {
            Self::Pmu(watches) => {
                together(watches.into_iter().map(ProcessCounters::finish_all).collect())
            }
            Self::Sample { mut sampler, .. } => {
                sampler.stop();
                let stretches = if stretches > 0 { sampler.stretches(stretches) } else { vec![] };
                let events = ExtraEvents::default();
                let counted = sampler.finish();
                BackendResults { counted, stretches, extras: Vec::new(), events }
            }
        }
    }
}

fn pmu(set: CounterSet, pids: &[Pid], start: Start) -> anyhow::Result<Watching> {
    let counters = Counters::find(Path::new("/proc"), Path::new("/sys"), set)?;
    let options = LifecycleOptions::here()?;
    let watches =
        pids.iter().map(|pid| ProcessCounters::start(counters.clone(), *pid, start, &options));
    Ok(Watching::Pmu(watches.collect::<Result<_, _>>()?))
}

fn sample(
    rate_hz: u32,
    pids: &[Pid],
    start: Start,
    because: Option<String>,
) -> anyhow::Result<Watching> {
    let options = SampleOptions { rate_hz, ..SampleOptions::here()? };
    let sampler = Sampler::start(pids[0], start, options).and_then(|mut sampler| {
        pids[1..].iter().try_for_each(|pid| sampler.also(*pid, start))?;
        Ok(sampler)
    });
    match sampler {
        Ok(sampler) => Ok(Watching::Sample { sampler: Box::new(sampler), because }),
        Err(why) => Err(denied("sample", pids, start, &why.into())),
    }
}

/// Error of a backend that cannot start, in a line with the remedy.
fn denied(backend: &str, pids: &[Pid], start: Start, why: &anyhow::Error) -> anyhow::Error {
    let errno = why.downcast_ref::<SysError>().and_then(SysError::errno);
    let list = pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
    if errno == Some(libc::ESRCH) {
        return anyhow::anyhow!("expected running processes, found none with the number {list}");
    }
    let of = if start == Start::Now { format!(" on process {list}") } else { String::new() };
    let or = if start == Start::Now { "" } else { "; --backend emulate needs no privilege" };
    no_capability(format!(
        "the backend {backend} does not work{of}: {why}; `colocate doctor` names the remedy{or}"
    ))
}

/// Merges the results of several watches.
fn together(parts: Vec<(CountedThreads, Vec<Extras>, ExtraEvents)>) -> BackendResults {
    let mut all =
        CountedThreads { threads: vec![], watched: Nanos::ZERO, complete: true, notes: vec![] };
    let mut threads = Vec::new();
    let mut events = ExtraEvents::default();
    let mut processes = 0;
    for (part, extras, counted_by) in parts {
        // Each watch numbers its processes from 0.
        let count = part.threads.iter().map(|thread| thread.process + 1).max().unwrap_or(0);
        threads.extend(part.threads.into_iter().zip(extras).map(|(mut thread, extras)| {
            thread.process += processes;
            (thread, extras)
        }));
        // All watches use the same counters.
        events = counted_by;
        processes += count;
        all.watched = all.watched.max(part.watched);
        all.complete &= part.complete;
        for note in part.notes {
            if !all.notes.contains(&note) {
                all.notes.push(note);
            }
        }
    }
    // Threads are numbered by their creation, over all watches.
    threads.sort_by_key(|(thread, _)| thread.start_ns);
    let (threads, extras) = threads.into_iter().unzip();
    all.threads = threads;
    for (order, thread) in (0..).zip(&mut all.threads) {
        thread.order = order;
    }
    BackendResults { counted: all, stretches: Vec::new(), extras, events }
}
