//! For how long threads have only waited for others in a loop, by samples.
//!
//! Samples are taken in where quanta end, which takes a microsecond each. What the code at a new address does is asked of a
//! thread of its own, which reads files; until it has answered, usually in the next quantum, samples there are kept.
//! Between two looks a thread has waited in loops for that share of its time that samples of waiting are of all its
//! samples: of its time on PUs, and of its time in the queue for one, as who has lost its PU in a loop is still there. Where
//! no sample came, which is so when it had no PU for long, it does what it did before.

use crate::sys;
use colocate_machine::Nanos;
use colocate_observe::pmu::Start;
use colocate_observe::spin::judge::Judge;
use colocate_observe::spin::loops::Verdict;
use colocate_observe::spin::{Question, Share, Site, SpinSampler};
use colocate_observe::{Pid, SysError, Tid, births};
use colocate_policy::TaskId;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Samples of running threads, and what came of them.
#[derive(Debug)]
pub struct Spins {
    sampler: SpinSampler,
    questions: Sender<Question>,
    answers: Receiver<(Site, Option<Verdict>)>,
    of: HashMap<TaskId, Spun>,
}

/// What is known of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spun {
    /// It waited in loops for so long.
    waited: Nanos,
    /// The samples that tell this of the time from now on, unless there are newer ones.
    share: Share,
    /// Time on PUs and waiting for one, until the last look.
    of: (Nanos, Nanos),
}

/// A task's time on PUs, and waiting for one.
pub type Times = (Nanos, Nanos);

impl Spun {
    /// Takes in the samples of the time until now, when it has been on PUs and waited for one for so long. `most` is the
    /// longest time on PUs that a sample stands for, where it is not a share of all of it.
    fn add(&mut self, new: Share, now: Times, most: Option<Nanos>) {
        if new.waits + new.works > 0 || self.share == Share::default() {
            self.share = new;
        }
        let (ran, queued) = (now.0.saturating_sub(self.of.0), now.1.saturating_sub(self.of.1));
        let [ran, queued] = [ran, queued].map(|time| self.share.of(time).unwrap_or(Nanos::ZERO));
        let seen =
            most.map_or(ran, |most| ran.min(Nanos(most.0.saturating_mul(u64::from(new.waits)))));
        self.waited += seen + queued;
        self.of = now;
    }

    /// Whether samples have told nothing, as none of its code could be read.
    fn blind(&self) -> bool {
        self.share.unknown > 0 && self.share.waits + self.share.works == 0
    }
}

impl Spins {
    /// Samples nobody yet, so often a second of each thread's CPU time. Creates a thread, which has the given `nice`.
    ///
    /// # Errors
    /// As [`SpinSampler::new`], or if no thread can be had.
    pub fn new(rate_hz: u32, watch: &births::Options, nice: i32) -> Result<Self, SysError> {
        let sampler = SpinSampler::new(rate_hz, watch)?;
        let (questions, asked) = channel::<Question>();
        let (tell, answers) = channel();
        let judges = move || {
            // Only the thread that places newborns has to be prompt.
            let _ = sys::be_prompt(Nanos::ZERO, nice);
            let mut judge = Judge::default();
            for question in asked {
                let verdict = judge.judge(&question.source);
                if tell.send((question.site, verdict)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("colocate-spins".into());
        thread.spawn(judges).map_err(|source| SysError { call: "pthread_create", source })?;
        Ok(Self { sampler, questions, answers, of: HashMap::new() })
    }

    /// Samples process `pid`, which waits before its exec, and all that it creates.
    ///
    /// # Errors
    /// As [`SpinSampler::also`].
    pub fn also(&mut self, pid: Pid) -> Result<(), SysError> {
        self.sampler.also(pid, Start::AtExec)
    }

    /// The same, instead of process `before`, which has ended.
    ///
    /// # Errors
    /// As [`SpinSampler::also`].
    pub fn instead(&mut self, before: Pid, pid: Pid) -> Result<(), SysError> {
        self.sampler.forget(before);
        self.also(pid)
    }

    /// Takes in what has been sampled. `tasks` are the living ones that may have run, with their times until now.
    pub fn look(&mut self, tasks: impl Iterator<Item = (Tid, TaskId, Times)>) {
        while let Ok((site, verdict)) = self.answers.try_recv() {
            self.sampler.learn(site, verdict);
        }
        self.sampler.drain();
        for question in self.sampler.questions() {
            // If the thread has died, nothing new is judged, and stays unknown.
            let _ = self.questions.send(question);
        }
        let shares = self.sampler.take();
        let most = (!self.sampler.with_kernel()).then(|| self.sampler.period());
        for (tid, id, now) in tasks {
            let share = shares.get(&tid).copied();
            match (self.of.get_mut(&id), share) {
                (Some(spun), share) => spun.add(share.unwrap_or_default(), now, most),
                (None, Some(share)) => {
                    let mut spun = Spun::default();
                    spun.add(share, now, most);
                    self.of.insert(id, spun);
                }
                (None, None) => {}
            }
        }
    }

    /// For how long a task has waited in loops; `None` if no sample of it has told anything, as its code cannot be
    /// read. Who was never found running has not.
    #[must_use]
    pub fn spun(&self, id: TaskId) -> Option<Nanos> {
        match self.of.get(&id) {
            Some(spun) => (!spun.blind()).then_some(spun.waited),
            None => Some(Nanos::ZERO),
        }
    }

    /// Forgets tasks that are not among `tasks`, if there are many.
    pub fn keep(&mut self, tasks: impl ExactSizeIterator<Item = TaskId>) {
        if self.of.len() > 2 * tasks.len() {
            let kept: HashSet<TaskId> = tasks.collect();
            self.of.retain(|id, _| kept.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(waits: u32, works: u32, unknown: u32) -> Share {
        Share { waits, works, unknown }
    }

    /// Looks after 100 ms on PUs each: half of the samples wait; then it waits for a PU for 40 ms, and nothing comes; then
    /// all wait.
    #[test]
    fn samples_share_the_time_since_the_last_look() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(10, 10, 0), (ms(100), ms(0)), None);
        assert_eq!(spun.waited, ms(50));
        spun.add(share(0, 0, 0), (ms(100), ms(40)), None);
        assert_eq!(spun.waited, ms(70));
        spun.add(share(24, 0, 3), (ms(200), ms(50)), None);
        assert_eq!(spun.waited, ms(180));
        spun.add(share(0, 25, 0), (ms(300), ms(50)), None);
        assert_eq!(spun.waited, ms(180));
    }

    /// Of 100 ms, 60 were in the kernel, where nothing is sampled: 5 of 10 samples are 20 ms at most.
    #[test]
    fn time_in_the_kernel_is_not_waited_where_it_is_not_sampled() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(5, 5, 0), (ms(100), ms(0)), Some(ms(4)));
        assert_eq!(spun.waited, ms(20));
    }

    #[test]
    fn code_that_cannot_be_read_says_nothing() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(0, 0, 7), (ms(28), ms(0)), None);
        assert!(spun.blind());
        spun.add(share(1, 1, 0), (ms(40), ms(0)), None);
        assert_eq!((spun.blind(), spun.waited), (false, ms(6)));
    }
}
