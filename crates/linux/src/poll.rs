//! Waiting until a descriptor is readable.

use crate::SysError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until any of `fds` is readable or `timeout` has passed; for ever without a timeout.
///
/// Returns early, without an error, when a signal arrives.
///
/// # Errors
/// If the kernel cannot wait, for want of memory.
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
