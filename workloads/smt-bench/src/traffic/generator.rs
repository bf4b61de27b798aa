//! A thread on a PU of its own that requests lines while it is active, and counts them.

use super::matrix::Matrix;
use super::pace::{Next, Tried, next};
use crate::thread::{ThreadError, cpu_ns, pin};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// What a generator has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that it requested.
    pub lines: u64,
    /// CPU time in which it did, in nanoseconds.
    pub cpu_ns: u64,
}

impl Tally {
    /// What was done from `earlier` to this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { lines: self.lines - earlier.lines, cpu_ns: self.cpu_ns - earlier.cpu_ns }
    }

    /// Lines in a microsecond of CPU time, t/µs; `None` if nothing was done.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate needs few digits
    pub fn rate(self) -> Option<f64> {
        let counted = self.lines > 0 && self.cpu_ns > 0;
        counted.then(|| self.lines as f64 * 1000.0 / self.cpu_ns as f64)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Rest,
    /// Request lines, with so many `nop`s after each.
    Run(u64),
    End,
}

struct State {
    order: Order,
    resting: bool,
    tally: Tally,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No thread panics with the lock held, and what it guards is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        self.lock().order = order;
        self.changed.notify_all();
    }
}

/// A thread that requests lines. It rests at first; dropped, it ends.
pub struct Generator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    cpu: u32,
}

/// Lines between two readings of the order: many enough that reading costs less than a hundredth of
/// the time (0.4 µs beside 16,384 lines of at least 0.4 ns; measured on a Sapphire Rapids guest,
/// 2026-11-21), and few enough to read it once in 10 ms at 0.1 t/µs.
const fn block(nops: u64) -> u64 {
    if nops < 256 { 16_384 } else { 1_024 }
}

/// CPU time of one try while the pace is searched. Chosen: a hundred times what a block takes that is
/// of use, and short enough that a dozen tries take a second.
const TRY_NS: u64 = 20_000_000;
/// Tries of one number, of which the fastest counts, since interruptions only make one slower. Chosen.
const TRIES: u32 = 3;
/// How often a try is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// After so many polls a try ends as it is: others may have the PU. Chosen: two seconds.
const MOST_POLLS: u32 = 1_000;

impl Generator {
    /// Starts a thread on PU `cpu`, by the kernel's number, with a matrix of `rows` rows near to it, and
    /// waits until it is ready.
    ///
    /// # Errors
    /// [`ThreadError`]: the PU cannot be used, or memory or threads have run out. No thread is left then.
    pub fn start(cpu: u32, rows: u32) -> Result<Self, ThreadError> {
        let state = State { order: Order::Rest, resting: true, tally: Tally::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (ready, prepared) = std::sync::mpsc::channel();
        let own = Arc::clone(&shared);
        let work = move || match prepare(cpu, rows) {
            // The receiver waits below.
            Err(why) => drop(ready.send(Err(why))),
            Ok(matrix) => {
                let _ = ready.send(Ok(()));
                follow(matrix, &own);
            }
        };
        let thread = Builder::new()
            .name(format!("traffic {cpu}"))
            .spawn(work)
            .map_err(ThreadError::Spawn)?;
        let generator = Self { shared, thread: Some(thread), cpu };
        match prepared.recv() {
            Ok(done) => done.map(|()| generator),
            Err(_) => Err(ThreadError::Spawn(io::ErrorKind::Other.into())),
        }
    }

    /// Its PU, by the kernel's number.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Lets it request lines, with `nops` `nop`s after each, until [`Generator::rest`].
    pub fn resume(&self, nops: u64) {
        self.shared.order(Order::Run(nops));
    }

    /// Lets it rest, and waits until it does.
    pub fn rest(&self) {
        self.shared.order(Order::Rest);
        let mut state = self.shared.lock();
        while !state.resting {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What it has done since it was made, as of some thousand lines ago.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.lock().tally
    }

    /// Searches the number of `nop`s at which it requests `rate` t/µs when nothing runs beside it; see
    /// [`super::pace`].
    #[must_use]
    pub fn calibrate(&self, rate: f64) -> Calibrated {
        let mut tried = Vec::new();
        loop {
            match next(rate, &tried) {
                Next::Try(nops) => tried.push(self.best_of_tries(nops)),
                Next::Take(found) => return Calibrated { found, too_fast: false },
                Next::TooFast(found) => return Calibrated { found, too_fast: true },
            }
        }
    }

    fn best_of_tries(&self, nops: u64) -> Tried {
        let rates = (0..TRIES).filter_map(|_| self.try_once(nops).rate());
        // Where the PU was never had, 0 lines were requested: infinitely long ones.
        Tried { nops, line_ns: 1000.0 / rates.fold(0.0, f64::max) }
    }

    fn try_once(&self, nops: u64) -> Tally {
        self.resume(nops);
        let before = self.tally();
        let mut seen = Tally::default();
        for _ in 0..MOST_POLLS {
            sleep(POLL_INTERVAL);
            seen = self.tally().since(before);
            if seen.cpu_ns >= TRY_NS {
                break;
            }
        }
        self.rest();
        seen
    }
}

/// What was found for a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    /// The number of `nop`s, and how fast that is.
    pub found: Tried,
    /// The rate is more than the generator can request.
    pub too_fast: bool,
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.shared.order(Order::End);
        if let Some(thread) = self.thread.take() {
            // A worker has nothing to panic about.
            let _ = thread.join();
        }
    }
}

