//! Starting QEMU, passing signals on, and waiting.

#![allow(unsafe_code)] // signal masks, signalfd, pidfd_open, kill

use super::{Command, Emulator, Loadable, trace::hex};
use crate::sys::{SysError, is_readable, wait_readable};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use thiserror::Error;

/// Why a program could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// This folder for temporary files cannot be used.
    #[error("cannot make a folder in {}: {}", .0.display(), .1)]
    Scratch(PathBuf, #[source] io::Error),
    /// This QEMU cannot be started.
    #[error("cannot start {}: {}", .0.display(), .1)]
    Start(PathBuf, #[source] io::Error),
    /// The program cannot be waited for.
    #[error(transparent)]
    Wait(#[from] SysError),
}

/// A folder of our own that goes when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder in `parent` that only this user can look into.
    pub fn new(parent: &Path) -> Result<Self, RunError> {
        let name = format!("colocate-{}-{}", std::process::id(), crate::sys::now().0);
        let create = || {
            // The program may go to another working folder before its counts are written.
            let path = std::path::absolute(parent)?.join(name);
            std::fs::DirBuilder::new().mode(0o700).create(&path)?;
            Ok(Self(path))
        };
        create().map_err(|source| RunError::Scratch(parent.to_owned(), source))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Signals that are for the program rather than for us.
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

/// Runs `loadable` under QEMU, its counts left in `folder`, and waits for its end.
pub fn run(
    emulator: &Emulator,
    loadable: &Loadable,
    command: Command<'_>,
    folder: &Path,
) -> Result<ExitStatus, RunError> {
    let blocked = Blocked::new()?;
    let before = blocked.before;
    let ignores_pipe = command.ignores_pipe;
    let mut qemu = std::process::Command::new(&emulator.qemu);
    qemu.args(arguments(emulator, loadable, command, folder));
    // SAFETY: all that is called is async-signal-safe and touches nothing of the parent's.
    unsafe {
        qemu.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            if ignores_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            no_core_file();
            Ok(())
        });
    }
    let mut child =
        qemu.spawn().map_err(|source| RunError::Start(emulator.qemu.clone(), source))?;
    Ok(wait(&mut child, &blocked)?)
}

/// QEMU's command line.
fn arguments(
    emulator: &Emulator,
    loadable: &Loadable,
    command: Command<'_>,
    folder: &Path,
) -> Vec<OsString> {
    let mut plugin = b"file=".to_vec();
    // A comma ends a value unless it is doubled. What follows is in hexadecimal for that reason.
    for byte in emulator.plugin.as_os_str().as_bytes() {
        plugin.extend(if *byte == b',' { &b",,"[..] } else { std::slice::from_ref(byte) });
    }
    // The kernel names the first thread after the file, not after the interpreter of a script.
    let name = command.path.file_name().unwrap_or_default().as_bytes();
    let name = hex(&name[..name.len().min(15)]);
    plugin.extend(format!(",out={},name={name}", hex(folder.as_os_str().as_bytes())).bytes());
    if command.stretches {
        plugin.extend(format!(",stretch={}", crate::code::LENGTH).bytes());
    }
    if command.misses {
        plugin.extend(b",branches=");
        plugin.extend(b",misses=");
    }

    let (called, rest) = loadable.argv.split_first().map_or((None, &[][..]), |(a, b)| (Some(a), b));
    let mut words: Vec<OsString> = vec!["-plugin".into(), super::word(plugin)];
    words.extend(called.into_iter().flat_map(|name| [OsStr::new("-0"), name]).map(OsString::from));
    words.push(not_an_option(&loadable.executable));
    words.extend(rest.iter().cloned());
    words
}

/// `path`, so that QEMU does not take it for an option.
fn not_an_option(path: &Path) -> OsString {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        Path::new(".").join(path).into()
    } else {
        path.into()
    }
}

/// QEMU would write the program's memory into the working folder, under a name of its own.
fn no_core_file() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
}

/// The calling thread's signals, held back until this is dropped, and read from a descriptor.
struct Blocked {
    signals: File,
    before: libc::sigset_t,
}

impl Blocked {
    fn new() -> Result<Self, SysError> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before it is used; pthread_sigmask fills in the
        // other one, which is only read if it did; the descriptor is new and has no other owner.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(SysError::last("pthread_sigmask"));
            }
            let before = before.assume_init();
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC);
            if fd < 0 {
                let error = SysError::last("signalfd");
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                return Err(error);
            }
            Ok(Self { signals: File::from_raw_fd(fd), before })
        }
    }

    /// Takes a signal that is there: its number, and whether a process sent it.
    fn take(&self) -> Result<(libc::c_int, bool), SysError> {
        const WHOLE_B: usize = size_of::<libc::signalfd_siginfo>();
        let mut info = [0; WHOLE_B];
        (&self.signals)
            .read_exact(&mut info)
            .map_err(|source| SysError { call: "read(signalfd)", source })?;
        // The structure begins with signal number, errno and code, 32 bits each.
        let field = |place: usize| {
            info[4 * place..].first_chunk().map_or(0, |bytes| libc::c_int::from_ne_bytes(*bytes))
        };
        Ok((field(0), field(2) <= 0))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that pthread_sigmask gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// A descriptor that becomes readable when process `pid` ends.
fn open_process(pid: libc::pid_t) -> Result<OwnedFd, SysError> {
    // SAFETY: takes no pointer; the descriptor is new and has no other owner.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        match libc::c_int::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(SysError::last("pidfd_open")),
        }
    }
}

/// Waits for `child`, passing on signals meanwhile.
fn wait(child: &mut Child, blocked: &Blocked) -> Result<ExitStatus, SysError> {
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(libc::pid_t::MAX);
    let failed = |source| SysError { call: "waitpid", source };
    // Without the descriptor (Linux before 5.3) signals wait until the end, but the end is seen.
    let Ok(end) = open_process(pid) else { return child.wait().map_err(failed) };
    loop {
        wait_readable(&[end.as_fd(), blocked.signals.as_fd()], None)?;
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if !is_readable(blocked.signals.as_fd()) {
            continue;
        }
        let (signal, sent) = blocked.take()?;
        // What the terminal sends reaches the program without us.
        if sent {
            // SAFETY: takes no pointer; the child has not been waited for, so the number is its.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Whether process `pid` is there and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let proc = crate::proc::Proc::default();
    let pid = crate::task::Pid(i32::try_from(pid).unwrap_or(i32::MAX));
    proc.state_and_parent(pid).is_ok_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}
