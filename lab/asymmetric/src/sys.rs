//! System calls, one a function.
#![allow(unsafe_code)] // no crate of the workspace has these calls

use anyhow::anyhow;
use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

/// Makes the calling thread a SCHED_FIFO one. What it starts is none.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` and with a real-time limit below `priority`, or in a control group without real-time
/// bandwidth.
pub fn be_real_time(priority: u8) -> anyhow::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`, which lives through the call.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } < 0 {
        let error = io::Error::last_os_error();
        return Err(anyhow!(
            "cannot make a real-time thread: sched_setscheduler: {error}: expected root, CAP_SYS_NICE or a real-time limit \
             of 2 (ulimit -r), and a control group with real-time bandwidth (cpu.rt_runtime_us) where the kernel shares \
             that out"
        ));
    }
    Ok(())
}

/// Sleeps until the wall time `until`, in ns of `CLOCK_MONOTONIC`. Signals may wake earlier: this process handles
/// none, and after a short sleep one period begins early.
#[allow(clippy::cast_possible_wrap)] // seconds since the boot
pub fn sleep_until(until_ns: u64) {
    let (tv_sec, tv_nsec) = (until_ns / 1_000_000_000, until_ns % 1_000_000_000);
    let until = libc::timespec { tv_sec: tv_sec as i64, tv_nsec: tv_nsec as i64 };
    let absolute = libc::TIMER_ABSTIME;
    // SAFETY: the kernel reads one `timespec`, and writes nothing when the time is absolute.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            absolute,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// Lets the process that `command` starts get SIGTERM when the thread that starts it ends, by whatever means. A program
/// with set-user-ID or capabilities of its file gets none (prctl(2)).
pub fn ends_with_us(command: &mut Command) {
    let us = std::process::id();
    let request = move || {
        // SAFETY: takes a signal number.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) };
        // We may have ended before the request.
        if parent_id() == us { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: `request` makes two system calls and takes no memory and no lock.
    unsafe { command.pre_exec(request) };
}
