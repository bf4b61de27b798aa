//! A terminal that hangs up ends the programs where colocate leads the terminal's session, as it ends a program that does.

use crate::run_support::{Scratch, allowed, await_that};
use crate::schedule_support::workload;
use crate::terminal_support::Pty;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// The numbers that programs have written into a folder, one each.
fn pids(folder: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    entries.filter_map(|entry| number(&entry.path())).collect()
}

/// Hangs up once so many programs run; they and the command end. Returns how the command ended.
fn hung_up(scratch: &Scratch, command: &mut Command, programs: usize) -> ExitStatus {
    let folder = scratch.path("pids");
    std::fs::create_dir(&folder).unwrap();
    let pty = Pty::new(24, 80);
    let mut child = pty.start(command.env("TERM", "dumb"));
    let pids = await_that("programs run", || {
        let pids = pids(&folder);
        (pids.len() == programs).then_some(pids)
    });
    drop(pty);
    let status = await_that("the command ends", || child.try_wait().unwrap());
    for pid in pids {
        await_that("a program ends", || allowed(pid, pid).is_none().then_some(()));
    }
    status
}

/// A script that writes its number into the folder, and then neither ends nor writes to the terminal.
fn script(scratch: &Scratch, name: &str) -> String {
    format!("echo $$ > {}; exec sleep 100", scratch.path("pids").join(name).display())
}

#[test]
fn without_colocate_it_ends_the_program() {
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    let status = hung_up(&scratch, command.args(["-c", &script(&scratch, "one")]), 1);
    assert_eq!(status.signal(), Some(libc::SIGHUP));
}

#[test]
fn run_and_profile_end_their_programs() {
    for words in [&["run", "--quiet", "--"][..], &["profile", "--quiet", "--"]] {
        let scratch = Scratch::new();
        let mut command = scratch.colocate();
        command.args(words).args(["sh", "-c", &script(&scratch, "one")]);
        let status = hung_up(&scratch, &mut command, 1);
        assert_eq!(status.code(), Some(128 + libc::SIGHUP), "{words:?}: {status:?}");
    }
}

#[test]
fn others_end_their_programs() {
    let commands: [&[&str]; 3] = [
        &["advise-threads", "--limit-s", "60", "--"],
        &["advise-threads", "--apply", "--"],
        &["compare", "--not-alone", "--policies", "bare", "--baseline", "bare", "-o", "out", "--"],
    ];
    for words in commands {
        let scratch = Scratch::new();
        let mut command = scratch.colocate();
        command.args(words).args(["sh", "-c", &script(&scratch, "one")]);
        let status = hung_up(&scratch, command.current_dir(scratch.dir.path()), 1);
        assert!(!status.success(), "{words:?}: {status:?}");
    }
}

#[test]
fn schedule_ends_programs_that_wait_too() {
    let scratch = Scratch::new();
    let names: Vec<String> = (0..5).map(|n| n.to_string()).collect();
    let scripts: Vec<String> = names
        .iter()
        .map(|name| script(&scratch, name).replace("exec sleep 100", "while :; do :; done"))
        .collect();
    let jobs: Vec<(&str, &str)> = scripts.iter().map(|script| (script.as_str(), "")).collect();
    let workload = workload(&scratch, "", &jobs);
    let mut command = scratch.colocate();
    command
        .args(["schedule", "--no-guard", "--waiting", "stop", "--policy", "round-robin", "--quiet"])
        .arg(workload);
    let status = hung_up(&scratch, &mut command, 5);
    assert_eq!(status.code(), Some(128 + libc::SIGHUP), "{status:?}");
    assert!(scratch.journals().is_empty());
}

/// Whoever told colocate to ignore hangups, as nohup does, told its programs as well.
#[test]
fn nohup_is_heeded() {
    let scratch = Scratch::new();
    let folder = scratch.path("pids");
    std::fs::create_dir(&folder).unwrap();
    let pty = Pty::new(24, 80);
    let end = scratch.path("end");
    let wait = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done; exit 7",
        folder.join("one").display(),
        end.display()
    );
    let mut command = Command::new("nohup");
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args(["run", "--quiet", "--", "sh", "-c", &wait]);
    command.current_dir(scratch.dir.path());
    let mut child = pty.start(command.env("TERM", "dumb"));
    await_that("the program runs", || (pids(&folder).len() == 1).then_some(()));
    drop(pty);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None);
    std::fs::write(end, "").unwrap();
    assert_eq!(await_that("it ends", || child.try_wait().unwrap()).code(), Some(7));
}
