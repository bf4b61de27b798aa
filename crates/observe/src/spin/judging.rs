//! A sampler whose code is judged beside it.
//!
//! Samples are taken in at each poll, which takes a microsecond each. What the code at a new address does is
//! judged by a thread of its own, which reads files. Until its answer comes, usually by the next poll, samples there are
//! kept.

use super::judge::Judge;
use super::loops::Verdict;
use super::{Question, Share, Site, SpinSampler};
use crate::lifecycle::Options;
use crate::pmu::Start;
use crate::sys::{SysError, now};
use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Samples of running threads, and a thread that judges where they were.
#[derive(Debug)]
pub struct Judging {
    sampler: SpinSampler,
    questions: Sender<Question>,
    answers: Receiver<(Site, Option<Verdict>)>,
}

impl Judging {
    /// Samples nothing yet, so often a second of each thread's CPU time. Creates a thread, which calls `begin` first and
    /// ends with this.
    ///
    /// # Errors
    /// As [`SpinSampler::new`], or if no thread can be had.
    pub fn new(
        rate_hz: u32,
        watch: &Options,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Self, SysError> {
        let sampler = SpinSampler::new(rate_hz, watch)?;
        let (questions, asked) = channel::<Question>();
        let (reply, answers) = channel();
        let judges = move || {
            begin();
            let mut judge = Judge::default();
            for question in asked {
                judge.fill(now());
                let verdict = judge.judge(&question);
                if reply.send((question.site, verdict)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("colocate-spins".into());
        thread.spawn(judges).map_err(|source| SysError { call: "pthread_create", source })?;
        Ok(Self { sampler, questions, answers })
    }

    /// As [`SpinSampler::also`].
    ///
    /// # Errors
    /// The same.
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.sampler.also(pid, start)
    }

    /// As [`SpinSampler::also_alone`].
    ///
    /// # Errors
    /// The same.
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
        self.sampler.also_alone(pid)
    }

    /// As [`SpinSampler::forget`].
    pub fn forget(&mut self, pid: Pid) {
        self.sampler.forget(pid);
    }

    /// As [`SpinSampler::samples`].
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.sampler.samples(pid)
    }

    /// How many events are open, a thread and CPU each.
    #[must_use]
    pub fn events(&self) -> usize {
        self.sampler.events()
    }

    /// What threads were seen doing since the last call, as far as it is judged. Does not wait for judgement.
    pub fn take(&mut self) -> BTreeMap<Tid, Share> {
        while let Ok((site, verdict)) = self.answers.try_recv() {
            self.sampler.learn(site, verdict);
        }
        self.sampler.drain();
        for question in self.sampler.questions() {
            // If the thread has died, nothing new is judged, and stays unknown.
            let _ = self.questions.send(question);
        }
        self.sampler.take()
    }

    /// The longest time on PUs that a sample represents; `None` where samples share all of it, as they are taken in
    /// the kernel, too.
    #[must_use]
    pub fn most(&self) -> Option<Nanos> {
        (!self.sampler.with_kernel()).then(|| self.sampler.period())
    }
}
