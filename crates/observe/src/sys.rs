//! A system call that failed, with its name; the clock that kernel records are stamped with.

#![allow(unsafe_code)] // clock_gettime of another process, tgkill

use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use thiserror::Error;

/// A system call that failed.
#[derive(Debug, Error)]
#[error("{call}: {source}")]
pub struct SysError {
    /// The call, with what it was applied to where that helps.
    pub call: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

impl SysError {
    /// The error that `call` has just left in `errno`.
    #[must_use]
    pub fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    /// As if `call` had failed with this error of the kernel's.
    #[must_use]
    pub fn of(call: &'static str, errno: i32) -> Self {
        Self { call, source: io::Error::from_raw_os_error(errno) }
    }

    /// The kernel's error number, e.g. `libc::EPERM`; `None` if the error is not the kernel's.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// Now on `CLOCK_MONOTONIC`, the clock of all events of this crate.
#[must_use]
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Now on `CLOCK_BOOTTIME`: as [`now`], and time for which the machine was suspended.
#[must_use]
pub fn since_boot() -> Nanos {
    nanos(clock_gettime(ClockId::Boottime))
}

fn nanos(time: Timespec) -> Nanos {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of a process: of all its threads, also of those that have ended; up to a tick short for each that runs.
/// `None` if it is gone. One call, however many threads there are.
#[must_use]
pub fn process_time(pid: Pid) -> Option<Nanos> {
    /// The clock of what the scheduler counts (include/linux/posix-timers_types.h).
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

/// Whether there is thread `tid` of process `pid`, be it one that has ended and was not reaped.
#[must_use]
pub fn exists(pid: Pid, tid: Tid) -> bool {
    const NO_SIGNAL: libc::c_int = 0;
    // SAFETY: takes no pointer, and signal 0 only checks whether a signal could be sent.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, pid.0, tid.0, NO_SIGNAL) };
    // Another user's may not be sent one, and is there.
    done == 0 || SysError::last("tgkill").errno() != Some(libc::ESRCH)
}

/// Waits until one of `fds` is readable or `timeout` is over; for ever without a timeout.
///
/// Returns early, without an error, when a signal arrives.
///
/// # Errors
/// If the kernel cannot wait, which means that memory is short.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), SysError> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| readable(*fd)).collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(SysError::of("ppoll", error.raw_os_error())),
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Whether `fd` is readable now.
#[must_use]
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [readable(fd)], Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
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
