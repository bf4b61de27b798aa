//! One run of a comparison: through colocate, beside `colocate attach`, or bare.

use super::attachment::Attachment;
use super::names::RunFiles;
use super::score::{RunResult, ScoreSource};
use super::session::ComparisonSession;
use super::way::RunMethod;
use crate::children::{self, ChildEnd, kill_group, start_into};
use crate::input;
use crate::report::VERSION;
use crate::run::server::Server;
use anyhow::{Context, bail};
use colocate_figures::state::{AttachPeriod, JobTime};
use colocate_files::FileMode;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, sys};
use colocate_machine::Nanos;
use serde::Deserialize;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Launcher of a comparison's runs.
pub struct Launcher {
    ourselves: PathBuf,
    commands: Vec<Vec<String>>,
    server: Server,
    seed: u64,
    scores: Vec<ScoreSource>,
    attach: Option<AttachPeriod>,
    pause: Duration,
    beside: Vec<Vec<String>>,
    environment: Vec<(&'static str, OsString)>,
    stop: &'static AtomicBool,
}

impl Launcher {
    /// A launcher for the workload of `session`, ended by `stop`; programs get `environment`, too.
    pub fn new(
        session: &ComparisonSession,
        environment: Vec<(&'static str, OsString)>,
        stop: &'static AtomicBool,
    ) -> anyhow::Result<Self> {
        let settings = &session.state.settings;
        let scores = settings.scores.iter().map(|score| score.from.parse());
        Ok(Self {
            ourselves: std::env::current_exe().context("cannot find our own executable")?,
            commands: settings.jobs.iter().map(|job| job.command.clone()).collect(),
            server: Server::of_kept(&settings.server)?,
            seed: settings.seed,
            scores: scores.collect::<anyhow::Result<_>>()?,
            attach: settings.attach,
            pause: Duration::from_millis(settings.pause_ms.unwrap_or(0).into()),
            beside: settings.beside.clone(),
            environment,
            stop,
        })
    }

    /// Runs the workload once in the way that `policy` names, to the end of every program: times,
    /// and scores if all succeeded. `None` if a signal arrived; the programs have ended then, too.
    pub fn run(
        &self,
        policy: &str,
        block: u32,
        files: &RunFiles,
    ) -> anyhow::Result<Option<(Vec<JobTime>, Vec<f64>)>> {
        std::thread::sleep(self.pause);
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // If colocate left no report, the report of an earlier attempt would be taken for its own.
        colocate_files::remove_if_exists(&files.report)?;
        // A random policy draws anew in every block, and the same after an interruption.
        let seed = self.seed.wrapping_add(u64::from(block));
        let _beside = self.start_beside()?;
        let result = match RunMethod::of(policy, seed) {
            RunMethod::Prefix(words) => self.beside(&words, None, files)?,
            RunMethod::Attach(words) => self.beside(&[], Some(&words), files)?,
            RunMethod::Launch(words) => self.placed(&words, files)?,
        };
        let Some(result) = result else { return Ok(None) };
        let succeeded = result.jobs.iter().all(|job| job.status == 0);
        let scores = self.scores.iter().filter(|_| succeeded);
        let scores = scores.map(|source| source.read(&result, files));
        let scores = scores.collect::<anyhow::Result<_>>()?;
        Ok(Some((result.jobs, scores)))
    }

    /// Starts the programs beside a run. Their output is no source of scores.
    fn start_beside(&self) -> anyhow::Result<ProgramsBeside> {
        let mut started = ProgramsBeside(Vec::new());
        for argv in &self.beside {
            let mut command = self.command(&argv[0]);
            command.args(&argv[1..]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = children::start(&mut command)
                .with_context(|| format!("cannot start {}, beside the programs", argv[0]))?;
            started.0.push(child);
        }
        Ok(started)
    }

    /// Runs the programs behind the words of `prefix`, beside `colocate attach` if its words are
    /// given; `None` if a signal stops the run.
    fn beside(
        &self,
        prefix: &[String],
        attach: Option<&[String]>,
        files: &RunFiles,
    ) -> anyhow::Result<Option<RunResult>> {
        let output = colocate_files::create(&files.log, FileMode::ByUmask)?;
        let begun = Instant::now();
        let (children, starts) = self.start_all(prefix, &output)?;
        let until = self.server.until(children.len());
        let mut attachment = attach.map(|words| {
            let mut command = self.command(&self.ourselves);
            command.args(words).args(["--quiet", "--json", "-o"]).arg(&files.report);
            Attachment::new(command, self.attach, &children)
        });
        let waited = children::wait_all(&children, &until, self.stop, ask_to_end, || {
            attachment.as_mut().map_or(Ok(()), |it| it.poll(&output))
        });
        if waited.is_err() {
            kill_all(&children);
        }
        // Also after an error, so that no attachment outlives the run.
        let detached = attachment.map_or(Ok(()), Attachment::end);
        let Some(ends) = waited? else {
            // A shell that a signal ends leaves its programs.
            children.iter().for_each(|child| kill_group(*child));
            return Ok(None);
        };
        detached.with_context(|| format!("colocate attach failed; see {}", files.log.display()))?;
        let jobs = ends.iter().map(|end: &ChildEnd| JobTime {
            wall_ns: end.at.duration_since(starts[end.child]).into(),
            status: end.waited.status,
        });
        Ok(Some(RunResult::new(jobs.collect(), begun, &ends)))
    }

    /// Starts all programs, the first one until it is ready; returns them with their start times.
    fn start_all(
        &self,
        prefix: &[String],
        output: &File,
    ) -> anyhow::Result<(Vec<Pid>, Vec<Instant>)> {
        let mut children = Vec::new();
        let mut starts = Vec::new();
        self.server.check_start(&self.commands[0][0])?;
        for argv in &self.commands {
            let mut words = prefix.iter().chain(argv);
            let mut command = self.command(words.next().context("expected a program")?);
            command.args(words);
            starts.push(Instant::now());
            match start_into(&mut command, output) {
                Ok(child) => children.push(child),
                Err(error) => {
                    kill_all(&children);
                    return Err(error).with_context(|| format!("cannot start {}", argv[0]));
                }
            }
            // Only the first program is a server.
            if let (1, Some(ready)) = (children.len(), self.server.readiness())
                && let Err(why) = ready.probe.wait(ready.within)
            {
                kill_all(&children);
                bail!("{} is not ready: {why}", argv[0]);
            }
        }
        Ok((children, starts))
    }

    /// Runs the programs through the colocate command `words`; `None` if a signal stops the run.
    fn placed(&self, words: &[String], files: &RunFiles) -> anyhow::Result<Option<RunResult>> {
        let output = colocate_files::create(&files.log, FileMode::ByUmask)?;
        let mut command = self.command(&self.ourselves);
        command.args(words).args(["--quiet", "-o"]).arg(&files.report);
        // A profile has one program and reports no job: its own end is the program's.
        let has_jobs = words[0] != "profile";
        if has_jobs {
            command.arg("--json");
        }
        command.args(self.server.words()).arg("--").args(self.commands.join(&":::".to_owned()));
        let begun = Instant::now();
        let child = start_into(&mut command, &output).context("cannot start colocate")?;
        let ends = children::wait_all(&[child], &[], self.stop, ask_to_end, || Ok(()))?;
        let Some(ends) = ends else { return Ok(None) };
        let status = ends[0].waited.status;
        let jobs = if has_jobs {
            read_report(&files.report, self.commands.len()).with_context(|| {
                let log = files.log.display();
                format!("colocate {} ended with status {status}; see {log}", words[0])
            })?
        } else {
            vec![JobTime { wall_ns: ends[0].at.duration_since(begun).into(), status }]
        };
        Ok(Some(RunResult::new(jobs, begun, &ends)))
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Programs beside a run, killed when this is dropped.
struct ProgramsBeside(Vec<Pid>);

impl Drop for ProgramsBeside {
    fn drop(&mut self) {
        // `timeout` and job control put programs into other groups than their parent's.
        for pid in self.0.iter().flat_map(|child| with_descendants(*child)) {
            // It may have ended meanwhile.
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        kill_all(&self.0);
    }
}

/// A child, its children, theirs, and so on.
fn with_descendants(child: Pid) -> Vec<Pid> {
    let proc = Proc::default();
    let mut found = vec![child];
    let mut at = 0;
    while at < found.len() {
        found.extend(proc.children(found[at]));
        at += 1;
    }
    found
}

/// Kills and reaps children that would run on without being timed.
fn kill_all(children: &[Pid]) {
    for &child in children {
        kill_group(child);
        // A child that has been reaped already is no error.
        let _ = sys::wait(Some(child), true);
    }
}

/// Sends SIGTERM to a child only: `colocate run` passes the signal on to its programs. Programs
/// killed at a second signal are left to its guardian, which has its own session.
fn ask_to_end(pid: Pid) {
    // The child may have ended meanwhile.
    let _ = sys::kill(pid, libc::SIGTERM);
}

/// The fields used of the report of `colocate run` (docs/schemas/report.json).
#[derive(Deserialize)]
struct RunReport {
    version: u32,
    jobs: Vec<ReportedJob>,
}

#[derive(Deserialize)]
struct ReportedJob {
    ended_ns: Option<Nanos>,
    status: Option<i32>,
}

fn read_report(path: &Path, jobs: usize) -> anyhow::Result<Vec<JobTime>> {
    let text = input::text(path, input::REPORT).context("cannot read its report")?;
    let report: RunReport = serde_json::from_str(&text)
        .with_context(|| format!("expected a report in {}", path.display()))?;
    anyhow::ensure!(
        report.version == VERSION && report.jobs.len() == jobs,
        "expected a report of version {VERSION} with {jobs} jobs, found version {} with {}",
        report.version,
        report.jobs.len(),
    );
    let jobs = report.jobs.into_iter();
    let times = jobs.map(|job| Some(JobTime { wall_ns: job.ended_ns?, status: job.status? }));
    times.collect::<Option<_>>().context("expected the end of each job, found one without")
}
