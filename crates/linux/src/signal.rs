//! Signals that are held back, and read from a descriptor.
#![allow(unsafe_code)] // signal masks, signalfd

use crate::SysError;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signal set in the kernel's format.
fn sigset(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: all-zero is a valid `sigset_t`, and sigemptyset makes it the empty one.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid; a bad signal number is reported and leaves the set unchanged.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in signals {
        // SAFETY: as above.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// A signal mask, to be restored later.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

/// Adds `signals` to the blocked signals and returns the previous mask.
///
/// # Errors
/// Any error of the kernel; none is known.
pub fn block(signals: &[c_int]) -> Result<SignalMask, SysError> {
    let set = sigset(signals);
    let mut before = sigset(&[]);
    // SAFETY: both sets are valid for the call.
    let ret = unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
    if ret < 0 { Err(SysError::last("sigprocmask")) } else { Ok(SignalMask(before)) }
}

/// Blocks all signals except the unblockable.
pub fn block_all() {
    let mut all = sigset(&[]);
    // SAFETY: the set is valid for both calls; the old mask is not asked for.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Blocks exactly the signals of `mask`.
pub fn set_mask(mask: &SignalMask) {
    // SAFETY: the set is valid for the call; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
}

/// Whether one of the blocked `signals` is pending for this thread or process.
pub fn is_pending(signals: &[c_int]) -> bool {
    let mut pending = sigset(&[]);
    // SAFETY: the set is valid for the call.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: the set is valid; a bad signal number is reported as an error, which is no membership.
    signals.iter().any(|signal| unsafe { libc::sigismember(&raw const pending, *signal) } == 1)
}

/// Signalfd, which becomes readable on the arrival of one of the blocked `signals`.
///
/// # Errors
/// `EMFILE` and `ENFILE` at the limits of open files.
pub fn signalfd(signals: &[c_int]) -> Result<OwnedFd, SysError> {
    let set = sigset(signals);
    // SAFETY: the set is valid for the call.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(SysError::last("signalfd"));
    }
    // SAFETY: the kernel has just opened `fd` for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signal read from a signalfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Number.
    pub signal: c_int,
    /// Whether the kernel sent the signal to the terminal's whole foreground process group, as for
    /// keys like Ctrl-C.
    pub by_kernel: bool,
}

/// Next pending signal at `fd`; `None` if none is pending.
pub fn next_signal(fd: BorrowedFd<'_>) -> Option<Arrived> {
    // SAFETY: all-zero is a valid `signalfd_siginfo`.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: at most `size` bytes are written to `info`, and every bit pattern is valid for it.
    let read = unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size) };
    // -1 (`EAGAIN`): no signal is pending.
    let whole = usize::try_from(read).is_ok_and(|read| read == size);
    let signal = info.ssi_signo.cast_signed();
    whole.then(|| {
        let by_kernel = info.ssi_code == libc::SI_KERNEL
            && (!matches!(signal, libc::SIGHUP | libc::SIGCONT) || !leads_session());
        Arrived { signal, by_kernel }
    })
}

/// Whether this process leads its session. On a terminal's hangup the kernel signals the leader
/// alone, by SIGHUP and SIGCONT (`tty_signal_session_leader` in drivers/tty/tty_jobctrl.c); the
/// rest of the session is signalled at the leader's end.
fn leads_session() -> bool {
    // SAFETY: both take and return numbers; 0 means this process.
    unsafe { libc::getsid(0) == libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SIGURG, which is ignored unless it is blocked.
    #[test]
    fn a_signal_that_waits() {
        let mask = block(&[libc::SIGURG]).unwrap();
        assert!(!is_pending(&[libc::SIGURG]));
        // SAFETY: takes a number; the signal is blocked in this thread.
        unsafe { libc::raise(libc::SIGURG) };
        assert!(is_pending(&[libc::SIGUSR1, libc::SIGURG]) && !is_pending(&[libc::SIGUSR1]));
        set_mask(&mask);
        assert!(!is_pending(&[libc::SIGURG]));
    }
}
