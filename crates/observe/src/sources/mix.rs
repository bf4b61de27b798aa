//! The instruction mixes of tasks, by samples of instruction pointers.
//!
//! A thread of its own takes the samples in and decodes files, which can take long; new tasks are
//! placed meanwhile.

use crate::sample::{Counted, SampleOptions, Sampler, Start, ThreadSamples};
use crate::sys::{SysError, wait_readable};
use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_model::Mix;
use colocate_policy::JobIdx;
use colocate_policy::source::Backend;
use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

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
    tid: Tid,
    born: Nanos,
    mix: Mix,
    cpu_time: Option<Nanos>,
}

/// What the watching thread is asked to do.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// Say what was seen so far.
    Look,
    /// Say it, end the watching, and say what is worth keeping.
    Stop,
}

/// What the watching thread says.
#[derive(Debug)]
struct Told {
    seen: Vec<Seen>,
    counted: Vec<(JobIdx, Counted)>,
}

/// The watching thread, as the others see it. It ends when this is dropped.
#[derive(Debug)]
struct Worker {
    asks: Sender<Ask>,
    /// Wakes it after an ask.
    call: PipeWriter,
    told: Receiver<Told>,
    /// Readable after it has told.
    bell: PipeReader,
    asked: bool,
}

/// Samples jobs, each by itself, so that each gets a profile of its own.
#[derive(Debug, Default)]
pub struct Mixes {
    worker: Option<Worker>,
    done: Vec<(JobIdx, Counted)>,
    seen: HashMap<Tid, Vec<Seen>>,
}

impl Mixes {
    /// Samples the jobs with these first processes, which wait before their exec. Creates a thread, which calls `begin`
    /// first.
    ///
    /// # Errors
    /// As [`Sampler::start`], or if no pipe can be had; then none is sampled.
    pub fn start(
        &mut self,
        jobs: &[(JobIdx, Pid)],
        cpus: &SampleOptions,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Backend, SysError> {
        let cost = format!("{} samples for each second of CPU time", cpus.rate_hz);
        let backend =
            Backend { name: "perf events: instruction pointers", cost, limits: Vec::new() };
        if jobs.is_empty() {
            return Ok(backend);
        }
        let share = (PAGES / jobs.len()).clamp(LEAST_PAGES, cpus.watch.ring_pages.max(LEAST_PAGES));
        let mut options = cpus.clone();
        options.watch.ring_pages = 1 << share.ilog2();
        // All jobs together are read in the time that one may take.
        options.most_steps /= jobs.len() as u64;
        let samplers = jobs
            .iter()
            .map(|&(job, pid)| Ok((job, Sampler::start(pid, Start::AtExec, options.clone())?)));
        let samplers = samplers.collect::<Result<Vec<_>, SysError>>()?;
        let worker = Worker::start(samplers, begin);
        self.worker = Some(worker.map_err(|source| SysError { call: "pipe", source })?);
        Ok(backend)
    }

    /// Ends all watching and keeps what was found out. Waits for it.
    pub fn stop(&mut self) {
        let Some(mut worker) = self.worker.take() else { return };
        if worker.asked {
            self.learn(worker.wait());
        }
        worker.ask(Ask::Stop);
        self.learn(worker.wait());
    }

    /// Whether what was seen until now is known; asks for it if not. Never waits.
    pub fn up_to_date(&mut self) -> bool {
        let Some(worker) = &mut self.worker else { return true };
        if !worker.asked {
            worker.ask(Ask::Look);
        }
        let told = worker.hear();
        let known = told.is_some();
        self.learn(told);
        known
    }

    /// Readable when an answer has come, while one is awaited.
    #[must_use]
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.worker.as_ref().filter(|worker| worker.asked).map(|worker| worker.bell.as_fd())
    }

    fn learn(&mut self, told: Option<Told>) {
        let Some(told) = told else { return };
        for seen in told.seen {
            let of_tid = self.seen.entry(seen.tid).or_default();
            of_tid.retain(|before| before.born != seen.born);
            of_tid.push(seen);
        }
        self.done.extend(told.counted);
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

impl Worker {
    fn start(
        samplers: Vec<(JobIdx, Sampler)>,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (ear, call) = io::pipe()?;
        let (bell, ring) = io::pipe()?;
        let (asks, asked) = channel();
        let (tell, told) = channel();
        std::thread::Builder::new().name("colocate-watch".into()).spawn(move || {
            begin();
            serve(samplers, ear, &asked, &tell, ring);
        })?;
        Ok(Self { asks, call, told, bell, asked: false })
    }

    fn ask(&mut self, ask: Ask) {
        // If the thread has died, the answer never comes, and `hear` says so.
        self.asked = self.asks.send(ask).is_ok() && self.call.write_all(b".").is_ok();
    }

    /// Its answer, if it has come. A thread that has died has nothing more to say.
    fn hear(&mut self) -> Option<Told> {
        match self.told.try_recv() {
            Err(TryRecvError::Empty) if self.asked => None,
            answer => {
                let rung = std::mem::take(&mut self.asked);
                Some(answer.unwrap_or(Told { seen: Vec::new(), counted: Vec::new() }))
                    .inspect(|_| self.silence(rung))
            }
        }
    }

    /// Its answer, waited for.
    fn wait(&mut self) -> Option<Told> {
        let told = self.told.recv().ok();
        let rung = std::mem::take(&mut self.asked);
        self.silence(rung && told.is_some());
        told
    }

    fn silence(&mut self, rung: bool) {
        if rung {
            let _ = self.bell.read(&mut [0]);
        }
    }
}

/// The watching thread.
fn serve(
    mut samplers: Vec<(JobIdx, Sampler)>,
    mut ear: PipeReader,
    asks: &Receiver<Ask>,
    tell: &Sender<Told>,
    mut ring: PipeWriter,
) {
    loop {
        let mut fds: Vec<BorrowedFd<'_>> = samplers.iter().flat_map(|(_, s)| s.fds()).collect();
        fds.push(ear.as_fd());
        if wait_readable(&fds, None).is_err() {
            return;
        }
        samplers.iter_mut().for_each(|(_, sampler)| sampler.drain());
        let stop = match asks.try_recv() {
            Ok(ask) => matches!(ask, Ask::Stop),
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => return,
        };
        let _ = ear.read(&mut [0]);
        let seen = look(&mut samplers);
        let ended = if stop { std::mem::take(&mut samplers) } else { Vec::new() };
        let counted = ended.into_iter().map(|(job, sampler)| (job, sampler.finish())).collect();
        let told = tell.send(Told { seen, counted }).is_ok() && ring.write_all(b".").is_ok();
        if stop || !told {
            return;
        }
    }
}

/// Makes mixes of what was sampled so far.
fn look(samplers: &mut [(JobIdx, Sampler)]) -> Vec<Seen> {
    let seen = |thread: ThreadSamples| {
        let ThreadSamples { tid, born, mix, cpu_time, .. } = thread;
        Seen { tid, born, mix, cpu_time }
    };
    let threads = samplers.iter_mut().flat_map(|(_, sampler)| {
        sampler.drain();
        sampler.snapshot()
    });
    threads.map(seen).collect()
}
