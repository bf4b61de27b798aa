//! Clock for regions and critical sections.

#![allow(unsafe_code)] // clock_gettime

/// Current `CLOCK_MONOTONIC` time in ns; 0 on an error, which Linux never returns here.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0 {
        return 0;
    }
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
