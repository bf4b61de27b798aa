//! Traffic generator: a pinned thread that requests and counts cache lines while active.

use super::matrix::Matrix;
use super::pace::{SearchStep, TriedDelay, next};
use crate::thread::{ThreadError, cpu_ns, pin};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// Work of a generator since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneratorTally {
    /// Lines requested.
    pub lines: u64,
    /// CPU time of the requests, in nanoseconds.
    pub cpu_ns: u64,
}

impl GeneratorTally {
    /// Work from `earlier` to this tally.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { lines: self.lines - earlier.lines, cpu_ns: self.cpu_ns - earlier.cpu_ns }
    }

    /// Lines per microsecond of CPU time, t/µs; `None` without any work.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        let counted = self.lines > 0 && self.cpu_ns > 0;
        counted.then(|| self.lines as f64 * 1000.0 / self.cpu_ns as f64)
    }
}

/// Command to the thread of a generator.
#[derive(Clone, Copy, PartialEq)]
enum GeneratorCommand {
    Rest,
    /// Request lines, followed by this number of `nop`s each.
    Run(u64),
    End,
}

struct GeneratorState {
    order: GeneratorCommand,
    resting: bool,
    tally: GeneratorTally,
}

struct SharedState {
    state: Mutex<GeneratorState>,
    changed: Condvar,
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, GeneratorState> {
        // No thread panics while it holds the lock, and the state is consistent after every
        // statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: GeneratorCommand) {
        self.lock().order = order;
        self.changed.notify_all();
    }
}

/// A thread that requests lines. Idle at first; ends when dropped.
pub struct Generator {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    cpu: u32,
}

/// Lines between two readings of the order. Many enough that a reading costs less than a hundredth
/// of the time (0.4 µs compared to 16,384 lines of at least 0.4 ns; measured on a Sapphire Rapids
/// guest, 2026-11-21), and few enough for a reading every 10 ms at 0.1 t/µs.
const fn block(nops: u64) -> u64 {
    if nops < 256 { 16_384 } else { 1_024 }
}

/// CPU time of one try of the search for a pace, in nanoseconds. Chosen: a hundred times a useful
/// block, and short enough for a dozen tries per second.
const TRY_NS: u64 = 20_000_000;
/// Tries of each number of `nop`s. The fastest counts, since interruptions only slow a try. Chosen.
const TRIES: u32 = 3;
/// Interval between polls of a try.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Most polls of a try, as other threads may have the PU. Chosen: two seconds.
const MOST_POLLS: u32 = 1_000;

impl Generator {
    /// Starts a thread on PU `cpu`, by the kernel's number, with a matrix of `rows` rows in near
    /// memory, and waits until ready.
    ///
    /// # Errors
    /// [`ThreadError`] if the PU cannot be used, or memory or threads are exhausted. No thread
    /// remains then.
    pub fn start(cpu: u32, rows: u32) -> Result<Self, ThreadError> {
        let state = GeneratorState {
            order: GeneratorCommand::Rest,
            resting: true,
            tally: GeneratorTally::default(),
        };
        let shared = Arc::new(SharedState { state: Mutex::new(state), changed: Condvar::new() });
        let (ready, prepared) = std::sync::mpsc::channel();
        let own = Arc::clone(&shared);
        let thread = Builder::new().name(format!("traffic {cpu}")).spawn(move || {
            match prepare(cpu, rows) {
                // The receiver waits below, so the sends succeed.
                Err(why) => drop(ready.send(Err(why))),
                Ok(matrix) => {
                    let _ = ready.send(Ok(()));
                    follow(matrix, &own);
                }
            }
        });
        let thread = thread.map_err(ThreadError::spawn)?;
        let generator = Self { shared, thread: Some(thread), cpu };
        match prepared.recv() {
            Ok(done) => done.map(|()| generator),
            // The thread has ended without a message.
            Err(_) => Err(ThreadError::spawn(io::Error::from(io::ErrorKind::Other))),
        }
    }

    /// Kernel number of the generator's PU.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Starts requests, each followed by `nops` `nop`s, until [`Generator::rest`].
    pub fn resume(&self, nops: u64) {
        self.shared.order(GeneratorCommand::Run(nops));
    }

    /// Stops the requests, and waits until the thread is idle.
    pub fn rest(&self) {
        self.shared.order(GeneratorCommand::Rest);
        let mut state = self.shared.lock();
        while !state.resting {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Work since the start, up to some thousand lines ago.
    #[must_use]
    pub fn tally(&self) -> GeneratorTally {
        self.shared.lock().tally
    }

    /// Searches the number of `nop`s for a rate of `rate` t/µs without other load; see
    /// [`super::pace`].
    #[must_use]
    pub fn calibrate(&self, rate: f64) -> Calibrated {
        let mut tried = Vec::new();
        loop {
            match next(rate, &tried) {
                SearchStep::Try(nops) => tried.push(self.best_of_tries(nops)),
                SearchStep::Take(found) => return Calibrated { found, too_fast: false },
                SearchStep::TooFast(found) => return Calibrated { found, too_fast: true },
            }
        }
    }

    /// Fastest of several tries.
    fn best_of_tries(&self, nops: u64) -> TriedDelay {
        let rates = (0..TRIES).filter_map(|_| self.try_once(nops).rate());
        // A rate of 0, if the thread never got the PU, is an infinite time per line.
        TriedDelay { nops, line_ns: 1000.0 / rates.fold(0.0, f64::max) }
    }

    fn try_once(&self, nops: u64) -> GeneratorTally {
        self.resume(nops);
        let before = self.tally();
        let mut seen = GeneratorTally::default();
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

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    /// Number of `nop`s and its speed.
    pub found: TriedDelay,
    /// True if the rate is above the generator's maximum.
    pub too_fast: bool,
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.shared.order(GeneratorCommand::End);
        if let Some(thread) = self.thread.take() {
            // The thread has no reason to panic.
            let _ = thread.join();
        }
    }
}

fn prepare(cpu: u32, rows: u32) -> Result<Matrix, ThreadError> {
    pin(cpu)?;
    let matrix = Matrix::new(rows);
    matrix.map_err(|why| ThreadError(format!("cannot have {rows} rows of 576 bytes: mmap: {why}")))
}

/// The body of the thread.
fn follow(mut matrix: Matrix, shared: &SharedState) {
    while let Some(nops) = next_order(shared) {
        let lines = block(nops);
        let before = cpu_ns();
        matrix.walk(lines, nops);
        let took = cpu_ns() - before;
        let mut state = shared.lock();
        state.tally.lines += lines;
        state.tally.cpu_ns += took;
    }
}

/// Waits for an order to request lines and returns its number of `nop`s; `None` at the end.
fn next_order(shared: &SharedState) -> Option<u64> {
    let mut state = shared.lock();
    loop {
        match state.order {
            GeneratorCommand::Run(nops) => {
                state.resting = false;
                return Some(nops);
            }
            GeneratorCommand::End => return None,
            GeneratorCommand::Rest => {
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
        assert_eq!((generator.cpu(), generator.tally()), (cpu, GeneratorTally::default()));
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
        let earlier = GeneratorTally { lines: 1_000, cpu_ns: 5_000 };
        let later = GeneratorTally { lines: 4_000, cpu_ns: 65_000 };
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
