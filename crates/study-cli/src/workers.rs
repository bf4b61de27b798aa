//! Independent pieces of work on several threads.

use colocate_cli::output::Bar;
use colocate_cli::stop::stop_flag_once;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Threads that simulate.
pub struct Workers {
    threads: NonZeroUsize,
    /// Stops the work after the pieces under way.
    stop: &'static AtomicBool,
}

impl Workers {
    /// Makes `threads` threads, by default one for each PU. SIGINT or SIGTERM stops the work.
    pub fn new(threads: Option<NonZeroUsize>) -> anyhow::Result<Self> {
        let threads = threads
            .unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
        Ok(Self { threads, stop: stop_flag_once()? })
    }

    /// Results of `work` for each of `count` pieces, in the order of the pieces; `None` if a signal
    /// stopped the work. The bar shows the number of finished pieces.
    pub fn all<T: Send, E: Send>(
        &self,
        count: usize,
        bar: Option<&Bar>,
        work: impl Fn(usize) -> Result<T, E> + Sync,
    ) -> Result<Option<Vec<T>>, E> {
        let next = AtomicUsize::new(0);
        let has_failed = AtomicBool::new(false);
        let worker = || {
            let mut done = Vec::new();
            while !self.stop.load(Ordering::Relaxed) && !has_failed.load(Ordering::Relaxed) {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= count {
                    break;
                }
                let made = work(piece);
                has_failed.fetch_or(made.is_err(), Ordering::Relaxed);
                done.push((piece, made));
                bar.iter().for_each(|bar| bar.advance(1));
            }
            done
        };
        let mut done = std::thread::scope(|scope| {
            // One thread fewer: this thread works, too.
            let others = (1..self.threads.get().min(count)).map(|_| scope.spawn(worker));
            let others: Vec<_> = others.collect();
            let mut done = worker();
            for other in others {
                done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            done
        });
        // The error of the first piece, whichever thread fails first.
        done.sort_by_key(|(piece, _)| *piece);
        let done: Vec<T> = done.into_iter().map(|(_, made)| made).collect::<Result<_, E>>()?;
        // A missing piece means that a signal has stopped the work.
        Ok((done.len() == count).then_some(done))
    }
}

/// A bar on standard error; drawn only on a terminal.
pub fn bar(quiet: bool, pieces: u64) -> Bar {
    Bar::new(pieces, "simulating {bar:30} {pos}/{len} {eta} {wide_msg}", quiet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        threads: usize,
        stop: bool,
        work: impl Fn(usize) -> Result<usize, usize> + Sync,
    ) -> (Result<Option<Vec<usize>>, usize>, u64) {
        let threads = NonZeroUsize::new(threads).unwrap();
        let stop: &AtomicBool = Box::leak(Box::new(stop.into()));
        let bar = bar(true, 100);
        let done = Workers { threads, stop }.all(100, Some(&bar), work);
        (done, bar.position())
    }

    #[test]
    fn results_are_in_order() {
        for threads in [1, 3, 500] {
            let (done, seen) = run(threads, false, |piece| Ok(piece * piece));
            assert_eq!(done, Ok(Some((0..100).map(|piece| piece * piece).collect())));
            assert_eq!(seen, 100);
        }
    }

    #[test]
    fn a_failure_and_a_stop() {
        let (done, seen) = run(1, false, |piece| if piece < 7 { Ok(0) } else { Err(piece) });
        assert_eq!((done, seen), (Err(7), 8));
        assert!(run(4, false, |piece| if piece == 50 { Err(50) } else { Ok(0) }).0.is_err());
        assert_eq!(run(4, true, Ok), (Ok(None), 0));
    }
}
