//! System calls of the plugin. No file descriptor stays open after a call.

use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Time of `CLOCK_MONOTONIC`, in ns.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists and the structure lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// ID of the calling thread.
pub fn tid() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// IDs of the process and of its parent.
pub fn pids() -> (i32, i32) {
    // SAFETY: take no argument and cannot fail.
    unsafe { (libc::getpid(), libc::getppid()) }
}

/// Names the calling thread; the kernel truncates names to 15 bytes.
pub fn set_name(name: &[u8]) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: the string is terminated and lives through the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Name of a thread of this process; empty if the thread has ended.
pub fn name_of(tid: i32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

/// Name of the calling thread.
pub fn own_name() -> Vec<u8> {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, the size of `name`.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.into_iter().take_while(|byte| *byte != 0).collect()
}

/// Creates an empty file with mode 600, without a descriptor. False on failure.
pub fn create_empty(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is terminated and lives through the call.
    unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o600, 0) == 0 }
}

/// Writes `text` to the existing file `path`. False on failure.
pub fn fill(path: &Path, text: &str) -> bool {
    if !is_allowed(text.len() as u64) {
        return false;
    }
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path);
    file.is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok())
}

/// Appends `bytes` to the existing file `path`. False on failure, with some bytes possibly written.
pub fn append(path: &Path, bytes: &[u8]) -> bool {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = OpenOptions::new().append(true).custom_flags(flags).open(path);
    file.is_ok_and(|mut file| {
        // An unknown length counts as beyond the limit.
        let length = file.metadata().map_or(u64::MAX, |file| file.len());
        is_allowed(length.saturating_add(bytes.len() as u64)) && file.write_all(bytes).is_ok()
    })
}

/// True if the process may write a file of this length. Beyond its limit (RLIMIT_FSIZE) the program
/// would be killed by SIGXFSZ for a write of the plugin.
fn is_allowed(length: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    !known || limit.rlim_cur >= length
}

/// Leaves a note of up to 4,095 bytes as a symbolic link, which needs no descriptor.
pub fn leave_note(path: &Path, note: &[u8]) {
    // symlink(2) refuses an empty target.
    let note = if note.is_empty() { b"?" } else { note };
    let _ = std::os::unix::fs::symlink(OsStr::from_bytes(note), path);
}

/// Removes a note.
pub fn remove_note(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Registers functions for fork: `before` in the parent, `after` in parent and child.
pub fn at_fork(before: unsafe extern "C" fn(), after: unsafe extern "C" fn()) {
    // SAFETY: the functions live as long as the process: a plugin is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}
