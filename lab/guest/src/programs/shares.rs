//! `shares PATTERN THREADS`: threads that write their own memory and read their partner's, without
//! wake-ups, until the program is killed. Patterns are those of `turns`.

use super::{lives, turns};
use anyhow::Context as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words per page of 4 KiB.
const PAGE: usize = 512;
/// Pages per thread.
const PAGES: usize = 16;
/// Words per cache line, the distance between accesses.
const LINE: usize = 8;

#[repr(align(4096))]
struct SharedPage([AtomicU64; PAGE]);

/// The first word of each cache line.
fn lines(pages: &[SharedPage]) -> impl Iterator<Item = &AtomicU64> {
    pages.iter().flat_map(|page| page.0.iter().step_by(LINE))
}

pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let [pattern, threads] = arguments else { anyhow::bail!("expected a pattern and threads") };
    let threads: usize = threads.parse()?;
    let next = turns::next_of(pattern, threads).context("expected pairs, ring, star or all")?;
    let mut memory: Vec<Vec<SharedPage>> = Vec::new();
    memory.resize_with(threads, || {
        (0..PAGES).map(|_| SharedPage(std::array::from_fn(|_| AtomicU64::new(0)))).collect()
    });
    let memory = Arc::new(memory);
    for own in 0..threads {
        let memory = Arc::clone(&memory);
        let next = Arc::clone(&next);
        std::thread::spawn(move || {
            for turn in 0.. {
                let partner = lines(&memory[next(own, turn)]);
                // Relaxed: only the traffic of cache lines matters, not the values.
                let read: u64 = partner.map(|word| word.load(Ordering::Relaxed)).sum();
                lines(&memory[own]).for_each(|word| word.store(read, Ordering::Relaxed));
            }
        });
    }
    lives()
}