fn prepare(cpu: u32, rows: u32) -> Result<Matrix, ThreadError> {
    pin(cpu)?;
    Matrix::new(rows).map_err(|source| ThreadError::Memory { rows, source })
}

/// The body of the thread.
fn follow(mut matrix: Matrix, shared: &Shared) {
    while let Some(nops) = next_order(shared) {
        let (lines, before) = (block(nops), cpu_ns());
        matrix.walk(lines, nops);
        let took = cpu_ns() - before;
        let mut state = shared.lock();
        state.tally.lines += lines;
        state.tally.cpu_ns += took;
    }
}

/// How many `nop`s, as soon as lines are ordered; `None` at the end.
fn next_order(shared: &Shared) -> Option<u64> {
    let mut state = shared.lock();
    loop {
        match state.order {
            Order::Run(nops) => {
                state.resting = false;
                return Some(nops);
            }
            Order::End => return None,
            Order::Rest => {
                state.resting = true;
                shared.changed.notify_all();
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::usable;
    use colocate_testing::wait_until;

    #[test]
    fn it_counts_while_it_runs_and_then_rests() {
        let cpu = usable().unwrap()[0];
        let generator = Generator::start(cpu, 64).unwrap();
        assert_eq!((generator.cpu(), generator.tally()), (cpu, Tally::default()));
        for nops in [0, 1_000] {
            let before = generator.tally();
            generator.resume(nops);
            wait_until("four blocks of lines", || {
                generator.tally().lines >= before.lines + 4 * block(nops)
            });
            generator.rest();
            let after = generator.tally();
            assert!(after.since(before).lines.is_multiple_of(block(nops)));
            assert!(after.since(before).rate().unwrap() > 0.0);
            sleep(Duration::from_millis(5));
            assert_eq!(generator.tally(), after, "it rests");
        }
    }

    #[test]
    fn a_pu_that_is_not_there_is_named() {
        let message = Generator::start(8_000, 64).err().unwrap().to_string();
        assert!(message.starts_with("cannot run on PU 8000: sched_setaffinity: "), "{message}");
    }

    /// 3,000 lines in 60 µs are 50 t/µs.
    #[test]
    fn rates_by_hand() {
        let earlier = Tally { lines: 1_000, cpu_ns: 5_000 };
        let later = Tally { lines: 4_000, cpu_ns: 65_000 };
        assert_eq!(later.since(earlier).rate(), Some(50.0));
        assert_eq!(later.since(later).rate(), None);
    }

    /// Whatever the machine does meanwhile, it ends, and what it found was tried.
    #[test]
    fn calibration_ends() {
        let generator = Generator::start(usable().unwrap()[0], 64).unwrap();
        let found = generator.calibrate(20.0);
        assert!(found.found.line_ns > 0.0, "{found:?}");
        let all = generator.calibrate(1e9);
        assert!(all.too_fast && all.found.nops == 0, "{all:?}");
    }
}
