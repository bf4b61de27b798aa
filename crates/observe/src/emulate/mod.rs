//! Exact counts under QEMU user mode.
//!
//! # Problem
//! Exact counts of the instructions of each class that every thread runs, without hardware
//! counters.
//! # Approach
//! The program runs under QEMU with a plugin (`tracer/` in the repository), which counts as code is
//! translated and leaves one file for every process; see [`trace`]. This module finds QEMU and the
//! plugin (`find`), runs the program (`run`) and makes a [`Profile`] of the files.
//! # What is refused
//! A count is complete or refused. Refused are programs that execute another program, which leaves
//! QEMU, and programs that run an instruction unknown to QEMU. Refused are also processes that are
//! killed or outlive the program, since they cannot write their counts. Each case is a
//! [`ProfileRefusal`] with one line. The program has still run, and [`EmulatedRun::status`] is its
//! exit status.
//! # What differs from a run without QEMU
//! Two to five times slower on integer code, ten and more on floating point, up to hundreds on
//! vectors. The emulated processor has AVX2 but neither AVX-512 nor AMX, so programs that choose
//! code by processor may choose other code. Spin loops take other times. No core files.

mod demand;
mod find;
mod phased;
mod program;
mod run;
pub mod trace;

pub use demand::phases;
pub use find::{EmulationFailure, Emulator, SearchPaths, available};
pub use phased::Phased;
pub use program::{Loadable, NotLoadable};
pub use run::EmulateError;
pub use trace::{Branches, Trace, TraceError, parse};

use crate::code::{Stretch, of_trace};
use colocate_machine::Nanos;
use colocate_model::MissCounts;
use colocate_model::mix::Mix;
use colocate_model::profile::{Backend, Profile, ProfiledProgram, ThreadProfile, VERSION};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::SystemTime;
use thiserror::Error;

/// Command to run.
#[derive(Clone, Copy, Debug)]
pub struct EmulatedCommand<'a> {
    /// File of the program.
    pub path: &'a Path,
    /// Arguments, `argv[0]` included.
    pub argv: &'a [OsString],
    /// Folder for temporary files, such as `/tmp`.
    pub scratch: &'a Path,
    /// Whether the program starts with SIGPIPE ignored, as this process was started. Rust's runtime
    /// and `std::process::Command` both reset this.
    pub ignores_pipe: bool,
    /// Whether to record stretches of code; takes about a tenth longer.
    pub stretches: bool,
    /// Whether to count misses of caches of any size, and branch predictions; several times slower.
    pub misses: bool,
    /// Largest number of phases of one thread's run; needs stretches and misses.
    pub phases: Option<usize>,
    /// File with a trace header, to which memory accesses are appended (of `colocate-trace`); takes
    /// two bytes and more for each access.
    pub trace: Option<&'a Path>,
}

/// Outcome of a run.
#[derive(Debug)]
pub struct EmulatedRun {
    /// Exit status.
    pub status: ExitStatus,
    /// Profile of the threads, or the reason for its absence.
    pub profile: Result<Profile, ProfileRefusal>,
    /// Stretches of code, if requested and if there is a profile; none of threads that ran little.
    pub stretches: Vec<Stretch>,
    /// Cache misses of each thread, in the profile's order, if requested.
    pub misses: Vec<Option<MissCounts>>,
    /// Branch predictions of each thread, in the profile's order; requested together with misses.
    pub branches: Vec<Option<Branches>>,
    /// Run of the thread with the most instructions, by phases, if requested.
    pub phased: Option<Phased>,
}

/// Reason why a program that has run has no profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileRefusal {
    /// A process executed this program, which then ran without QEMU.
    #[error(
        "the program executed {}, which runs outside QEMU and is not counted; profile that \
         program itself, or use the backend sample", .0.display()
    )]
    Executes(PathBuf),
    /// Instruction unknown to QEMU: its address in the process, its mnemonic and its bytes.
    #[error(
        "the program ran {1} at {0:#x}, which QEMU does not emulate; build it for \
         x86-64-v3 or less, or use the backend sample"
    )]
    Unsupported(u64, String),
    /// Process with no counts, or with a part of them.
    #[error("process {0} of the program {1}, so its counts are lost")]
    Lost(u32, Loss),
    /// Process with a malformed file.
    #[error("cannot read the counts of process {0}: {1}")]
    Unreadable(u32, #[source] TraceError),
    /// No files at all.
    #[error(
        "QEMU left no counts; what it said is on standard error, and `colocate doctor` checks QEMU \
         and its plugin"
    )]
    Nothing,
}

/// Reason why a process left no counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Loss {
    /// Still running at the program's end.
    #[error("was still running when the program had ended")]
    StillRunning,
    /// Killed, or unable to write to the folder for temporary files.
    #[error("was killed or could not write its counts")]
    Killed,
}

