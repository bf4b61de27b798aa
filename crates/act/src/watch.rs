//! Finds out what the tasks of unknown jobs do, by samples.

use colocate_machine::Nanos;
use colocate_model::Mix;
use colocate_observe::sample::{Counted, SampleOptions, Sampler, Start, ThreadSamples};
use colocate_observe::{Pid, SysError, Tid};
use colocate_policy::JobIdx;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Pages of samples that may wait on each CPU, over all watched jobs: what an unprivileged user
/// may lock besides the ring of births (`perf_event_mlock_kb` is 516 on stock kernels).
const PAGES: usize = 64;
/// Fewest pages of one job: some 400 samples, 1.6 s of one CPU at the default rate.
const LEAST_PAGES: usize = 4;

/// Births of one thread as two observers stamp them lie within this. Chosen: numbers of threads are
/// not reused as fast on any machine.
const SAME_BIRTH: Nanos = Nanos::from_secs(1);

/// What was found out about one thread.
#[derive(Clone, Copy, Debug)]
struct Seen {
    born: Nanos,
    mix: Mix,
    cpu_time: Option<Nanos>,
}

/// Watches jobs, each by itself, so that each gets a profile of its own.
#[derive(Debug, Default)]
pub struct Watchers {
    live: Vec<(JobIdx, Sampler)>,
    done: Vec<(JobIdx, Counted)>,
    seen: HashMap<Tid, Vec<Seen>>,
}

impl Watchers {
    /// Watches the jobs with these first processes, which wait before their exec.
    ///
    /// # Errors
    /// As [`Sampler::start`]; then none is watched.
    pub fn start(&mut self, jobs: &[(JobIdx, Pid)], cpus: &SampleOptions) -> Result<(), SysError> {
        let share = (PAGES / jobs.len().max(1)).clamp(LEAST_PAGES, cpus.watch.ring_pages);
        let mut options = cpus.clone();
        options.watch.ring_pages = 1 << share.ilog2();
        let live = jobs
            .iter()
            .map(|&(job, pid)| Ok((job, Sampler::start(pid, Start::AtExec, options.clone())?)));
        self.live = live.collect::<Result<_, SysError>>()?;
        Ok(())
    }

    /// Ends all watching and keeps what was found out.
    pub fn stop(&mut self) {
        self.look();
        for (job, sampler) in self.live.drain(..) {
            self.done.push((job, sampler.finish()));
        }
    }

    /// Whether anything is being watched.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// Readable when samples wait.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.live.iter().flat_map(|(_, sampler)| sampler.fds())
    }

    /// Takes in the samples that wait.
    pub fn drain(&mut self) {
        self.live.iter_mut().for_each(|(_, sampler)| sampler.drain());
    }

    /// Makes mixes of what was sampled so far.
    pub fn look(&mut self) {
        for (_, sampler) in &mut self.live {
            sampler.drain();
            for thread in sampler.snapshot() {
                let ThreadSamples { tid, born, mix, cpu_time, .. } = thread;
                let of_tid = self.seen.entry(tid).or_default();
                of_tid.retain(|seen| seen.born != born);
                of_tid.push(Seen { born, mix, cpu_time });
            }
        }
    }

    /// Mix and CPU time of the thread `tid` that was born at `born`, if it was watched.
    #[must_use]
    pub fn of(&self, tid: Tid, born: Nanos) -> Option<(Mix, Option<Nanos>)> {
        let apart = |seen: &&Seen| seen.born.0.abs_diff(born.0);
        let nearest = self.seen.get(&tid)?.iter().min_by_key(apart)?;
        (apart(&nearest) <= SAME_BIRTH.0).then_some((nearest.mix, nearest.cpu_time))
    }

    /// What was counted of each job whose watching has ended.
    pub fn take(&mut self) -> Vec<(JobIdx, Counted)> {
        std::mem::take(&mut self.done)
    }
}
