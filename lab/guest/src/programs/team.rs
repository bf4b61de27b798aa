//! `team THREADS [MS]`: THREADS threads that compute until standard input has ended and MS
//! milliseconds have passed. Odd threads add integers, even threads multiply floats.

use anyhow::Context as _;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Creates the threads and waits for the end.
///
/// # Errors
/// If an argument is missing, or a thread cannot be created.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let threads = arguments.first().and_then(|word| word.parse::<u32>().ok());
    let time_ms = arguments.get(1).and_then(|word| word.parse().ok());
    let time = Duration::from_millis(time_ms.unwrap_or(0));
    for place in 0..threads.context("expected a number of threads")? {
        // Each thread runs before the next is created, so thread IDs follow the names.
        let (send, received) = channel();
        std::thread::Builder::new().name(format!("team-{place}")).spawn(move || {
            let _ = send.send(());
            if place % 2 == 1 { add() } else { multiply() }
        })?;
        received.recv().context("a thread ended at once")?;
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    std::thread::sleep(time.saturating_sub(begin.elapsed()));
    Ok(())
}

fn add() {
    let mut sum = 1_u64;
    loop {
        for term in 0..10_000 {
            // black_box keeps the compiler from removing the loop.
            sum = black_box(sum.wrapping_add(term) ^ term);
        }
        rest();
    }
}

fn multiply() {
    let mut product = 1.0_f64;
    loop {
        for _ in 0..10_000 {
            product = black_box(product * 1.000_000_1);
        }
        rest();
    }
}

/// Sleeps for 1 ms, since the host has few processors.
fn rest() {
    std::thread::sleep(Duration::from_millis(1));
}
