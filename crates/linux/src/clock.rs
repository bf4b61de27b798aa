//! The clock that kernel records are stamped with, and CPU time of processes.

#![allow(unsafe_code)] // clock_gettime of another process

use crate::Pid;
use colocate_machine::Nanos;
use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// Now on `CLOCK_MONOTONIC`, the clock of all events of this crate.
#[must_use]
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Present time on `CLOCK_BOOTTIME`: [`now`] plus the time of the machine's suspension.
#[must_use]
pub fn since_boot() -> Nanos {
    nanos(clock_gettime(ClockId::Boottime))
}

fn nanos(time: Timespec) -> Nanos {
    // These clocks are never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of all threads of a process, also of ended threads; up to a tick short per running
/// thread. `None` after the process's end. One call for any number of threads.
#[must_use]
pub fn process_time(pid: Pid) -> Option<Nanos> {
    /// Clock of the scheduler's run time (include/linux/posix-timers_types.h).
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // As clock_getcpuclockid(3) puts it together, which asks the kernel once more whether there is such a process.
    // No process has a number so large that it does not fit in.
    let clock = (!pid.0).checked_mul(8)? | CPUCLOCK_SCHED;
    // SAFETY: `time` is a valid place to write to; a clock that does not exist is an error.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| !failed)?;
    Some(Nanos(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Of a thread that spins and of one that has ended; a process that is gone has none.
    #[test]
    fn the_time_of_a_process() {
        let me = Pid(std::process::id().cast_signed());
        let (before, enough) = (process_time(me).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            colocate_testing::wait_until("20 ms of CPU time of this process", || {
                process_time(me).unwrap() >= before + Nanos::from_millis(20)
            });
            enough.store(true, Ordering::Relaxed);
        });
        assert!(process_time(me).unwrap() >= before + Nanos::from_millis(20));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Pid(child.id().cast_signed());
        child.wait().unwrap();
        assert_eq!(process_time(gone), None);
        assert_eq!(process_time(Pid(i32::MAX)), None);
    }
}
