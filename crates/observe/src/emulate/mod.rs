//! Exact counts under QEMU user mode.
//!
//! # Problem
//! How many instructions of each class every thread of a program runs, exactly, where no hardware
//! counter can say so.
//! # Approach
//! The program runs under QEMU with a plugin of ours (`tracer/` in the repository), which counts as
//! code is translated and leaves one file for every process; see [`trace`]. This module finds the
//! two (`find`), starts them (`run`) and makes a [`Profile`] of the files.
//! # What is refused
//! A count is whole or it is not given. A program that executes another one leaves QEMU there; one
//! that runs an instruction that QEMU lacks stops being itself; a process that is killed, or that
//! goes on when the program has ended, cannot hand its counts over. Each is a [`Refusal`] with one
//! line. The program has run all the same, and [`Ran::status`] says how it ended.
//! # What differs from a run without QEMU
//! Two to five times slower on integer code, ten and more on floating point, up to hundreds on
//! vectors. The emulated processor has AVX2 but neither AVX-512 nor AMX, so programs that choose
//! their code by processor may choose other code. Spinning threads spin differently. No core files.

mod demand;
mod find;
mod phased;
mod program;
mod run;
pub mod trace;

pub use demand::phases;
pub use find::{Emulator, Places, Why, available};
pub use phased::Phased;
pub use program::{Loadable, NotLoadable};
pub use run::RunError;
pub use trace::{Branches, Trace, TraceError, parse};

use crate::code::{Stretch, of_trace};
use colocate_machine::Nanos;
use colocate_model::MissCounts;
use colocate_model::mix::Mix;
use colocate_model::profile::{Backend, Profile, Program, ThreadProfile, VERSION};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::SystemTime;
use thiserror::Error;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The program's file.
    pub path: &'a Path,
    /// Its arguments, the first of which is the name that it is called by.
    pub argv: &'a [OsString],
    /// A folder for temporary files, such as `/tmp`.
    pub scratch: &'a Path,
    /// Whether it is to start with SIGPIPE ignored, as this process was. Rust's start-up code and its
    /// way to start programs both forget that.
    pub ignores_pipe: bool,
    /// Whether stretches of its code are wanted; costs about a tenth of the time again.
    pub stretches: bool,
    /// Whether to count what caches of any size would miss, and how branches would be predicted; takes
    /// several times as long.
    pub misses: bool,
    /// How many phases the run of one thread is divided into at most; needs stretches and misses.
    pub phases: Option<usize>,
    /// A file with the header of a trace, to which accesses to memory are added (of `colocate-trace`); takes two bytes and
    /// more for each access.
    pub trace: Option<&'a Path>,
}

/// A program that has run.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What its threads did, or why that is not known.
    pub profile: Result<Profile, Refusal>,
    /// Stretches of its code, if they were requested and there is a profile; threads that ran little
    /// have none.
    pub stretches: Vec<Stretch>,
    /// What its threads' accesses would miss, in the profile's order of threads, if that was requested.
    pub misses: Vec<Option<MissCounts>>,
    /// How its threads' branches were predicted, in that order; requested with those misses.
    pub branches: Vec<Option<Branches>>,
    /// The run of the thread that executed most instructions, by phases, if that was requested.
    pub phased: Option<Phased>,
}

/// Why there is no profile of a program that has run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A process executed this program, which then ran without QEMU.
    #[error(
        "the program executed {}, which runs outside QEMU and is not counted; profile that \
         program itself, or use the backend sample", .0.display()
    )]
    Executes(PathBuf),
    /// An instruction ran that QEMU does not have: its address in the process, its mnemonic and its bytes.
    #[error(
        "the program ran {1} at {0:#x}, which QEMU does not emulate; build it for \
         x86-64-v3 or less, or use the backend sample"
    )]
    Unsupported(u64, String),
    /// A process left no counts, or half of them.
    #[error("process {0} of the program {1}, so its counts are lost")]
    Lost(u32, Loss),
    /// A process left a file that is not one of counts.
    #[error("cannot read the counts of process {0}: {1}")]
    Unreadable(u32, #[source] TraceError),
    /// No process left anything.
    #[error(
        "QEMU left no counts; what it said is on standard error, and `colocate doctor` checks QEMU \
         and its plugin"
    )]
    Nothing,
}

