//! Whole runs of `colocate schedule` that are ended from outside: nothing stays stopped or placed.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod run_support;
mod schedule_support;

use run_support::{Scratch, await_that, child_called, have, masks, original};
use schedule_support::{WAYS, called, said, signal, start, stat, wait_until, workload};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Seven shells that work for ever, in a workload that has begun; and the word that they are known by.
fn at_work(scratch: &Scratch, way: &[&str], purpose: &str) -> (Child, String) {
    let word = format!("{purpose}{}", std::process::id());
    let work = format!(": {word}; while :; do :; done");
    let file = workload(scratch, "", &[(&work, "copies = 7")]);
    let child = start(scratch, way, &file);
    wait_until("all have begun", || called(&word).len() == 7);
    (child, word)
}

/// Cgroups of the process that was colocate.
fn cgroups_of(pid: u32) -> bool {
    let name = format!("colocate-{pid}");
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .iter()
        .any(|dir| Path::new(dir).join(&name).exists())
}

/// All shells work, and on every PU that they could use without us; then they are ended.
fn go_on_unplaced(word: &str) {
    let left = called(word);
    assert_eq!(left.len(), 7);
    let used = |pid: &i32| stat(*pid).unwrap().1;
    let before: Vec<u64> = left.iter().map(used).collect();
    wait_until("all go on", || left.iter().zip(&before).all(|(pid, before)| used(pid) > *before));
    let free = |pid: &i32| masks(*pid) == [original()];
    wait_until("all are free", || left.iter().all(free));
    left.iter().for_each(|pid| signal("-KILL", *pid));
    wait_until("all have ended", || called(word).is_empty());
}

/// Whether this process ignores a signal, as those do that nohup(1) has started: then all that it starts do, too.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1
}

#[test]
fn signals_end_the_programs() {
    for way in WAYS {
        for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
            if is_ignored(number) {
                continue;
            }
            let scratch = Scratch::new();
            let (mut child, word) = at_work(&scratch, way, name);
            signal(&format!("-{name}"), child.id().cast_signed());
            let status = child.wait().unwrap().code();
            assert_eq!(status, Some(128 + number), "{name}: {}", said(&scratch));
            wait_until("all have ended", || called(&word).is_empty());
            assert!(!cgroups_of(child.id()) && scratch.journals().is_empty());
        }
    }
}

#[test]
fn killed_by_force() {
    for way in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, way, "force");
        child.kill().unwrap();
        child.wait().unwrap();
        go_on_unplaced(&word);
        wait_until("the guardian is done", || {
            !cgroups_of(child.id()) && scratch.journals().is_empty()
        });
    }
}

/// Some have been stopped before they began, and hold on to what colocate held.
#[test]
fn killed_while_programs_begin() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = format!("begin{}", std::process::id());
        let work = format!(": {word}; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, "copies = 60")]);
        let mut child = start(&scratch, way, &file);
        wait_until("some have begun", || called(&word).len() > 20);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the guardian is done", || {
            !cgroups_of(child.id()) && scratch.journals().is_empty()
        });
        let free = |pid: &i32| {
            let masks = masks(*pid);
            masks.is_empty() || masks == [original()] && stat(*pid).is_none_or(|it| it.0 != 'T')
        };
        wait_until("all are free", || called(&word).iter().all(free));
        // Whose exec was under way when colocate was killed may be there only now.
        wait_until("all have ended", || {
            called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
            called(&word).is_empty()
        });
    }
}

/// With the guardian killed before, nothing helps but `colocate restore`.
#[test]
fn killed_with_its_guardian() {
    for way in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, way, "both");
        signal("-KILL", child_called(&child, "colocate-guard"));
        wait_until("the guardian is gone", || {
            run_support::children(child.id()).iter().all(|pid| run_support::name(*pid) == "sh")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let restored = scratch.colocate().arg("restore").output().unwrap();
        assert!(restored.status.success(), "{restored:?}");
        go_on_unplaced(&word);
        assert!(!cgroups_of(child.id()) && scratch.journals().is_empty());
    }
}

/// A job that has stopped itself hears nothing before it is woken.
#[test]
fn a_job_that_has_stopped_itself_ends_too() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = format!("asleep{}", std::process::id());
        let sleeps = format!(": {word}; while :; do kill -STOP $$; done");
        let file = workload(&scratch, "", &[(&sleeps, "")]);
        let mut child = start(&scratch, way, &file);
        let asleep = |pid: &i32| stat(*pid).is_some_and(|(state, _)| state == 'T');
        wait_until("it sleeps", || called(&word).iter().any(asleep));
        signal("-TERM", child.id().cast_signed());
        assert_eq!(child.wait().unwrap().code(), Some(143), "{}", said(&scratch));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// The key reaches programs that run and such that wait.
#[test]
fn ctrl_c_at_a_terminal() {
    if !have("script") {
        return;
    }
    for way in WAYS {
        let scratch = Scratch::new();
        let word = format!("key{}", std::process::id());
        let work = format!(": {word}; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, "copies = 5")]);
        let ours = env!("CARGO_BIN_EXE_colocate");
        let options = "--no-guard --policy round-robin";
        let line = format!("exec {ours} schedule {options} {} {}", way.concat(), file.display());
        let mut terminal = Command::new("script");
        scratch.homes(&mut terminal);
        terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
        let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_until("all have begun", || called(&word).len() == 5);
        let mut keys = terminal.stdin.take().unwrap();
        keys.write_all(b"\x03").unwrap();
        keys.flush().unwrap();
        let status = await_that("it ends", || terminal.try_wait().unwrap());
        assert_eq!(status.code(), Some(130));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}
