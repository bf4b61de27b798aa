//! `team THREADS [MS]`: so many threads that compute, all until standard input and so many milliseconds
//! have ended. Odd ones add integers, even ones multiply floats.

use anyhow::Context as _;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Computes.
///
/// # Errors
/// If an argument is missing, or a thread cannot be had.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let number = |place: usize| arguments.get(place).and_then(|word| word.parse().ok());
    let threads: usize = number(0).context("expected a number of threads")?;
    let time = Duration::from_millis(number(1).unwrap_or(0) as u64);
    for place in 0..threads {
        // One after the other, so that they are created in the order of their names.
        let (send, received) = channel();
        let body = move || {
            let _ = send.send(());
            if place % 2 == 1 { add() } else { multiply() }
        };
        std::thread::Builder::new().name(format!("team-{place}")).spawn(body)?;
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

/// Leaves the host's few processors to others now and then.
fn rest() {
    std::thread::sleep(Duration::from_millis(1));
}
