//! Which threads of some processes run, wait for a CPU or sleep, cheaply and often.
//!
//! `/proc/PID/task/TID/schedstat` holds three sums: nanoseconds on a CPU, nanoseconds runnable but
//! waiting for one, and the number of times put on one. Over an interval, the growth of the first
//! two, divided by its length and summed over the threads, is the mean number of runnable threads.
//! The files stay open and are read again from their beginning, which costs a third to a fifth of
//! opening them anew (`cargo run --release -p colocate-observe --example runstate_cost`).
//!
//! Two things lag behind. The kernel adds to the first sum at its ticks and when a thread leaves
//! the CPU, so a running thread may be up to one tick (1–10 ms) short. It adds to the second when
//! the wait is over, so a thread that waited through the whole interval shows nothing yet; the wait
//! comes in one piece later. Five spinning threads on two CPUs came out as 5.4 over 0.1 s and as 5.00
//! over 0.5 s and 2 s (each once, in a busy virtual machine), so ask for means over half a second.

use crate::limits::Descriptors;
use crate::proc::Proc;
use crate::sys::now;
use crate::task::{Pid, Tid};
use colocate_files::kernel;
use colocate_machine::Nanos;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The sums of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    run: u64,
    wait: u64,
    slices: u64,
}

/// What one thread did since the last sample, or since it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Time on a CPU.
    pub run: Nanos,
    /// Time runnable, but waiting for a CPU.
    pub wait: Nanos,
    /// How often it was put on a CPU.
    pub slices: u64,
}

impl Change {
    /// Whether the thread wanted a CPU at any time in the interval, as far as the kernel has
    /// written it down.
    #[must_use]
    pub fn active(&self) -> bool {
        self.run.0 > 0 || self.wait.0 > 0 || self.slices > 0
    }
}

/// What all watched threads did since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// How long ago the last sample was.
    pub interval: Nanos,
    /// The threads that live, in the order they were found.
    pub threads: &'a [Change],
    /// How many threads have ended since the last sample; what they did last is not known.
    pub vanished: usize,
}

impl Sample<'_> {
    /// How many threads wanted a CPU at some time.
    #[must_use]
    pub fn active(&self) -> usize {
        self.threads.iter().filter(|thread| thread.active()).count()
    }

    /// Mean number of threads on CPUs; `None` for an interval of no length.
    #[must_use]
    pub fn running(&self) -> Option<f64> {
        self.mean(|thread| thread.run)
    }

    /// Mean number of threads that waited for a CPU; `None` for an interval of no length.
    #[must_use]
    pub fn waiting(&self) -> Option<f64> {
        self.mean(|thread| thread.wait)
    }

    #[allow(clippy::cast_precision_loss)] // a mean needs 15 digits at most
    fn mean(&self, part: fn(&Change) -> Nanos) -> Option<f64> {
        let sum: u64 = self.threads.iter().map(|thread| part(thread).0).sum();
        (self.interval.0 > 0).then(|| sum as f64 / self.interval.0 as f64)
    }
}

#[derive(Debug)]
struct Watched {
    pid: Pid,
    tid: Tid,
    /// Kept open, unless too many are.
    file: Option<File>,
    last: Sums,
}

/// Watches the run state of threads.
#[derive(Debug)]
pub struct RunState {
    root: PathBuf,
    roots: Vec<Pid>,
    threads: Vec<Watched>,
    changes: Vec<Change>,
    vanished: usize,
    at: Nanos,
    /// How many files may be kept open.
    most_open: usize,
    open: usize,
}

impl RunState {
    /// Watches process `pid` and all processes below it, as they are now; see
    /// [`RunState::refresh`].
    ///
    /// # Errors
    /// If the process is gone, or `/proc` has no `schedstat` (a kernel without
    /// `CONFIG_SCHED_INFO`), with the path.
    pub fn watch(pid: Pid) -> io::Result<Self> {
        // Half of what we may have, so that counters and children's files have room as well.
        let limits = Descriptors::now().map_err(|error| error.source)?;
        let most_open = usize::try_from(limits.hard / 2).unwrap_or(usize::MAX);
        Self::watch_at(Path::new("/proc"), pid, most_open)
    }

