//! The clock that regions and critical sections are timed by.

#![allow(unsafe_code)] // clock_gettime

/// Now, in ns of `CLOCK_MONOTONIC`; 0 if the kernel does not say, which it always does.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0 {
        return 0;
    }
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
