//! One run: through `colocate run`, or bare.

use super::session::{RunFiles, Session};
use crate::input;
use anyhow::Context;
use colocate_act::sys;
use colocate_files::Mode;
use colocate_machine::Nanos;
use colocate_observe::Pid;
use colocate_policy::PolicySpec;
use colocate_study::state::{BARE, JobTime};
use serde::Deserialize;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often we look whether somebody asked us to stop. Nothing is timed by it.
const GLANCE: Duration = Duration::from_millis(100);

/// Starts runs of one comparison.
pub struct Launcher {
    ourselves: PathBuf,
    commands: Vec<Vec<String>>,
    seed: u64,
    stop: Arc<AtomicBool>,
}

/// How a run ended.
pub enum Ended {
    /// Every program has ended, well or not.
    Done(Vec<JobTime>),
    /// Somebody asked us to stop, and the programs have ended.
    Stopped,
}

/// The end of a child: which one, when, how.
struct End {
    child: usize,
    at: Instant,
    status: ExitStatus,
}

impl Launcher {
    /// A launcher for the workload of `session`; `stop` ends a run.
    ///
    /// # Errors
    /// If the kernel does not say where our own executable is.
    pub fn new(session: &Session, stop: Arc<AtomicBool>) -> anyhow::Result<Self> {
        let settings = &session.state.settings;
        Ok(Self {
            ourselves: std::env::current_exe().context("cannot find our own executable")?,
            commands: settings.jobs.iter().map(|job| job.command.clone()).collect(),
            seed: settings.seed,
            stop,
        })
    }

    /// Runs the workload once under `policy`.
    ///
    /// # Errors
    /// If a program cannot be started, or `colocate run` leaves no report.
    pub fn run(&self, policy: &str, block: u32, files: &RunFiles) -> anyhow::Result<Ended> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Ended::Stopped);
        }
        if policy == BARE { self.bare(&files.log) } else { self.placed(policy, block, files) }
    }

    fn bare(&self, log: &Path) -> anyhow::Result<Ended> {
        let output = colocate_files::create(log, Mode::ByUmask)?;
        let (mut children, mut starts) = (Vec::new(), Vec::new());
        for argv in &self.commands {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]);
            starts.push(Instant::now());
            match start(&mut command, &output) {
                Ok(child) => children.push(child),
                Err(error) => {
                    // The others would run on without anybody to time them.
                    children.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
                    return Err(error).with_context(|| format!("cannot start {}", argv[0]));
                }
            }
        }
        let Some(ends) = self.wait_for(children)? else { return Ok(Ended::Stopped) };
        let time = |end: &End| JobTime {
            wall_ns: end.at.duration_since(starts[end.child]).into(),
            status: shell_status(end.status),
        };
        Ok(Ended::Done(ends.iter().map(time).collect()))
    }

    fn placed(&self, policy: &str, block: u32, files: &RunFiles) -> anyhow::Result<Ended> {
        let output = colocate_files::create(&files.log, Mode::ByUmask)?;
        // The report of an earlier attempt would be taken for this one's if `colocate run` left none.
        colocate_files::remove_if_exists(&files.report)?;
        let mut command = Command::new(&self.ourselves);
        // A policy that draws shall draw anew in every block, and the same after an interruption.
        let policy = seeded(policy, self.seed.wrapping_add(u64::from(block)));
        command.args(["run", "--policy", &policy, "--quiet", "--json", "-o"]).arg(&files.report);
        command.arg("--").args(self.commands.join(&":::".to_owned()));
        let child = start(&mut command, &output).context("cannot start colocate run")?;
        let Some(ends) = self.wait_for(vec![child])? else { return Ok(Ended::Stopped) };
        let jobs = read_report(&files.report, self.commands.len()).with_context(|| {
            let status = shell_status(ends[0].status);
            format!("colocate run ended with status {status}; see {}", files.log.display())
        })?;
        Ok(Ended::Done(jobs))
    }

    /// Waits until all `children` have ended, in their order; `None` if we were asked to stop. Who
    /// asks once more means it: what does not end then is killed.
    fn wait_for(&self, children: Vec<Child>) -> anyhow::Result<Option<Vec<End>>> {
        let pids: Vec<u32> = children.iter().map(Child::id).collect();
        let arrivals = waiters(children);
        let mut ends: Vec<Option<End>> = pids.iter().map(|_| None).collect();
        let mut asked = 0;
        while ends.iter().any(Option::is_none) {
            match arrivals.recv_timeout(GLANCE) {
                Ok(end) => {
                    let end = end.context("cannot wait for a program")?;
                    let child = end.child;
                    ends[child] = Some(end);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("cannot wait for a program: a waiter has ended")
                }
            }
            if self.stop.swap(false, Ordering::Relaxed) {
                asked += 1;
                let living = pids.iter().zip(&ends).filter(|(_, end)| end.is_none());
                living.for_each(|(&pid, _)| if asked == 1 { ask_to_end(pid) } else { kill(pid) });
            }
        }
        let stopped = asked > 0 || self.stop.load(Ordering::Relaxed);
        Ok((!stopped).then(|| ends.into_iter().flatten().collect()))
    }
}

