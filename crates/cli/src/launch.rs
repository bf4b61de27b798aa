//! What `run` and `schedule` share: how a host is prepared and ends, and lines for the user.

use crate::output::{self, Frame, OutputThread};
use crate::report::{Report, Totals};
use colocate_act::launch::Command;
use colocate_act::rundir;
use colocate_engine::{HostError, Meanwhile};
use colocate_evidence::Observation;
use colocate_files::Dir;
use colocate_host::{GRACE, LinuxHost, Sampling, Setup};
use colocate_linux::sys;
use colocate_machine::Nanos;
use colocate_observe::lifecycle;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;

/// How long we wait at the end for a terminal or a pipe that takes no more lines, if the report is not to follow them.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A set-up for these programs: each runs once to its end, and none waits.
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
        lifecycle: lifecycle::Options::here()?,
        sampling: Sampling::default(),
        run_dirs: run_dirs(),
        proc: PathBuf::from("/proc"),
    })
}

/// Folders for what no other user may write.
pub fn run_dirs() -> Vec<PathBuf> {
    let xdg = std::env::var_os("XDG_RUNTIME_DIR");
    rundir::candidates(xdg.as_deref(), sys::effective_user())
}

/// A folder for what no other user may write or read, with its descriptor. It is removed when it is dropped.
pub fn own_folder(prefix: &str) -> anyhow::Result<(TempDir, Dir)> {
    let within = rundir::open(&run_dirs(), sys::effective_user()).map_err(anyhow::Error::msg)?;
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(within.path())?;
    let dir = Dir::open(folder.path())?;
    Ok((folder, dir))
}

/// Ends the host: its totals, and its last observation.
pub fn end(
    host: LinuxHost,
    done: Result<Observation, HostError>,
    notes: &mut Notes,
) -> anyhow::Result<(Totals, Observation)> {
    match done {
        Ok(last) => {
            let totals = Totals::of(&host);
            notes.say(host.finish());
            Ok((totals, last))
        }
        Err(why) => {
            host.finish();
            while let Ok(Some(_)) = sys::wait(None, true) {}
            notes.flush(None);
            Err(anyhow::Error::new(why).context("the programs went on unplaced"))
        }
    }
}

/// The exit code. The programs have done their work: what became of them matters more than our report.
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
    /// Writes while programs run, so that a reader that does not read holds up nothing.
    thread: Option<OutputThread>,
    /// All lines so far.
    pub all: Vec<String>,
}

impl Notes {
    /// No lines yet; `thread` writes while programs run.
    pub fn new(quiet: bool, thread: Option<OutputThread>) -> Self {
        Self { quiet, thread, all: Vec::new() }
    }

    /// Says lines, each on standard error unless `quiet`.
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

    /// Shows a frame where there is a thread that draws.
    pub fn show(&self, frame: Option<Frame>) {
        if let Some((thread, frame)) = self.thread.as_ref().zip(frame) {
            thread.show(frame);
        }
    }

    /// Ends the thread, as the programs have ended: everything is written, or `patience` is over. Later lines are written
    /// at once.
    pub fn flush(&mut self, patience: Option<Duration>) {
        if let Some(thread) = self.thread.take() {
            thread.end(patience);
        }
    }
}

/// Also in a panic the table is taken away, so that the terminal is as it was.
impl Drop for Notes {
    fn drop(&mut self) {
        self.flush(Some(PATIENCE));
    }
}
