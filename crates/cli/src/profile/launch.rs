//! Launch or lookup of the program, and the loop that watches until its end.

use super::Args;
use super::demand::FROM_SAMPLES;
use crate::attach::absent;
use crate::exit::no_capability;
use crate::profile::backend::{BackendChoice, BackendResults, Watching};
use crate::run::jobs;
use anyhow::Context;
use colocate_act::launch::{self, Command, Input, LaunchError};
use colocate_act::signals::{SignalAction, Signals};
use colocate_files::kernel;
use colocate_linux::clock::now;
use colocate_linux::poll::wait_readable;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid, sys};
use colocate_machine::{Bytes, CacheKind, Nanos, read};
use colocate_model::profile::VERSION;
use colocate_model::{Phase, Profile, ProfiledProgram};
use colocate_observe::code::Stretch;
use colocate_observe::emulate;
use colocate_observe::identity;
use colocate_observe::pmu::cpu::{self, Cpu};
use colocate_observe::pmu::{Start, extras};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A watched program.
pub struct Watched {
    /// Profile of its threads.
    pub profile: Profile,
    /// Stretches of its code, if requested.
    pub stretches: Vec<Stretch>,
    /// Demand of each thread as far as known without its code; empty if the profile has all of it.
    pub phases: Vec<Phase>,
    /// Order of a thread's phases, as (phase, instructions); empty for phases of several threads.
    pub course: Vec<(u32, u64)>,
}

/// Runs the command and watches it; returns the results and the exit status.
pub fn run(args: &Args) -> anyhow::Result<(Watched, i32)> {
    let command = jobs::find(args.command.clone())?;
    let program = program(&command);
    let signals = Signals::take()?;
    let held = launch::hold(&command, Input::Inherited, signals.inherited()).map_err(failure)?;
    let pid = held.pid();
    // Nothing has run yet: if no backend works, dropping `held` ends the process.
    let watching = Watching::start(args, &[pid], Start::AtExec)?;
    let profile = uncounted(program, &watching);
    let confirmed = held.release().confirm();
    let mut session = ProfileSession::new(args, watching, signals);
    let status = session.watch_child(pid)?;
    confirmed.map_err(failure)?;
    Ok((watched(profile, session.finish()), status))
}

/// Watches processes that run already.
pub fn attach(args: &Args, pids: &[Pid]) -> anyhow::Result<Watched> {
    if args.backend == BackendChoice::Emulate {
        return Err(no_capability(
            "the backend emulate cannot watch a process that runs already; expected --backend pmu \
             or sample"
                .into(),
        ));
    }
    let proc = Proc::default();
    for &pid in pids {
        if proc.living_thread(pid).is_none() {
            anyhow::bail!("expected a running process, found {}", absent(&proc, pid));
        }
    }
    let (program, unread) = running(&proc, pids[0])?;
    let signals = Signals::take()?;
    let watching = Watching::start(args, pids, Start::Now)?;
    let profile = uncounted(program, &watching);
    let mut session = ProfileSession::new(args, watching, signals);
    session.watch_others()?;
    let mut watched = watched(profile, session.finish());
    let notes = &mut watched.profile.notes;
    notes.extend(unread);
    if pids.len() > 1 {
        let list = pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
        notes.push(format!("several processes, {list}; the program is the first one's"));
    }
    Ok(watched)
}

/// Runs the command under QEMU.
pub fn emulate(args: &Args) -> anyhow::Result<(Watched, i32)> {
    if args.watch_for.is_some() {
        return Err(no_capability(
            "the backend emulate counts a program to its end; expected --backend pmu or sample with \
             --for"
                .into(),
        ));
    }
    let command = jobs::find(args.command.clone())?;
    let places = emulate::SearchPaths::from_env(|name| std::env::var_os(name));
    let emulator = emulate::available(&places).map_err(|why| no_capability(why.to_string()))?;
    let scratch = std::env::temp_dir();
    let asked = emulate::EmulatedCommand {
        path: &command.path,
        argv: &command.argv,
        scratch: &scratch,
        ignores_pipe: sys::pipe_was_ignored(),
        stretches: args.demand.is_some() || args.phases.is_some(),
        misses: args.phase.is_some(),
        phases: args.phases.map(usize::from),
        trace: None,
    };
    let ran = emulate::profile(&emulator, asked)?;
    // 128 + N for signal N, as a shell reports it.
    let status = ran.status.code().or(ran.status.signal().map(|signal| 128 + signal)).unwrap_or(0);
    let profile = ran.profile.with_context(|| format!("no profile (exit status {status})"))?;
    let (phases, stretches, course) = match ran.phased {
        None => {
            let phases = emulate::phases(&profile, &ran.misses, &ran.branches);
            (phases, ran.stretches, Vec::new())
        }
        Some(phased) => (phased.phases(&profile), phased.stretches, phased.course),
    };
    Ok((Watched { profile, stretches, phases, course }, status))
}

