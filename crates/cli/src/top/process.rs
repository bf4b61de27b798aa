//! One process: its threads that were runnable since the last poll.
//!
//! Times come from the backends that policies use ([`RunStates`] and
//! `colocate_observe::sources::spinning`). Sleeping threads are not read as long as the CPU time of
//! the process does not exceed that of its running threads ([`colocate_linux::accounting`]): a poll of a
//! sleeping process is one system call, for any number of threads.

use super::samples::ProcessSamples;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use colocate_observe::sources::run_states::{RunStates, SchedulerTimes, WANT_OF_ROOM};
use colocate_observe::spin::spun;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// A polled process.
#[derive(Debug)]
pub struct PolledProcess {
    pid: Pid,
    /// CPU time of all its threads since its creation, at the last poll.
    pub clock: Nanos,
    threads: BTreeMap<Tid, PolledThread>,
    /// Whether all threads were known at the last listing: unknown threads are then new.
    is_known: bool,
    /// Whether the activity of its threads since the previous poll is unknown.
    is_unknown: bool,
    /// Whether reading its threads is not permitted.
    pub is_denied: bool,
    ran: Nanos,
    places: BTreeMap<PuNr, Nanos>,
}

/// A thread of the process.
#[derive(Debug, Default)]
struct PolledThread {
    /// Times at the last poll; `None` if time before its first poll does not count.
    last: Option<SchedulerTimes>,
    /// CPU time and time in a run queue: since the previous poll, and since the process is sampled.
    did: spun::RunAndWaitTime,
    sampled: spun::RunAndWaitTime,
    /// Spin time until the last poll.
    spun: Nanos,
    /// Whether the thread was runnable at the last poll.
    is_awake: bool,
}

/// A poll of processes.
pub struct Poll<'a> {
    /// Path of `/proc`.
    pub proc: &'a Path,
    /// Time of the poll.
    pub at: Nanos,
    /// Time since the previous poll.
    pub took: Nanos,
    /// Times of all threads.
    pub states: &'a mut RunStates<Tid>,
}

/// Activity of a process between two polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// CPU time used.
    pub ran: Nanos,
    /// Mean number of threads with a PU or waiting for one, without spin time; `None` if unknown.
    pub runnable: Option<f64>,
    /// Mean number of spinning threads; `None` if unknown: they then count as runnable.
    pub spinning: Option<f64>,
    /// CPU time by the PU where each thread was last seen.
    pub places: BTreeMap<PuNr, Nanos>,
}

impl Activity {
    /// Activity of an idle process.
    pub fn nothing() -> Self {
        Self { runnable: Some(0.0), spinning: Some(0.0), ..Self::default() }
    }

    /// Adds the activity of another process.
    pub fn add(&mut self, other: Self) {
        self.ran += other.ran;
        self.runnable = sum(self.runnable, other.runnable);
        self.spinning = sum(self.spinning, other.spinning);
        for (pu, ran) in other.places {
            *self.places.entry(pu).or_default() += ran;
        }
    }
}

impl PolledProcess {
    /// A process as it is now; `None` if ended. With `reads`, its threads are read now and their
    /// activity is known from now on; else from the poll after the first with new CPU time.
    pub fn new(pid: Pid, poll: &mut Poll<'_>, reads: bool) -> Option<Self> {
        let clock = poll.states.add(pid, poll.at)?;
        let mut process = Self {
            pid,
            clock,
            threads: BTreeMap::new(),
            is_known: false,
            is_unknown: true,
            is_denied: false,
            ran: Nanos::ZERO,
            places: BTreeMap::new(),
        };
        if reads {
            process.read_all(poll);
        }
        Some(process)
    }

    /// Number of known threads.
    pub fn known_threads(&self) -> usize {
        self.threads.len()
    }

    /// Reads its threads' activity since the previous poll; returns false if the process has ended.
    pub fn read(&mut self, poll: &mut Poll<'_>) -> bool {
        let Some(clock) = poll.states.process_time(self.pid) else { return false };
        self.ran = clock.saturating_sub(self.clock);
        self.clock = clock;
        self.places.clear();
        let was_known = self.is_known;
        let mut awake = Vec::new();
        for (tid, thread) in &mut self.threads {
            thread.did = (Nanos::ZERO, Nanos::ZERO);
            awake.extend(thread.is_awake.then_some(*tid));
        }
        awake.into_iter().for_each(|tid| self.read_thread(poll, tid));
        if poll.states.has_new_cpu_time(self.pid) {
            self.read_all(poll);
        }
        // A thread without CPU time was not runnable either, unless it waited all the time to run
        // at all.
        let are_known = was_known && self.is_known;
        self.is_unknown = self.is_denied || (!are_known && self.ran > Nanos::ZERO);
        true
    }

