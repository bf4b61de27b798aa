//! The shared state of a running loop and the thread that controls it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A loop's progress and its stop flag.
///
/// The loops write `done` and read `stop` in every iteration, at offsets 0 and 8. Alone on two
/// cache lines, because processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Control {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Control {
    /// Nothing done, not stopped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the loop within one iteration of its reading this.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether [`Control::stop`] was called.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Iterations done since this was made; may be read while the loop runs.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Where the loops find `done`; `stop` is 8 bytes further.
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
