//! The instruction mixes of tasks, by samples of instruction pointers.
//!
//! A thread of its own takes the samples in and decodes files, which can take long; new tasks are
//! placed meanwhile.

use super::{Backend, QuantumTasks, of_samples};
use crate::sample::{CountedThreads, SampleOptions, Sampler, Start, ThreadSamples};
use colocate_evidence::{JobIdx, Provider};
use colocate_linux::poll::{is_readable, wait_readable};
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use colocate_model::Mix;
use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Minimum and maximum time between two requests of [`Mixes::follow`]. Chosen: a quarter of the
/// default watch time, and all of it.
const SNAPSHOT_EVERY: (Nanos, Nanos) = (Nanos::from_millis(500), Nanos::from_secs(2));
/// Between these bounds, the time to the next request as a multiple of the last one's duration.
/// Chosen: 2 % of a PU while jobs are watched, unless the maximum interval gives less.
const SNAPSHOT_SHARE: u64 = 50;

/// Delay before sampling, unless its end comes first. Chosen: five samples at the default rate.
const OPENED_AFTER: Duration = Duration::from_millis(20);

/// Maximum difference between two observers' timestamps of a thread's creation. Chosen: thread
/// numbers are not reused as fast on any machine.
const SAME_CREATION: Nanos = Nanos::from_secs(1);

/// Requests to the watching thread, a byte each: report the samples so far; or report them, end the
/// watching, and report the results worth keeping.
const SNAPSHOT: u8 = b's';
const STOP: u8 = b'q';

/// Reply of the watching thread.
#[derive(Debug, Default)]
struct WatchReply {
    seen: Vec<ThreadSamples>,
    counted: Vec<(JobIdx, CountedThreads)>,
    /// Lines for the user.
    trouble: Vec<String>,
    /// Duration of the evaluation.
    took: Duration,
}

/// Handle of the watching thread. On drop the thread ends.
#[derive(Debug)]
struct Worker {
    requests: PipeWriter,
    replies: Receiver<WatchReply>,
    /// Has a byte for each reply.
    reply_ready: PipeReader,
    requested: bool,
}

/// Samplers of the jobs, one per job, so that each job gets its own profile.
#[derive(Debug, Default)]
pub struct Mixes {
    worker: Option<Worker>,
    rate_hz: u32,
    done: Vec<(JobIdx, CountedThreads)>,
    trouble: Vec<String>,
    seen: HashMap<Tid, Vec<ThreadSamples>>,
    /// Time of the last request by [`Mixes::follow`], and interval to the next.
    last_snapshot: Nanos,
    rests: Nanos,
}

impl Mixes {
    /// Samples the jobs with these first processes. Creates a thread, which calls `begin` first and
    /// then opens the events: meanwhile the programs may begin.
    ///
    /// # Errors
    /// As [`Sampler::open`], or if no pipe can be opened; in both cases no job is sampled.
    pub fn start(
        &mut self,
        jobs: &[(JobIdx, Pid)],
        options: &SampleOptions,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Provider, SysError> {
        self.rate_hz = options.rate_hz;
        if jobs.is_empty() {
            return Ok(self.provider());
        }
        // All jobs together are read in the time that one may take.
        let most_steps = options.most_steps / jobs.len() as u64;
        let options = SampleOptions { most_steps, ..options.clone() };
        let samplers = jobs.iter().map(|&(job, pid)| Ok((job, pid, Sampler::open(&options)?)));
        let samplers = samplers.collect::<Result<Vec<_>, SysError>>()?;
        let worker = Worker::start(samplers, begin);
        self.worker = Some(worker.map_err(|source| SysError { call: "pipe", source })?);
        Ok(self.provider())
    }

    /// Ends all sampling and keeps the results. Waits for the thread.
    pub fn stop(&mut self) {
        let Some(mut worker) = self.worker.take() else { return };
        // The reply under way comes before the one to the new request.
        if worker.requested {
            self.learn(worker.wait());
        }
        worker.request(STOP);
        self.learn(worker.wait());
    }

    /// Whether the results include all samples so far; requests them if not. Never waits.
    pub fn up_to_date(&mut self) -> bool {
        let Some(worker) = &mut self.worker else { return true };
        if !worker.requested {
            worker.request(SNAPSHOT);
        }
        let reply = worker.try_reply();
        let known = reply.is_some();
        self.learn(reply);
        known
    }

    /// Requests results at intervals, and adopts the results that have come. Never waits.
    pub fn follow(&mut self, at: Nanos) {
        let awaits = self.awaited().is_some();
        if awaits || at >= self.last_snapshot + self.rests {
            self.last_snapshot = at;
            self.up_to_date();
        }
    }

    /// Descriptor that becomes readable with the pending reply; `None` without one.
    #[must_use]
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.worker
            .as_ref()
            .filter(|worker| worker.requested)
            .map(|worker| worker.reply_ready.as_fd())
    }

    fn learn(&mut self, reply: Option<WatchReply>) {
        let Some(reply) = reply else { return };
        for seen in reply.seen {
            let of_tid = self.seen.entry(seen.tid).or_default();
            of_tid.retain(|before| before.created != seen.created);
            of_tid.push(seen);
        }
        let took = u64::try_from(reply.took.as_nanos()).unwrap_or(u64::MAX);
        let (least, most) = SNAPSHOT_EVERY;
        self.rests = Nanos(took.saturating_mul(SNAPSHOT_SHARE)).clamp(least, most);
        self.done.extend(reply.counted);
        self.trouble.extend(reply.trouble);
    }