fn failure(error: LaunchError) -> anyhow::Error {
    jobs::failure(&error).into()
}

fn program(command: &Command) -> ProfiledProgram {
    let path = command.path.canonicalize().unwrap_or_else(|_| command.path.clone());
    let path = as_called(path, &command.name());
    let args = command.argv.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    // A program that may be executed but not read has no identity; no two runs of it match.
    let identity = identity::of_file(&path).unwrap_or_else(|_| "sha256:".into());
    ProfiledProgram { path: path.display().to_string(), args: args.collect(), identity }
}

/// The link beside `file` with the name used to call the program; `file` without a link. On Debian,
/// redis-server is a link to redis-check-rdb; the two behave differently.
fn as_called(file: PathBuf, name: &str) -> PathBuf {
    // A process may give itself any name, with slashes as well (prctl(2)).
    if name.is_empty() || name.contains('/') {
        return file;
    }
    let link = file.with_file_name(name);
    if link.canonicalize().is_ok_and(|to| to == file) { link } else { file }
}

/// The program of a running process, and a note on it for the reader.
///
/// Counting another user's process takes `CAP_PERFMON` only, but reading its program takes
/// `CAP_SYS_PTRACE`.
fn running(proc: &Proc, pid: Pid) -> anyhow::Result<(ProfiledProgram, Option<String>)> {
    let args = proc.arguments(pid);
    let link = proc.executable_link(pid);
    let path = proc.executable(pid);
    if path.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        let path = proc.name(pid, Tid(pid.0)).unwrap_or_default();
        let note = format!(
            "/proc/{pid}/exe may not be read (CAP_SYS_PTRACE lifts that): the program has no identity, and \
             samples say nothing of its code"
        );
        return Ok((ProfiledProgram { path, args, identity: "sha256:".into() }, Some(note)));
    }
    let path =
        path.with_context(|| format!("expected a program in {}, found none", link.display()))?;
    let path = as_called(path, &proc.name(pid, pid.first_thread()).unwrap_or_default());
    let identity = identity::of_file(&link)
        .with_context(|| format!("cannot read the program of process {pid}"))?;
    Ok((ProfiledProgram { path: path.display().to_string(), args, identity }, None))
}

/// A profile before anything is counted.
fn uncounted(program: ProfiledProgram, watching: &Watching) -> Profile {
    let (backend, because) = watching.backend();
    Profile {
        version: VERSION,
        backend,
        program,
        processor: processor(Path::new("/proc/cpuinfo")),
        started_unix_s: crate::input::unix_seconds(),
        watched_ns: Nanos::ZERO,
        complete: false,
        threads: Vec::new(),
        notes: because.into_iter().collect(),
    }
}

fn watched(mut profile: Profile, seen: BackendResults) -> Watched {
    let counted = seen.counted;
    profile.watched_ns = counted.watched;
    profile.complete = counted.complete;
    profile.threads = counted.threads;
    profile.notes.extend(counted.notes);
    let mut phases = Vec::new();
    if !seen.extras.is_empty() {
        let caches = data_caches();
        let threads = profile.threads.iter().zip(&seen.extras);
        phases.extend(
            threads.map(|(thread, extra)| {
                extras::phase(thread, &profile, extra, &seen.events, &caches)
            }),
        );
    }
    Watched { profile, stretches: seen.stretches, phases, course: Vec::new() }
}

