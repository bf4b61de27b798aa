//! Starting programs: found first, held before their exec, then released together.

use crate::signals::InitialState;
use colocate_files::kernel;
use colocate_linux::limits::Descriptors;
use colocate_linux::sys::{self, Exec, Fork};
use colocate_linux::{Pid, SysError};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Exit status of a program that could not be executed, as of `env` and `timeout`.
pub const CANNOT_EXECUTE: i32 = 126;
/// Exit status of a missing program, as of `env` and `timeout`.
pub const NOT_FOUND: i32 = 127;
/// Exit status of colocate's own failures.
const OURS: i32 = 125;

/// Failed start of a program.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The program does not exist.
    #[error("{}: command not found", .0.display())]
    NotFound(OsString),
    /// The program exists but cannot be executed.
    #[error("{}: {source}", program.display())]
    CannotExecute {
        /// Path of the program.
        program: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The command contains a null byte.
    #[error("expected a command without null bytes, found one in {0:?}")]
    Null(OsString),
    /// The system is short of something.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// More files would have to be open than may be.
    #[error(
        "{}: cannot be started: found no more than {limit} open files allowed, expected room for its pipes; raise the limit \
         (ulimit -Hn, LimitNOFILE=), or start fewer programs", program.display()
    )]
    NoDescriptor {
        /// The program.
        program: PathBuf,
        /// Maximum number of open files.
        limit: u64,
    },
    /// A job has an instruction target, and instructions cannot be counted.
    #[error(
        "a target of {target} instructions: expected counters, found none: {why}; \
         `colocate doctor` names the remedy"
    )]
    NoCounters {
        /// The target.
        target: u64,
        /// Reason.
        why: String,
    },
}

impl LaunchError {
    /// Exit status of `env` for this error.
    pub fn status(&self) -> i32 {
        match self {
            Self::NotFound(_) => NOT_FOUND,
            // A script whose interpreter is missing.
            Self::CannotExecute { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                NOT_FOUND
            }
            Self::CannotExecute { .. } => CANNOT_EXECUTE,
            Self::Null(_) | Self::Sys(_) | Self::NoDescriptor { .. } | Self::NoCounters { .. } => {
                OURS
            }
        }
    }
}

/// A program with its arguments, found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program's file.
    pub path: PathBuf,
    /// Arguments; the first is the program as written by the user.
    pub argv: Vec<OsString>,
    /// Working folder; ours if `None`. With a folder, `path` is not relative.
    pub dir: Option<PathBuf>,
    /// Environment variables set in place of ours.
    pub env: Vec<(OsString, OsString)>,
}

impl Command {
    /// Finds the program of `argv` as execvp(3) does, in the folders of `path_var` unless it has a
    /// slash in it.
    ///
    /// # Errors
    /// [`LaunchError::NotFound`] or [`LaunchError::CannotExecute`], with the distinction of `env`.
    pub fn find(argv: Vec<OsString>, path_var: Option<&OsStr>) -> Result<Self, LaunchError> {
        let program = argv.first().cloned().unwrap_or_default();
        if program.is_empty() {
            return Err(LaunchError::NotFound(program));
        }
        let path = if program.as_bytes().contains(&b'/') {
            check(PathBuf::from(&program))?
        } else {
            search(&program, path_var.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")))?
        };
        Ok(Self { path, argv, ..Self::default() })
    }

    /// Whole environment for exec(3).
    fn environment(&self) -> Result<Vec<CString>, LaunchError> {
        let ours = std::env::vars_os()
            .filter(|(name, _)| !self.env.iter().any(|(other, _)| other == name));
        let all = self.env.iter().cloned().chain(ours);
        all.map(|(name, value)| {
            let bytes = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(bytes).map_err(|_| LaunchError::Null(value))
        })
        .collect()
    }

    /// The program's name, without folders.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

fn check(path: PathBuf) -> Result<PathBuf, LaunchError> {
    match path.metadata() {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            Err(LaunchError::NotFound(path.into_os_string()))
        }
        Err(source) => Err(LaunchError::CannotExecute { program: path, source }),
        Ok(found) if found.is_file() && sys::may_execute(&path) => Ok(path),
        Ok(_) => {
            // The same error as of execvp(3).
            let source = io::Error::from_raw_os_error(libc::EACCES);
            Err(LaunchError::CannotExecute { program: path, source })
        }
    }
}

/// First executable file in the folders; else the error of the first that is not executable.
fn search(program: &OsStr, path_var: &OsStr) -> Result<PathBuf, LaunchError> {
    let mut error = LaunchError::NotFound(program.to_owned());
    for dir in std::env::split_paths(path_var) {
        // An empty entry is the current folder.
        let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
        match check(dir.join(program)) {
            Ok(path) => return Ok(path),
            Err(found @ LaunchError::CannotExecute { .. }) => {
                if matches!(error, LaunchError::NotFound(_)) {
                    error = found;
                }
            }
            Err(_) => {}
        }
    }
    Err(error)
}

/// Standard input of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input of colocate.
    Inherited,
    /// Nothing: `/dev/null`.
    Nothing,
}

/// Process that waits before its exec. On drop it ends without the exec.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    go: io::PipeWriter,
    failure: io::PipeReader,
    program: PathBuf,
}

/// Released process, whose exec may be pending.
#[derive(Debug)]
pub struct ExecPending {
    pid: Pid,
    failure: io::PipeReader,
    program: PathBuf,
}

/// Creates the process for `command`. Before its exec the new process makes only system calls, so
/// this function may be called while threads run.
///
/// # Errors
/// [`LaunchError::Null`], or [`LaunchError::Sys`] at the limits of processes and open files.
pub fn hold(command: &Command, input: Input, signals: &InitialState) -> Result<Held, LaunchError> {
    hold_as(command, input, signals, false)
}