    /// Mix and CPU time of thread `tid`, created at `created`; `None` if it was not watched.
    #[must_use]
    pub fn of(&self, tid: Tid, created: Nanos) -> Option<(Mix, Option<Nanos>)> {
        let apart = |seen: &&ThreadSamples| seen.created.0.abs_diff(created.0);
        let nearest = self.seen.get(&tid)?.iter().min_by_key(apart)?;
        (apart(&nearest) <= SAME_CREATION.0).then_some((nearest.mix, nearest.cpu_time))
    }

    /// Counts of each job whose watching has ended.
    pub fn take(&mut self) -> Vec<(JobIdx, CountedThreads)> {
        std::mem::take(&mut self.done)
    }
}

impl Backend for Mixes {
    fn provider(&self) -> Provider {
        of_samples("perf events: instruction pointers", self.rate_hz)
    }

    fn report(&mut self, quantum: &mut QuantumTasks<'_>) {
        for ((thread, created), task) in quantum.threads.iter().zip(quantum.tasks.iter_mut()) {
            let Some((mix, cpu_time)) = self.of(thread.tid, *created) else { continue };
            task.mix = Some(Box::new(mix));
            task.cpu_time = cpu_time.max(task.cpu_time);
        }
    }

    /// Lines about jobs whose sampling has failed.
    fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trouble)
    }
}

impl Worker {
    fn start(
        samplers: Vec<(JobIdx, Pid, Sampler)>,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (received, requests) = io::pipe()?;
        let (reply_ready, ready) = io::pipe()?;
        let (reply, replies) = channel();
        std::thread::Builder::new().name("colocate-watch".into()).spawn(move || {
            begin();
            serve(samplers, received, &reply, ready);
        })?;
        Ok(Self { requests, replies, reply_ready, requested: false })
    }

    fn request(&mut self, request: u8) {
        // If the thread has ended, the reply never comes, and `try_reply` returns an empty one.
        self.requested = self.requests.write_all(&[request]).is_ok();
    }

    /// Reply of the thread, if it has come. An ended thread sends none.
    fn try_reply(&mut self) -> Option<WatchReply> {
        match self.replies.try_recv() {
            Err(TryRecvError::Empty) if self.requested => None,
            reply => {
                self.clear_ready();
                Some(reply.unwrap_or_default())
            }
        }
    }

    /// Waits for the reply of the thread.
    fn wait(&mut self) -> Option<WatchReply> {
        let reply = self.replies.recv().ok();
        self.clear_ready();
        reply
    }

    fn clear_ready(&mut self) {
        // At its end the thread closes the pipe.
        if std::mem::take(&mut self.requested) {
            let _ = self.reply_ready.read(&mut [0]);
        }
    }
}

/// Opens events. Returns the sampled jobs, and a line per failed job that has not just ended.
fn open(jobs: Vec<(JobIdx, Pid, Sampler)>) -> (Vec<(JobIdx, Sampler)>, Vec<String>) {
    let mut samplers = Vec::new();
    let mut trouble = Vec::new();
    for (job, pid, mut sampler) in jobs {
        match sampler.also(pid, Start::Now) {
            Ok(()) => samplers.push((job, sampler)),
            Err(why) if why.errno() == Some(libc::ESRCH) => {}
            Err(why) => trouble.push(format!("process {pid} is not sampled: {why}")),
        }
    }
    (samplers, trouble)
}

/// The watching thread.
fn serve(
    mut jobs: Vec<(JobIdx, Pid, Sampler)>,
    mut requests: PipeReader,
    reply: &Sender<WatchReply>,
    mut ready: PipeWriter,
) {
    let mut samplers = Vec::new();
    let mut trouble = Vec::new();
    // For programs that have ended by then nothing is opened: the first event of a task can take as long.
    let waited = wait_readable(&[requests.as_fd()], Some(OPENED_AFTER));
    if waited.is_ok() && !is_readable(requests.as_fd()) {
        (samplers, trouble) = open(std::mem::take(&mut jobs));
    }
    loop {
        let mut fds: Vec<BorrowedFd<'_>> = samplers.iter().flat_map(|(_, s)| s.fds()).collect();
        fds.push(requests.as_fd());
        if wait_readable(&fds, None).is_err() {
            return;
        }
        samplers.iter_mut().for_each(|(_, sampler)| sampler.drain());
        if !is_readable(requests.as_fd()) {
            continue;
        }
        let mut request = [0];
        let is_stop = match requests.read(&mut request) {
            Ok(1) => request[0] == STOP,
            // Its other end is dropped.
            _ => return,
        };
        // The first request may come before the delay is over.
        if !is_stop && !jobs.is_empty() {
            (samplers, trouble) = open(std::mem::take(&mut jobs));
        }
        let begun = Instant::now();
        let seen = snapshot(&mut samplers);
        let took = begun.elapsed();
        let ended = if is_stop { std::mem::take(&mut samplers) } else { Vec::new() };
        let counted = ended.into_iter().map(|(job, sampler)| (job, sampler.finish())).collect();
        let trouble = std::mem::take(&mut trouble);
        let reply_with = WatchReply { seen, counted, trouble, took };
        // The reply first, as the byte announces it.
        let sent = reply.send(reply_with).is_ok() && ready.write_all(b".").is_ok();
        if is_stop || !sent {
            return;
        }
    }
}

/// Mixes of the samples so far.
fn snapshot(samplers: &mut [(JobIdx, Sampler)]) -> Vec<ThreadSamples> {
    let threads = samplers.iter_mut().flat_map(|(_, sampler)| {
        sampler.drain();
        sampler.snapshot()
    });
    threads.collect()
}
