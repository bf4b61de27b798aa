//! For how long tasks use memory that others use as well, by samples that are taken in where quanta end.

use super::TaskRef;
use crate::lifecycle::Options;
use crate::pmu::Start;
use crate::sharing::AccessSampler;
use crate::sharing::groups::Count;
use crate::sharing::table::Shared;
use colocate_evidence::{Backend, Refusal};
use colocate_evidence::{Sharing, TaskId};
use colocate_linux::SysError;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, HashMap};

/// Samples of what tasks access, and what came of them.
#[derive(Debug)]
pub struct SharedMemory {
    sampler: AccessSampler,
    rate_hz: u32,
    /// Tasks by thread. Those that have ended stay until the next reading.
    of: HashMap<Tid, TaskId>,
    ended: Vec<Tid>,
    sums: BTreeMap<(TaskId, TaskId), Shared>,
    groups: BTreeMap<Sampled, Count>,
}

/// A part of a process's memory, by its first address, and a task that was sampled there.
type Sampled = ((Pid, u64), TaskId);

impl SharedMemory {
    /// Samples nothing yet, so often a second of each thread's CPU time.
    ///
    /// # Errors
    /// As [`AccessSampler::new`].
    pub fn start(rate_hz: u32, watch: &Options) -> Result<Self, Refusal> {
        let sampler = AccessSampler::new(rate_hz, watch).map_err(|error| match error.errno() {
            Some(libc::EOPNOTSUPP) => Refusal {
                why: "this processor does not sample accesses, and what instructions access is worked out for x86-64 only"
                    .to_owned(),
                remedy: "use the source wake-ups",
            },
            _ => Refusal::of(error),
        })?;
        let (of, ended) = (HashMap::new(), Vec::new());
        let (sums, groups) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { sampler, rate_hz, of, ended, sums, groups })
    }

    /// What it is and costs.
    #[must_use]
    pub fn backend(&self) -> Backend {
        Backend {
            name: self.sampler.name(),
            cost: format!("{} samples for each second of CPU time", self.rate_hz),
            limits: Vec::new(),
        }
    }

    /// Samples process `pid`, and all that it creates.
    ///
    /// # Errors
    /// As [`AccessSampler::also`].
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.sampler.also(pid, start)
    }

    /// The same, instead of process `before`, which has ended.
    ///
    /// # Errors
    /// As [`AccessSampler::also`].
    pub fn instead(&mut self, before: Pid, pid: Pid) -> Result<(), SysError> {
        self.sampler.forget(before);
        self.sampler.also(pid, Start::AtExec)
    }

    /// A task was created.
    pub fn created(&mut self, task: TaskRef) {
        self.of.insert(task.tid, task.id);
    }

    /// A task has ended. What it did before is still read.
    pub fn ended(&mut self, tid: Tid) {
        self.ended.push(tid);
    }

    /// Adds what was sampled since this was last called.
    pub fn read(&mut self) {
        let of = &self.of;
        self.sampler.drain(|tid| of.contains_key(&tid));
        for ((tid, with), of) in self.sampler.take() {
            // One that was never followed, as in a storm of threads.
            let (Some(task), Some(with)) = (self.of.get(&tid), self.of.get(&with)) else {
                continue;
            };
            *self.sums.entry((*task, *with)).or_default() += of;
        }
        for (group, counts) in self.sampler.take_groups() {
            for (tid, count) in counts {
                let Some(task) = self.of.get(&tid) else { continue };
                let sum = self.groups.entry((group, *task)).or_default();
                sum.samples += count.samples;
                sum.writes += count.writes;
            }
        }
        for tid in self.ended.drain(..) {
            self.of.remove(&tid);
        }
    }

    /// At which parts of memory, each of [`GROUP_B`](crate::sharing::groups::GROUP_B) bytes, tasks were sampled since this was last called.
    pub fn take_groups(&mut self) -> impl Iterator<Item = ((Pid, u64), TaskId, Count)> + use<> {
        std::mem::take(&mut self.groups)
            .into_iter()
            .map(|((group, task), count)| (group, task, count))
    }

    /// Whether samples are taken on each PU, and not of each thread, which costs programs that switch often more.
    #[must_use]
    pub const fn is_of_all(&self) -> bool {
        self.sampler.is_of_all()
    }

    /// Time between two samples of a thread.
    #[must_use]
    pub const fn period(&self) -> Nanos {
        self.sampler.period()
    }

    /// Forgets what is known of tasks other than these.
    pub fn keep(&mut self, mut is_kept: impl FnMut(TaskId) -> bool) {
        self.sums.retain(|(task, with), _| is_kept(*task) && is_kept(*with));
    }

    /// What was seen until [`SharedMemory::read`] was last called, in the order of the tasks.
    #[must_use]
    pub fn sums(&self) -> Vec<Sharing> {
        let sharing = |(&(task, with), of): (&(TaskId, TaskId), &Shared)| Sharing {
            task,
            with,
            time: of.time,
            samples: of.samples,
        };
        self.sums.iter().map(sharing).collect()
    }
}