    /// Reads the sleeping and the new threads. If the listing fails, the known threads stay.
    fn read_all(&mut self, poll: &mut Poll<'_>) {
        let tids = match Proc::at(poll.proc).tasks(self.pid) {
            Err(why)
                if why.kind() != ErrorKind::NotFound && why.raw_os_error() != Some(libc::ESRCH) =>
            {
                self.is_known = false;
                return;
            }
            // A process that has ended has no threads.
            tids => tids.unwrap_or_default(),
        };
        let were_known = std::mem::replace(&mut self.is_known, true);
        self.threads.retain(|tid, _| {
            // TIDs are in ascending order.
            let lives = tids.binary_search(tid).is_ok();
            if !lives {
                poll.states.ended(*tid);
            }
            lives
        });
        for tid in tids {
            match self.threads.get(&tid) {
                Some(thread) if thread.is_awake => continue,
                Some(_) => {}
                None => {
                    // If all threads were known, a new one has all its time since then.
                    let last = were_known.then(SchedulerTimes::default);
                    self.threads.insert(tid, PolledThread { last, ..PolledThread::default() });
                }
            }
            self.read_thread(poll, tid);
        }
        poll.states.all_read(self.pid);
    }

    /// Reads the activity of a thread since the previous poll. If no descriptor or memory is left
    /// to open its files, the thread becomes unknown.
    fn read_thread(&mut self, poll: &mut Poll<'_>, tid: Tid) {
        let pid = self.pid;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(read) = poll.states.read(tid, (pid, tid), None, poll.proc, poll.at) else {
            // A thread that has ended is forgotten at the next listing.
            thread.is_awake = false;
            match poll.states.failure(tid) {
                Some(libc::EACCES | libc::EPERM) => self.is_denied = true,
                Some(errno) if WANT_OF_ROOM.contains(&errno) => {
                    self.is_known = false;
                    self.threads.remove(&tid);
                }
                _ => {}
            }
            return;
        };
        // Time before the first poll does not count.
        let before = thread.last.replace(read.times).unwrap_or(read.times);
        let ran = read.times.cpu_time.saturating_sub(before.cpu_time);
        let queued = read.times.waited.saturating_sub(before.waited);
        thread.did = (ran, queued);
        thread.is_awake = ran + queued > Nanos::ZERO;
        // At the first poll only its state shows whether a thread can run.
        if ran > Nanos::ZERO || poll.took == Nanos::ZERO {
            let stat = Stat::read(poll.proc, pid, tid);
            let could = stat.is_some_and(|stat| stat.could_run());
            poll.states.could_run(tid, could, poll.at);
            thread.is_awake |= could;
            if let Some(stat) = stat {
                *self.places.entry(stat.last_ran).or_default() += ran;
            }
        }
    }

    /// Threads runnable since the previous poll, with their times since the process is sampled.
    pub fn sampled(&mut self) -> impl Iterator<Item = (Tid, Tid, spun::RunAndWaitTime)> {
        let busy =
            self.threads.iter_mut().filter(|(_, thread)| thread.did.0 + thread.did.1 > Nanos::ZERO);
        busy.map(|(tid, PolledThread { did, sampled, .. })| {
            *sampled = (sampled.0 + did.0, sampled.1 + did.1);
            (*tid, *tid, *sampled)
        })
    }

    /// Activity in `took`, the time since the previous poll, from the read times and the samples.
    pub fn activity(&mut self, took: Nanos, mut samples: Option<&mut ProcessSamples>) -> Activity {
        let mut did = Activity {
            ran: self.ran,
            places: std::mem::take(&mut self.places),
            ..Activity::nothing()
        };
        for (tid, thread) in &mut self.threads {
            let ran = thread.did.0 + thread.did.1;
            if ran == Nanos::ZERO {
                continue;
            }
            let spun = samples.as_ref().map_or(Some(Nanos::ZERO), |of| of.backend.spun(*tid));
            let looped =
                spun.map(|spun| spun.saturating_sub(std::mem::replace(&mut thread.spun, spun)));
            // Unknown spinning counts as work.
            let works = ran.saturating_sub(looped.unwrap_or(Nanos::ZERO));
            did.add(Activity {
                runnable: Some(share(works, took)),
                spinning: looped.map(|looped| share(looped, took)),
                ..Activity::default()
            });
        }
        // A process is sampled from the poll that finds it running.
        let was_sampled = samples.as_ref().is_some_and(|of| of.backend.samples(self.pid));
        let is_seen = samples.as_mut().is_some_and(|of| of.sees(self.pid, self.ran, took));
        if !was_sampled {
            self.threads
                .values_mut()
                .for_each(|thread| thread.sampled = (Nanos::ZERO, Nanos::ZERO));
        }
        did.runnable = did.runnable.filter(|_| !self.is_unknown);
        did.spinning = did.spinning.filter(|_| is_seen && !self.is_unknown);
        did
    }

