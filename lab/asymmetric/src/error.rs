//! What can go wrong, a line each.

use crate::report::interval;
use crate::sys::SysError;
use colocate_study::stats::Estimate;
use smt_bench::thread::PinError;
use std::io;
use std::path::PathBuf;

/// Why no PU was made slow, or no program run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The PU does not exist, is offline, or is outside the inherited mask or cpuset.
    #[error("expected a PU that may be used here ({}) with --cpu, found {cpu}", list(.usable))]
    NoSuchPu {
        /// What was asked for.
        cpu: u32,
        /// What there is.
        usable: Vec<u32>,
    },
    /// There is no other PU.
    #[error("expected two PUs, a slow one and one to hold it against, found PU {cpu} alone")]
    OnlyOnePu {
        /// The only one.
        cpu: u32,
    },
    /// A thread may not become a real-time one.
    #[error(
        "cannot make a real-time thread: {0}: expected root, CAP_SYS_NICE or a real-time limit of 2 (ulimit -r), and \
         a control group with real-time bandwidth (cpu.rt_runtime_us) where the kernel shares that out"
    )]
    NotPermitted(SysError),
    /// The measured ratio stays away from the asked one.
    #[error(
        "expected PU {cpu} to become {asked} times slower, found {}: are real-time threads limited further \
         (kernel.sched_rt_runtime_us, cpu.rt_runtime_us), or do others have any?",
        interval(*.found)
    )]
    NotReached {
        /// The PU.
        cpu: u32,
        /// The ratio that was asked for.
        asked: f64,
        /// What was measured last.
        found: Estimate,
    },
    /// A loop made no step in a whole window.
    #[error("cannot measure PU {cpu}: a loop there did nothing for {ms} ms")]
    Stuck {
        /// The PU.
        cpu: u32,
        /// The window.
        ms: u64,
    },
    /// A thread cannot be put on its PU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The thread that slows has ended before its time.
    #[error("PU {cpu} was slow for a part of the time only: {reason}")]
    Lost {
        /// The PU.
        cpu: u32,
        /// Where the thread was instead.
        reason: PinError,
    },
    /// Another system call failed.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// No thread can be made.
    #[error("cannot make a thread: {0}")]
    Thread(io::Error),
    /// The program cannot be run.
    #[error("cannot run {program}: {source}")]
    Command {
        /// Its name.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no program.
    #[error("expected a program after --, found none")]
    NoCommand,
    /// The file of --output cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// The exit status, as `colocate` has it: 127 not found, 126 not executable, 125 our own failure.
    pub fn status(&self) -> u8 {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Command { .. } => 126,
            _ => 125,
        }
    }
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
