//! `phases NAME THREADS [WORKING]`: a program whose phases are set from outside.
//!
//! Threads are named `NAME-0` and so on. A line of standard input lists the threads that compute,
//! e.g. `3` or `0-2,5`; other threads and the main thread sleep. The program echoes a line when the
//! line is in force. WORKING is the list before the first line. The last list stays in force after
//! the end of standard input.

use crate::evidence::list;
use anyhow::Context as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Bit set of computing threads; changed under the lock of [`CHANGES`].
static WORKING: AtomicU64 = AtomicU64::new(0);
/// Wakes sleeping threads after a change of [`WORKING`].
static CHANGES: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Creates the threads and serves standard input.
///
/// # Errors
/// If an argument or a line is malformed, or a thread cannot be created.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let name = arguments.first().context("expected a name")?;
    let threads: u32 = arguments.get(1).context("expected a number of threads")?.parse()?;
    if let Some(working) = arguments.get(2) {
        work(working)?;
    }
    for place in 0..threads {
        let named = std::thread::Builder::new().name(format!("{name}-{place}"));
        named.spawn(move || live(1 << place))?;
    }
    for line in std::io::stdin().lines() {
        let line = line?;
        work(&line)?;
        println!("{line}");
    }
    loop {
        std::thread::park();
    }
}

/// Lets exactly the listed threads compute.
fn work(line: &str) -> anyhow::Result<()> {
    let bits = list(line)?.into_iter().fold(0, |bits, place| bits | 1_u64 << place);
    let (lock, changed) = &CHANGES;
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    // Under the lock, so that no thread misses the change between its check and its wait.
    WORKING.store(bits, Ordering::Relaxed);
    drop(held);
    changed.notify_all();
    Ok(())
}

fn is_working(bit: u64) -> bool {
    WORKING.load(Ordering::Relaxed) & bit != 0
}

/// Computes while `bit` is set in [`WORKING`], and sleeps otherwise.
fn live(bit: u64) {
    let (lock, changed) = &CHANGES;
    let mut sum = 1_u64;
    loop {
        let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_working(bit) {
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        drop(held);
        while is_working(bit) {
            for term in 0..10_000 {
                // black_box keeps the compiler from removing the loop.
                sum = black_box(sum.wrapping_add(term) ^ term);
            }
        }
    }
}