    /// Forgets a process that has ended or is watched no more.
    pub fn forget(&self, states: &mut RunStates<Tid>, samples: Option<&mut ProcessSamples>) {
        self.threads.keys().for_each(|tid| states.ended(*tid));
        samples.into_iter().for_each(|samples| samples.forget(self.pid));
    }

    /// TIDs of its threads.
    pub fn tids(&self) -> impl Iterator<Item = Tid> {
        self.threads.keys().copied()
    }
}

/// Sum of two figures; `None` if either is unknown.
fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

/// Share of a time in which a thread was active, at most 1.
fn share(did: Nanos, took: Nanos) -> f64 {
    let share = did.as_secs_f64() / took.as_secs_f64();
    // Two polls at the same time divide by 0.
    if share.is_finite() { share.min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_linux::clock::now;
    use colocate_testing::{LIMIT, TimeLimit};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A thread that works until it is to end, and its number.
    struct Worker {
        over: Arc<AtomicBool>,
        tid: Tid,
        thread: std::thread::JoinHandle<()>,
    }

    impl Worker {
        fn start() -> Self {
            let over = Arc::new(AtomicBool::new(false));
            let (send, receive) = std::sync::mpsc::channel();
            let stop = over.clone();
            let thread = std::thread::spawn(move || {
                let link = std::fs::read_link("/proc/thread-self").unwrap();
                let tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
                send.send(Tid(tid)).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            Self { over, tid: receive.recv().unwrap(), thread }
        }

        fn end(self) {
            self.over.store(true, Ordering::Relaxed);
            self.thread.join().unwrap();
        }
    }

    /// The backend, and when it was last asked.
    struct Host {
        states: RunStates<Tid>,
        at: Nanos,
    }

    impl Host {
        fn new() -> Self {
            let mut states = RunStates::default();
            states.start();
            Self { states, at: now() }
        }

        /// A poll below `proc`, so long after the one before as it is.
        fn poll<'a>(&'a mut self, proc: &'a Path) -> Poll<'a> {
            let took = now().saturating_sub(self.at);
            self.at += took;
            Poll { proc, at: self.at, took, states: &mut self.states }
        }

        fn activity(&mut self, process: &mut PolledProcess) -> Activity {
            std::thread::yield_now();
            let mut poll = self.poll(Path::new("/proc"));
            let processes = [(process.pid, process.known_threads())];
            poll.states.begin(processes.into_iter(), poll.at);
            let took = poll.took;
            assert!(process.read(&mut poll));
            process.activity(took, None)
        }
    }

    /// One thread ends and another begins: the one is forgotten, and all that the other has done is known, whether threads
    /// were read at the beginning or not.
    #[test]
    fn threads_end_and_begin() {
        let (proc, pid) = (Path::new("/proc"), Pid(std::process::id().cast_signed()));
        for reads in [true, false] {
            let _limit =
                TimeLimit::start(LIMIT, "the end of one thread and the CPU time of another");
            let old = Worker::start();
            let mut host = Host::new();
            let mut process = PolledProcess::new(pid, &mut host.poll(proc), reads).unwrap();
            while !process.threads.contains_key(&old.tid) {
                host.activity(&mut process);
            }
            let gone = old.tid;
            old.end();
            // It may be listed for a moment yet, and then it is remembered until all are read again.
            while Proc::at(proc).tasks(pid).unwrap().contains(&gone) {
                std::thread::yield_now();
            }
            let new = Worker::start();
            while process.threads.contains_key(&gone) || !process.threads.contains_key(&new.tid) {
                host.activity(&mut process);
            }
            let ran = |process: &PolledProcess| {
                process.threads[&new.tid].last.unwrap_or_default().cpu_time
            };
            let mut places = host.activity(&mut process).places;
            while ran(&process) == Nanos::ZERO || places.values().all(|ran| *ran == Nanos::ZERO) {
                places = host.activity(&mut process).places;
            }
            new.end();
        }
    }

    /// Where threads cannot be listed, those that are known stay, and it is unknown how many are runnable; a process without a
    /// folder has none. The folder is a file here: that says as little of threads as a want of descriptors does.
    #[test]
    fn a_process_that_cannot_be_listed_has_not_ended() {
        let (proc, pid) = (Path::new("/proc"), Pid(std::process::id().cast_signed()));
        let fails = tempfile::tempdir().unwrap();
        std::fs::create_dir(fails.path().join(pid.to_string())).unwrap();
        std::fs::write(fails.path().join(format!("{pid}/task")), "").unwrap();
        let mut host = Host::new();
        let mut process = PolledProcess::new(pid, &mut host.poll(proc), true).unwrap();
        let mut read = |proc| {
            process.read_all(&mut host.poll(proc));
            (!process.threads.is_empty(), process.is_known)
        };
        assert_eq!(read(proc), (true, true));
        assert_eq!(read(fails.path()), (true, false));
        assert_eq!(read(proc), (true, true));
        assert_eq!(read(Path::new("/proc/nowhere")), (false, true));
    }
}
