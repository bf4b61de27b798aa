//! Which thread wakes which: summed up in the kernel by an eBPF program or, without one, sampled by perf events.

mod ebpf;
pub(crate) mod sampled;
mod windows;

use super::TaskRef;
use colocate_ebpf::EbpfError;
use colocate_evidence::{Backend, Refusal};
use colocate_evidence::{TaskId, WakeUps};
use colocate_linux::privilege;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use ebpf::Counted;
use sampled::WakingSamples;
use std::collections::{BTreeMap, HashMap};
use std::ops::Add;
use std::path::Path;

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// What wakes on this machine, as far as it is watched.
#[derive(Debug)]
pub struct WakeUpCounts {
    by: CountedBy,
    /// Tasks by thread. Those that have ended stay until the next reading.
    of: HashMap<Tid, TaskId>,
    ended: Vec<Tid>,
    /// By wakee and waker.
    counts: BTreeMap<(TaskId, Option<TaskId>), WakeUps>,
    /// Whether it was said that something found no room.
    has_said: bool,
}

/// The backend.
#[derive(Debug)]
enum CountedBy {
    Ebpf(Counted),
    Samples(WakingSamples),
}

/// What came together of one pair of threads since it was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    /// `None` for interrupts and threads that are not watched.
    waker: Option<Tid>,
    wakee: Tid,
    count: u64,
    /// Where and when the wakee then ran; `None` if the backend does not know.
    ran: Option<Ran>,
}

/// Where and when woken threads ran, as [`WakeUps`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    same_pu: u64,
    waited: Nanos,
    both_ran: Nanos,
}

impl WakeUpCounts {
    /// Begins to count, on `cpus` where wake-ups are sampled.
    ///
    /// # Errors
    /// Why the kernel counts nothing, and the remedy.
    pub fn start(cpus: &[PuNr]) -> Result<Self, Refusal> {
        let by = Counted::start(cpus.len()).map(CountedBy::Ebpf).or_else(|ebpf| {
            let refused = |perf| Refusal::of(format!("{ebpf}, and {perf}"));
            WakingSamples::start(cpus).map(CountedBy::Samples).map_err(refused)
        })?;
        let (of, counts) = (HashMap::new(), BTreeMap::new());
        Ok(Self { by, of, ended: Vec::new(), counts, has_said: false })
    }

    /// What it is and costs to count by eBPF, where nothing speaks against that: this build has the program, this user the
    /// capabilities, and the kernel type information. Takes some microseconds, where [`WakeUpCounts::start`] takes 10 to 20 ms.
    #[must_use]
    pub fn expected() -> Option<Backend> {
        let may = privilege::may_load_programs();
        let can = may && colocate_ebpf::IS_BUILT && Path::new(TYPES).exists();
        can.then(ebpf::backend)
    }

    /// What it is and costs.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match &self.by {
            CountedBy::Ebpf(_) => ebpf::backend(),
            CountedBy::Samples(_) => sampled::backend(),
        }
    }

    /// Watches a process that has one thread, and all that it creates from now on.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn add(&self, first: Tid) -> Result<(), EbpfError> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.add(first),
            // Of every thread.
            CountedBy::Samples(_) => Ok(()),
        }
    }

    /// A task was created.
    pub fn created(&mut self, task: TaskRef) {
        self.of.insert(task.tid, task.id);
    }

    /// A task has ended. What it did before is still read.
    pub fn ended(&mut self, tid: Tid) {
        self.ended.push(tid);
    }

    /// When [`WakeUpCounts::read`] is to be called at the latest, as counting costs more than it may until then.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.window_ends(),
            CountedBy::Samples(_) => None,
        }
    }

    /// Adds what was counted since this was last called. Where something found no room, a line about that, once.
    ///
    /// # Errors
    /// If the kernel does not say what was counted.
    pub fn read(&mut self) -> Result<Option<String>, EbpfError> {
        let (pairs, lost) = match &mut self.by {
            CountedBy::Ebpf(counted) => (counted.take()?, counted.lost()?),
            CountedBy::Samples(samples) => (samples.take(), samples.lost()),
        };
        let task = |tid: Tid| self.of.get(&tid).copied();
        for Pair { waker, wakee, count, ran } in pairs {
            // One that was never followed, as in a storm of threads.
            let Some(wakee) = task(wakee) else { continue };
            let waker = waker.and_then(task);
            let new = WakeUps {
                waker,
                wakee,
                count,
                same_pu: ran.map(|ran| ran.same_pu),
                waited: ran.map(|ran| ran.waited),
                both_ran: ran.map(|ran| ran.both_ran),
            };
            self.counts.entry((wakee, waker)).and_modify(|sum| add(sum, &new)).or_insert(new);
        }
        for tid in self.ended.drain(..) {
            self.of.remove(&tid);
        }
        let says = !self.has_said && lost.is_some();
        self.has_said |= says;
        Ok(lost.filter(|_| says))
    }

    /// Processes that are not watched and have woken watched threads, with how often, as far as the backend says which.
    #[must_use]
    pub fn outside(&self) -> Vec<(Pid, u64)> {
        match &self.by {
            CountedBy::Ebpf(counted) => counted.outside(),
            CountedBy::Samples(_) => Vec::new(),
        }
    }

    /// Forgets what is known of tasks other than these.
    pub fn keep(&mut self, mut is_kept: impl FnMut(TaskId) -> bool) {
        self.counts.retain(|(wakee, waker), _| is_kept(*wakee) && waker.is_none_or(&mut is_kept));
    }

    /// What was counted until [`WakeUpCounts::read`] was last called, in the order of wakees and wakers.
    #[must_use]
    pub fn counts(&self) -> Vec<WakeUps> {
        self.counts.values().copied().collect()
    }
}

fn add(sum: &mut WakeUps, new: &WakeUps) {
    sum.count += new.count;
    sum.same_pu = both(sum.same_pu, new.same_pu);
    sum.waited = both(sum.waited, new.waited);
    sum.both_ran = both(sum.both_ran, new.both_ran);
}

/// The sum, if both are known.
fn both<T: Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.zip(other).map(|(one, other)| one + other)
}
