//! One process, and never a later one with the same number.
//!
//! # Problem
//! Numbers of processes and threads are reused. A signal, a mask or a policy that is meant for a thread that has ended
//! would reach whatever has taken over its number.
//! # Approach
//! The open directory `/proc/PID` stays that of one process: once that is reaped, every access says `ESRCH`, also
//! if its number is in use again (`proc_pid_lookup`, fs/proc/base.c). pidfd_send_signal(2) takes it as it takes a
//! pidfd. Calls that take a thread's number are made only while that directory lists the thread, and count only if it
//! still does afterwards. In between, the kernel would have to give out all its numbers once.
//! # Properties
//! - **A handle outlives its process**: nothing reaches what took over the number. -> test
//!   `what_took_over_a_number_is_not_reached`
//! - **Threads belong to it**: those of other processes are refused. -> test `threads_of_others_are_refused`

use crate::clock::{now, since_boot};
use crate::proc::stat::Stat;
use crate::sys;
use crate::{Pid, SysError, Tid, foreign};
use colocate_machine::Nanos;
use rustix::fs::{self, Access, AtFlags, Mode, OFlags};
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whether an error of a handle proves the end of the process or thread. All different errors leave
/// its state open.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// A process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    /// Creation time in clock ticks since boot.
    start_ticks: u64,
    dir: File,
}

