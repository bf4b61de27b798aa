//! The thread that takes a share of a PU's time.

use crate::sys;
use anyhow::Context as _;
use smt_bench::thread::{self, ThreadError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Its real-time priority: above that of the loops that measure.
const PRIORITY: u8 = 2;

/// How often the thread checks its mask, in ns: so long may it make another PU slow. Chosen; a check takes some µs, of the
/// share that is taken anyway.
const CHECK_NS: u64 = 50_000_000;

/// A real-time thread on one PU. It ends when this is dropped, and with the process at the latest; before that if it is
/// no longer on its PU, since it would slow another one.
pub struct Hog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), ThreadError>>>,
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
    /// If it may not be a real-time thread, cannot be on that PU, or cannot be created.
    pub fn start(cpu: u32, period: Duration) -> anyhow::Result<Self> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let (taken_ns, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { cpu, period_ns, taken_ns, over });
        let (ready, began) = mpsc::channel();
        let its = Arc::clone(&shared);
        let live = move || {
            let prepared = prepare(cpu);
            let goes_on = prepared.is_ok();
            let _ = ready.send(prepared);
            if goes_on { its.alternate() } else { Ok(()) }
        };
        let named = Builder::new().name(format!("slows PU {cpu}"));
        let thread = named.spawn(live).context("cannot make a thread")?;
        let hog = Self { shared, thread: Some(thread) };
        // A thread that ends without a message has panicked, which was printed.
        began.recv().unwrap_or(Ok(()))?;
        Ok(hog)
    }

    /// From its next period on it takes this share of the PU's time, 0 to 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // 0 to a period
    pub fn take(&self, share: f64) {
        let taken = self.shared.period_ns as f64 * share.clamp(0.0, 1.0);
        self.shared.taken_ns.store(taken as u64, Ordering::Relaxed);
    }

    /// Makes sure that it still slows its PU; a failure is reported once.
    ///
    /// # Errors
    /// If it has ended, since it was no longer on its PU.
    pub fn still_there(&mut self) -> anyhow::Result<()> {
        let lost = || format!("PU {} was slow for a part of the time only", self.shared.cpu);
        match self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            Some(Ok(ended)) => ended.with_context(lost),
            // A panic has been printed.
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
            // `still_there` has returned its result; a panic has been printed.
            let _ = thread.join();
        }
    }
}

fn prepare(cpu: u32) -> anyhow::Result<()> {
    thread::pin(cpu)?;
    sys::be_real_time(PRIORITY)
}

impl Shared {
    /// Takes the beginning of every period and sleeps through the rest, until it is over.
    ///
    /// # Errors
    /// If it is no longer on its PU.
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
            // After a standstill of the whole machine nothing is made up for.
            begin = thread::wall_ns().max(begin + self.period_ns);
            sys::sleep_until(begin);
        }
        Ok(())
    }
}
