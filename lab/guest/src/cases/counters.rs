//! What the backend `pmu` counts is what was executed, and what it cannot count is unknown.
//!
//! In these guests an instruction takes a nanosecond, so cycles are instructions, and what a loop of
//! known length executes is known for every thread.

use crate::evidence::{colocate, eventually, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A user without privileges.
const USER: u32 = 1000;
/// Where profiles are written to; every user may.
const PROFILE: &str = "/tmp/counters.json";
const PERF: &str = "/tmp/counters.csv";
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const INSTRUCTIONS: &str = "instructions:u";

/// The program `loops` under `colocate profile`.
struct Profiled {
    colocate: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Profiled {
    /// Starts it with these loops, as `user`, and waits until the first wave is there.
    fn start(user: u32, loops: &str) -> anyhow::Result<Self> {
        let _ = fs::remove_file(PROFILE);
        let mut command = Command::new("colocate");
        command.args(["profile", "--backend", "pmu", "--output", PROFILE, "--"]);
        command.args(["lab-guest", "--program", "loops"]).args(loops.split(' '));
        let mut colocate =
            command.uid(user).gid(user).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let say = colocate.stdin.take().context("no standard input")?;
        let hear = BufReader::new(colocate.stdout.take().context("no standard output")?);
        let mut this = Self { colocate, say, hear };
        this.hear_ready()?;
        Ok(this)
    }

    /// Waits until the next wave of threads is there.
    fn hear_ready(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        ensure!(line == "ready\n", "expected ready, found {line:?}");
        Ok(())
    }

    /// Waits until `threads` threads, the first one included, have their counters.
    ///
    /// Of this processor instructions and cycles are counted; one more event hears of births.
    fn counted(&self, threads: usize) -> anyhow::Result<()> {
        let pid = self.colocate.id();
        let wanted = threads * 2 + 1;
        eventually("colocate to have counters on every thread", || Ok(events(pid)? >= wanted))
    }

    /// Lets the wave run.
    fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.say.write_all(b"go\n")?)
    }

    /// The loops' process.
    fn program(&self) -> anyhow::Result<u32> {
        let pid = self.colocate.id();
        let children = text(format!("/proc/{pid}/task/{pid}/children"))?;
        children.parse().with_context(|| format!("expected one child, found {children}"))
    }

    /// Waits for its end; the profile.
    fn end(mut self) -> anyhow::Result<Value> {
        let status = self.colocate.wait()?;
        ensure!(status.success(), "colocate profile: {status}");
        Ok(serde_json::from_str(&text(PROFILE)?)?)
    }
}

/// How many perf events a process holds open.
fn events(pid: u32) -> anyhow::Result<usize> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy() == "anon_inode:[perf_event]").count())
}

/// `perf` with these words, which holds `wanted` events once this returns.
fn perf(words: &[&str], wanted: usize) -> anyhow::Result<Child> {
    let _ = fs::remove_file(PERF);
    let mut command = Command::new("perf");
    let child = command.args(["stat", "-x", ",", "-o", PERF]).args(words).stdin(Stdio::null());
    let child = child.spawn().context("cannot start perf")?;
    eventually("perf to hold its events", || Ok(events(child.id())? >= wanted))?;
    Ok(child)
}

/// What `perf stat` counted of thread `name`: the first column after its name.
fn perfs(name: &str, event: &str) -> anyhow::Result<u64> {
    let all = text(PERF)?;
    let is_its = |line: &&str| line.starts_with(&format!("{name}-")) && line.contains(event);
    let line = all.lines().find(is_its).with_context(|| format!("{name} {event}: {all}"))?;
    let count = line.split(',').nth(1).unwrap_or_default();
    count.parse().with_context(|| format!("expected a count, found {line}"))
}

fn thread<'a>(profile: &'a Value, name: &str) -> anyhow::Result<&'a Value> {
    let threads = profile["threads"].as_array().context("expected threads")?;
    let mut its = threads.iter().filter(|thread| thread["name"] == name);
    its.next().with_context(|| format!("expected thread {name}, found {threads:?}"))
}

fn notes(profile: &Value) -> String {
    profile["notes"].to_string()
}

/// `found` is `expected` or at most the `part`th part of it away.
fn near(what: &str, found: &Value, expected: u64, part: u64) -> anyhow::Result<()> {
    let count =
        found.as_u64().with_context(|| format!("{what}: expected a count, found {found}"))?;
    let away = count.abs_diff(expected);
    println!("{what}: {count} of {expected}");
    ensure!(away <= expected / part, "{what}: expected {expected}, found {count}");
    Ok(())
}

/// Each thread's cycles and instructions are those of its loop, and what `perf stat` counts at the
/// same time, within 0.1 %.
pub fn are_exact() -> anyhow::Result<()> {
    let mut run = Profiled::start(0, "known:40 beside:60 other:20")?;
    run.counted(4)?;
    let pid = run.program()?.to_string();
    // Four events fit on seven counters: nothing takes turns.
    let mut perf = perf(&["-e", "instructions:u,cycles:u", "--per-thread", "-p", &pid], 8)?;
    run.go()?;
    let profile = run.end()?;
    ensure!(perf.wait()?.success(), "perf failed");
    for (name, millions) in [("known", 40), ("beside", 60), ("other", 20)] {
        for event in ["instructions", "cycles"] {
            let found = &thread(&profile, name)?[event];
            near(&format!("{name} {event}"), found, millions * 1_000_000, 1000)?;
            near("  of perf's", found, perfs(name, &format!("{event}:u"))?, 1000)?;
        }
    }
    ensure!(!notes(&profile).contains("scaled"), "{}", notes(&profile));
    Ok(())
}
