//! Pieces of work that do not depend on each other, on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What watches the work.
#[derive(Clone, Copy)]
pub struct Watcher<'a> {
    /// Called after every piece, from any thread.
    pub progress: &'a (dyn Fn() + Sync),
    /// Ends everything after the pieces that are under way.
    pub stop: &'a AtomicBool,
}

/// What `work` gives for each of `count` pieces, in their order, whichever was first; `None` if it was
/// stopped before the end.
pub fn all<T: Send, E: Send>(
    count: usize,
    threads: NonZeroUsize,
    watcher: Watcher<'_>,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Option<Vec<T>>, E> {
    let mut places: Vec<Option<T>> = Vec::new();
    places.resize_with(count, || None);
    let done = Mutex::new(places);
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let worker = || {
        while !watcher.stop.load(Ordering::Relaxed) && locked(&failed).is_none() {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= count {
                return;
            }
            match work(piece) {
                Ok(made) => locked(&done)[piece] = Some(made),
                Err(error) => {
                    let mut failed = locked(&failed);
                    if failed.as_ref().is_none_or(|(first, _)| piece < *first) {
                        *failed = Some((piece, error));
                    }
                }
            }
            (watcher.progress)();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(count) {
            scope.spawn(worker);
        }
        worker();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()),
    }
}

/// A thread that panicked ends the scope, so what it held is never looked at.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        threads: usize,
        stop: bool,
        work: impl Fn(usize) -> Result<usize, usize> + Sync,
    ) -> (Result<Option<Vec<usize>>, usize>, usize) {
        let seen = AtomicUsize::new(0);
        let progress = || {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        let watcher = Watcher { progress: &progress, stop: &AtomicBool::new(stop) };
        let done = all(100, NonZeroUsize::new(threads).unwrap(), watcher, work);
        (done, seen.into_inner())
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
