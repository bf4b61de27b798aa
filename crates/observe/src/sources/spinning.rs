//! For how long tasks have only waited for others in a loop, by samples that are taken in where quanta end.
//!
//! Taking a sample in takes a microsecond. What the code at a new address does is judged by a thread of its own, which reads
//! files. Until its verdict comes, as a rule by the next poll, samples there are kept.

use super::{Backend, QuantumTasks, of_samples};
use crate::pmu::Start;
use crate::sample::Clocks;
use crate::spin::judge::CodeJudge;
use crate::spin::loops::CodeVerdict;
use crate::spin::spun::{self, Spun};
use crate::spin::{Question, SampledSite, SpinSampler};
use colocate_evidence::{JobIdx, Provider, Refusal, TaskId};
use colocate_linux::clock::now;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Samples of running threads, and their times in loops. Tasks are told apart by keys of type `K`.
#[derive(Debug)]
pub struct Spinning<K = TaskId> {
    sampler: SpinSampler,
    questions: Sender<Question>,
    answers: Receiver<(SampledSite, Option<CodeVerdict>)>,
    rate_hz: u32,
    /// Spin share and times of each task until the last poll.
    of: HashMap<K, (Spun, spun::RunAndWaitTime)>,
}

impl<K: Copy + Eq + Hash> Spinning<K> {
    /// Starts without processes; `rate_hz` is in samples per second of each thread's CPU time.
    /// Creates a thread, which calls `begin` first.
    ///
    /// # Errors
    /// As [`SpinSampler::new`], or if no thread can be created.
    pub fn new(
        rate_hz: u32,
        clocks: &Clocks,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Self, SysError> {
        let sampler = SpinSampler::new(rate_hz, clocks)?;
        let (questions, received) = channel::<Question>();
        let (reply, answers) = channel();
        let judges = move || {
            begin();
            let mut judge = CodeJudge::default();
            for question in received {
                judge.fill(now());
                let verdict = judge.judge(&question);
                if reply.send((question.site, verdict)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("colocate-spins".into());
        thread.spawn(judges).map_err(|source| SysError { call: "pthread_create", source })?;
        Ok(Self { sampler, questions, answers, rate_hz, of: HashMap::new() })
    }

    /// Samples the running process `pid` without its descendants.
    ///
    /// # Errors
    /// As [`SpinSampler::also_alone`].
    pub fn also_running(&mut self, pid: Pid) -> Result<(), SysError> {
        self.sampler.also_alone(pid)
    }

    /// Whether process `pid` is sampled.
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.sampler.samples(pid)
    }

    /// Number of open events, one per thread and CPU.
    #[must_use]
    pub fn events(&self) -> usize {
        self.sampler.events()
    }

    /// Samples process `pid` no more.
    pub fn forget(&mut self, pid: Pid) {
        self.sampler.forget(pid);
    }

    /// Processes the samples, as far as judged by now. `tasks` are those that live and may have run, with their times.
    pub fn poll(&mut self, tasks: impl Iterator<Item = (Tid, K, spun::RunAndWaitTime)>) {
        while let Ok((site, verdict)) = self.answers.try_recv() {
            self.sampler.learn(site, verdict);
        }
        self.sampler.drain();
        for question in self.sampler.questions() {
            // If the thread has died, nothing new is judged, and stays unknown.
            let _ = self.questions.send(question);
        }
        let shares = self.sampler.take();
        // Where samples are not taken in the kernel, they do not share all of the time.
        let samples = &self.sampler.followed.samples;
        let most = (!samples.with_kernel).then_some(samples.period);
        for (tid, id, now) in tasks {
            let share = shares.get(&tid).copied();
            if share.is_none() && !self.of.contains_key(&id) {
                continue;
            }
            let (spun, before) = self.of.entry(id).or_default();
            let did = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
            spun.add(share.unwrap_or_default(), did, most);
            *before = now;
        }
    }

    /// Spin time of a task; `None` if its code is unreadable, so that no sample is conclusive. Zero
    /// for a task never found running.
    #[must_use]
    pub fn spun(&self, id: K) -> Option<Nanos> {
        self.of.get(&id).map_or(Some(Nanos::ZERO), |(spun, _)| spun.waited())
    }

    /// Forgets tasks outside `tasks`, if there are many.
    pub fn keep(&mut self, tasks: impl ExactSizeIterator<Item = K>) {
        // Seldom, as the set takes a visit of every task.
        if self.of.len() > 2 * tasks.len() {
            let kept: HashSet<K> = tasks.collect();
            self.of.retain(|id, _| kept.contains(id));
        }
    }
}

impl Backend for Spinning {
    fn provider(&self) -> Provider {
        of_samples("perf events: instruction pointers and the code there", self.rate_hz)
    }

    fn watch(&mut self, pid: Pid, start: Start) -> Result<(), Refusal> {
        self.sampler.also(pid, start).map_err(Refusal::of)
    }

    fn watch_instead(&mut self, _job: JobIdx, before: Pid, pid: Pid) -> Result<(), Refusal> {
        self.sampler.forget(before);
        self.watch(pid, Start::AtExec)
    }

    fn report(&mut self, quantum: &mut QuantumTasks<'_>) {
        let pairs = quantum.threads.iter().zip(&*quantum.tasks);
        let living = pairs.filter(|(_, task)| task.ended.is_none());
        self.poll(living.filter_map(|((thread, _), task)| {
            Some((thread.tid, task.id, (task.cpu_time?, task.waited.unwrap_or_default())))
        }));
        for task in quantum.tasks.iter_mut() {
            task.spun = self.spun(task.id);
        }
        self.keep(quantum.tasks.iter().map(|task| task.id));
    }
}
