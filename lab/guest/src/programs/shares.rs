//! `shares PATTERN THREADS`: threads that write to memory of their own and read that of the next one by the pattern, as in `turns`,
//! without ever waking each other, until the program is killed.

use super::{lives, turns};
use anyhow::Context as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a page.
const PAGE: usize = 512;
/// Pages of each thread.
const PAGES: usize = 16;
/// Words from one access to the next: a cache line.
const LINE: usize = 8;

#[repr(align(4096))]
struct Page([AtomicU64; PAGE]);

pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let [pattern, threads] = arguments else { anyhow::bail!("expected a pattern and threads") };
    let threads: usize = threads.parse()?;
    let next = turns::next_of(pattern, threads).context("expected pairs, ring, star or all")?;
    let page = || Page(std::array::from_fn(|_| AtomicU64::new(0)));
    let own = || (0..PAGES).map(|_| page()).collect::<Vec<Page>>();
    let memory: Arc<Vec<Vec<Page>>> = Arc::new((0..threads).map(|_| own()).collect());
    for own in 0..threads {
        let (memory, next) = (Arc::clone(&memory), Arc::clone(&next));
        std::thread::spawn(move || {
            for turn in 0.. {
                let words =
                    |of: usize| memory[of].iter().flat_map(|page| page.0.iter().step_by(LINE));
                let read: u64 =
                    words(next(own, turn)).map(|word| word.load(Ordering::Relaxed)).sum();
                words(own).for_each(|word| word.store(read, Ordering::Relaxed));
            }
        });
    }
    lives()
}