/// As [`hold`], at a later time, when colocate has changed more of its own state than signals. The
/// standard input is empty: the first run had the input.
///
/// # Errors
/// As [`hold`].
pub fn hold_again(command: &Command, signals: &InitialState) -> Result<Held, LaunchError> {
    hold_as(command, Input::Nothing, signals, true)
}

fn hold_as(
    command: &Command,
    input: Input,
    signals: &InitialState,
    again: bool,
) -> Result<Held, LaunchError> {
    let path = c_string(command.path.as_os_str())?;
    let dir = command.dir.as_ref().map(|dir| c_string(dir.as_os_str())).transpose()?;
    let argv = command.argv.iter().map(|arg| c_string(arg)).collect::<Result<_, _>>()?;
    let exec = Exec::new(path, dir, argv, command.environment()?);
    let (wait, go) = pipe(command)?;
    let (failure, report) = pipe(command)?;
    match sys::fork()? {
        Fork::Parent(pid) => Ok(Held { pid, go, failure, program: command.path.clone() }),
        Fork::Child => {
            // An own copy of the write end would hide colocate's end.
            drop((go, failure));
            if again {
                signals.restore_schedule();
            }
            let error = become_program(wait, input, signals, &exec);
            fail(&error, report)
        }
    }
}

/// Pipe to a program. Once descriptors have run out, as with hundreds of jobs, raises the limit,
/// which programs do not inherit.
fn pipe(command: &Command) -> Result<(io::PipeReader, io::PipeWriter), LaunchError> {
    match io::pipe() {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            let limit = Descriptors::raise()?.soft;
            let program = command.path.clone();
            io::pipe().map_err(|_| LaunchError::NoDescriptor { program, limit })
        }
        Err(source) => Err(SysError { call: "pipe", source }.into()),
        Ok(made) => Ok(made),
    }
}

fn c_string(text: &OsStr) -> Result<CString, LaunchError> {
    CString::new(text.as_bytes()).map_err(|_| LaunchError::Null(text.to_owned()))
}

/// Main function of the new process. Returns only on failure.
fn become_program(
    mut wait: io::PipeReader,
    input: Input,
    signals: &InitialState,
    exec: &Exec,
) -> io::Error {
    let mut byte = [0];
    if !matches!(wait.read(&mut byte), Ok(1)) {
        // colocate is gone, or has changed its mind.
        sys::exit_now(OURS)
    }
    if input == Input::Nothing {
        let opened = kernel::open(Path::new("/dev/null"));
        let given = opened.and_then(|null| {
            sys::dup_onto(null.as_fd(), libc::STDIN_FILENO).map_err(|error| error.source)
        });
        if let Err(error) = given {
            return error;
        }
    }
    signals.restore();
    exec.run()
}

fn fail(error: &io::Error, mut report: io::PipeWriter) -> ! {
    let number = error.raw_os_error().unwrap_or(libc::EIO);
    let _ = report.write_all(&number.to_ne_bytes());
    sys::exit_now(if number == libc::ENOENT { NOT_FOUND } else { CANNOT_EXECUTE })
}

impl Held {
    /// Process number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Releases the process.
    pub fn release(self) -> ExecPending {
        let Self { pid, mut go, failure, program } = self;
        let _ = go.write_all(b".");
        ExecPending { pid, failure, program }
    }
}

impl ExecPending {
    /// Waits for the exec of the process.
    ///
    /// # Errors
    /// [`LaunchError::NotFound`] or [`LaunchError::CannotExecute`] if the exec failed; in this case
    /// the process ends with the error's [`LaunchError::status`].
    pub fn confirm(mut self) -> Result<Pid, LaunchError> {
        let mut number = [0; 4];
        // The pipe closes without data when the exec succeeds.
        match self.failure.read_exact(&mut number).map(|()| i32::from_ne_bytes(number)) {
            Err(_) => Ok(self.pid),
            // ENOENT can also mean a missing interpreter (execve(2)).
            Ok(libc::ENOENT) if !Path::new(&self.program).exists() => {
                Err(LaunchError::NotFound(self.program.into_os_string()))
            }
            Ok(number) => {
                let source = io::Error::from_raw_os_error(number);
                Err(LaunchError::CannotExecute { program: self.program, source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn find(program: &str, path: &str) -> Result<PathBuf, LaunchError> {
        Command::find(vec![program.into()], Some(OsStr::new(path))).map(|command| command.path)
    }

    #[test]
    fn programs_are_found_as_env_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("a/tool", 0o644), ("b/tool", 0o755), ("a/text", 0o644)] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let path_var = format!("{}:{}:{}", at("missing"), at("a"), at("b"));

        assert_eq!(find("tool", &path_var).unwrap(), dir.path().join("b/tool"));
        assert_eq!(find("text", &path_var).unwrap_err().status(), CANNOT_EXECUTE);
        assert_eq!(find("none", &path_var).unwrap_err().status(), NOT_FOUND);
        assert_eq!(find(&at("a/text"), "").unwrap_err().status(), CANNOT_EXECUTE);
        assert_eq!(find(&at("none"), "").unwrap_err().status(), NOT_FOUND);
        assert_eq!(find(&at("a"), "").unwrap_err().status(), CANNOT_EXECUTE, "a folder");
        assert_eq!(find("", &path_var).unwrap_err().status(), NOT_FOUND);
        assert_eq!(find("none", "").unwrap_err().to_string(), "none: command not found");
    }
}
