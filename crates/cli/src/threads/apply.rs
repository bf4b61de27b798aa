//! A run of a program that learns the numbers of threads of its parallel regions while it runs.

use super::library::Library;
use super::places::RegionLocations;
use super::regions;
use super::report::ThreadsReport;
use crate::children::{self, POLL};
use crate::exit;
use colocate_act::signals::SignalAction;
use colocate_linux::{Pid, sys};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

/// Runs the program to its end; returns its exit status, or 128 plus the number of a signal.
pub fn run(
    command: &[OsString],
    report: &mut ThreadsReport,
    stop: &AtomicBool,
) -> anyhow::Result<u8> {
    let library = match Library::find() {
        Ok(library) => Some(library),
        // The program runs all the same, without learning.
        Err(why) => {
            report.notes.push(format!("{why:#}; numbers of threads are the program's own"));
            None
        }
    };
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    if let Some(library) = &library {
        library.preload(&mut program, report.allowed.most.threads, true);
    }
    sys::ends_with_us(&mut program);
    let begin = Instant::now();
    let child = program.spawn().map_err(|why| exit::cannot_start(&command[0], &why))?;
    let pid = Pid(child.id().cast_signed());
    // Not before the launch: the program would inherit the blocked signals.
    let signals = children::take_signals().ok();
    let ends = children::ends(&[pid]);
    let status = loop {
        match ends.recv_timeout(POLL) {
            Ok(end) => break end?.waited.status,
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("cannot wait for the program"),
            Err(RecvTimeoutError::Timeout) => pass_on(pid, signals.as_ref(), stop),
        }
    };
    report.took_s = begin.elapsed().as_secs_f64();
    report.status = Some(status);
    let is_stopped = || is_stopped(signals.as_ref(), stop);
    let reports = library.map(|library| library.reports(&is_stopped)).unwrap_or_default();
    report.notes.extend(reports.note());
    let places = RegionLocations::of(&reports.regions, &is_stopped);
    report.notes.extend(places.note());
    report.regions = regions::of_one(&reports.regions, &places);
    if report.regions.is_empty() {
        report.notes.push(
            "no parallel region was seen: no OpenMP program, linked statically, set-user-ID, or ended by a signal".to_owned(),
        );
    }
    Ok(u8::try_from(status).unwrap_or(exit::OURS))
}

/// Whether a signal has arrived since the end of the program.
fn is_stopped(signals: Option<&OwnedFd>, stop: &AtomicBool) -> bool {
    if signals.is_some_and(|signals| sys::next_signal(signals.as_fd()).is_some()) {
        // The descriptor delivers a signal once: the flag keeps it.
        stop.store(true, Ordering::Relaxed);
    }
    stop.load(Ordering::Relaxed)
}

/// Passes on signals sent to colocate. Signals of terminal keys reach the program by themselves,
/// and may mean something else to it than termination.
fn pass_on(pid: Pid, signals: Option<&OwnedFd>, stop: &AtomicBool) {
    while let Some(arrived) = signals.and_then(|signals| sys::next_signal(signals.as_fd())) {
        if SignalAction::from(arrived).pass_on {
            // The program may have ended meanwhile.
            let _ = sys::kill(pid, arrived.signal);
        }
    }
    // A signal from before the signal descriptor existed has no known number.
    if stop.swap(false, Ordering::Relaxed) {
        let _ = sys::kill(pid, libc::SIGTERM);
    }
}
