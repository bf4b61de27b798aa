//! Which thread wakes which: summed up in the kernel by an eBPF program or, without one, sampled by perf events.

mod ebpf;
pub(crate) mod sampled;
mod windows;

use super::{Backend, NewTask, QuantumTasks, TaskRef, TaskUsage, phases};
use crate::doctor::finding::{Finding, Inputs};
use crate::doctor::{Errno, Fix, Probe};
use colocate_ebpf::EbpfError;
use colocate_evidence::{JobIdx, Provider, Refusal, TaskId, Turns, WakeUps};
use colocate_linux::clock::now;
use colocate_linux::privilege;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use ebpf::EbpfWakeUps;
use sampled::WakingSamples;
use std::collections::{BTreeMap, HashMap};
use std::ops::Add;
use std::path::Path;

/// Delay after which all threads created before the start of counting have been reported. Chosen:
/// many times the usual delay.
const SEEN_AFTER: Nanos = Nanos::from_millis(100);

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Wake-ups of the watched tasks on this machine.
#[derive(Debug)]
pub struct WakeUpCounts {
    by: CountedBy,
    /// Tasks by thread. Ended threads stay until the next reading.
    of: HashMap<Tid, TaskId>,
    ended: Vec<Tid>,
    /// Wake-ups by wakee and waker.
    counts: BTreeMap<(TaskId, Option<TaskId>), WakeUps>,
    /// Time on the kernel's clock before which a created thread may have an unwatched creator.
    all_watched_from: Nanos,
    /// Message about lost records, and below whether an earlier one was given.
    message: Option<String>,
    has_said: bool,
}

/// The backend.
#[derive(Debug)]
enum CountedBy {
    Ebpf(EbpfWakeUps),
    Samples(WakingSamples),
}

/// Wake-ups of one pair of threads since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WakeUpPair {
    /// Waking thread; `None` for interrupts and unwatched threads.
    waker: Option<Tid>,
    wakee: Tid,
    count: u64,
    /// Place and times of the wakee's following run; `None` if unknown to the backend.
    ran: Option<WokenRuns>,
}

/// Place and times of the woken threads' runs, as in [`WakeUps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WokenRuns {
    same_pu: u64,
    waited: Nanos,
    both_ran: Nanos,
    apart: Turns,
    together: Turns,
}

impl WakeUpCounts {
    /// Begins to count, on `cpus` where wake-ups are sampled.
    ///
    /// # Errors
    /// Why the kernel counts nothing, and the remedy.
    pub fn start(cpus: &[PuNr]) -> Result<Self, Refusal> {
        let by = EbpfWakeUps::start(cpus.len()).map(CountedBy::Ebpf).or_else(|ebpf| {
            WakingSamples::start(cpus)
                .map(CountedBy::Samples)
                .map_err(|perf| Refusal::of(format!("{ebpf}, and {perf}")))
        })?;
        Ok(Self {
            by,
            of: HashMap::new(),
            ended: Vec::new(),
            counts: BTreeMap::new(),
            all_watched_from: now() + SEEN_AFTER,
            message: None,
            has_said: false,
        })
    }

    /// Name and cost of counting by eBPF, if expected to work: this build has the program, this
    /// user the capabilities, and the kernel type information. Takes some microseconds;
    /// [`WakeUpCounts::start`] takes 10 to 20 ms.
    #[must_use]
    pub fn expected() -> Option<Provider> {
        let may = privilege::may_load_programs();
        let can = may && colocate_ebpf::IS_BUILT && Path::new(TYPES).exists();
        can.then(ebpf::provider)
    }

