//! `loops FIRST NAME:MILLIONS...`: a thread each, which executes so many million instructions.
//!
//! Arguments between two lines of standard input are one wave: `loops 0 a:1 b:2 / c:3` makes `a` and
//! `b`, says `ready`, waits for a line, lets both run to their end, makes `c`, and so on. Threads
//! exist before they run, so that counters can be opened first. `a!1` runs at its creation,
//! and the first thread executes `FIRST` million before all else. Without waves that is all.

#![allow(unsafe_code)] // a loop whose instructions are known can only be written in assembly

use anyhow::Context as _;
use std::io::BufRead as _;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Instructions of one round of [`execute`]'s loop: a subtraction and a branch.
const INSTRUCTIONS: u64 = 2;

/// Runs the waves.
///
/// # Errors
/// If an argument is none, or standard input ends.
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
        drop(doors);
        threads.into_iter().try_for_each(JoinHandle::join).ok().context("a thread failed")?;
    }
    Ok(())
}

/// A thread that waits until its door is gone.
fn thread(word: &str) -> anyhow::Result<(Sender<()>, JoinHandle<()>)> {
    let wrong = || format!("expected NAME:MILLIONS or NAME!MILLIONS, found {word}");
    let (name, millions) = word.split_once([':', '!']).with_context(wrong)?;
    let at_once = word.contains('!');
    let rounds = rounds(millions)?;
    let (door, wait) = channel::<()>();
    let body = move || {
        if !at_once {
            // An error means that the sender was dropped.
            let _ = wait.recv();
        }
        execute(rounds);
    };
    Ok((door, std::thread::Builder::new().name(name.into()).spawn(body)?))
}

fn rounds(millions: &str) -> anyhow::Result<u64> {
    let wrong = || format!("expected a number of millions, found {millions}");
    Ok(millions.parse::<u64>().with_context(wrong)? * 1_000_000 / INSTRUCTIONS)
}

/// Executes [`INSTRUCTIONS`] times `rounds` instructions.
fn execute(rounds: u64) {
    if rounds == 0 {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes one register, which is handed over, and the flags; touches no memory.
    unsafe {
        std::arch::asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) rounds => _, options(nostack, nomem));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("2:", "sub {0}, 1", "jne 2b", inout(reg) rounds => _, options(nostack, nomem));
    }
}
