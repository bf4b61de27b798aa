//! `phases NAME THREADS [WORKING]`: a program whose phases are said from outside. Of its threads, called `NAME-0` and
//! so on, those compute that the last line of standard input names, e.g. `3` or `0-2,5`; the others sleep, and so does
//! the first thread of the process. WORKING is such a line before the first. Each line is answered by itself when it holds.
//! At the end of standard input everything goes on as it is.

use crate::evidence::list;
use anyhow::Context as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A bit for each thread that is to compute; changed under the lock of [`CHANGES`].
static WORKING: AtomicU64 = AtomicU64::new(0);
/// Sleeping threads wait here for another line.
static CHANGES: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Lets threads compute and sleep as the lines say.
///
/// # Errors
/// If an argument or a line is none, or a thread cannot be had.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let name = arguments.first().context("expected a name")?;
    let threads: u32 = arguments.get(1).context("expected a number of threads")?.parse()?;
    if let Some(working) = arguments.get(2) {
        work(working)?;
    }
    for place in 0..threads {
        let body = move || live(1 << place);
        std::thread::Builder::new().name(format!("{name}-{place}")).spawn(body)?;
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

/// Lets those compute that the list names, and no others.
fn work(line: &str) -> anyhow::Result<()> {
    let bits = list(line)?.into_iter().fold(0, |bits, place| bits | 1_u64 << place);
    let (lock, changed) = &CHANGES;
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    WORKING.store(bits, Ordering::Relaxed);
    drop(held);
    changed.notify_all();
    Ok(())
}

/// Computes while `bit` is among those that are to, and sleeps otherwise.
fn live(bit: u64) {
    let (lock, changed) = &CHANGES;
    let sleeps = || WORKING.load(Ordering::Relaxed) & bit == 0;
    let mut sum = 1_u64;
    loop {
        let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while sleeps() {
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        drop(held);
        while !sleeps() {
            for term in 0..10_000 {
                sum = black_box(sum.wrapping_add(term) ^ term);
            }
        }
    }
}
