//! `loops FIRST NAME:MILLIONS...`: one thread per argument, which executes MILLIONS million
//! instructions.
//!
//! Arguments between slashes are a wave: `loops 0 a:1 b:2 / c:3` creates `a` and `b`, prints
//! `ready`, waits for a line of standard input, lets both threads run to their end, creates `c`,
//! and so on. Threads exist before they run, so counters can be opened first. `a!1` runs from its
//! creation on. The main thread executes `FIRST` million instructions before the first wave.

#![allow(unsafe_code)] // a loop whose instructions are known can only be written in assembly

use anyhow::Context as _;
use std::io::BufRead as _;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Instructions per round of the loop in [`execute`]: a subtraction and a branch.
const INSTRUCTIONS: u64 = 2;

/// Runs the waves.
///
/// # Errors
/// If an argument is malformed, or standard input ends early.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let (first, arguments) = arguments.split_first().context("expected FIRST, found nothing")?;
    execute(rounds(first)?);
    if arguments.is_empty() {
        return Ok(());
    }
    for wave in arguments.split(|word| word == "/") {
        let threads: Vec<_> = wave.iter().map(|word| thread(word)).collect::<Result<_, _>>()?;
        println!("ready");
        lines.next().context("expected a line, found the end of standard input")??;
        let (doors, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        // Starts all threads of the wave.
        drop(doors);
        threads.into_iter().try_for_each(JoinHandle::join).ok().context("a thread failed")?;
    }
    Ok(())
}

/// Creates a thread that runs after the returned sender is dropped.
fn thread(word: &str) -> anyhow::Result<(Sender<()>, JoinHandle<()>)> {
    let (name, millions) = word
        .split_once([':', '!'])
        .with_context(|| format!("expected NAME:MILLIONS or NAME!MILLIONS, found {word}"))?;
    let at_once = word.contains('!');
    let rounds = rounds(millions)?;
    let (door, wait) = channel::<()>();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        if !at_once {
            // Returns an error when the sender is dropped.
            let _ = wait.recv();
        }
        execute(rounds);
    })?;
    Ok((door, thread))
}

/// Rounds of the loop for a number of million instructions.
fn rounds(millions: &str) -> anyhow::Result<u64> {
    let number = millions.parse::<u64>();
    let millions =
        number.with_context(|| format!("expected a number of millions, found {millions}"))?;
    Ok(millions * 1_000_000 / INSTRUCTIONS)
}

/// Executes [`INSTRUCTIONS`] times `rounds` instructions.
fn execute(rounds: u64) {
    if rounds == 0 {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes one register, declared as an operand, and the flags; no memory access.
    unsafe {
        std::arch::asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) rounds => _, options(nostack, nomem));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("2:", "sub {0}, 1", "jne 2b", inout(reg) rounds => _, options(nostack, nomem));
    }
}
