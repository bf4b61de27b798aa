//! State shared by a running loop and its controlling thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Progress and stop flag of a loop.
///
/// The loops write `done` and read `stop` in every iteration, at offsets 0 and 8. Occupies two
/// cache lines, because processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Control {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Control {
    /// A control with no iteration done and the stop flag clear.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the stop flag; the loop ends within one iteration.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// True if [`Control::stop`] was called.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Number of iterations done; may be read while the loop runs.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Address of `done` for the loops; `stop` is 8 bytes further.
    pub(crate) fn address(&self) -> *mut u64 {
        self.done.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    /// The loops have these numbers in their text.
    #[test]
    fn fields_lie_where_the_loops_expect_them() {
        assert_eq!((offset_of!(Control, done), offset_of!(Control, stop)), (0, 8));
        assert_eq!((size_of::<Control>(), align_of::<Control>()), (128, 128));
    }
}
