//! The thread that takes a share of a PU's time.

use crate::error::Error;
use crate::sys;
use smt_bench::thread::{self, PinError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Its real-time priority: above that of the loops that measure.
const PRIORITY: u8 = 2;

/// How long the thread goes on at most where it should not be, in ns: some hundredths of a second in which another PU
/// is slow. Chosen; a look takes some µs, of the share that is taken anyway.
const LOOK_NS: u64 = 50_000_000;

/// A real-time thread on one PU. It ends when this is dropped, and with the process at the latest; before that if it is
/// no longer on its PU, since it would slow another one.
pub struct Hog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), PinError>>>,
}

struct Shared {
    cpu: u32,
    period_ns: u64,
    taken_ns: AtomicU64,
    over: AtomicBool,
}

impl Hog {
    /// A thread on PU `cpu` that takes nothing yet.
    ///
    /// # Errors
    /// - [`Error::NotPermitted`] if it may not be a real-time thread.
    /// - [`Error::Pin`] if it cannot be on that PU.
    /// - [`Error::Thread`] if there can be no more threads.
    pub fn start(cpu: u32, period: Duration) -> Result<Self, Error> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let (taken_ns, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { cpu, period_ns, taken_ns, over });
        let (ready, began) = mpsc::channel();
        let its = Arc::clone(&shared);
        let live = move || {
            let prepared = prepare(cpu);
            let goes_on = prepared.is_ok();
            // Who asked waits for this, so there is always a receiver.
            let _ = ready.send(prepared);
            if goes_on { its.take_turns() } else { Ok(()) }
        };
        let named = Builder::new().name(format!("slows PU {cpu}"));
        let thread = named.spawn(live).map_err(Error::Thread)?;
        let hog = Self { shared, thread: Some(thread) };
        // A thread that ends without a word has panicked, and has said so itself.
        began.recv().unwrap_or(Ok(()))?;
        Ok(hog)
    }

    /// From its next period on it takes this share of the PU's time, 0 to 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // 0 to a period
    pub fn take(&self, share: f64) {
        let taken = self.shared.period_ns as f64 * share.clamp(0.0, 1.0);
        self.shared.taken_ns.store(taken as u64, Ordering::Relaxed);
    }

    /// Makes sure that it still slows its PU; once told, a failure is not told again.
    ///
    /// # Errors
    /// [`Error::Lost`] if it has ended, since it was no longer on its PU.
    pub fn still_there(&mut self) -> Result<(), Error> {
        let lost = |reason| Error::Lost { cpu: self.shared.cpu, reason };
        match self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            Some(Ok(ended)) => ended.map_err(lost),
            // A panic was told when it happened.
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// The period.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.shared.period_ns)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Who wants its result has asked before; a panic was told when it happened.
            let _ = thread.join();
        }
    }
}

fn prepare(cpu: u32) -> Result<(), Error> {
    thread::pin(cpu)?;
    sys::be_real_time(PRIORITY).map_err(Error::NotPermitted)
}

impl Shared {
    /// Takes the beginning of every period and sleeps through the rest, until it is over.
    ///
    /// # Errors
    /// [`PinError`] if it is no longer on its PU.
    fn take_turns(&self) -> Result<(), PinError> {
        let mut begin = thread::wall_ns();
        let mut looked = begin;
        while !self.over.load(Ordering::Relaxed) {
            let until = begin + self.taken_ns.load(Ordering::Relaxed);
            if begin >= looked + LOOK_NS {
                looked = begin;
                thread::is_on(self.cpu)?;
            }
            while thread::wall_ns() < until {
                std::hint::spin_loop();
            }
            // After a standstill of the whole machine nothing is made up for.
            begin = thread::wall_ns().max(begin + self.period_ns);
            sys::sleep_until(begin);
        }
        Ok(())
    }
}
