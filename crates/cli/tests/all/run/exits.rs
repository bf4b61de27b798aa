//! Exit status, standard streams, signals.

use super::{run, send};
use crate::run_support::{Scratch, await_that, child_called, script, text};
use colocate_testing::skip::installed;
use colocate_testing::{END_LIMIT, EndsInTime, TimeLimit, need};
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_exit_status_is_the_programs() {
    let scratch = Scratch::new();
    let status = |words: &[&str]| run(&scratch, &[], words).status.code();
    assert_eq!(status(&["true"]), Some(0));
    assert_eq!(status(&["sh", "-c", "exit 37"]), Some(37));
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(status(&["no-such-program-at-all"]), Some(127));
    assert_eq!(status(&["/etc/passwd"]), Some(126));
    assert_eq!(
        status(&["true", ":::", "sh", "-c", "exit 4", ":::", "sh", "-c", "exit 5"]),
        Some(4)
    );
    assert_eq!(status(&[":::", "true"]), Some(2));
    assert_eq!(scratch.journals(), [] as [&Path; 0], "every journal is gone");
}

#[test]
fn a_missing_program_starts_none() {
    let scratch = Scratch::new();
    let file = scratch.path("started");
    let output = run(&scratch, &[], &["touch", file.to_str().unwrap(), ":::", "no-such-program"]);
    assert_eq!(text(&output.stderr), "colocate: no-such-program: command not found\n");
    assert!(!file.exists());
}

/// A text without `#!` goes to the shell, as with execvp(3); a missing interpreter is 127.
#[test]
fn scripts_run_as_env_runs_them() {
    let scratch = Scratch::new();
    for (content, status) in [("exit 9\n", 9), ("#!/bin/sh\nexit 8\n", 8), ("#!/no/such\n", 127)] {
        let path = scratch.path("script");
        script(&path, content);
        let output = run(&scratch, &[], &[path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(status), "{content}: {}", text(&output.stderr));
    }
}

#[test]
fn standard_output_is_the_programs_alone() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    command.args(["run", "--explain", "--", "echo", "hello"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "hello\n");
    assert!(
        text(&output.stderr).starts_with("colocate: not placed: the run was too short ("),
        "{}",
        text(&output.stderr)
    );

    command = scratch.colocate();
    command.args(["run", "--quiet", "--", "echo", "hello"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("hello\n".into(), String::new()));
}

/// The first program has standard input to itself; the second finds it empty.
#[test]
fn standard_input_is_the_first_programs() {
    let scratch = Scratch::new();
    let script = |name: &str| format!("cat > {}", scratch.path(name).display());
    let mut command = scratch.run(&[]);
    command.args(["sh", "-c", &script("one"), ":::", "sh", "-c", &script("two")]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"words\n").unwrap();
    assert!(child.ended().success());
    let read = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert_eq!((read("one"), read("two")), ("words\n".into(), String::new()));
}

/// Descriptors that we open for ourselves do not reach the program.
#[test]
fn the_program_finds_no_descriptor_of_ours() {
    let scratch = Scratch::new();
    let list = ["sh", "-c", "ls /proc/self/fd | wc -l"];
    let bare = Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()).output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &list);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

/// Signal mask and dispositions are those that colocate was started with.
#[test]
fn signals_are_as_without_us() {
    let scratch = Scratch::new();
    let list = ["sh", "-c", "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"];
    let bare = Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&run(&scratch, &[], &list).stdout), text(&bare.stdout));

    // And when SIGHUP, SIGPIPE and SIGCHLD were ignored before us.
    let ignoring = |words: &[&str]| {
        let mut command = Command::new("sh");
        scratch.homes(&mut command);
        command.args(["-c", "trap '' HUP PIPE CHLD; exec \"$@\"", "sh"]).args(words);
        text(&command.stdin(Stdio::null()).output().unwrap().stdout)
    };
    let grep = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let ours = [&[env!("CARGO_BIN_EXE_colocate"), "run", "--quiet", "--"], &grep[..]].concat();
    assert_eq!(ignoring(&ours), ignoring(&grep));
}

#[test]
fn a_signal_sent_to_us_reaches_every_program() {
    let scratch = Scratch::new();
    let script =
        |code| format!("trap 'exit {code}' TERM; echo ready; while :; do sleep 0.01; done");
    let mut command = scratch.run(&["--policy", "scatter"]);
    command.args(["sh", "-c", &script(7), ":::", "sh", "-c", &script(8)]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 12];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    send("-TERM", child.id());
    assert_eq!(child.ended().code(), Some(7));
    let statuses: Vec<_> = scratch.report()["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["status"].clone())
        .collect();
    assert_eq!(statuses, [7, 8]);
}

/// On a terminal, Ctrl-C reaches the program once: from the terminal, and not from us again.
#[test]
fn ctrl_c_reaches_the_program_once() {
    need!(installed("script"));
    let scratch = Scratch::new();
    // What is sent to us after the key is passed on after what we would have made of the key.
    let counter = "n=0; trap 'n=$((n+1)); kill -USR1 $PPID' INT; trap 'over=1' USR1; echo ready; \
                   while [ -z \"$over\" ]; do sleep 0.01; done; exit $((40+n))";
    std::fs::write(scratch.path("counter"), counter).unwrap();
    let ours = env!("CARGO_BIN_EXE_colocate");
    // `exec`: a shell that waits for us would die of the Ctrl-C itself, and its status be seen.
    let line = format!("exec {ours} run --quiet -- sh {}", scratch.path("counter").display());
    // A shell has what it starts in the background ignore the key.
    let mut command = Command::new("env");
    scratch.homes(&mut command);
    command
        .args(["--default-signal=INT", "script", "-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut byte = [0];
    let _limit = TimeLimit::start(END_LIMIT, "a line with \"ready\", and the end after Ctrl-C");
    while !seen.contains("ready") && output.read_exact(&mut byte).is_ok() {
        seen.push(byte[0].into());
    }
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\x03").unwrap();
    input.flush().unwrap();
    output.read_to_string(&mut seen).unwrap();
    assert_eq!(child.ended().code(), Some(41), "{seen}");
}

/// `kill -TSTP` stops both, `kill -CONT` continues both.
#[test]
fn stop_and_continue() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    // The kernel drops TSTP for groups whose members' parents are all gone, as those of a test that
    // was started in the background can be. A group of its own has us as its parent.
    command.process_group(0);
    let mut child = command.args(["sleep", "60"]).spawn().unwrap();
    let sleep = child_called(&child, "sleep");
    let state = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    let both = |states: &[char]| {
        let ours = state(child.id()).is_some_and(|s| states.contains(&s));
        let its = state(sleep.cast_unsigned()).is_some_and(|s| states.contains(&s));
        (ours && its).then_some(())
    };
    send("-TSTP", child.id());
    await_that("both stop", || both(&['T']));
    send("-CONT", child.id());
    await_that("both go on", || both(&['S', 'R']));
    send("-TERM", child.id());
    assert_eq!(child.ended().code(), Some(143));
}