/// Levels and sizes of the data caches, nearest first; empty if unknown or differing in a level.
fn data_caches() -> Vec<(u8, Bytes)> {
    let Ok(machine) = read::live() else { return Vec::new() };
    let last = machine.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
    let all = (1..=last).map(|level| {
        let caches = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
        let mut sizes = caches.filter(|cache| cache.level == level).map(|cache| cache.size);
        let first = sizes.next()??;
        sizes.all(|size| size == Some(first)).then_some((level, first))
    });
    // A curve that ends before the last cache would imply that memory comes next.
    all.collect::<Option<_>>().unwrap_or_default()
}

/// Name of the processor's model; without one, as on Arm, its implementer and part numbers.
fn processor(cpuinfo: &Path) -> Option<String> {
    let text = kernel::read_text(cpuinfo).ok()?;
    if let Some(line) = text.lines().find(|line| line.starts_with("model name")) {
        return Some(line.split_once(':')?.1.trim().to_owned());
    }
    let cpu = cpu::from_cpuinfo(&text).first()?.1;
    (cpu != Cpu::Other).then(|| cpu.to_string())
}

/// A watch in progress.
struct ProfileSession {
    /// `None` once the time of `--for` is over.
    watching: Option<Watching>,
    seen: Option<BackendResults>,
    signals: Signals,
    until: Option<Nanos>,
    /// Most stretches of code to return.
    stretches: usize,
}

impl ProfileSession {
    fn new(args: &Args, watching: Watching, signals: Signals) -> Self {
        let stretches = if args.demand.is_some() { FROM_SAMPLES } else { 0 };
        let until = args.watch_for.map(|time| now() + time);
        Self { watching: Some(watching), seen: None, signals, until, stretches }
    }

    /// Watches until child `pid` has ended; returns its exit status. Passes signals on to it.
    fn watch_child(&mut self, pid: Pid) -> anyhow::Result<i32> {
        loop {
            self.wait()?;
            while let Some(arrived) = self.signals.next() {
                let asked = SignalAction::from(arrived);
                if asked.pass_on {
                    // The process may have ended meanwhile.
                    let _ = sys::kill(pid, arrived.signal);
                }
                if asked.stop {
                    let _ = sys::kill(Pid(std::process::id().cast_signed()), libc::SIGSTOP);
                }
                if asked.reap {
                    if let Some(watching) = &mut self.watching {
                        watching.before_reaping();
                    }
                    if let Some(waited) = sys::wait(Some(pid), false)? {
                        return Ok(waited.status);
                    }
                }
            }
        }
    }

    /// Watches until all processes have ended, the time is over, or a signal arrives.
    fn watch_others(&mut self) -> anyhow::Result<()> {
        while self.watching.as_ref().is_some_and(|watching| !watching.all_ended()) {
            self.wait()?;
            while let Some(arrived) = self.signals.next() {
                if matches!(arrived.signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for an event, at most until the next poll, and lets the backend handle it.
    fn wait(&mut self) -> anyhow::Result<()> {
        let mut fds = vec![self.signals.fd()];
        let mut longest = None;
        if let Some(watching) = &self.watching {
            fds.extend(watching.fds());
            let left = self.until.map(|until| Duration::from(until.saturating_sub(now())));
            // Settled counts must be filed in time even if no event arrives.
            longest =
                [Some(AT_LEAST_EVERY), watching.next_look(), left].into_iter().flatten().min();
        }
        wait_readable(&fds, longest)?;
        let over = self.until.is_some_and(|until| now() >= until);
        match &mut self.watching {
            Some(watching) if !over => watching.pump(),
            _ => self.end(),
        }
        Ok(())
    }

    /// Ends the watch, if it is still open.
    fn end(&mut self) {
        if let Some(watching) = self.watching.take() {
            self.seen = Some(watching.finish(self.stretches));
        }
    }

    fn finish(mut self) -> BackendResults {
        self.end();
        self.seen.expect("watching ends only by being counted")
    }
}

/// Longest time between two polls of the backend. Chosen: its rings hold seconds.
const AT_LEAST_EVERY: Duration = Duration::from_millis(250);
