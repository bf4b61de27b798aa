//! System calls, one function each.

#![allow(unsafe_code)] // every function here is one system call

pub use crate::signal::{
    Arrived, SignalMask, block, block_all, is_pending, next_signal, set_mask, signalfd,
};
use crate::{Pid, SysError, Tid};
use colocate_machine::Nanos;
use rustix::{fs, process};
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of a rustix call, with the call's name.
fn named<T>(call: &'static str, result: rustix::io::Result<T>) -> Result<T, SysError> {
    result.map_err(|errno| SysError { call, source: errno.into() })
}

/// Whether thread `tid` of process `pid` exists, including an ended thread before its reaping.
#[must_use]
pub fn exists(pid: Pid, tid: Tid) -> bool {
    const NO_SIGNAL: c_int = 0;
    // SAFETY: takes no pointer, and signal 0 only checks whether a signal could be sent.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, pid.0, tid.0, NO_SIGNAL) };
    // Another user's may not be sent one, and is there.
    done == 0 || SysError::last("tgkill").errno() != Some(libc::ESRCH)
}

/// Side of a fork.
pub enum Fork {
    /// The new process.
    Child,
    /// Old process, with the number of the new process.
    Parent(Pid),
}

/// Forks this process. Must be called before threads are created, or by a thread that makes only
/// system calls in the child.
///
/// # Errors
/// `EAGAIN` at the limit of processes, `ENOMEM`.
pub fn fork() -> Result<Fork, SysError> {
    // SAFETY: callers fork before they create threads, so no lock is held by a thread that the
    // child lacks; or the child takes no lock and no memory (`launch::hold`).
    match unsafe { libc::fork() } {
        -1 => Err(SysError::last("fork")),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid(pid))),
    }
}

/// Program for execvpe(3), prepared before a fork.
#[derive(Debug)]
pub struct Exec {
    path: CString,
    dir: Option<CString>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    // Only held: `argv` and `env` point into them.
    _texts: [Vec<CString>; 2],
}

impl Exec {
    /// Program at `path` with its arguments and its whole environment. It starts in the folder
    /// `dir`, if any.
    pub fn new(path: CString, dir: Option<CString>, argv: Vec<CString>, env: Vec<CString>) -> Self {
        Self { path, dir, argv: pointers(&argv), env: pointers(&env), _texts: [argv, env] }
    }

    /// Replaces this process by the program; a text without `#!` is run by the shell. Returns only
    /// on failure. Allocates no memory, so it may be called after any fork.
    pub fn run(&self) -> io::Error {
        if let Some(dir) = &self.dir {
            // SAFETY: the path is a valid string.
            if unsafe { libc::chdir(dir.as_ptr()) } < 0 {
                return io::Error::last_os_error();
            }
        }
        // SAFETY: both are null-terminated lists of strings that live as long as `self`.
        unsafe { libc::execvpe(self.path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Pointers to `texts`, ended by a null pointer, as exec(3) takes them.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Exits immediately, without running exit handlers or destructors that belong to the parent.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Process number.
    pub pid: Pid,
    /// Exit status as a shell reports it: the exit code, or 128 + the signal's number.
    pub status: i32,
    /// CPU time, user and system, of the process and its reaped children.
    pub cpu_time: Nanos,
    /// Part of the CPU time outside the kernel.
    pub user_time: Nanos,
}

/// Number of an ended child before its reaping; `None` if no child has ended.
///
/// # Errors
/// `ECHILD` without any child.
pub fn ended_child() -> Result<Option<Pid>, SysError> {
    // SAFETY: all-zero is a valid `siginfo_t`.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // `WNOWAIT`: until the reaping by the caller the number of the child stays taken.
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the out-parameter is a valid place to write to.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, flags) } < 0 {
        return Err(SysError::last("waitid"));
    }
    // SAFETY: waitid has filled in the fields of a child, or has left them zero (waitid(2)).
    let pid = unsafe { found.si_pid() };
    Ok((pid > 0).then_some(Pid(pid)))
}

/// Reaps an ended child; `None` if no child has ended. With `block`, waits for the end of a child.
///
/// # Errors
/// `ECHILD` without a matching child.
pub fn wait(which: Option<Pid>, block: bool) -> Result<Option<Waited>, SysError> {
    let flags = if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    // -1: any child (waitpid(2)).
    let which = which.map_or(-1, |pid| pid.0);
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both out-parameters are valid places to write to.
    let pid = unsafe { libc::wait4(which, &raw mut status, flags, &raw mut usage) };
    match pid {
        -1 => Err(SysError::last("wait4")),
        0 => Ok(None),
        pid => Ok(Some(Waited {
            pid: Pid(pid),
            status: shell_status(status),
            cpu_time: nanos(usage.ru_utime) + nanos(usage.ru_stime),
            user_time: nanos(usage.ru_utime),
        })),
    }
}

fn shell_status(status: c_int) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

fn nanos(time: libc::timeval) -> Nanos {
    // CPU times are never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos::from_secs(seconds) + Nanos(u64::try_from(time.tv_usec).unwrap_or(0) * 1_000)
}

/// Sends signal `signal` to process `pid`.
///
/// # Errors
/// `ESRCH` if the process has ended, `EPERM` for another user's process.
pub fn kill(pid: Pid, signal: c_int) -> Result<(), SysError> {
    // SAFETY: takes no pointer.
    if unsafe { libc::kill(pid.0, signal) } < 0 { Err(SysError::last("kill")) } else { Ok(()) }
}

/// Sends signal `signal` to the process of `pidfd`: never to a later process with the same number.
///
/// # Errors
/// `ESRCH` if the process has ended, `EPERM` for another user's process.
pub fn kill_by(pidfd: BorrowedFd<'_>, signal: c_int) -> Result<(), SysError> {
    let fd = pidfd.as_raw_fd();
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the optional details of the signal are not given.
    let ret = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) };
    if ret < 0 { Err(SysError::last("pidfd_send_signal")) } else { Ok(()) }
}

