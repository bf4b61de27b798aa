//! Signals that are held back and read from a descriptor, or that set a flag.
#![allow(unsafe_code)] // signal masks, signalfd, sigaction

use crate::SysError;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Set by signals that end a command.
static STOP: AtomicBool = AtomicBool::new(false);
/// Set by SIGCONT.
static CONTINUED: AtomicBool = AtomicBool::new(false);

/// Effect of a signal that ends a command and arrives while the flag is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// None beside the flag.
    SetsFlag,
    /// End of the process, as if the signal were not caught.
    Ends,
}

/// Flag set by each of `signals` that arrives. All callers get the same flag.
///
/// # Errors
/// `EINVAL` for a signal that cannot be caught.
pub fn stop_flag(signals: &[c_int], second: Second) -> Result<&'static AtomicBool, SysError> {
    let handler = match second {
        Second::SetsFlag => set_stop,
        Second::Ends => set_stop_or_end,
    };
    signals.iter().try_for_each(|signal| catch(*signal, handler))?;
    Ok(&STOP)
}

/// Flag set when the process is continued after a stop.
///
/// # Errors
/// None is known.
pub fn continued_flag() -> Result<&'static AtomicBool, SysError> {
    catch(libc::SIGCONT, set_continued)?;
    Ok(&CONTINUED)
}

extern "C" fn set_stop(_: c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn set_stop_or_end(signal: c_int) {
    if STOP.swap(true, Ordering::Relaxed) {
        // SAFETY: both are async-signal-safe and take numbers. The raised signal is blocked in its
        // handler, so the default action follows the return.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

extern "C" fn set_continued(_: c_int) {
    CONTINUED.store(true, Ordering::Relaxed);
}

/// Handles `signal` by `handler`, which makes only async-signal-safe calls. Interrupted system
/// calls are restarted.
fn catch(signal: c_int, handler: extern "C" fn(c_int)) -> Result<(), SysError> {
    // SAFETY: all-zero is a valid `sigaction`, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is valid for the call; the old action is not asked for.
    let ret = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if ret < 0 { Err(SysError::last("sigaction")) } else { Ok(()) }
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

    #[test]
    fn a_flag_is_set_by_a_signal() {
        let flag = continued_flag().unwrap();
        assert!(!flag.swap(false, Ordering::Relaxed));
        // SAFETY: takes a number; the signal is caught.
        unsafe { libc::raise(libc::SIGCONT) };
        assert!(flag.load(Ordering::Relaxed));
        assert_eq!(
            stop_flag(&[libc::SIGKILL], Second::SetsFlag).unwrap_err().errno(),
            Some(libc::EINVAL)
        );
    }

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
