//! The thread that takes a share of a PU's time.

use crate::sys;
use anyhow::Context as _;
use smt_bench::thread::{self, ThreadError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Real-time priority of the thread: above that of the measuring loops.
const PRIORITY: u8 = 2;

/// Time between two checks of the thread's PU, in ns; the longest time for which another PU is
/// slowed. Chosen: a check takes some µs of the share.
const CHECK_NS: u64 = 50_000_000;

/// A real-time thread that takes a share of one PU's time.
///
/// The thread ends when this is dropped, and with the process at the latest. The thread ends early
/// if the kernel moves it from its PU, since it would slow another PU.
pub struct Hog {
    shared: Arc<HogState>,
    thread: Option<JoinHandle<Result<(), ThreadError>>>,
}

struct HogState {
    cpu: u32,
    period_ns: u64,
    taken_ns: AtomicU64,
    over: AtomicBool,
}

impl Hog {
    /// Starts a thread on PU `cpu` with a share of 0.
    ///
    /// # Errors
    /// If the thread cannot be created, cannot run on that PU, or may not be a real-time thread.
    pub fn start(cpu: u32, period: Duration) -> anyhow::Result<Self> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let taken_ns = AtomicU64::new(0);
        let shared = Arc::new(HogState { cpu, period_ns, taken_ns, over: AtomicBool::new(false) });
        let (ready, began) = mpsc::channel();
        let its = Arc::clone(&shared);
        let named = Builder::new().name(format!("slows PU {cpu}"));
        let thread = named
            .spawn(move || {
                let prepared = prepare(cpu);
                let goes_on = prepared.is_ok();
                let _ = ready.send(prepared);
                if goes_on { its.alternate() } else { Ok(()) }
            })
            .context("cannot make a thread")?;
        let hog = Self { shared, thread: Some(thread) };
        // A thread that ends without a message has panicked, and the panic was printed.
        began.recv().unwrap_or(Ok(()))?;
        Ok(hog)
    }

    /// Sets the share of the PU's time, 0 to 1, from the next period on.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to a period
    pub fn take(&self, share: f64) {
        let taken = self.shared.period_ns as f64 * share.clamp(0.0, 1.0);
        self.shared.taken_ns.store(taken as u64, Ordering::Relaxed);
    }

    /// Checks that the thread still runs; a failure is reported once.
    ///
    /// # Errors
    /// If the thread has ended because it was no longer on its PU.
    pub fn still_there(&mut self) -> anyhow::Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            Some(Ok(ended)) => ended.with_context(|| {
                format!("PU {} was slow for a part of the time only", self.shared.cpu)
            }),
            // The thread's panic has been printed.
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// Time between the beginnings of two taken slices.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.shared.period_ns)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // `still_there` has returned the result; a panic has been printed.
            let _ = thread.join();
        }
    }
}

fn prepare(cpu: u32) -> anyhow::Result<()> {
    thread::pin(cpu)?;
    sys::be_real_time(PRIORITY)
}

impl HogState {
    /// Spins at the beginning of every period and sleeps for the rest, until `over`.
    ///
    /// # Errors
    /// If the thread is no longer on its PU.
    fn alternate(&self) -> Result<(), ThreadError> {
        let mut begin = thread::wall_ns();
        let mut checked = begin;
        while !self.over.load(Ordering::Relaxed) {
            let until = begin + self.taken_ns.load(Ordering::Relaxed);
            if begin >= checked + CHECK_NS {
                checked = begin;
                thread::is_on(self.cpu)?;
            }
            while thread::wall_ns() < until {
                std::hint::spin_loop();
            }
            // Periods that a paused machine has missed are skipped, not made up for.
            begin = thread::wall_ns().max(begin + self.period_ns);
            sys::sleep_until(begin);
        }
        Ok(())
    }
}
