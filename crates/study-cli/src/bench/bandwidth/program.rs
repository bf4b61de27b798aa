//! One run of the program, on its own PU.

use super::keeper::Keeper;
use anyhow::Context;
use colocate_act::affinity;
use colocate_act::launch::Command as Found;
use colocate_cli::children::{self, ChildEnd};
use colocate_cli::exit::{CANNOT_EXECUTE, Failure};
use colocate_linux::Pid;
use colocate_linux::{ProcessHandle, sys};
use colocate_machine::{Nanos, PuNr, PuSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A program that is measured repeatedly.
pub struct MeasuredProgram {
    found: Found,
    pu: PuNr,
    /// Affinity mask of this process before the first run.
    original: PuSet,
    keeper: Keeper,
    stop: &'static AtomicBool,
}

/// Times of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallAndCpuTime {
    /// From the start to the end.
    pub wall: Nanos,
    /// CPU time of the program and of its reaped children.
    pub cpu: Nanos,
}

impl MeasuredProgram {
    /// Makes the program of `found`, to run on `pu`. `stop` ends a run.
    pub fn new(
        found: Found,
        pu: u32,
        keeper: Keeper,
        stop: &'static AtomicBool,
    ) -> anyhow::Result<Self> {
        let original = affinity::own().context("cannot read our own affinity mask")?;
        Ok(Self { found, pu: PuNr(pu), original, keeper, stop })
    }

    /// Runs the program once; `None` if a signal stopped the run. On return its process group has
    /// ended. A process that left the group may run on.
    pub fn run(&self) -> anyhow::Result<Option<WallAndCpuTime>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // In memory: a pipe without a reader would block the program.
        let stderr = File::from(sys::memfd(c"colocate-stderr")?);
        let begun = Instant::now();
        let pid = self.start(&stderr)?;
        let kept = self.keeper.mind(Some(pid));
        let ended = children::wait_all(&[pid], &[], self.stop, children::terminate_group, || {
            self.read_back(pid)
        });
        // Left-over processes would disturb the next run.
        children::kill_group(pid);
        kept.and_then(|()| self.keeper.mind(None))
            .context("the keeper of the program was killed")?;
        let Some(ChildEnd { at, waited, .. }) = ended?.and_then(|mut ends| ends.pop()) else {
            return Ok(None);
        };
        match waited.status {
            0 => Ok(Some(WallAndCpuTime {
                wall: at.duration_since(begun).into(),
                cpu: waited.cpu_time,
            })),
            status => Err(self.failed(status, stderr)),
        }
    }

    /// Starts the program. It inherits the mask of this thread, so the program and its children are
    /// on its PU from the first instruction.
    fn start(&self, stderr: &File) -> anyhow::Result<Pid> {
        let mut command = Command::new(&self.found.path);
        command.arg0(&self.found.argv[0]).args(&self.found.argv[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
        affinity::place_own(&affinity::only(self.pu))
            .with_context(|| format!("cannot run on PU {}", self.pu.0))?;
        let started = children::start(&mut command);
        // Before an error of the start: this process must not stay on the PU.
        affinity::place_own(&self.original).context("cannot go back to where we may run")?;
        started.map_err(|why| {
            let message = format!("{}: {why}", self.found.path.display());
            Failure { code: CANNOT_EXECUTE, message }.into()
        })
    }

    /// Checks that the program's first thread is on its PU; a thread that has ended passes.
    fn read_back(&self, pid: Pid) -> anyhow::Result<()> {
        let Ok(process) = ProcessHandle::open(Path::new("/proc"), pid) else { return Ok(()) };
        let found = match affinity::allowed(&process, pid.first_thread()) {
            Err(affinity::AffinityError::Gone) => return Ok(()),
            found => found.context("cannot read the program's affinity mask")?,
        };
        if found == affinity::only(self.pu) {
            return Ok(());
        }
        anyhow::bail!(
            "expected {} on PU {} alone, where it was started, found it on {found}: it places itself, so no \
             copy can be kept from its PU",
            self.found.name(),
            self.pu.0
        )
    }

    /// Failure of a run that ended with `status`, with the last line of its standard error.
    fn failed(&self, status: i32, mut stderr: File) -> anyhow::Error {
        let mut bytes = Vec::new();
        // If it cannot be read, the error has no last line.
        let _ = stderr.rewind().and_then(|()| stderr.read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |line| format!("; it said: {line}"));
        let command: Vec<_> = self.found.argv.iter().map(|arg| arg.to_string_lossy()).collect();
        let command = command.join(" ");
        anyhow::anyhow!("`{command}` ended with status {status}, so nothing was measured{last}")
    }
}
