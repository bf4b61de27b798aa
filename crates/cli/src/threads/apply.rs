//! A program whose parallel regions get the number of threads that is learnt while it runs.

use super::library::Library;
use super::regions;
use super::report::Report;
use anyhow::Context;
use colocate_act::sys;
use colocate_observe::Pid;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often we look whether somebody asked us to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// Runs the program to its end; its exit status, 128 + the number of the signal that ended it.
///
/// # Errors
/// If it cannot be started, or waited for.
pub fn run(command: &[OsString], report: &mut Report, stop: &AtomicBool) -> anyhow::Result<u8> {
    let library = match Library::find() {
        Ok(library) => Some(library),
        // The program runs, as it would without us.
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
    let mut child = program.spawn().context("cannot start the program")?;
    let pid = Pid(child.id().cast_signed());
    let (send, ends) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more only if we are ending anyway.
        let _ = send.send(child.wait());
    });
    let status = loop {
        match ends.recv_timeout(GLANCE) {
            Ok(status) => break status.context("cannot wait for the program")?,
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("cannot wait for the program"),
            // Keys reach the program by themselves; who asks us alone means the program as well.
            Err(RecvTimeoutError::Timeout) if stop.swap(false, Ordering::Relaxed) => {
                let _ = sys::kill(pid, libc::SIGTERM);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    report.took_s = begin.elapsed().as_secs_f64();
    report.status = Some(status);
    report.regions = regions::of_one(&library.map(|library| library.reports()).unwrap_or_default());
    if report.regions.is_empty() {
        report.notes.push(
            "no parallel region was seen: no OpenMP program, linked statically, set-user-ID, or ended by a signal".to_owned(),
        );
    }
    Ok(u8::try_from(status).unwrap_or(crate::exit::OURS))
}
