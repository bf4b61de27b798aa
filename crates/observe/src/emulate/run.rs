//! Runs QEMU: start, signal forwarding, wait.

#![allow(unsafe_code)] // signal, kill

use super::{EmulatedCommand, Emulator, Loadable, NotLoadable};
use crate::identity::hex;
use colocate_linux::poll::wait_readable;
use colocate_linux::{SysError, signal};
use rustix::process::{self, PidfdFlags, Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use tempfile::TempDir;
use thiserror::Error;

/// Reason why a program could not be run.
#[derive(Debug, Error)]
pub enum EmulateError {
    /// File that QEMU cannot load.
    #[error(transparent)]
    NotLoadable(#[from] NotLoadable),
    /// Folder for temporary files that cannot be used.
    #[error("cannot make a folder in {}: {}", .0.display(), .1)]
    Scratch(PathBuf, #[source] io::Error),
    /// QEMU that cannot be started.
    #[error("cannot start {}: {}", .0.display(), .1)]
    Start(PathBuf, #[source] io::Error),
    /// Failed wait for the program.
    #[error(transparent)]
    Wait(#[from] SysError),
}

/// New folder in `parent`, accessible to this user only and removed on drop.
pub fn scratch(parent: &Path) -> Result<TempDir, EmulateError> {
    // Absolute: the program may change its working folder before its counts are written.
    let made = std::path::absolute(parent)
        .and_then(|parent| tempfile::Builder::new().prefix("colocate-").tempdir_in(parent));
    made.map_err(|source| EmulateError::Scratch(parent.to_owned(), source))
}

/// Signals meant for the program.
const PASSED_ON: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// Runs `loadable` under QEMU with counts left in `folder`, and waits for its exit.
pub fn run(
    emulator: &Emulator,
    loadable: &Loadable,
    command: EmulatedCommand<'_>,
    folder: &Path,
) -> Result<ExitStatus, EmulateError> {
    let signals = signal::signalfd(&PASSED_ON)?;
    // Blocked before the start, so no signal is lost between start and wait.
    let before = signal::block(&PASSED_ON)?;
    let ignores_pipe = command.ignores_pipe;
    let mut qemu = std::process::Command::new(&emulator.qemu);
    qemu.args(arguments(emulator, loadable, command, folder));
    // SAFETY: all that is called is async-signal-safe and touches nothing of the parent's.
    unsafe {
        qemu.pre_exec(move || {
            // The child inherits the blocked mask.
            signal::set_mask(&before);
            if ignores_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            no_core_file();
            Ok(())
        });
    }
    let started = qemu.spawn().map_err(|source| EmulateError::Start(emulator.qemu.clone(), source));
    let status = started.and_then(|mut child| Ok(wait(&mut child, signals.as_fd())?));
    signal::set_mask(&before);
    status
}

/// QEMU's command line.
fn arguments(
    emulator: &Emulator,
    loadable: &Loadable,
    command: EmulatedCommand<'_>,
    folder: &Path,
) -> Vec<OsString> {
    let mut plugin = b"file=".to_vec();
    // A comma ends a value unless doubled. For that reason later values are in hexadecimal.
    for byte in emulator.plugin.as_os_str().as_bytes() {
        plugin.extend(if *byte == b',' { &b",,"[..] } else { std::slice::from_ref(byte) });
    }
    // The kernel names the first thread after the file, not after the interpreter of a script.
    let name = command.path.file_name().unwrap_or_default().as_bytes();
    // The kernel cuts names of threads to 15 bytes (prctl(2)).
    let name = hex(&name[..name.len().min(15)]);
    plugin.extend(format!(",out={},name={name}", hex(folder.as_os_str().as_bytes())).bytes());
    if command.stretches {
        plugin.extend(format!(",stretch={}", crate::code::LENGTH).bytes());
    }
    if command.misses {
        plugin.extend(b",branches=");
        plugin.extend(b",misses=");
    }
    if let Some(file) = command.trace {
        // The program may change its working folder.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        plugin.extend(format!(",trace={}", hex(file.as_os_str().as_bytes())).bytes());
    }

    let (called, rest) = loadable.argv.split_first().map_or((None, &[][..]), |(a, b)| (Some(a), b));
    let mut words: Vec<OsString> = vec!["-plugin".into(), super::word(plugin)];
    // QEMU's option `-0` sets `argv[0]`.
    words.extend(called.into_iter().flat_map(|name| [OsStr::new("-0"), name]).map(OsString::from));
    words.push(not_an_option(&loadable.executable));
    words.extend(rest.iter().cloned());
    words
}

/// `path` in a form that QEMU does not take for an option.
fn not_an_option(path: &Path) -> OsString {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        Path::new(".").join(path).into()
    } else {
        path.into()
    }
}

/// Disables core files: QEMU would write the program's memory, in the working folder.
fn no_core_file() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
}

/// Waits for `child`, forwarding signals.
fn wait(child: &mut Child, signals: BorrowedFd<'_>) -> Result<ExitStatus, SysError> {
    let pid = process::Pid::from_child(child);
    // Without pidfds (Linux before 5.3) no signal is forwarded, but the exit is seen.
    let Ok(end) = process::pidfd_open(pid, PidfdFlags::empty()) else {
        return child.wait().map_err(wait_failed);
    };
    loop {
        wait_readable(&[end.as_fd(), signals], None)?;
        if let Some(status) = child.try_wait().map_err(wait_failed)? {
            return Ok(status);
        }
        // The terminal sends its signals to the whole foreground group, the program included.
        if let Some(arrived) = signal::next_signal(signals).filter(|arrived| !arrived.by_kernel) {
            // SAFETY: takes no pointer; the child has not been waited for, so the number is its.
            unsafe { libc::kill(pid.as_raw_nonzero().get(), arrived.signal) };
        }
    }
}

fn wait_failed(source: io::Error) -> SysError {
    SysError { call: "waitpid", source }
}

/// Whether process `pid` exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let proc = colocate_linux::proc::Proc::default();
    let pid = colocate_linux::Pid(i32::try_from(pid).unwrap_or(i32::MAX));
    proc.state_and_parent(pid).is_ok_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}
