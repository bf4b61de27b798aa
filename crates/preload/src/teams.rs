//! What GNU and LLVM OpenMP have in common: threads that rest, and tasks.
//!
//! A thread that waits at a barrier does tasks that others have left. These are no waiting, and nothing tells of all of them. So
//! a program that makes tasks (or begins regions in a way that is not known here) tells nothing of OpenMP from then on.

use crate::thread;
use core::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether this process tells nothing of OpenMP any more.
static UNSURE: AtomicBool = AtomicBool::new(false);

/// The calling thread waits from now on, be it at the end of its region or for the next one.
pub fn rest() {
    notes(thread::begin);
}

/// Does something in which the calling thread may wait in a loop, and do tasks.
#[inline]
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let begun = notes(thread::begin);
    let done = wait();
    if begun {
        thread::end();
    }
    done
}

/// Notes by `begin` that the calling thread waits, unless nothing is told any more. Returns what that returns, and
/// false if nothing is noted after all.
#[inline]
fn notes(begin: impl FnOnce() -> bool) -> bool {
    if is_unsure() || !begin() {
        return false;
    }
    // Another thread may have come to know between the two. Of these fences and those in `be_unsure` one is first:
    // either this thread sees that, or the other one sees this thread's note.
    fence(Ordering::SeqCst);
    if is_unsure() {
        thread::end();
        return false;
    }
    true
}

/// Tells nothing of OpenMP any more.
#[cold]
pub fn be_unsure() {
    if !UNSURE.swap(true, Ordering::SeqCst) {
        fence(Ordering::SeqCst);
        thread::nobody_waits();
    }
}

/// Whether nothing is told of OpenMP any more.
pub fn is_unsure() -> bool {
    UNSURE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The first task is made before the barrier, in it, and between the first look and the note: from then on nobody
    /// waits.
    #[test]
    fn nobody_waits_once_there_are_tasks() {
        let table = thread::tell_here();
        let waits = || table.slots.iter().any(|slot| slot.since_ns.load(Ordering::Relaxed) != 0);
        let seen = Cell::new(false);
        waiting(|| seen.set(waits()));
        assert!(seen.get() && !waits());
        waiting(|| {
            be_unsure();
            seen.set(waits());
        });
        assert!(!seen.get() && !waits());
        rest();
        waiting(|| seen.set(waits()));
        assert!(!seen.get() && !waits());
        UNSURE.store(false, Ordering::SeqCst);
        let late = || {
            be_unsure();
            thread::begin()
        };
        assert!(!notes(late) && !waits());
    }
}