impl ProcessHandle {
    /// Opens the process with the present number `pid`. `proc` is `/proc`.
    ///
    /// A caller with a stored number compares [`Self::start_ticks`] or [`Self::parent`].
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` if no such process exists, `EMFILE` and `ENFILE` at the limits of open
    /// files.
    pub fn open(proc: &Path, pid: Pid) -> io::Result<Self> {
        let mut options = File::options();
        let dir = options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        let dir = dir.open(proc.join(pid.to_string()))?;
        let mut handle = Self { pid, start_ticks: 0, dir };
        // Through the folder: the number may belong to another process by now.
        let stat = handle.read("stat", Stat::LONGEST_B)?;
        let stat = Stat::parse(&stat).ok_or(io::ErrorKind::InvalidData)?;
        handle.start_ticks = stat.start_ticks;
        Ok(handle)
    }

    /// Number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Creation time in clock ticks since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Whether the process was created by `at` on the clock of [`now`]. False if the clocks of this
    /// time namespace differ from the kernel's by more than suspended time.
    ///
    /// [`now`]: crate::clock::now
    pub fn started_by(&self, at: Nanos) -> bool {
        let suspended = since_boot().saturating_sub(now());
        // Both are rounded down: a process created in the tick of `at` counts as created by then.
        self.start_ticks <= Stat::ticks(at + suspended)
    }

    /// Whether the process has not been reaped.
    pub fn exists(&self) -> bool {
        self.has("stat")
    }

    /// Stat fields of the first thread; `None` after reaping.
    pub fn stat(&self) -> Option<Stat> {
        Stat::parse(&self.read("stat", Stat::LONGEST_B).ok()?)
    }

    /// Stat fields of a thread; `None` after the thread's end.
    pub fn stat_of(&self, tid: Tid) -> Option<Stat> {
        self.try_stat_of(tid).ok()
    }

    /// Stat fields of a thread, as [`Self::stat_of`].
    ///
    /// # Errors
    /// An error with [`is_gone`] if the thread has ended, else the error of reading.
    pub fn try_stat_of(&self, tid: Tid) -> io::Result<Stat> {
        let text = self.read(&format!("task/{tid}/stat"), Stat::LONGEST_B)?;
        Stat::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parent of the process, or its adopter; `None` after reaping.
    pub fn parent(&self) -> Option<Pid> {
        self.stat().map(|stat| stat.parent)
    }

    /// Opens a file of the process in `/proc`.
    ///
    /// # Errors
    /// `ESRCH` after reaping, `EACCES` if the kernel denies access.
    pub fn file(&self, name: &str) -> io::Result<File> {
        Ok(File::from(fs::openat(&self.dir, name, OFlags::CLOEXEC, Mode::empty())?))
    }

    /// First `most_b` bytes of a file of the process in `/proc`, as text; invalid UTF-8 is
    /// replaced.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn read(&self, name: &str, most_b: u64) -> io::Result<String> {
        // Reading into a buffer that grows takes several calls.
        let mut bytes = Vec::with_capacity(usize::try_from(most_b.min(4096)).unwrap_or(0));
        self.file(name)?.take(most_b).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// As [`Self::read`], for a file backed by the process's memory, which may never become
    /// available: an error in this case.
    ///
    /// # Errors
    /// As [`foreign::file`].
    pub fn read_of_memory(&self, name: &str, most_b: u64) -> io::Result<String> {
        let most = usize::try_from(most_b).unwrap_or(usize::MAX);
        let bytes = foreign::file(self.pid, Some(self.dir.as_fd()), Path::new(name), most)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Thread numbers of the process; none after reaping.
    pub fn threads(&self) -> Vec<Tid> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = fs::openat(&self.dir, "task", flags, Mode::empty())
            .and_then(fs::Dir::new)
            .into_iter()
            .flatten()
            .flatten();
        entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).map(Tid).collect()
    }

    /// A living thread of the process: the first thread, or another after the first thread's end.
    /// `None` if all have ended. An ended first thread has no memory.
    pub fn living_thread(&self) -> Option<Tid> {
        let first = self.pid.first_thread();
        if self.is_living(first) {
            return Some(first);
        }
        self.threads().into_iter().find(|tid| self.is_living(*tid))
    }

    fn is_living(&self, tid: Tid) -> bool {
        self.stat_of(tid).is_some_and(|stat| !stat.is_dead())
    }

    /// Sends a signal to the process. Needs the same user, or `CAP_KILL`.
    ///
    /// # Errors
    /// `ESRCH` after reaping, `EPERM` for another user's process.
    pub fn signal(&self, signal: c_int) -> Result<(), SysError> {
        sys::kill_by(self.dir.as_fd(), signal)
    }

    /// Applies `call`, which takes a thread number, to a thread of this process.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not in this process or has ended meanwhile; else the error of the
    /// call.
    pub fn with<T>(
        &self,
        tid: Tid,
        call: impl FnOnce(Tid) -> Result<T, SysError>,
    ) -> Result<T, SysError> {
        self.check(tid)?;
        let done = call(tid);
        // If the thread has ended meanwhile, the call may have reached another thread with its
        // number.
        self.check(tid)?;
        done
    }

    fn has(&self, name: &str) -> bool {
        fs::accessat(&self.dir, name, Access::EXISTS, AtFlags::empty()).is_ok()
    }

    fn check(&self, tid: Tid) -> Result<(), SysError> {
        if self.has(&format!("task/{tid}")) {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(libc::ESRCH);
        Err(SysError { call: "find thread in /proc/PID/task", source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::wait_until;
    use std::process::{Child, Command};

    const PROC: &str = "/proc";

    fn sleeper() -> (Child, ProcessHandle) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let handle = ProcessHandle::open(Path::new(PROC), pid).unwrap();
        (child, handle)
    }

    /// The number is not in use again here, as that takes all numbers; the kernel answers alike. With few numbers:
    /// `other_processes_are_not_touched` of the command line's tests.
    #[test]
    fn what_took_over_a_number_is_not_reached() {
        let (mut child, handle) = sleeper();
        let tid = handle.pid().first_thread();
        assert!(handle.exists() && handle.threads() == [tid]);
        assert!(handle.with(tid, crate::affinity::of).is_ok());
        handle.signal(libc::SIGKILL).unwrap();
        wait_until("the end of a killed process", || handle.stat().unwrap().state == 'Z');
        assert!(handle.exists(), "its number is kept until it is reaped");
        child.wait().unwrap();
        assert!(!handle.exists() && handle.stat().is_none() && handle.threads().is_empty());
        assert_eq!(handle.signal(libc::SIGKILL).unwrap_err().errno(), Some(libc::ESRCH));
        let called = handle.with(tid, |_| -> Result<(), SysError> { panic!("was called") });
        assert_eq!(called.unwrap_err().errno(), Some(libc::ESRCH));
    }

    #[test]
    fn threads_of_others_are_refused() {
        let (mut child, handle) = sleeper();
        let ours = Pid(std::process::id().cast_signed()).first_thread();
        let called = handle.with(ours, |_| -> Result<(), SysError> { panic!("was called") });
        assert_eq!(called.unwrap_err().errno(), Some(libc::ESRCH));
        assert_eq!(handle.parent(), Some(Pid(ours.0)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_opened() {
        let error = ProcessHandle::open(Path::new(PROC), Pid(i32::MAX)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