    /// Watches a thread and its descendants from now on.
    ///
    /// # Errors
    /// If there is no room for the thread.
    pub fn add(&self, first: Tid) -> Result<(), EbpfError> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.add(first),
            // Every thread is watched.
            CountedBy::Samples(_) => Ok(()),
        }
    }

    /// Adds the wake-ups since the call before. A line if records found no room.
    fn take(&mut self) -> Result<Option<String>, EbpfError> {
        let (pairs, lost) = match &mut self.by {
            CountedBy::Ebpf(counted) => (counted.take()?, counted.lost()?),
            CountedBy::Samples(samples) => (samples.take(), samples.lost()),
        };
        for WakeUpPair { waker, wakee, count, ran } in pairs {
            // A thread that was never followed, as in a storm of threads.
            let Some(wakee) = self.of.get(&wakee).copied() else { continue };
            let waker = waker.and_then(|tid| self.of.get(&tid).copied());
            let new = WakeUps {
                waker,
                wakee,
                count,
                same_pu: ran.map(|ran| ran.same_pu),
                waited: ran.map(|ran| ran.waited),
                both_ran: ran.map(|ran| ran.both_ran),
                turns_apart: ran.map(|ran| ran.apart),
                turns_together: ran.map(|ran| ran.together),
            };
            self.counts.entry((wakee, waker)).and_modify(|sum| add(sum, &new)).or_insert(new);
        }
        for tid in self.ended.drain(..) {
            self.of.remove(&tid);
        }
        Ok(lost)
    }

    /// Unwatched processes that have woken watched threads, with the number of wake-ups, as far as
    /// the backend knows them.
    #[must_use]
    pub fn outside(&self) -> Vec<(Pid, u64)> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.outside(),
            CountedBy::Samples(_) => Vec::new(),
        }
    }
}

impl Backend for WakeUpCounts {
    fn provider(&self) -> Provider {
        match &self.by {
            CountedBy::Ebpf(_) => ebpf::provider(),
            CountedBy::Samples(_) => sampled::provider(),
        }
    }

    fn watch_instead(&mut self, _job: JobIdx, _before: Pid, pid: Pid) -> Result<(), Refusal> {
        self.add(pid.first_thread()).map_err(Refusal::of)
    }

    fn created(&mut self, new: &NewTask) -> Result<(), Refusal> {
        self.of.insert(new.task.tid, new.task.id);
        if new.created < self.all_watched_from {
            self.add(new.task.tid).map_err(Refusal::of)?;
        }
        Ok(())
    }

    /// Its wake-ups until then are still read.
    fn ended(&mut self, task: TaskRef, _usage: &mut TaskUsage) {
        self.ended.push(task.tid);
    }

    fn due(&self) -> Option<Nanos> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.window_ends(),
            CountedBy::Samples(_) => None,
        }
    }

    fn drain(&mut self) -> Result<(), String> {
        let lost = self.take();
        let lost = lost.map_err(|why| format!("wake-ups are not counted any more: {why}"))?;
        if lost.is_some() && !self.has_said {
            self.has_said = true;
            self.message = lost;
        }
        Ok(())
    }

    fn report(&mut self, quantum: &mut QuantumTasks<'_>) {
        if let CountedBy::Ebpf(counted) = &mut self.by {
            let switches = quantum.tasks.iter().filter_map(|task| task.switches);
            counted.note_switches(quantum.at, switches.sum());
        }
        self.counts.retain(|(wakee, waker), _| {
            quantum.find(*wakee).is_some() && waker.is_none_or(|id| quantum.find(id).is_some())
        });
        quantum.reports.wake_ups = Some(self.counts.values().copied().collect());
    }

    fn messages(&mut self) -> Vec<String> {
        self.message.take().into_iter().collect()
    }
}

fn add(sum: &mut WakeUps, new: &WakeUps) {
    sum.count += new.count;
    sum.same_pu = both(sum.same_pu, new.same_pu);
    sum.waited = both(sum.waited, new.waited);
    sum.both_ran = both(sum.both_ran, new.both_ran);
    sum.turns_apart = both(sum.turns_apart, new.turns_apart);
    sum.turns_together = both(sum.turns_together, new.turns_together);
}

/// The sum, if both are known.
fn both<T: Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.zip(other).map(|(one, other)| one + other)
}

/// Check of the eBPF program, and of perf events without it.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    let ebpf = phases::check(inputs);
    let Some(mut cause) = ebpf.cause else { return ebpf };
    let found = |outcome: &str| format!("{}; perf events there: {outcome}", ebpf.found);
    match inputs.probes.run(Probe::SampleWakeUps) {
        Ok(()) => {
            cause.why += "; samples do not show where and when woken threads run";
            Finding::partly(found("work"), cause)
        }
        Err(Errno(libc::ENXIO)) => {
            cause.why += "; perf events have the numbers of the first PID namespace, and this is another one";
            Finding::no(found("ENXIO"), cause)
        }
        Err(errno) => {
            cause.why +=
                "; perf events need CAP_PERFMON and a readable tracefs (/sys/kernel/tracing)";
            if errno.0 == libc::ENOENT {
                let mount = "mount -t tracefs tracefs /sys/kernel/tracing";
                cause.fixes.push(Fix::now(inputs.place.as_root(mount)));
            }
            Finding::no(found(&errno.to_string()), cause)
        }
    }
}