/// How a process failed to leave its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Loss {
    /// It was still running when the program had ended.
    #[error("was still running when the program had ended")]
    StillRunning,
    /// It was killed, or could no longer write to the folder for temporary files.
    #[error("was killed or could not write its counts")]
    Killed,
}

/// Why a program could not be run.
#[derive(Debug, Error)]
pub enum EmulateError {
    /// QEMU cannot load it.
    #[error(transparent)]
    NotLoadable(#[from] NotLoadable),
    /// It could not be started or waited for.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs a program under QEMU and counts what its threads do.
///
/// Its standard input, output and error are this process's. Signals that reach this process while
/// the program runs are passed on, so this must not be called while other threads wait for them.
///
/// # Errors
/// If the program could not be started. Once it has run there is a [`Ran`], whose profile may have
/// been refused.
pub fn profile(emulator: &Emulator, command: Command<'_>) -> Result<Ran, EmulateError> {
    let loadable = program::inspect(command.path, command.argv)?;
    let folder = run::scratch(command.scratch)?;
    let began = colocate_linux::clock::now();
    let started = SystemTime::now();
    let status = run::run(emulator, &loadable, command, folder.path())?;
    let traces = read_folder(folder.path());
    let stretches = traces.as_deref().map(stretches_of).unwrap_or_default();
    let misses = traces.as_deref().map(|all| of_threads(all, misses_of)).unwrap_or_default();
    let branches =
        traces.as_deref().map(|all| of_threads(all, |thread| thread.branches)).unwrap_or_default();
    let phased = command.phases.zip(traces.as_deref().ok());
    let phased = phased.and_then(|(most, traces)| phased::of(traces, most));
    let profile = traces.map(|traces| {
        let started_unix_s =
            started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Profile {
            version: VERSION,
            backend: Backend::Emulate,
            program: program_of(command),
            processor: Some(format!(
                "QEMU {} emulating {}",
                emulator.version,
                std::env::consts::ARCH
            )),
            started_unix_s,
            watched_ns: colocate_linux::clock::now() - began,
            complete: true,
            notes: notes_of(&traces),
            threads: threads_of(&traces, began),
        }
    });
    Ok(Ran { status, profile, stretches, misses, branches, phased })
}

fn program_of(command: Command<'_>) -> Program {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    Program {
        path: text(command.path.as_os_str()),
        args: command.argv.iter().skip(1).map(|arg| text(arg)).collect(),
        // It could be read a moment ago; should it be gone, then no later run is of the same file.
        identity: crate::identity::of_file(command.path).unwrap_or_else(|_| "sha256:".into()),
    }
}

/// The threads of all processes in the order of their creation.
fn threads_of(traces: &[Trace], began: Nanos) -> Vec<ThreadProfile> {
    in_order(traces)
        .into_iter()
        .map(|(process, thread)| (process, &traces[process].threads[thread]))
        .zip(0..)
        .map(|((process, thread), order)| ThreadProfile {
            order,
            process: u32::try_from(process).unwrap_or(u32::MAX),
            name: String::from_utf8_lossy(&thread.name).into_owned(),
            start_ns: Nanos(thread.start_ns).saturating_sub(began),
            end_ns: Some(Nanos(thread.end_ns).saturating_sub(began)),
            // The emulator's CPU time is not the program's.
            cpu_time_ns: None,
            instructions: Some(thread.counts.instructions),
            cycles: None,
            samples: None,
            mix: Mix::from_counts(thread.counts.instructions, thread.counts.of),
        })
        .collect()
}

/// Process and thread, by their places, of all threads in the order of creation.
fn in_order(traces: &[Trace]) -> Vec<(usize, usize)> {
    let of =
        |(process, trace): (usize, &Trace)| (0..trace.threads.len()).map(move |at| (process, at));
    let mut all: Vec<(usize, usize)> = traces.iter().enumerate().flat_map(of).collect();
    // Within a process they already are in order; the sort keeps that where times are equal.
    all.sort_by_key(|(process, thread)| traces[*process].threads[*thread].start_ns);
    all
}

/// What `of` gives of each thread of all processes, in that order.
fn of_threads<T>(traces: &[Trace], of: fn(&trace::Thread) -> T) -> Vec<T> {
    in_order(traces).into_iter().map(|(process, at)| of(&traces[process].threads[at])).collect()
}

/// What a thread's accesses miss, if that was counted.
fn misses_of(thread: &trace::Thread) -> Option<MissCounts> {
    trace::miss_counts(thread.misses.as_ref()?)
}

/// The stretches of all processes.
fn stretches_of(traces: &[Trace]) -> Vec<Stretch> {
    let order = in_order(traces);
    let of = |(process, trace): (usize, &Trace)| {
        of_trace(trace, |tid| {
            let thread = trace.threads.iter().rposition(|thread| thread.tid == tid)?;
            u32::try_from(order.iter().position(|found| *found == (process, thread))?).ok()
        })
    };
    traces.iter().enumerate().flat_map(of).collect()
}

fn notes_of(traces: &[Trace]) -> Vec<String> {
    let mut notes = vec![
        "counted under QEMU, whose processor is not this one (on x86-64 it has neither AVX-512 nor \
         AMX): programs that choose code by processor may run other code than without it"
            .to_owned(),
    ];
    let handlers: u64 = traces.iter().map(|trace| trace.handlers).sum();
    if handlers > 0 {
        notes.push(format!(
            "signal handlers that returned: {handlers}; where a fault had stopped a block of \
             instructions, the whole block is counted"
        ));
    }
    let undecoded: u64 =
        traces.iter().flat_map(|trace| &trace.threads).map(|thread| thread.undecoded).sum();
    if undecoded > 0 {
        notes.push(format!("{undecoded} instructions could not be decoded and are of no class"));
    }
    notes
}

/// What the processes have left in `folder`, in the order of their creation.
fn read_folder(folder: &Path) -> Result<Vec<Trace>, Refusal> {
    let mut names: Vec<OsString> = std::fs::read_dir(folder)
        .map_err(|_| Refusal::Nothing)?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    names.sort();
    let with = |prefix: &'static str| {
        names.iter().filter(move |name| name.as_bytes().starts_with(prefix.as_bytes()))
    };
    if let Some(note) = with("executes.").next() {
        let program = std::fs::read_link(folder.join(note)).unwrap_or_else(|_| "?".into());
        return Err(Refusal::Executes(program));
    }
    // A parent names its children, and each child leaves a file: at first an empty one.
    for child in with("forked.") {
        let begun = format!("counts.{}.", number_in(child));
        if !names.iter().any(|name| name.as_bytes().starts_with(begun.as_bytes())) {
            return Err(lost(number_in(child)));
        }
    }
    let mut traces = with("counts.")
        .map(|name| read_trace(folder, name))
        .collect::<Result<Vec<Trace>, Refusal>>()?;
    if traces.is_empty() {
        return Err(Refusal::Nothing);
    }
    if let Some(found) = traces.iter().flat_map(|trace| &trace.unsupported).next() {
        let mnemonic = colocate_isa::mnemonic(&found.bytes).unwrap_or_else(|| "?".into());
        let instruction = format!("{mnemonic} ({})", trace::hex(&found.bytes));
        return Err(Refusal::Unsupported(found.address, instruction));
    }
    traces.sort_by_key(|trace| trace.start_ns);
    Ok(traces)
}

/// Reads one file, which is named `counts.PID.START`.
fn read_trace(folder: &Path, name: &OsStr) -> Result<Trace, Refusal> {
    let pid = number_in(name);
    let content = std::fs::read(folder.join(name)).map_err(|_| lost(pid))?;
    parse(&content).map_err(|source| match source {
        TraceError::Truncated => lost(pid),
        source => Refusal::Unreadable(pid, source),
    })
}

/// The process's number in a file's name, after the first dot.
fn number_in(name: &OsStr) -> u32 {
    name.to_string_lossy().split('.').nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

fn lost(pid: u32) -> Refusal {
    let how = if run::is_alive(pid) { Loss::StillRunning } else { Loss::Killed };
    Refusal::Lost(pid, how)
}

/// `bytes` as a word of the command line.
fn word(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}