/// Makes this process the reaper of its orphaned descendants, as if it were their init, so that
/// every descendant can be found while this process lives (`PR_SET_CHILD_SUBREAPER`, prctl(2)).
pub fn adopt_orphans() {
    // It fails on no Linux since 3.4; any number says yes.
    let _ = process::set_child_subreaper(process::Pid::from_raw(1));
}

/// Waits until every PU has run kernel code since the call, which a PU that a hypervisor has stopped
/// does not (`MEMBARRIER_CMD_GLOBAL`, membarrier(2): a grace period of the kernel's RCU, some tens
/// of milliseconds). Returns at once where the kernel does not offer the call.
pub fn wait_for_all_pus() {
    // SAFETY: takes numbers only, and changes nothing.
    let _ = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
}

/// Unpredictable random number; `None` before the kernel's generator is ready.
pub fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    let given = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (given == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// Pidfd of process `pid`, readable once the process has ended (Linux 5.3).
///
/// # Errors
/// `ESRCH` if no such process exists, `EMFILE` without a free descriptor.
pub fn pidfd(pid: Pid) -> Result<OwnedFd, SysError> {
    let none = SysError { call: "pidfd_open", source: io::Error::from_raw_os_error(libc::ESRCH) };
    // 0 is no process: rustix has no value for it.
    let pid = process::Pid::from_raw(pid.0).ok_or(none)?;
    named("pidfd_open", process::pidfd_open(pid, process::PidfdFlags::empty()))
}

/// Parent of this process, or the process that has adopted it.
pub fn parent() -> Pid {
    Pid(parent_id().cast_signed())
}

/// Whether `signal` is ignored now.
pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all-zero is a valid `sigaction` to be written over.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given; the old one is written to a valid place.
    let ret = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    ret == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Ignores `signal`, or restores its default action.
pub fn ignore(signal: c_int, ignored: bool) {
    // SAFETY: neither disposition runs code of ours.
    unsafe { libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// A file without a name, in memory.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn memfd(name: &CStr) -> Result<OwnedFd, SysError> {
    named("memfd_create", fs::memfd_create(name, fs::MemfdFlags::CLOEXEC))
}

/// Makes descriptor `to` a copy of `from`; the copy stays open across an exec.
///
/// # Errors
/// `EMFILE` for a `to` above the limit.
pub fn dup_onto(from: BorrowedFd<'_>, to: RawFd) -> Result<(), SysError> {
    // SAFETY: takes no pointer; what was open as `to` is closed, which callers intend.
    if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
        return Err(SysError::last("dup2"));
    }
    Ok(())
}

/// Closes every descriptor not in `keep`, which is sorted.
pub fn close_all_but(keep: &[RawFd]) {
    let mut from = 0;
    // No descriptor has the number `u32::MAX`: it only ends the last range.
    let ends = keep.iter().map(|fd| fd.cast_unsigned()).chain([u32::MAX]);
    for end in ends {
        if end > from {
            // SAFETY: takes no pointer; only the guardian and its anchor call this, and use what they keep.
            unsafe { libc::syscall(libc::SYS_close_range, from, end - 1, 0) };
        }
        // After the last range nothing is left.
        from = end.saturating_add(1);
    }
}

/// Leaves the terminal and the process group: keys like Ctrl-C no longer reach this process.
pub fn leave_session() {
    // It fails only for a group leader, which a fresh fork is not.
    let _ = process::setsid();
}

/// Process group of process `pid`; process 0 is the caller. The group is 0 if it belongs to another
/// PID namespace, a case rejected by rustix.
///
/// # Errors
/// `ESRCH` if no such process exists.
pub fn group_of(pid: Pid) -> Result<Pid, SysError> {
    // SAFETY: takes no pointer.
    match unsafe { libc::getpgid(pid.0) } {
        -1 => Err(SysError::last("getpgid")),
        group => Ok(Pid(group)),
    }
}

/// Puts process `pid`, the caller or a child before its exec, into an existing process group of its
/// session, or with the number `pid` into a new group.
///
/// # Errors
/// `EACCES` after the child's exec, `EPERM` across sessions.
pub fn set_group(pid: Pid, group: Pid) -> Result<(), SysError> {
    let [pid, group] = [pid, group].map(|it| process::Pid::from_raw(it.0));
    named("setpgid", process::setpgid(pid, group))
}

/// Sets SIGKILL as parent-death signal of this process. False on failure, or if `parent` is no
/// longer its parent.
pub fn is_killed_with(parent: Pid) -> bool {
    let set = process::set_parent_process_death_signal(Some(process::Signal::KILL));
    // It may have ended before we asked.
    set.is_ok() && self::parent() == parent
}

/// Does nothing until a signal ends this process.
pub fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: takes no pointer.
        unsafe { libc::pause() };
    }
}

