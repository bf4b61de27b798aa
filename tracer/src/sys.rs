//! The few system calls that the plugin makes, none of which takes a file descriptor for longer
//! than the call.

use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists and the structure lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The calling thread's number.
pub fn tid() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// The process's number and its parent's.
pub fn pids() -> (i32, i32) {
    // SAFETY: take no argument and cannot fail.
    unsafe { (libc::getpid(), libc::getppid()) }
}

/// Names the calling thread; the kernel cuts names to 15 bytes.
pub fn set_name(name: &[u8]) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: the string is terminated and lives through the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// The name of a thread of this process, without the line's end; empty if it is gone.
pub fn name_of(tid: i32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

/// The calling thread's name.
pub fn own_name() -> Vec<u8> {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, which is what there is room for.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.into_iter().take_while(|byte| *byte != 0).collect()
}

/// Makes an empty file that only its owner may read and write, without opening it.
pub fn create_empty(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is terminated and lives through the call.
    unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o600, 0) == 0 }
}

/// Writes `text` to the existing file `path`.
pub fn fill(path: &Path, text: &str) -> bool {
    if !is_allowed(text.len() as u64) {
        return false;
    }
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path);
    file.is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok())
}

/// Adds to the end of the existing file `path`, all or, as it seems, nothing.
pub fn append(path: &Path, bytes: &[u8]) -> bool {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = OpenOptions::new().append(true).custom_flags(flags).open(path);
    file.is_ok_and(|mut file| {
        let length = file.metadata().map_or(u64::MAX, |file| file.len());
        is_allowed(length.saturating_add(bytes.len() as u64)) && file.write_all(bytes).is_ok()
    })
}

/// Whether the process may write files of this length: one that set a limit would be killed by SIGXFSZ for our writing.
fn is_allowed(length: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    !known || limit.rlim_cur >= length
}

/// Makes a symbolic link: a note of up to 4,095 bytes that needs no descriptor.
pub fn leave_note(path: &Path, note: &[u8]) {
    let note = if note.is_empty() { b"?" } else { note };
    let _ = std::os::unix::fs::symlink(OsStr::from_bytes(note), path);
}

/// Takes a note back.
pub fn remove_note(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Calls `before` when the process forks, and `after` then in parent and child.
pub fn at_fork(before: unsafe extern "C" fn(), after: unsafe extern "C" fn()) {
    // SAFETY: the functions live as long as the process: a plugin is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}
