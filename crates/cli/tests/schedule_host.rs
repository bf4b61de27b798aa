//! Whole runs of `colocate schedule` with programs that behave badly. Both ways of stopping jobs.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on has failed

mod run_support;

use run_support::{Scratch, await_that};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// By cgroups where this user may make some, and by signals.
const WAYS: [&[&str]; 2] = [&[], &["--only-signals"]];

/// A workload of shells. Each script is followed by what its table has beside it.
fn workload(scratch: &Scratch, head: &str, jobs: &[(&str, &str)]) -> PathBuf {
    let mut text = format!("version = 1\nquantum = \"20 ms\"\n{head}\n");
    for (script, more) in jobs {
        let _ = writeln!(text, "[[job]]\ncommand = [\"sh\", \"-c\", '{script}']\n{more}");
    }
    let path = scratch.path("workload.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// `colocate schedule`, its output going to the file `out`.
fn start(scratch: &Scratch, way: &[&str], file: &Path) -> Child {
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--policy", "round-robin"]).args(way).arg(file);
    let out = std::fs::File::create(scratch.path("out")).unwrap();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(out).stderr(said).spawn().unwrap()
}

fn out(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("out")).unwrap()
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    await_that(what, || holds().then_some(()));
}

/// Shells whose command line has the word in it.
fn called(word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.starts_with("sh\0") && line.contains(word)
    };
    pids.filter(has).collect()
}

/// State letter and clock ticks of CPU time of a process; `None` if it is gone.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields[0].chars().next()?, fields[11].parse().ok()?))
}

fn signal(name: &str, pid: i32) {
    let _ = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// A script that works until the file is there.
fn until(file: &Path) -> String {
    format!("while [ ! -e {} ]; do :; done", file.display())
}

#[test]
fn killed_from_outside() {
    for way in WAYS {
        let scratch = Scratch::new();
        let enough = scratch.path("enough");
        let victim = format!(": victim{}; {}", std::process::id(), until(&enough));
        let other = format!("{}; echo done", until(&enough));
        let file = workload(&scratch, "", &[(&other, "copies = 4"), (&victim, "")]);
        let mut child = start(&scratch, way, &file);
        let word = format!("victim{}", std::process::id());
        wait_until("the victim has begun", || called(&word).len() == 1);
        called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
        wait_until("it is gone", || called(&word).is_empty());
        std::fs::write(&enough, "").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(137), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 4);
    }
}