/// Sets SIGTERM as parent-death signal for the process started by `command`: sent at any end of the
/// starting thread. Cleared for a program with set-user-ID or file capabilities (prctl(2)).
pub fn ends_with_us(command: &mut Command) {
    let us = std::process::id();
    let ask = move || {
        // SAFETY: takes a signal number.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) };
        // We may have ended before it asked.
        if parent_id() == us { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: `ask` makes two system calls and takes no memory and no lock.
    unsafe { command.pre_exec(ask) };
}

/// Gives this thread a name, for `ps`.
pub fn set_name(name: &CStr) {
    // SAFETY: the name is a valid string; the kernel copies at most 16 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Parameters of sched_setattr(2), as far as its first version goes.
#[derive(Default)]
#[repr(C)]
struct SchedAttr {
    size_b: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The `nice` of this thread.
pub fn nice() -> i32 {
    // 0: the default, should a filter refuse the call.
    process::getpriority_process(None).unwrap_or(0)
}

/// Lets this thread run soon after its wake-up: `slice` is its time slice, and since Linux 6.12
/// short slices run first. Older kernels accept and ignore the slice. The slice needs no privilege.
/// With `CAP_SYS_NICE` a lower `nice` raises the share of CPU time as well.
///
/// # Errors
/// `EPERM` if `nice` is not permitted; `ENOSYS` and `EPERM` under some seccomp filters.
pub fn set_slice_and_nice(slice: Nanos, nice: i32) -> Result<(), SysError> {
    schedule_as(libc::SCHED_OTHER, slice, nice)
}

/// Puts this thread under `SCHED_FIFO` at the lowest fixed priority: it runs before all threads
/// without one. Needs `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
///
/// # Errors
/// `EPERM` without permission, or in a control group without real-time bandwidth.
pub fn set_real_time() -> Result<(), SysError> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads the valid parameters; 0 is the caller.
    let ret = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if ret < 0 { Err(SysError::last("sched_setscheduler")) } else { Ok(()) }
}

/// The scheduling policy of this thread (sched(7)).
pub fn policy() -> c_int {
    // SAFETY: takes no pointer.
    unsafe { libc::sched_getscheduler(0) }
}

/// Restores this thread's policy and nice value from before [`set_slice_and_nice`]. Policies with
/// fixed priorities, which need a privilege, are not restored.
pub fn restore_own_schedule(policy: c_int, nice: i32) {
    let policy = match policy {
        libc::SCHED_BATCH | libc::SCHED_IDLE => policy,
        _ => libc::SCHED_OTHER,
    };
    // Where a filter refuses the call, this thread keeps its present schedule.
    let _ = schedule_as(policy, Nanos::ZERO, nice);
}

fn schedule_as(policy: c_int, slice: Nanos, nice: i32) -> Result<(), SysError> {
    set_schedule(Tid(0), &Schedule { policy, nice, flags: 0, slice_ns: slice.0 })
}

/// Scheduling attributes of a thread without a fixed priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The policy, by the kernel's number (sched(7)).
    pub policy: c_int,
    /// The nice value.
    pub nice: i32,
    flags: u64,
    slice_ns: u64,
}

impl Schedule {
    /// These attributes under another policy.
    pub const fn under(self, policy: c_int) -> Self {
        Self { policy, ..self }
    }
}

/// Scheduling attributes of thread `tid`; thread 0 is the caller.
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn schedule_of(tid: Tid) -> Result<Schedule, SysError> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes to `attr`, and every bit pattern is valid for it.
    let ret = unsafe { libc::syscall(libc::SYS_sched_getattr, tid.0, &raw mut attr, size, 0) };
    if ret < 0 {
        return Err(SysError::last("sched_getattr"));
    }
    let SchedAttr { policy, flags, nice, runtime_ns, .. } = attr;
    Ok(Schedule { policy: policy.cast_signed(), nice, flags, slice_ns: runtime_ns })
}

/// Sets the scheduling attributes of thread `tid`; thread 0 is the caller.
///
/// # Errors
/// `EPERM` without permission, `ESRCH` if the thread has ended.
pub fn set_schedule(tid: Tid, wanted: &Schedule) -> Result<(), SysError> {
    let attr = SchedAttr {
        size_b: 48, // SCHED_ATTR_SIZE_VER0
        policy: wanted.policy.cast_unsigned(),
        flags: wanted.flags,
        nice: wanted.nice,
        runtime_ns: wanted.slice_ns,
        ..SchedAttr::default()
    };
    // SAFETY: the kernel reads the 48 bytes that `size_b` says, and that the type has.
    let ret = unsafe { libc::syscall(libc::SYS_sched_setattr, tid.0, &raw const attr, 0) };
    if ret < 0 { Err(SysError::last("sched_setattr")) } else { Ok(()) }
}

/// Soft and hard limit of process `pid` for nice values (RLIMIT_NICE: 20 less the lowest nice
/// value); process 0 is the caller.
///
/// # Errors
/// `ESRCH` if no such process exists, `EPERM` for another user's process.
pub fn limit_of_nice(pid: Pid) -> Result<(u64, u64), SysError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit is given; the old one is written to a valid place.
    let ret = unsafe { libc::prlimit(pid.0, libc::RLIMIT_NICE, std::ptr::null(), &raw mut limit) };
    if ret < 0 { Err(SysError::last("prlimit")) } else { Ok((limit.rlim_cur, limit.rlim_max)) }
}

