//! Samples of the memory accesses of tasks: the time for which tasks use the same memory, and the pages that each uses.

use super::page_groups::PageGroups;
use super::{Backend, NewTask, QuantumTasks, TaskRef, TaskUsage, of_samples};
use crate::doctor::finding::{Finding, Inputs, live_code, numa_calls, ring_refused, samples};
use crate::doctor::{Probe, Status};
use crate::pmu::Start;
use crate::sample::Clocks;
use crate::sharing::AccessSampler;
use crate::sharing::groups::Count;
use crate::sharing::table::SharedTime;
use colocate_evidence::{JobIdx, Provider, Refusal, Sharing, TaskId};
use colocate_linux::{Pid, Tid};
use std::collections::{BTreeMap, HashMap};

/// Samples of accesses, and the sums of both reports.
#[derive(Debug)]
pub struct Accesses {
    sampler: AccessSampler,
    rate_hz: u32,
    /// Tasks by thread. Ended threads stay until the next reading.
    of: HashMap<Tid, TaskId>,
    ended: Vec<Tid>,
    sums: BTreeMap<(TaskId, TaskId), SharedTime>,
    /// Whether use of the same memory is to be reported.
    has_sharing: bool,
    groups: BTreeMap<Sampled, Count>,
    /// `None` if pages are not to be reported.
    pages: Option<PageGroups>,
}

/// Part of a process's memory, by its first address, and a task sampled there.
type Sampled = ((Pid, u64), TaskId);

impl Accesses {
    /// Starts without tasks; `rate_hz` is in samples per second of each thread's CPU time.
    ///
    /// # Errors
    /// As [`AccessSampler::new`].
    pub fn start(rate_hz: u32, clocks: &Clocks) -> Result<Self, Refusal> {
        let sampler = AccessSampler::new(rate_hz, clocks).map_err(|error| match error.errno() {
            Some(libc::EOPNOTSUPP) => Refusal {
                why: "this processor does not sample accesses, and what instructions access is worked out for x86-64 only"
                    .to_owned(),
                remedy: "use the source wake-ups",
            },
            _ => Refusal::of(error),
        })?;
        Ok(Self {
            sampler,
            rate_hz,
            of: HashMap::new(),
            ended: Vec::new(),
            sums: BTreeMap::new(),
            has_sharing: false,
            groups: BTreeMap::new(),
            pages: None,
        })
    }

    /// Reports the use of the same memory from now on.
    pub fn report_sharing(&mut self) {
        self.has_sharing = true;
    }

    /// Whether use of the same memory is reported.
    #[must_use]
    pub const fn has_sharing(&self) -> bool {
        self.has_sharing
    }

    /// Reports pages and their users from now on.
    ///
    /// # Errors
    /// The cost, where samples cannot be taken on each PU.
    pub fn report_pages(&mut self) -> Result<(), Refusal> {
        if !self.sampler.sample_each_pu() {
            return Err(Refusal {
                why: "samples of each thread cost programs that wait often too much".to_owned(),
                remedy: "run colocate as root, which samples on each PU",
            });
        }
        self.pages.get_or_insert_default();
        Ok(())
    }

    fn sharing(&mut self, quantum: &QuantumTasks<'_>) -> Vec<Sharing> {
        self.sums.retain(|(task, with), _| {
            quantum.find(*task).is_some() && quantum.find(*with).is_some()
        });
        self.sums
            .iter()
            .map(|(&(task, with), of)| Sharing { task, with, time: of.time, samples: of.samples })
            .collect()
    }
}

impl Backend for Accesses {
    fn provider(&self) -> Provider {
        of_samples(self.sampler.name, self.rate_hz)
    }

    fn watch(&mut self, pid: Pid, start: Start) -> Result<(), Refusal> {
        self.sampler.also(pid, start).map_err(Refusal::of)
    }

    fn watch_instead(&mut self, _job: JobIdx, before: Pid, pid: Pid) -> Result<(), Refusal> {
        self.sampler.forget(before);
        self.watch(pid, Start::AtExec)
    }

    fn created(&mut self, new: &NewTask) -> Result<(), Refusal> {
        self.of.insert(new.task.tid, new.task.id);
        Ok(())
    }

    /// Its samples until then are still read.
    fn ended(&mut self, task: TaskRef, _usage: &mut TaskUsage) {
        self.ended.push(task.tid);
    }

    fn drain(&mut self) -> Result<(), String> {
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
        Ok(())
    }

    fn report(&mut self, quantum: &mut QuantumTasks<'_>) {
        if self.has_sharing {
            quantum.reports.sharing = Some(self.sharing(quantum));
        }
        let groups = std::mem::take(&mut self.groups);
        if let Some(pages) = &mut self.pages {
            let sampled = groups.into_iter().map(|((group, task), count)| (group, task, count));
            quantum.reports.pages = Some(pages.report(quantum, sampled, self.sampler.period));
        }
    }
}

/// Access samples, and decoding the sampled code.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    if !cfg!(target_arch = "x86_64") {
        let why = "which address an instruction accesses is worked out for x86-64 only";
        return Finding::no("another processor", why);
    }
    let samples = samples(inputs);
    if samples.status == Status::Yes { live_code(inputs) } else { samples }
}

/// Samples on each PU, and pages' nodes: per-thread samples cost frequent switches too much.
pub(super) fn check_pages(inputs: &Inputs<'_>) -> Finding {
    let samples = check(inputs);
    if samples.status != Status::Yes {
        return samples;
    }
    match inputs.probes.run(Probe::SampleWakeUps) {
        Err(errno) if matches!(errno.0, libc::EACCES | libc::EPERM) => {
            Finding::no(format!("samples on each PU: {errno}"), ring_refused(inputs, errno))
        }
        _ => numa_calls(inputs),
    }
}
