//! `storm SEED`: an endless stream of new threads, forks and execs; a few dozen tasks exist.

#![allow(unsafe_code)] // fork(2), waitpid(2) and _exit(2), which the standard library does not have

use super::lives;
use crate::random::Random;
use anyhow::Context as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most short threads, and most children, of a process at a time.
const MOST: usize = 4;
/// Generations of processes.
const GENERATIONS: u32 = 3;

/// Creates tasks until the program is killed.
///
/// # Errors
/// If the seed is missing, or a task cannot be created.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let seed = arguments.first().and_then(|word| word.parse().ok());
    let mut random = Random::new(seed.context("expected a seed")?);
    for _ in 0..3 {
        std::thread::Builder::new().spawn(|| -> () { lives() })?;
    }
    println!("ready");
    storm(&mut random, u64::MAX, 1)
}

fn storm(random: &mut Random, rounds: u64, generation: u32) -> anyhow::Result<()> {
    let threads = Arc::new(AtomicUsize::new(0));
    let mut processes = 0;
    for _ in 0..rounds {
        while reap(false) {
            processes -= 1;
        }
        match random.below(8) {
            0..5 if threads.load(Ordering::Relaxed) < MOST => short_thread(random, &threads)?,
            5 | 6 if processes < MOST && generation < GENERATIONS => {
                fork(random, generation + 1)?;
                processes += 1;
            }
            7 if processes < MOST => {
                let mut sleep = Command::new("sleep");
                sleep.arg("0.1").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
                processes += 1;
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
    }
    // A process outlives its children, so each task is found below its parent.
    while reap(true) {}
    Ok(())
}

fn short_thread(random: &mut Random, living: &Arc<AtomicUsize>) -> anyhow::Result<()> {
    let time = Duration::from_micros(random.below(50_000));
    living.fetch_add(1, Ordering::Relaxed);
    let living = living.clone();
    std::thread::Builder::new().spawn(move || {
        std::thread::sleep(time);
        living.fetch_sub(1, Ordering::Relaxed);
    })?;
    Ok(())
}

/// Forks a process that creates tasks for some rounds.
fn fork(random: &mut Random, generation: u32) -> anyhow::Result<()> {
    let rounds = random.below(10);
    let seed = random.next();
    // SAFETY: no other thread holds a lock of the standard library for long, and a child that waits
    // for a lock for ever is just another process for the case.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            let done = storm(&mut Random::new(seed), rounds, generation);
            // SAFETY: takes no pointer and does not return.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        _ => Ok(()),
    }
}

/// Reaps an ended child; waits for the end of a child if `block`. False if no child was reaped.
fn reap(block: bool) -> bool {
    let flags = if block { 0 } else { libc::WNOHANG };
    // SAFETY: with a null pointer the kernel writes no status.
    unsafe { libc::waitpid(-1, std::ptr::null_mut(), flags) > 0 }
}