/// One thread a child, so that each end is timed when it happens.
fn waiters(children: Vec<Child>) -> Receiver<std::io::Result<End>> {
    let (send, arrivals) = mpsc::channel();
    for (child, mut process) in children.into_iter().enumerate() {
        let send = send.clone();
        std::thread::spawn(move || {
            let end = process.wait().map(|status| End { child, at: Instant::now(), status });
            // Nobody listens any more only if we are ending anyway.
            let _ = send.send(end);
        });
    }
    arrivals
}

/// `policy` with `seed`, if it has such a setting and none of its settings are given.
fn seeded(policy: &str, seed: u64) -> String {
    let with_seed = || {
        let mut spec: PolicySpec = policy.parse().ok()?;
        spec.set("seed", &seed.to_string()).ok()?;
        Some(spec.to_string())
    };
    if policy.contains(':') { policy.to_owned() } else { with_seed().unwrap_or(policy.to_owned()) }
}

/// Tells a child, and it alone: `colocate run` passes it on to its programs.
fn ask_to_end(pid: u32) {
    // It may have ended meanwhile.
    let _ = sys::kill(Pid(pid.cast_signed()), libc::SIGTERM);
}

/// Kills a child and what it started in its process group. The guardian of `colocate run`, which
/// has a session of its own, does the rest.
fn kill(pid: u32) {
    let _ = sys::kill(Pid(-pid.cast_signed()), libc::SIGKILL);
}

/// Starts a child that does not outlive us. Its process group is its own: keys like Ctrl-C ask us,
/// and we ask it.
fn start(command: &mut Command, output: &File) -> std::io::Result<Child> {
    sys::ends_with_us(command);
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?).spawn()
}

/// The exit code, or 128 + the number of the signal that ended it.
fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// What we need of the report of `colocate run` (docs/schemas/report.json).
#[derive(Deserialize)]
struct Report {
    version: u64,
    jobs: Vec<ReportedJob>,
}

#[derive(Deserialize)]
struct ReportedJob {
    wall_ns: Nanos,
    status: i32,
}

fn read_report(path: &Path, jobs: usize) -> anyhow::Result<Vec<JobTime>> {
    let text = input::text(path, input::REPORT).context("cannot read its report")?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("expected a report in {}", path.display()))?;
    anyhow::ensure!(
        report.version == 2 && report.jobs.len() == jobs,
        "expected a report of version 2 with {jobs} jobs, found version {} with {}",
        report.version,
        report.jobs.len(),
    );
    let time = |job: ReportedJob| JobTime { wall_ns: job.wall_ns, status: job.status };
    Ok(report.jobs.into_iter().map(time).collect())
}