    /// As [`RunState::watch`], in the tree at `root`, keeping at most `most_open` files open.
    ///
    /// # Errors
    /// As [`RunState::watch`].
    pub fn watch_at(root: &Path, pid: Pid, most_open: usize) -> io::Result<Self> {
        let mut state = Self {
            root: root.to_owned(),
            roots: vec![pid],
            threads: Vec::new(),
            changes: Vec::new(),
            vanished: 0,
            at: now(),
            most_open,
            open: 0,
        };
        let first = state.path(pid, pid.first_thread());
        kernel::open(&first).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", first.display()))
        })?;
        state.refresh();
        Ok(state)
    }

    /// How many threads are watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether no thread is watched, because all have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Looks for threads and processes that are new, which costs as much as several samples:
    /// every thread is asked for the processes it has created.
    ///
    /// Not needed by a caller that gets creation events and calls [`RunState::add`].
    pub fn refresh(&mut self) {
        let proc = Proc::at(&self.root);
        let mut to_visit = self.roots.clone();
        let mut known: std::collections::HashSet<Tid> =
            self.threads.iter().map(|thread| thread.tid).collect();
        while let Some(pid) = to_visit.pop() {
            to_visit.extend(proc.children(pid));
            for tid in proc.tasks(pid).unwrap_or_default() {
                if known.insert(tid) {
                    self.add_new(pid, tid);
                }
            }
        }
    }

    /// Watches one thread more, from now on. One that is gone or is watched already is passed
    /// over.
    pub fn add(&mut self, pid: Pid, tid: Tid) {
        if self.threads.iter().all(|thread| thread.tid != tid) {
            self.add_new(pid, tid);
        }
    }

    fn add_new(&mut self, pid: Pid, tid: Tid) {
        let path = self.path(pid, tid);
        let Ok(file) = open_schedstat(&path) else { return };
        let Ok(last) = read(&file) else { return };
        let keep = self.open < self.most_open;
        self.open += usize::from(keep);
        self.threads.push(Watched { pid, tid, file: keep.then_some(file), last });
    }

    /// What the watched threads did since the last sample.
    ///
    /// Threads that have ended are dropped from the list.
    pub fn sample(&mut self) -> Sample<'_> {
        let at = now();
        let interval = at.saturating_sub(self.at);
        self.at = at;
        self.changes.clear();
        let before = self.threads.len();
        let Self { root, threads, changes, open, .. } = self;
        threads.retain_mut(|thread| {
            let sums = match &thread.file {
                Some(file) => read(file),
                None => {
                    open_schedstat(&path(root, thread.pid, thread.tid)).and_then(|file| read(&file))
                }
            };
            match sums {
                Ok(sums) => {
                    changes.push(thread.advance(sums));
                    true
                }
                Err(_) => {
                    *open -= usize::from(thread.file.is_some());
                    false
                }
            }
        });
        self.vanished = before - self.threads.len();
        Sample { interval, threads: &self.changes, vanished: self.vanished }
    }

    fn path(&self, pid: Pid, tid: Tid) -> PathBuf {
        path(&self.root, pid, tid)
    }
}

/// The CPU time of one thread and its waits for a CPU, to be asked for again and again.
#[derive(Debug)]
pub struct RunTime(File);

impl RunTime {
    /// Of thread `tid` of process `pid`; `proc` is `/proc`.
    ///
    /// # Errors
    /// If it has ended, the kernel keeps no such sums, or no descriptor is left.
    pub fn open(proc: &Path, pid: Pid, tid: Tid) -> io::Result<Self> {
        let file = open_schedstat(&path(proc, pid, tid))?;
        read(&file)?;
        Ok(Self(file))
    }

    /// CPU time until now, up to one tick short while it runs; `None` if it has ended.
    #[must_use]
    pub fn read(&self) -> Option<Nanos> {
        self.read_both().map(|(run, _)| run)
    }

    /// The same, and the time for which it could run and waited for a CPU, without a wait that goes on.
    #[must_use]
    pub fn read_both(&self) -> Option<(Nanos, Nanos)> {
        read(&self.0).ok().map(|sums| (Nanos(sums.run), Nanos(sums.wait)))
    }
}