/// Sets the limits of this process for nice values.
///
/// # Errors
/// `EPERM` above the hard limit without CAP_SYS_RESOURCE.
pub fn set_limit_of_nice(soft: u64, hard: u64) -> Result<(), SysError> {
    let limit = process::Rlimit { current: Some(soft), maximum: Some(hard) };
    named("setrlimit", process::setrlimit(process::Resource::Nice, limit))
}

/// Session of process `pid`, with 0 as in [`group_of`]; process 0 is the caller.
///
/// # Errors
/// `ESRCH` if the process has ended.
pub fn session_of(pid: Pid) -> Result<Pid, SysError> {
    // SAFETY: takes no pointer.
    match unsafe { libc::getsid(pid.0) } {
        -1 => Err(SysError::last("getsid")),
        session => Ok(Pid(session)),
    }
}

/// Sets the limits of open descriptors for this process, as far as permitted.
pub fn limit_files(soft: u64, hard: u64) {
    let limit = process::Rlimit { current: Some(soft), maximum: Some(hard) };
    let _ = process::setrlimit(process::Resource::Nofile, limit);
}

/// The effective user.
pub fn effective_user() -> u32 {
    process::geteuid().as_raw()
}

/// Whether this process may execute the file at `path`, as the kernel says.
pub fn may_execute(path: &Path) -> bool {
    fs::accessat(fs::CWD, path, fs::Access::EXEC_OK, fs::AtFlags::EACCESS).is_ok()
}

/// Whether SIGPIPE was ignored at the start of this process. Rust's start-up code always ignores
/// it, so the query must precede the start-up code.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_sigpipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

// SAFETY: the loader calls the functions of this section before main, with arguments that
// `note_sigpipe` does not read; it makes one system call and stores one flag.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

/// Whether this process was started with SIGPIPE ignored.
pub fn pipe_was_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later runs find the policies that leave PUs to others, and none with fixed priorities. Each in a thread of its
    /// own: so none of them has to be left again, which may not be permitted.
    #[test]
    fn restored_policies() {
        let given = |wanted: c_int| {
            let thread = std::thread::spawn(move || {
                restore_own_schedule(wanted, nice());
                policy()
            });
            thread.join().unwrap()
        };
        let kept = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
        assert_eq!(kept.map(given), kept);
        assert_eq!(given(libc::SCHED_FIFO), libc::SCHED_OTHER);
    }
}
