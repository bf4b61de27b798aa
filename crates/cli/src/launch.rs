//! Common parts of `run` and `schedule`: set-up and end of a host, and lines for the user.

use crate::output::{self, Frame, OutputThread};
use crate::report::{HostTotals, Report};
use colocate_act::launch::Command;
use colocate_act::rundir;
use colocate_engine::{HostError, KnownJob, Meanwhile};
use colocate_evidence::{Observation, Source, SourceSet};
use colocate_files::Dir;
use colocate_host::{GRACE, LinuxHost, Sampling, Setup};
use colocate_linux::sys;
use colocate_machine::Nanos;
use colocate_observe::lifecycle;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait at the end for a blocked terminal or pipe, unless the report follows.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A set-up for these programs: each runs once to its end, and no program is made to wait.
pub fn setup(commands: Vec<Command>) -> anyhow::Result<Setup> {
    Ok(Setup {
        commands,
        attached: Vec::new(),
        detach_after: None,
        may_pause: false,
        meanwhile: Meanwhile::Stop,
        only_signals: false,
        targets: Vec::new(),
        repeat: false,
        ready: None,
        until: Vec::new(),
        grace: GRACE,
        settle: Nanos::ZERO,
        lifecycle: lifecycle::LifecycleOptions::here()?,
        sampling: Sampling::default(),
        run_dirs: run_dirs(),
        proc: PathBuf::from("/proc"),
    })
}

/// Evidence to count and report beside the policy's.
#[derive(clap::Args)]
pub struct Requests {
    /// Count which threads wake which, and report it; costs up to a microsecond for each wake-up (docs/reference/wake-ups.md)
    #[arg(long)]
    pub wake_ups: bool,

    /// Sample which threads use the same memory, and report it; costs 250 samples for each second of CPU time (docs/reference/sharing.md)
    #[arg(long)]
    pub sharing: bool,
}

impl Requests {
    /// The requested sources.
    pub fn sources(&self) -> SourceSet {
        chosen(&[(Source::WakeUps, self.wake_ups), (Source::Sharing, self.sharing)])
    }
}

/// The sources that are chosen.
pub fn chosen(all: &[(Source, bool)]) -> SourceSet {
    let chosen = all.iter().filter(|(_, is_chosen)| *is_chosen);
    SourceSet::of(&chosen.map(|(source, _)| *source).collect::<Vec<_>>())
}

/// A job of which nothing is known but its name.
pub fn unseen(name: &str) -> KnownJob {
    KnownJob { name: name.to_owned(), profile: None, phases: Vec::new() }
}

/// Candidate folders, private to this user for writing.
pub fn run_dirs() -> Vec<PathBuf> {
    let xdg = std::env::var_os("XDG_RUNTIME_DIR");
    rundir::candidates(xdg.as_deref(), sys::effective_user())
}

/// A temporary folder private to this user, with its descriptor. Removed on drop.
pub fn own_folder(prefix: &str) -> anyhow::Result<(TempDir, Dir)> {
    let within = rundir::open(&run_dirs(), sys::effective_user()).map_err(anyhow::Error::msg)?;
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(within.path())?;
    let dir = Dir::open(folder.path())?;
    Ok((folder, dir))
}

/// Ends the host; returns its totals and its last observation.
pub fn end(
    host: LinuxHost,
    done: Result<Observation, HostError>,
    notes: &mut Notes,
) -> anyhow::Result<(HostTotals, Observation)> {
    match done {
        Ok(last) => {
            let totals = HostTotals::of(&host);
            notes.say(host.finish());
            Ok((totals, last))
        }
        Err(why) => {
            host.finish();
            // The programs run on unplaced; their ends come before the error.
            while let Ok(Some(_)) = sys::wait(None, true) {}
            notes.flush(None);
            Err(anyhow::Error::new(why).context("the programs went on unplaced"))
        }
    }
}

/// The exit code. The programs' work is done: their status precedes an error of the report.
pub fn exit(
    report: &Report,
    written: anyhow::Result<()>,
    notes: &mut Notes,
) -> anyhow::Result<ExitCode> {
    match (written, report.exit_status()) {
        (Err(why), 0) => Err(why),
        (written, status) => {
            notes.say(written.err().map(|why| format!("{why:#}")));
            Ok(ExitCode::from(status))
        }
    }
}

/// Lines for the user, on standard error unless `quiet`. All are kept for the report.
pub struct Notes {
    quiet: bool,
    /// Writer while programs run: a blocked reader blocks no program.
    thread: Option<OutputThread>,
    /// All lines up to now.
    pub all: Vec<String>,
}

impl Notes {
    /// No lines yet; `thread` writes while programs run.
    pub fn new(quiet: bool, thread: Option<OutputThread>) -> Self {
        Self { quiet, thread, all: Vec::new() }
    }

    /// Keeps lines and writes each to standard error unless `quiet`.
    pub fn say(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            match &self.thread {
                Some(thread) => thread.say(&line),
                None if self.quiet => {}
                None => output::remark(&line),
            }
            self.all.push(line);
        }
    }

    /// Shows a frame if there is an output thread.
    pub fn show(&self, frame: Option<Frame>) {
        if let Some((thread, frame)) = self.thread.as_ref().zip(frame) {
            thread.show(frame);
        }
    }

    /// Ends the thread, all written or `patience` over. Later lines are written at once.
    pub fn flush(&mut self, patience: Option<Duration>) {
        if let Some(thread) = self.thread.take() {
            thread.end(patience);
        }
    }
}

/// Removes the table also in a panic, to leave the terminal as before.
impl Drop for Notes {
    fn drop(&mut self) {
        self.flush(Some(PATIENCE));
    }
}
