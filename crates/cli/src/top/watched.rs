//! One process that is watched: which of its threads were runnable since the last look.
//!
//! Threads that sleep are not asked, as long as the process as a whole has not run for longer than those that are
//! ([`colocate_observe::accounting`]): a look at a process that sleeps is one system call, however many threads it has.

use super::spinning::Spinning;
use colocate_act::stat::Stat;
use colocate_machine::{Nanos, PuNr};
use colocate_observe::accounting::ProcessClock;
use colocate_observe::proc::Proc;
use colocate_observe::sources::run_states::{Read, TaskTimes};
use colocate_observe::spin::spun::Spun;
use colocate_observe::sys::process_time;
use colocate_observe::{Pid, Tid};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// A process.
#[derive(Debug)]
pub struct Watched {
    pid: Pid,
    /// Its CPU time at the last look.
    clock: Nanos,
    whole: ProcessClock,
    threads: BTreeMap<Tid, Thread>,
    /// Whether all its threads were known when they were last read: then new ones have begun since.
    is_known: bool,
    /// Whether its threads must not be read.
    pub is_denied: bool,
}

/// A thread of it.
#[derive(Debug)]
struct Thread {
    times: TaskTimes,
    /// Whether it was runnable then.
    is_awake: bool,
    spun: Spun,
}

/// A look at processes.
pub struct Look<'a> {
    /// Where `/proc` is.
    pub proc: &'a Path,
    /// When it is.
    pub at: Nanos,
    /// Time since the look before.
    pub took: Nanos,
    /// Samples of running threads, if there are any.
    pub spinning: Option<&'a mut Spinning>,
}

/// What a process did between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Did {
    /// CPU time that it used.
    pub ran: Nanos,
    /// Mean number of its threads that had a PU or waited for one, without what they only waited for others in a loop; `None`
    /// if unknown.
    pub runnable: Option<f64>,
    /// Mean number of those that only waited for others in a loop; `None` if unknown: then they count as runnable.
    pub spinning: Option<f64>,
    /// CPU time of its threads by the PU where each was last seen.
    pub places: BTreeMap<PuNr, Nanos>,
}

impl Did {
    /// Of a thread that did nothing.
    pub fn nothing() -> Self {
        Self { runnable: Some(0.0), spinning: Some(0.0), ..Self::default() }
    }

    /// What two did together.
    pub fn add(&mut self, other: Self) {
        let sum = |one: Option<f64>, other| one.zip(other).map(|(one, other)| one + other);
        self.ran += other.ran;
        self.runnable = sum(self.runnable, other.runnable);
        self.spinning = sum(self.spinning, other.spinning);
        for (pu, ran) in other.places {
            *self.places.entry(pu).or_default() += ran;
        }
    }
}

impl Watched {
    /// A process as it is at `at`; `None` if it is gone. If its threads are to be read now, what they do is known from
    /// now on; else from the look after that at which it first has run.
    pub fn new(proc: &Path, pid: Pid, at: Nanos, reads: bool) -> Option<Self> {
        let clock = process_time(pid)?;
        let mut whole = ProcessClock::unread(clock, at);
        whole.all_read();
        let mut watched =
            Self { pid, clock, whole, threads: BTreeMap::new(), is_known: false, is_denied: false };
        if reads {
            let mut look = Look { proc, at, took: Nanos::ZERO, spinning: None };
            watched.read_all(&mut look, &mut Did::default());
        }
        Some(watched)
    }

    /// Its CPU time at the last look, of all its threads since it was created.
    pub const fn clock(&self) -> Nanos {
        self.clock
    }

    /// What it did since the look before; `None` if it is gone.
    pub fn look(&mut self, look: &mut Look<'_>) -> Option<Did> {
        let clock = process_time(self.pid)?;
        let was_known = self.is_known;
        let mut did = Did { ran: clock.saturating_sub(self.clock), ..Did::nothing() };
        self.clock = clock;
        self.whole.begin(clock, look.at);
        let Self { pid, whole, threads, .. } = self;
        for (tid, thread) in threads.iter_mut().filter(|(_, thread)| thread.is_awake) {
            whole.add(thread.look((*pid, *tid), look, &mut did));
        }
        if self.whole.has_new_cpu_time() {
            self.read_all(look, &mut did);
        }
        // A thread that has not run at all was not runnable either, unless it waited all the time for the first time.
        let are_known = was_known && self.is_known;
        let is_unknown = self.is_denied || (!are_known && did.ran > Nanos::ZERO);
        did.runnable = did.runnable.filter(|_| !is_unknown);
        // From the look on at which it is found running.
        let sees = look.spinning.as_mut().is_some_and(|it| it.sees(self.pid, did.ran, look.took));
        did.spinning = did.spinning.filter(|_| sees && !is_unknown);
        Some(did)
    }

    /// Reads those threads that were not awake, and new ones. Where they cannot be listed, those stay that are known.
    fn read_all(&mut self, look: &mut Look<'_>, did: &mut Did) {
        let tids = match Proc::at(look.proc).tasks(self.pid) {
            Err(why) if !is_gone(&why) => {
                self.is_known = false;
                return;
            }
            tids => tids.unwrap_or_default(),
        };
        let mut are_known = true;
        self.threads.retain(|tid, _| tids.binary_search(tid).is_ok());
        for tid in tids {
            let is_new = !self.threads.contains_key(&tid);
            if is_new {
                are_known &= self.meet(look.proc, tid);
            }
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            if is_new || !thread.is_awake {
                self.whole.add(thread.look((self.pid, tid), look, did));
            }
        }
        self.whole.all_read();
        self.is_known = are_known;
    }