/// Runs a program under QEMU and counts the instructions of its threads.
///
/// Its standard input, output and error are this process's. Signals to this process are passed on
/// while the program runs, so no other thread may wait for signals meanwhile.
///
/// # Errors
/// If the program could not be started. A started program gives an [`EmulatedRun`], whose profile
/// may be refused.
pub fn profile(
    emulator: &Emulator,
    command: EmulatedCommand<'_>,
) -> Result<EmulatedRun, EmulateError> {
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
    Ok(EmulatedRun { status, profile, stretches, misses, branches, phased })
}

fn program_of(command: EmulatedCommand<'_>) -> ProfiledProgram {
    ProfiledProgram {
        path: command.path.to_string_lossy().into_owned(),
        args: command.argv.iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect(),
        // The file was readable a moment ago; if it is gone, no later run is of the same file.
        identity: crate::identity::of_file(command.path).unwrap_or_else(|_| "sha256:".into()),
    }
}

/// Threads of all processes in the order of their creation.
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

/// Indices of process and thread, of all threads in the order of creation.
fn in_order(traces: &[Trace]) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (process, trace) in traces.iter().enumerate() {
        all.extend((0..trace.threads.len()).map(|at| (process, at)));
    }
    // The threads of a process are in order already, which a stable sort keeps at equal times.
    all.sort_by_key(|(process, thread)| traces[*process].threads[*thread].start_ns);
    all
}

/// Result of `of` for each thread, in the order of creation.
fn of_threads<T>(traces: &[Trace], of: fn(&trace::ThreadCounts) -> T) -> Vec<T> {
    in_order(traces).into_iter().map(|(process, at)| of(&traces[process].threads[at])).collect()
}

/// Cache misses of a thread, if counted.
fn misses_of(thread: &trace::ThreadCounts) -> Option<MissCounts> {
    trace::miss_counts(thread.misses.as_ref()?)
}

/// Stretches of all processes.
fn stretches_of(traces: &[Trace]) -> Vec<Stretch> {
    let order = in_order(traces);
    let stretches = traces.iter().enumerate().flat_map(|(process, trace)| {
        of_trace(trace, |tid| {
            let thread = trace.threads.iter().rposition(|thread| thread.tid == tid)?;
            u32::try_from(order.iter().position(|found| *found == (process, thread))?).ok()
        })
    });
    stretches.collect()
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

fn with_prefix<'a>(names: &'a [OsString], prefix: &str) -> impl Iterator<Item = &'a OsString> {
    names.iter().filter(move |name| name.as_bytes().starts_with(prefix.as_bytes()))
}
/// Traces of the processes in `folder`, in the order of their creation.
fn read_folder(folder: &Path) -> Result<Vec<Trace>, ProfileRefusal> {
    let mut names: Vec<OsString> = std::fs::read_dir(folder)
        .map_err(|_| ProfileRefusal::Nothing)?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    names.sort();
    if let Some(note) = with_prefix(&names, "executes.").next() {
        // The note is a symbolic link to the executed program.
        let program = std::fs::read_link(folder.join(note)).unwrap_or_else(|_| "?".into());
        return Err(ProfileRefusal::Executes(program));
    }
    // A parent notes its children, and each child leaves a file, at first an empty one.
    for child in with_prefix(&names, "forked.") {
        let begun = format!("counts.{}.", number_in(child));
        if !names.iter().any(|name| name.as_bytes().starts_with(begun.as_bytes())) {
            return Err(lost(number_in(child)));
        }
    }
    let mut traces = with_prefix(&names, "counts.")
        .map(|name| read_trace(folder, name))
        .collect::<Result<Vec<Trace>, ProfileRefusal>>()?;
    if traces.is_empty() {
        return Err(ProfileRefusal::Nothing);
    }
    if let Some(found) = traces.iter().flat_map(|trace| &trace.unsupported).next() {
        let mnemonic = colocate_isa::mnemonic(&found.bytes).unwrap_or_else(|| "?".into());
        let instruction = format!("{mnemonic} ({})", crate::identity::hex(&found.bytes));
        return Err(ProfileRefusal::Unsupported(found.address, instruction));
    }
    traces.sort_by_key(|trace| trace.start_ns);
    Ok(traces)
}

/// Reads a file named `counts.PID.START`.
fn read_trace(folder: &Path, name: &OsStr) -> Result<Trace, ProfileRefusal> {
    let pid = number_in(name);
    let content = std::fs::read(folder.join(name)).map_err(|_| lost(pid))?;
    parse(&content).map_err(|source| match source {
        TraceError::Truncated => lost(pid),
        source => ProfileRefusal::Unreadable(pid, source),
    })
}

/// PID in a file's name, after the first dot; 0 if malformed.
fn number_in(name: &OsStr) -> u32 {
    name.to_string_lossy().split('.').nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

fn lost(pid: u32) -> ProfileRefusal {
    let how = if run::is_alive(pid) { Loss::StillRunning } else { Loss::Killed };
    ProfileRefusal::Lost(pid, how)
}

/// Word of a command line.
fn word(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}
