//! CPU time of one thread and its waits for a CPU, to be read again and again.
//!
//! `/proc/PID/task/TID/schedstat` holds three sums: nanoseconds on a CPU, nanoseconds runnable but waiting for one, and
//! the number of times put on one. The file stays open and is read again from its beginning, which costs a third to a
//! fifth of opening it anew (`cargo run --release -p colocate-observe --example runstate_cost`).
//!
//! Two things lag behind. The kernel adds to the first sum at its ticks and when a thread leaves the CPU, so a running
//! thread may be up to one tick (1–10 ms) short. It adds to the second when the wait is over: see
//! [`RunqueueWait`](crate::accounting::RunqueueWait).

use crate::limits::Descriptors;
use crate::{Pid, Tid};
use colocate_files::kernel;
use colocate_machine::Nanos;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Open schedstat file of one thread.
#[derive(Debug)]
pub struct RunTime(File);

impl RunTime {
    /// Opens the file of thread `tid` of process `pid`; `proc` is `/proc`. Raises the limit of
    /// descriptors once they run out.
    ///
    /// # Errors
    /// If the thread has ended, the kernel keeps no scheduling statistics, or no descriptor is
    /// left.
    pub fn open(proc: &Path, pid: Pid, tid: Tid) -> io::Result<Self> {
        let path = proc.join(format!("{pid}/task/{tid}/schedstat"));
        let file = match kernel::open(&path) {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                Descriptors::raise().map_err(|error| error.source)?;
                kernel::open(&path)?
            }
            done => done?,
        };
        // Opening succeeds also where reading fails.
        read(&file)?;
        Ok(Self(file))
    }

    /// CPU time so far, up to one tick short for a running thread; `None` after its end.
    #[must_use]
    pub fn read(&self) -> Option<Nanos> {
        self.read_both().map(|(run, _)| run)
    }

    /// CPU time, and time runnable but waiting for a CPU, without a wait in progress; `None` after
    /// the thread's end.
    #[must_use]
    pub fn read_both(&self) -> Option<(Nanos, Nanos)> {
        read(&self.0).ok()
    }
}

/// Three 64-bit numbers of at most 20 digits, two spaces and a newline.
const LONGEST: usize = 64;

fn read(file: &File) -> io::Result<(Nanos, Nanos)> {
    let mut text = [0; LONGEST];
    let length = file.read_at(&mut text, 0)?;
    parse(&text[..length]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// First two of three decimal numbers separated by single spaces; the rest is ignored.
fn parse(text: &[u8]) -> Option<(Nanos, Nanos)> {
    let mut fields = std::str::from_utf8(text).ok()?.split([' ', '\n']);
    let mut number = || fields.next()?.parse().ok().map(Nanos);
    let sums = (number()?, number()?);
    // Without a third number the text is cut off, and the second may be cut as well.
    number().map(|_slices| sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::wait_until;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    #[test]
    fn three_numbers() {
        let sums = |run, wait| Some((Nanos(run), Nanos(wait)));
        assert_eq!(parse(b"1 2 3\n"), sums(1, 2));
        assert_eq!(parse(b"18446744073709551615 0 7\n"), sums(u64::MAX, 0));
        assert_eq!(parse(b"1 2 3"), sums(1, 2));
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

    /// A thread that spins uses CPU time, and one that has ended reports none.
    #[test]
    fn the_time_of_one_thread() {
        let crew = Crew::start(1, true);
        let time = RunTime::open(Path::new("/proc"), this_process(), crew.tids[0]).unwrap();
        let before = time.read().unwrap();
        wait_until("CPU time of a spinning thread", || time.read().unwrap() > before);
        let tid = crew.tids[0];
        crew.end();
        wait_until("no CPU time of a thread that has ended", || time.read().is_none());
        assert!(RunTime::open(Path::new("/proc"), this_process(), tid).is_err());
    }

    /// A thread still runs until it has come to its sleep; then its time stays as it is.
    #[test]
    fn a_sleeping_thread_uses_no_time() {
        let crew = Crew::start(1, false);
        let time = RunTime::open(Path::new("/proc"), this_process(), crew.tids[0]).unwrap();
        let sleeps = (0..1_000).any(|_| {
            let before = time.read_both().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            time.read_both().unwrap() == before
        });
        crew.end();
        assert!(sleeps);
    }
}
