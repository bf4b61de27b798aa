//! System calls, one per function.
#![allow(unsafe_code)] // no crate of the workspace has these calls

use anyhow::anyhow;
use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

/// Makes the calling thread a SCHED_FIFO thread. Its children are not (SCHED_RESET_ON_FORK).
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` and with a real-time limit below `priority`, or in a control
/// group without real-time bandwidth.
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

/// Sleeps until the time `until_ns`, in ns of `CLOCK_MONOTONIC`.
///
/// A signal ends the sleep early. This process handles no signal, and a short sleep only starts a
/// period early.
pub fn sleep_until(until_ns: u64) {
    let tv_sec = (until_ns / 1_000_000_000) as i64;
    let tv_nsec = (until_ns % 1_000_000_000) as i64;
    let until = libc::timespec { tv_sec, tv_nsec };
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

/// Requests SIGTERM for the child of `command` when the thread that starts the child ends.
///
/// A program with set-user-ID or file capabilities gets no signal (prctl(2)).
pub fn ends_with_us(command: &mut Command) {
    let us = std::process::id();
    // SAFETY: `end_with` makes two system calls and takes no memory and no lock.
    unsafe { command.pre_exec(move || end_with(us)) };
}

/// Requests SIGTERM at the end of the parent, from the child of process `parent`.
///
/// # Errors
/// `Interrupted` if the parent has already ended.
fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: takes a signal number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) };
    // The parent may have ended before the request, which then has no effect.
    if parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}