    /// Opens what tells of a thread. What it did before counts if all others were known: then it is new. False if
    /// nothing can be opened for want of descriptors or memory, which says nothing of the thread.
    fn meet(&mut self, proc: &Path, tid: Tid) -> bool {
        let mut times = match TaskTimes::open(proc, self.pid, tid) {
            Ok(times) => times,
            Err(why) => {
                self.is_denied |= why.kind() == ErrorKind::PermissionDenied;
                return !matches!(
                    why.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                );
            }
        };
        if !self.is_known {
            times.read(Nanos::ZERO);
        }
        self.threads.insert(tid, Thread { times, is_awake: true, spun: Spun::default() });
        true
    }
}

/// Whether what was asked for has ended, as an error says.
fn is_gone(why: &std::io::Error) -> bool {
    why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH)
}

impl Thread {
    /// Takes in what it did since the look before; returns for how long it ran.
    fn look(&mut self, (pid, tid): (Pid, Tid), look: &mut Look<'_>, did: &mut Did) -> Nanos {
        // One that has ended is forgotten when all are read.
        let before = self.times.last();
        let Some(Read { times, .. }) = self.times.read(look.at) else {
            self.is_awake = false;
            return Nanos::ZERO;
        };
        let ran = times.cpu_time.saturating_sub(before.cpu_time);
        let queued = times.waited.saturating_sub(before.waited);
        self.is_awake = ran + queued > Nanos::ZERO;
        let looped = look.spinning.as_ref().map_or(Some(Nanos::ZERO), |spinning| {
            spinning.waited(tid, &mut self.spun, (ran, queued))
        });
        let works = (ran + queued).saturating_sub(looped.unwrap_or(Nanos::ZERO));
        did.add(Did {
            runnable: Some(share(works, look.took)),
            spinning: looped.map(|looped| share(looped, look.took)),
            ..Did::default()
        });
        if ran > Nanos::ZERO || look.took == Nanos::ZERO {
            let stat = Stat::read(look.proc, pid, tid);
            self.times.could_run(stat.is_some_and(|stat| stat.could_run()), look.at);
            self.is_awake |= stat.is_some_and(|stat| stat.could_run());
            if let Some(stat) = stat {
                *did.places.entry(stat.last_ran).or_default() += ran;
            }
        }
        ran
    }
}

/// The part of a time that a thread did something, at most all of it.
fn share(did: Nanos, took: Nanos) -> f64 {
    let share = did.as_secs_f64() / took.as_secs_f64();
    if share.is_finite() { share.min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_observe::sys::now;
    use colocate_testing::{LIMIT, Limit};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A thread that works until it is told to end, and its number.
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

    /// One thread ends and another begins: the one is forgotten, and of the other all is known that it has done, whether
    /// threads were read at the beginning or not.
    #[test]
    fn threads_end_and_begin() {
        let (proc, pid) = (Path::new("/proc"), Pid(std::process::id().cast_signed()));
        for reads in [true, false] {
            let _limit = Limit::start(LIMIT, "the end of one thread and the CPU time of another");
            let old = Worker::start();
            let mut at = now();
            let mut watched = Watched::new(proc, pid, at, reads).unwrap();
            let mut look = |watched: &mut Watched| {
                std::thread::yield_now();
                let took = now().saturating_sub(at);
                at += took;
                watched.look(&mut Look { proc, at, took, spinning: None }).unwrap()
            };
            while !watched.threads.contains_key(&old.tid) {
                look(&mut watched);
            }
            let gone = old.tid;
            old.end();
            // It may be listed for a moment yet, and then it is remembered until all are read again.
            while Proc::at(proc).tasks(pid).unwrap().contains(&gone) {
                std::thread::yield_now();
            }
            let new = Worker::start();
            while watched.threads.contains_key(&gone) || !watched.threads.contains_key(&new.tid) {
                look(&mut watched);
            }
            let ran = |watched: &Watched| watched.threads[&new.tid].times.last().cpu_time;
            let mut places = look(&mut watched).places;
            while ran(&watched) == Nanos::ZERO || places.values().all(|ran| *ran == Nanos::ZERO) {
                places = look(&mut watched).places;
            }
            assert!(watched.clock() >= ran(&watched), "{watched:?}");
            new.end();
        }
    }

    /// Where threads cannot be listed, those that are known stay, and it is unknown how many are runnable; a process without a
    /// folder has none. The folder is a file here: that says as little of threads as a want of descriptors does.
    #[test]
    fn who_cannot_be_listed_is_not_gone() {
        let (proc, pid) = (Path::new("/proc"), Pid(std::process::id().cast_signed()));
        let fails = tempfile::tempdir().unwrap();
        std::fs::create_dir(fails.path().join(pid.to_string())).unwrap();
        std::fs::write(fails.path().join(format!("{pid}/task")), "").unwrap();
        let at = now();
        let mut watched = Watched::new(proc, pid, at, true).unwrap();
        let read = |watched: &mut Watched, proc| {
            let mut look = Look { proc, at, took: Nanos(1), spinning: None };
            watched.read_all(&mut look, &mut Did::nothing());
            (!watched.threads.is_empty(), watched.is_known)
        };
        assert_eq!(read(&mut watched, proc), (true, true));
        assert_eq!(read(&mut watched, fails.path()), (true, false));
        assert_eq!(read(&mut watched, proc), (true, true));
        assert_eq!(read(&mut watched, Path::new("/proc/nowhere")), (false, true));
    }
}