/// All processes of a job that forks get their turns, and stop with it.
#[test]
fn a_job_that_forks() {
    for way in WAYS {
        let scratch = Scratch::new();
        let enough = scratch.path("enough");
        let work = until(&enough);
        let word = format!("forks{}", std::process::id());
        let forks = format!(": {word}; ({work}) & ({work}) & {work}; wait; echo done");
        let other = format!("{work}; echo done");
        let file = workload(&scratch, "", &[(&forks, ""), (&other, "copies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("it has forked", || called(&word).len() == 3);
        let family = called(&word);
        let used = || family.iter().filter_map(|pid| stat(*pid)).map(|(_, used)| used);
        wait_until("all work", || used().all(|ticks| ticks > 0));
        std::fs::write(&enough, "").unwrap();
        assert!(child.wait().unwrap().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 6);
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// The others are done while it sleeps; then somebody wakes it.
#[test]
fn a_job_that_stops_itself() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = format!("sleeps{}", std::process::id());
        let sleeps = format!(": {word}; kill -STOP $$; echo woke");
        let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo done";
        let file = workload(&scratch, "", &[(&sleeps, ""), (work, "copies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("the others are done", || out(&scratch).matches("done").count() == 5);
        wait_until("it wakes", || {
            called(&word).into_iter().for_each(|pid| signal("-CONT", pid));
            child.try_wait().unwrap().is_some()
        });
        assert_eq!(out(&scratch).matches("woke").count(), 1);
        assert!(child.wait().unwrap().success(), "{}", said(&scratch));
    }
}

#[test]
fn launched_anew_until_the_target() {
    for way in WAYS {
        let scratch = Scratch::new();
        let jobs = [("echo run", "target = { completions = 5 }"), ("echo once", "copies = 3")];
        let file = workload(&scratch, "", &jobs);
        assert!(start(&scratch, way, &file).wait().unwrap().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).matches("run").count(), 5);
        assert_eq!(out(&scratch).matches("once").count(), 3);
    }
}

/// The second job can only end if the first one is launched anew although it is done.
#[test]
fn the_load_stays() {
    for way in WAYS {
        let scratch = Scratch::new();
        let log = scratch.path("log");
        std::fs::write(&log, "").unwrap();
        let log = log.display();
        let first = format!("echo one >> {log}");
        let second = format!("until [ $(wc -l < {log}) -ge 3 ]; do :; done; echo done");
        let file = workload(&scratch, "repeat = true", &[(&first, ""), (&second, "")]);
        let mut child = start(&scratch, way, &file);
        assert!(child.wait().unwrap().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 1);
    }
}

/// A program that fails is not run again and again.
#[test]
fn a_failed_run_is_the_last() {
    let scratch = Scratch::new();
    let jobs = [("echo tried; exit 3", "target = { completions = 5 }"), ("echo fine", "")];
    let file = workload(&scratch, "repeat = true", &jobs);
    assert_eq!(start(&scratch, &[], &file).wait().unwrap().code(), Some(3));
    assert_eq!(out(&scratch).matches("tried").count(), 1);
}

#[test]
fn a_hundred_jobs() {
    for way in WAYS {
        let scratch = Scratch::new();
        let work = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo done";
        let file = workload(&scratch, "", &[(work, "copies = 100")]);
        assert!(start(&scratch, way, &file).wait().unwrap().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).matches("done").count(), 100);
    }
}

/// A target of instructions is reached, or refused in one line where nothing counts them.
#[test]
fn instructions_or_a_line() {
    let scratch = Scratch::new();
    let file =
        workload(&scratch, "", &[("while :; do :; done", "target = { instructions = 5000 }")]);
    let done = start(&scratch, &[], &file).wait().unwrap();
    if !done.success() {
        assert_eq!(done.code(), Some(125));
        assert!(said(&scratch).contains("a target of 5000 instructions: expected counters"));
        assert_eq!(said(&scratch).trim_end().lines().count(), 1, "{}", said(&scratch));
    }
}

/// What a program that is launched anew finds is what the first run found, whatever colocate has changed for
/// itself: priority, limit of open files, signals, mask.
#[test]
fn later_runs_find_what_the_first_found() {
    let scratch = Scratch::new();
    let look = "nice; ulimit -n; grep -E \"SigBlk|SigIgn|Cpus_allowed:\" /proc/self/status | tr \"\\n\" \" \"; echo";
    let file = workload(&scratch, "", &[(look, "target = { completions = 3 }")]);
    let path = scratch.path("few");
    let script = format!("ulimit -S -n 40; exec \"$0\" \"$@\" > {}", path.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_colocate"), "schedule", "--policy", "os"]);
    scratch.homes(&mut command);
    let output = command.arg(&file).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(path).unwrap();
    let runs: Vec<Vec<&str>> =
        text.lines().collect::<Vec<_>>().chunks(3).map(<[_]>::to_vec).collect();
    assert_eq!(runs.len(), 3, "{text}");
    assert!(runs.iter().all(|run| *run == runs[0] && run[1] == "40"), "{text}");
}

/// Who is asked to end and does so without a fault is not launched anew, even if its target is far.
#[test]
fn asked_to_end_nothing_begins_anew() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = format!("polite{}", std::process::id());
        let polite = format!(": {word}; trap \"exit 0\" TERM; while :; do :; done");
        let file = workload(&scratch, "", &[(&polite, "target = { completions = 9 }\ncopies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("all have begun", || called(&word).len() == 5);
        signal("-TERM", i32::try_from(child.id()).unwrap());
        wait_until("colocate ends", || child.try_wait().unwrap().is_some());
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// More jobs than the soft limit of open files has room for.
#[test]
fn few_descriptors() {
    let scratch = Scratch::new();
    let file = workload(&scratch, "", &[("echo done", "copies = 100")]);
    let script = "ulimit -S -n 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_colocate"), "schedule", "--policy", "fair"]);
    scratch.homes(&mut command);
    let output = command.arg(&file).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("done").count(), 100);
}
