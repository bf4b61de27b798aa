//! One run of a comparison: through `colocate run`, or bare.

use super::session::{RunFiles, Session};
use crate::children::{self, End, kill_group};
use crate::input;
use crate::report::VERSION;
use crate::run::server::Server;
use anyhow::{Context, bail};
use colocate_figures::state::{BARE, JobTime};
use colocate_files::Mode;
use colocate_linux::Pid;
use colocate_linux::sys;
use colocate_machine::Nanos;
use colocate_policy::PolicySpec;
use serde::Deserialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Launcher of a comparison's runs.
pub struct Launcher {
    ourselves: PathBuf,
    commands: Vec<Vec<String>>,
    server: Server,
    seed: u64,
    stop: &'static AtomicBool,
}

/// End of a run.
pub enum Ended {
    /// Every program has ended, successfully or not.
    Done(Vec<JobTime>),
    /// A signal arrived, and the programs have ended.
    Stopped,
}

impl Launcher {
    /// A launcher for the workload of `session`; `stop` ends a run.
    pub fn new(session: &Session, stop: &'static AtomicBool) -> anyhow::Result<Self> {
        let settings = &session.state.settings;
        Ok(Self {
            ourselves: std::env::current_exe().context("cannot find our own executable")?,
            commands: settings.jobs.iter().map(|job| job.command.clone()).collect(),
            server: Server::of_kept(&settings.server)?,
            seed: settings.seed,
            stop,
        })
    }

    /// Runs the workload once under `policy`.
    pub fn run(&self, policy: &str, block: u32, files: &RunFiles) -> anyhow::Result<Ended> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Ended::Stopped);
        }
        if policy == BARE { self.bare(&files.log) } else { self.placed(policy, block, files) }
    }

    fn bare(&self, log: &Path) -> anyhow::Result<Ended> {
        let output = colocate_files::create(log, Mode::ByUmask)?;
        let mut children = Vec::new();
        let mut starts = Vec::new();
        self.server.check_start(&self.commands[0][0])?;
        for argv in &self.commands {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]);
            starts.push(Instant::now());
            match start(&mut command, &output) {
                Ok(child) => children.push(child),
                Err(error) => {
                    kill_all(&children);
                    return Err(error).with_context(|| format!("cannot start {}", argv[0]));
                }
            }
            if let (1, Some(ready)) = (children.len(), self.server.readiness())
                && let Err(why) = ready.probe.wait(ready.within)
            {
                kill_all(&children);
                bail!("{} is not ready: {why}", argv[0]);
            }
        }
        let Some(ends) = self.wait_for(&children, &self.server.until(children.len()))? else {
            return Ok(Ended::Stopped);
        };
        Ok(Ended::Done(
            ends.iter()
                .map(|end: &End| JobTime {
                    wall_ns: end.at.duration_since(starts[end.child]).into(),
                    status: end.waited.status,
                })
                .collect(),
        ))
    }

    fn placed(&self, policy: &str, block: u32, files: &RunFiles) -> anyhow::Result<Ended> {
        let output = colocate_files::create(&files.log, Mode::ByUmask)?;
        // If `colocate run` left no report, the report of an earlier attempt would be taken for its
        // own.
        colocate_files::remove_if_exists(&files.report)?;
        let mut command = Command::new(&self.ourselves);
        // A random policy draws anew in every block, and the same after an interruption.
        let policy = seeded(policy, self.seed.wrapping_add(u64::from(block)));
        command.args(["run", "--policy", &policy, "--quiet", "--json", "-o"]).arg(&files.report);
        command.args(self.server.words()).arg("--").args(self.commands.join(&":::".to_owned()));
        let child = start(&mut command, &output).context("cannot start colocate run")?;
        let Some(ends) = self.wait_for(&[child], &[])? else { return Ok(Ended::Stopped) };
        let jobs = read_report(&files.report, self.commands.len()).with_context(|| {
            let status = ends[0].waited.status;
            format!("colocate run ended with status {status}; see {}", files.log.display())
        })?;
        Ok(Ended::Done(jobs))
    }

    /// Waits for all `children`; returns their ends in their order, or `None` if a signal stops the
    /// run. Once all children in `until` (if any) have ended, the remaining children are
    /// terminated.
    fn wait_for(&self, children: &[Pid], until: &[usize]) -> anyhow::Result<Option<Vec<End>>> {
        children::wait_all(children, until, self.stop, ask_to_end, || Ok(()))
    }
}

/// Kills and reaps children that would run on without being timed.
fn kill_all(children: &[Pid]) {
    for &child in children {
        kill_group(child);
        let _ = sys::wait(Some(child), true);
    }
}

/// `policy` with `seed`, if the policy has this setting and no setting is given.
fn seeded(policy: &str, seed: u64) -> String {
    if policy.contains(':') {
        policy.to_owned()
    } else {
        with_seed(policy, seed).unwrap_or(policy.to_owned())
    }
}

fn with_seed(policy: &str, seed: u64) -> Option<String> {
    let mut spec: PolicySpec = policy.parse().ok()?;
    spec.set("seed", &seed.to_string()).ok()?;
    Some(spec.to_string())
}

/// Sends SIGTERM to a child only: `colocate run` passes the signal on to its programs. Programs
/// killed at a second signal are left to its guardian, which has its own session.
fn ask_to_end(pid: Pid) {
    // The child may have ended meanwhile.
    let _ = sys::kill(pid, libc::SIGTERM);
}

/// Starts a child with standard output and error redirected to `output`.
fn start(command: &mut Command, output: &File) -> std::io::Result<Pid> {
    // Programs that read standard input would wait for the terminal.
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    children::start(command)
}

/// The fields used of the report of `colocate run` (docs/schemas/report.json).
#[derive(Deserialize)]
struct Report {
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
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("expected a report in {}", path.display()))?;
    anyhow::ensure!(
        report.version == VERSION && report.jobs.len() == jobs,
        "expected a report of version {VERSION} with {jobs} jobs, found version {} with {}",
        report.version,
        report.jobs.len(),
    );
    let times: Option<_> = report
        .jobs
        .into_iter()
        .map(|job: ReportedJob| Some(JobTime { wall_ns: job.ended_ns?, status: job.status? }))
        .collect();
    times.context("expected the end of each job, found one without")
}