impl Watched {
    fn advance(&mut self, sums: Sums) -> Change {
        let last = std::mem::replace(&mut self.last, sums);
        Change {
            pid: self.pid,
            tid: self.tid,
            run: Nanos(sums.run.saturating_sub(last.run)),
            wait: Nanos(sums.wait.saturating_sub(last.wait)),
            slices: sums.slices.saturating_sub(last.slices),
        }
    }
}

fn path(root: &Path, pid: Pid, tid: Tid) -> PathBuf {
    root.join(format!("{pid}/task/{tid}/schedstat"))
}

/// Opens `path`; where descriptors have run out, raises the limit once and tries again.
fn open_schedstat(path: &Path) -> io::Result<File> {
    match kernel::open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            Descriptors::raise().map_err(|error| error.source)?;
            kernel::open(path)
        }
        done => done,
    }
}

/// Three 64-bit numbers of at most 20 digits, two spaces and a newline.
const LONGEST: usize = 64;

fn read(file: &File) -> io::Result<Sums> {
    let mut text = [0; LONGEST];
    let length = file.read_at(&mut text, 0)?;
    parse(&text[..length]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Three numbers in decimal, separated by one space each; what follows is ignored.
fn parse(text: &[u8]) -> Option<Sums> {
    let mut fields = text.split(|byte| matches!(byte, b' ' | b'\n'));
    let mut number = || {
        let field = fields.next().filter(|field| !field.is_empty())?;
        field.iter().try_fold(0_u64, |value, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
    };
    Some(Sums { run: number()?, wait: number()?, slices: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    #[test]
    fn three_numbers() {
        let sums = |run, wait, slices| Some(Sums { run, wait, slices });
        assert_eq!(parse(b"1 2 3\n"), sums(1, 2, 3));
        assert_eq!(parse(b"18446744073709551615 0 7\n"), sums(u64::MAX, 0, 7));
        assert_eq!(parse(b"1 2 3"), sums(1, 2, 3));
        for bad in [&b""[..], b"1 2", b"1 2 \n", b"-1 2 3", b"18446744073709551616 0 0", b"a b c"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    fn this_process() -> Pid {
        Pid(std::process::id().cast_signed())
    }

    /// A thread's number, as the kernel knows it.
    fn my_tid() -> Tid {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        Tid(link.file_name().unwrap().to_str().unwrap().parse().unwrap())
    }

    /// Threads that spin or sleep until they are stopped.
    struct Crew {
        stop: Arc<AtomicBool>,
        tids: Vec<Tid>,
        threads: Vec<JoinHandle<()>>,
    }

    impl Crew {
        fn start(count: usize, spin: bool) -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let (send, receive) = std::sync::mpsc::channel();
            let threads = (0..count)
                .map(|_| {
                    let (stop, send) = (stop.clone(), send.clone());
                    std::thread::spawn(move || {
                        send.send(my_tid()).unwrap();
                        while !stop.load(Ordering::Relaxed) {
                            if spin { std::hint::spin_loop() } else { std::thread::park() }
                        }
                    })
                })
                .collect();
            Self { stop, tids: receive.iter().take(count).collect(), threads }
        }

        fn end(self) {
            self.stop.store(true, Ordering::Relaxed);
            for thread in self.threads {
                thread.thread().unpark();
                thread.join().unwrap();
            }
        }
    }

    /// Samples of this process, added up per thread, until `enough`.
    fn added_up(
        state: &mut RunState,
        tids: &[Tid],
        enough: impl Fn(&[u64]) -> bool,
    ) -> (Vec<u64>, Nanos) {
        let (mut run, mut length) = (vec![0; tids.len()], Nanos(0));
        while !enough(&run) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let sample = state.sample();
            length += sample.interval;
            for thread in sample.threads {
                if let Some(place) = tids.iter().position(|tid| *tid == thread.tid) {
                    run[place] += thread.run.0;
                }
            }
        }
        (run, length)
    }

    #[test]
    fn spinners_run_and_sleepers_do_not() {
        let (busy, idle) = (Crew::start(3, true), Crew::start(5, false));
        let tids: Vec<Tid> = busy.tids.iter().chain(&idle.tids).copied().collect();
        let mut state = RunState::watch(this_process()).unwrap();
        let enough = |run: &[u64]| run[..3].iter().all(|ns| *ns > 5_000_000);
        // A sleeper still runs until it has come to its sleep, which takes its time on a busy
        // machine; once it sleeps, it shows nothing for as long as one likes.
        let sleeping = (0..100).any(|_| {
            let (run, length) = added_up(&mut state, &tids, enough);
            // No thread runs for longer than there was time, but for what is added late: a tick,
            // or a second on a CPU without ticks.
            let most = length.0 + 1_000_000_000;
            assert!(run.iter().all(|ns| *ns <= most), "{run:?} of {length}");
            run[3..].iter().all(|ns| *ns == 0)
        });
        assert!(sleeping);
        busy.end();
        idle.end();
    }

    /// A thread that spins uses CPU time, and one that has ended reports none.
    #[test]
    fn the_time_of_one_thread() {
        let crew = Crew::start(1, true);
        let time = RunTime::open(Path::new("/proc"), this_process(), crew.tids[0]).unwrap();
        let before = time.read().unwrap();
        while time.read().unwrap() <= before {
            std::thread::yield_now();
        }
        let tid = crew.tids[0];
        crew.end();
        while time.read().is_some() {
            std::thread::yield_now();
        }
        assert!(RunTime::open(Path::new("/proc"), this_process(), tid).is_err());
    }

    #[test]
    fn both_ways_of_reading_see_the_same_threads() {
        let crew = Crew::start(6, false);
        let pid = this_process();
        let mut kept = RunState::watch(pid).unwrap();
        let mut few = RunState::watch_at(Path::new("/proc"), pid, 2).unwrap();
        assert_eq!(few.threads.iter().filter(|t| t.file.is_some()).count(), 2);
        for state in [&mut kept, &mut few] {
            let sample = state.sample();
            let seen: Vec<Tid> = sample.threads.iter().map(|thread| thread.tid).collect();
            assert!(crew.tids.iter().all(|tid| seen.contains(tid)));
        }
        crew.end();
    }

    #[test]
    fn ended_threads_are_dropped_and_new_ones_are_found() {
        let (old, pid) = (Crew::start(4, false), this_process());
        let mut state = RunState::watch(pid).unwrap();
        let tids = old.tids.clone();
        let has = |state: &mut RunState, tid: &Tid| {
            state.sample().threads.iter().any(|thread| thread.tid == *tid)
        };
        assert!(tids.iter().all(|tid| has(&mut state, tid)));
        old.end();
        // A joined thread may stay in /proc for a moment.
        while tids.iter().any(|tid| has(&mut state, tid)) {
            std::thread::yield_now();
        }
        let new = Crew::start(2, false);
        assert!(!new.tids.iter().any(|tid| has(&mut state, tid)));
        state.add(pid, new.tids[0]);
        state.add(pid, new.tids[0]);
        assert_eq!(state.threads.iter().filter(|t| t.tid == new.tids[0]).count(), 1);
        state.refresh();
        assert!(new.tids.iter().all(|tid| has(&mut state, tid)));
        new.end();
    }

    #[test]
    fn a_child_process_belongs_to_the_tree() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let mut state = RunState::watch(this_process()).unwrap();
        assert!(state.sample().threads.iter().any(|thread| thread.pid == pid));
        let mut alone = RunState::watch(pid).unwrap();
        assert_eq!(alone.len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let sample = alone.sample();
        assert_eq!((sample.threads.len(), sample.vanished), (0, 1));
        assert!(alone.is_empty());
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_with_its_path() {
        let error = RunState::watch(Pid(i32::MAX)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/proc/2147483647/task/2147483647/schedstat"));
    }

    #[test]
    fn the_mean_is_time_over_time() {
        let change = |run, wait| Change {
            pid: Pid(1),
            tid: Tid(1),
            run: Nanos(run),
            wait: Nanos(wait),
            slices: 0,
        };
        let threads = [change(100, 0), change(50, 25), change(0, 0)];
        let sample = Sample { interval: Nanos(100), threads: &threads, vanished: 0 };
        assert_eq!(sample.active(), 2);
        assert_eq!(sample.running(), Some(1.5));
        assert_eq!(sample.waiting(), Some(0.25));
        let empty = Sample { interval: Nanos(0), threads: &threads, vanished: 0 };
        assert_eq!(empty.running(), None);
    }
}
