//! A run of `colocate run` or `colocate schedule` under observation by a case.

use crate::evidence::eventually;
use crate::tasks::{self, LiveTask};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A `colocate` with all its descendants; all are killed on drop.
pub struct ColocateSession {
    mark: String,
    report: PathBuf,
    /// The process of colocate.
    pub colocate: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Words before a command that start the command as another user or in a control group.
pub type Wrapper<'a> = &'a [&'a str];

static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Opens a perf event for the guest's life, to avoid a fault of QEMU; see `programs/event.rs`.
fn keep_an_event() -> anyhow::Result<()> {
    static KEPT: OnceLock<Child> = OnceLock::new();
    if KEPT.get().is_none() {
        let mut command = Command::new("lab-guest");
        let mut child = command.args(["--program", "event"]).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no pipe")?;
        let mut said = String::new();
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said == "ready\n", "expected ready, found {said}");
        // Cases run one after the other, so no other thread has set it.
        let _ = KEPT.set(child);
    }
    Ok(())
}

impl ColocateSession {
    /// Starts `colocate run OPTIONS -- PROGRAM`. The program reads the session's lines.
    ///
    /// # Errors
    /// If `colocate` cannot be started.
    pub fn start(options: &[&str], program: &[&str]) -> anyhow::Result<Self> {
        Self::start_by(&[], options, program)
    }

    /// Like [`ColocateSession::start`], with `wrapper` before the command.
    ///
    /// # Errors
    /// If the wrapper cannot be started.
    pub fn start_by(
        wrapper: Wrapper<'_>,
        options: &[&str],
        program: &[&str],
    ) -> anyhow::Result<Self> {
        Self::launch(wrapper, &["colocate", "run", "--no-guard", "--json"], options, program)
    }

    /// Starts `colocate schedule OPTIONS -- PROGRAMS`, with `wrapper` before the command.
    ///
    /// # Errors
    /// If `colocate` or the wrapper cannot be started.
    pub fn schedule_by(
        wrapper: Wrapper<'_>,
        options: &[&str],
        programs: &[&str],
    ) -> anyhow::Result<Self> {
        Self::launch(wrapper, &["colocate", "schedule"], options, programs)
    }

    /// Starts `colocate-mover schedule OPTIONS -- PROGRAM`.
    ///
    /// # Errors
    /// If `colocate-mover` cannot be started.
    pub fn mover(options: &[&str], program: &[&str]) -> anyhow::Result<Self> {
        Self::launch(&[], &["colocate-mover", "schedule"], options, program)
    }

    fn launch(
        wrapper: Wrapper<'_>,
        colocate: &[&str],
        options: &[&str],
        program: &[&str],
    ) -> anyhow::Result<Self> {
        keep_an_event()?;
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let report = PathBuf::from(format!("/tmp/report-{mark}.json"));
        let said = std::fs::File::create(format!("/tmp/said-{mark}"))?;
        let mut words = wrapper.iter().chain(colocate).chain(&["-o"]).copied();
        let mut command = Command::new(words.next().context("no words")?);
        command.args(words).arg(&report).args(options).arg("--").args(program);
        // All descendants inherit the mark, by which `tasks::marked` finds them.
        command.env("LAB_MARK", &mark).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        let mut colocate = command.spawn().with_context(|| format!("{command:?}"))?;
        let input = colocate.stdin.take();
        let output = BufReader::new(colocate.stdout.take().context("no pipe")?);
        Ok(Self { mark, report, colocate, input, output })
    }

    /// The next line of the programs' standard output; blocks.
    ///
    /// # Errors
    /// If all programs have ended.
    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            line.ends_with('\n'),
            "expected a line, found the end; colocate says: {}",
            self.said()
        );
        Ok(line.trim_end().into())
    }

    /// Writes a line to the first program and returns the next line of output.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn request(&mut self, line: &str) -> anyhow::Result<String> {
        let input = self.input.as_mut().context("standard input is closed")?;
        writeln!(input, "{line}").context("the program has ended")?;
        self.line()
    }

    /// colocate's standard error so far.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(format!("/tmp/said-{}", self.mark)).unwrap_or_default()
    }

    /// Every living task of colocate and of the programs.
    #[must_use]
    pub fn all(&self) -> Vec<LiveTask> {
        tasks::marked(&self.mark)
    }

    /// Every living task of the programs.
    #[must_use]
    pub fn tasks(&self) -> Vec<LiveTask> {
        self.all().into_iter().filter(|task| !task.is_colocate()).collect()
    }

    /// Waits until `holds` is true for the programs' living tasks, and returns the tasks.
    ///
    /// # Errors
    /// If `holds` is still false after a minute; the error shows the tasks.
    pub fn await_tasks(
        &self,
        what: &str,
        mut holds: impl FnMut(&[LiveTask]) -> bool,
    ) -> anyhow::Result<Vec<LiveTask>> {
        let mut last = Vec::new();
        let waited = eventually(what, || {
            last = self.tasks();
            Ok(holds(&last))
        });
        waited.with_context(|| format!("{}; colocate says: {}", picture(&last), self.said()))?;
        Ok(last)
    }

    /// Main threads of colocate's own processes.
    #[must_use]
    pub fn own(&self) -> Vec<LiveTask> {
        let all = self.all().into_iter();
        all.filter(|task| task.is_colocate() && task.tid == task.pid).collect()
    }

    /// Closes the program's standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the program's standard input, waits for colocate's end, and reads the report.
    ///
    /// Processes that outlive their program stay alive.
    ///
    /// # Errors
    /// If there is no report.
    pub fn end(&mut self) -> anyhow::Result<Value> {
        self.close_input();
        self.colocate.wait()?;
        let text = std::fs::read_to_string(&self.report);
        let text = text.with_context(|| format!("no report; colocate says: {}", self.said()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits for the ends of colocate and its guardian.
    ///
    /// # Errors
    /// If a process of colocate still lives a minute after colocate's end.
    pub fn await_end(&mut self) -> anyhow::Result<()> {
        self.colocate.wait()?;
        eventually("the end of colocate's processes", || {
            // Polls less often: the guardian scans /proc too, and the host has few processors.
            std::thread::sleep(Duration::from_millis(20));
            Ok(self.own().is_empty())
        })
    }
}

impl Drop for ColocateSession {
    fn drop(&mut self) {
        // Repeated, since a scan misses tasks that are created during the scan.
        for _ in 0..100 {
            let pids: Vec<String> =
                tasks::marked(&self.mark).iter().map(|task| task.pid.to_string()).collect();
            if pids.is_empty() {
                break;
            }
            send("-KILL", &pids);
            let _ = self.colocate.try_wait();
        }
        let _ = self.colocate.wait();
    }
}

/// Sends a signal (an option of kill(1), e.g. `-KILL`) to processes; ended processes are ignored.
pub fn send(signal: &str, pids: &[impl AsRef<str>]) {
    let mut kill = Command::new("kill");
    kill.arg(signal).args(pids.iter().map(AsRef::as_ref)).stderr(Stdio::null());
    // kill(1) fails for a process that has ended.
    let _ = kill.status();
}

/// Tasks in a line, each as "TID PROGRAM: ALLOWED-PUS at LAST-PU".
#[must_use]
pub fn picture(tasks: &[LiveTask]) -> String {
    let texts = tasks.iter().map(|LiveTask { tid, program, bonds, last_ran, .. }| {
        format!("{tid} {program}: {} at {last_ran}", bonds.cpus)
    });
    texts.collect::<Vec<_>>().join(", ")
}
