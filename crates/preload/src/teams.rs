//! What GNU and LLVM OpenMP have in common: threads that rest, and tasks.
//!
//! A thread that waits at a barrier does tasks that others have left. These are no waiting, and nothing tells of all of them. So
//! a program that makes tasks (or begins regions in a way that is not known here) tells nothing of OpenMP from then on.

use crate::thread;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether this process tells nothing of OpenMP any more.
static UNSURE: AtomicBool = AtomicBool::new(false);

/// The calling thread waits from now on, be it at the end of its region or for the next one.
pub fn rest() {
    if is_unsure() {
        return;
    }
    thread::begin();
    // Another thread may have come to know between the two.
    if UNSURE.load(Ordering::SeqCst) {
        thread::end();
    }
}

/// Tells nothing of OpenMP any more.
#[cold]
pub fn be_unsure() {
    if !UNSURE.swap(true, Ordering::SeqCst) {
        thread::nobody_waits();
    }
}

/// Whether nothing is told of OpenMP any more.
pub fn is_unsure() -> bool {
    UNSURE.load(Ordering::Relaxed)
}
