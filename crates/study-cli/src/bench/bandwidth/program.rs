//! One run of the program, on a PU of its own.

use super::keeper::Keeper;
use anyhow::Context;
use colocate_act::affinity;
use colocate_act::launch::Command as Found;
use colocate_cli::children::{self, End};
use colocate_cli::exit::{CANNOT_EXECUTE, Failure};
use colocate_linux::Pid;
use colocate_linux::{ProcessHandle, sys};
use colocate_machine::{Nanos, PuNr, PuSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A program that is measured again and again.
pub struct Program {
    found: Found,
    pu: PuNr,
    /// Where this process may run.
    original: PuSet,
    keeper: Keeper,
    stop: Arc<AtomicBool>,
}

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From its start to its end.
    pub wall: Nanos,
    /// CPU time of it, and of its children that it waited for.
    pub cpu: Nanos,
}

impl Program {
    /// The program of `found`, to be run on `pu`. `stop` ends a run.
    pub fn new(
        found: Found,
        pu: u32,
        keeper: Keeper,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let original = affinity::own().context("cannot read our own affinity mask")?;
        Ok(Self { found, pu: PuNr(pu), original, keeper, stop })
    }

    /// Runs it once; `None` if a signal is to end us. When this returns, nothing of it runs on, except what
    /// has left its process group.
    pub fn run(&self) -> anyhow::Result<Option<Times>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let stderr = File::from(sys::memfd(c"colocate-stderr")?);
        let begun = Instant::now();
        let pid = self.start(&stderr)?;
        let kept = self.keeper.mind(Some(pid));
        let check = || self.read_back(pid);
        let ended = children::wait_all(&[pid], &[], &self.stop, children::terminate_group, check);
        // What it has left behind would disturb the next run.
        children::kill_group(pid);
        kept.and_then(|()| self.keeper.mind(None))
            .context("the keeper of the program was killed")?;
        let Some(End { at, waited, .. }) = ended?.and_then(|mut ends| ends.pop()) else {
            return Ok(None);
        };
        match waited.status {
            0 => Ok(Some(Times { wall: at.duration_since(begun).into(), cpu: waited.cpu_time })),
            status => Err(self.failed(status, stderr)),
        }
    }

    /// Starts it. Where this thread may run is what it inherits, so it is on its PU from its first
    /// instruction on, and so is what it starts.
    fn start(&self, stderr: &File) -> anyhow::Result<Pid> {
        let mut command = Command::new(&self.found.path);
        command.arg0(&self.found.argv[0]).args(&self.found.argv[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
        affinity::place_own(&affinity::only(self.pu))
            .with_context(|| format!("cannot run on PU {}", self.pu.0))?;
        let started = children::start(&mut command);
        affinity::place_own(&self.original).context("cannot go back to where we may run")?;
        started.map_err(|why| {
            let message = format!("{}: {why}", self.found.path.display());
            Failure { code: CANNOT_EXECUTE, message }.into()
        })
    }

    /// Makes sure that its first thread is where it should be. One that has ended was.
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

    /// The failure of a run that ended with `status`, with the last line that it wrote to standard error.
    fn failed(&self, status: i32, mut stderr: File) -> anyhow::Error {
        let mut bytes = Vec::new();
        let _ = stderr.rewind().and_then(|()| stderr.read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |line| format!("; it said: {line}"));
        let command: Vec<_> = self.found.argv.iter().map(|arg| arg.to_string_lossy()).collect();
        let command = command.join(" ");
        anyhow::anyhow!("`{command}` ended with status {status}, so nothing was measured{last}")
    }
}
