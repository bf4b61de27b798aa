//! Where threads are put, and what programs notice of it.

use super::{ANSWERS, answering, catch_up, run, send};
use crate::run_support::{
    Scratch, allowed, await_that, child_called, exclusive, masks, original, stands, text,
};
use crate::schedule_support::wait_until;
use colocate_testing::skip::{installed, two_pus};
use colocate_testing::{EndsInTime, need, skip};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program whose threads wait is placed; every mask is the one that the report says.
#[test]
fn threads_are_placed_and_read_back() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    let mut command = scratch.run(&["--policy", "round-robin", "--settle-ms", "0"]);
    command.arg(threads).args(["0", "3"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    scratch.await_placed(4);
    assert!(masks(pid).iter().all(|mask| mask.parse::<u32>().is_ok()), "{:?}", masks(pid));
    drop(child.stdin.take());
    assert!(child.ended().success());
    let report = scratch.report();
    assert_eq!(stands(&report), ["placed"; 4]);
    for task in report["tasks"].as_array().unwrap() {
        assert_eq!(task["allowed"], task["planned"].to_string(), "{task}");
    }
    // Round robin over the usable PUs, in the order of birth.
    let planned = |task: usize| report["tasks"][task]["planned"].clone();
    assert_eq!(planned(0) == planned(1), two_pus().is_err());
}

#[test]
fn a_static_program_is_placed() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &["-static"]));
    let output = run(
        &scratch,
        &["--policy", "scatter", "--settle-ms", "0"],
        &[threads.to_str().unwrap(), "0", "4"],
    );
    assert_eq!(text(&output.stdout), "ready\n");
    assert_eq!(scratch.report()["threads_created"]["created"], 5);
}

/// A program that is executed on one PU has counted that one where colocate comes too late: it is stopped meanwhile.
#[test]
fn a_program_that_may_have_counted_one_pu_is_named() {
    let scratch = Scratch::new();
    need!(two_pus());
    let go = scratch.path("go");
    let script = format!("while [ ! -e {} ]; do :; done; exec sleep 1", go.display());
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "50"]);
    let mut colocate = command.args(["sh", "-c", &script]).spawn().unwrap();
    let shell = child_called(&colocate, "sh");
    wait_until("it is placed", || masks(shell).iter().all(|mask| mask.parse::<u32>().is_ok()));
    send("-STOP", colocate.id());
    std::fs::write(go, "").unwrap();
    let name = || std::fs::read_to_string(format!("/proc/{shell}/comm")).unwrap();
    wait_until("it executes another program", || name() == "sleep\n");
    std::thread::sleep(Duration::from_millis(2));
    send("-CONT", colocate.id());
    assert!(colocate.ended().success());
    let report = scratch.report();
    let notes = report["notes"].as_array().unwrap();
    let named = notes.iter().filter_map(Value::as_str).find(|note| note.contains("it saw one"));
    assert!(named.is_some_and(|note| note.contains("had one PU of")), "{report}");
}

#[test]
fn ten_thousand_short_threads() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    let output = run(
        &scratch,
        &["--policy", "scatter", "--settle-ms", "0"],
        &[threads.to_str().unwrap(), "10000"],
    );
    assert_eq!(text(&output.stdout), "ready\n", "{}", text(&output.stderr));
    assert!(output.status.success());
    assert!(scratch.report()["threads_created"]["created"].as_u64() > Some(1));
}

/// The program counts the PUs that it may use, not the one it is put on, and creates as many
/// threads as without us.
#[test]
fn an_openmp_program_creates_its_threads() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("openmp", &["-fopenmp"]));
    let bare = Command::new(&program).env_remove("OMP_NUM_THREADS").output().unwrap();
    let words = [program.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "60000"], &words);
    assert_eq!(text(&output.stdout), text(&bare.stdout));

    let mut command = scratch.run(&["--policy", "scatter"]);
    let output = command.args(words).env("OMP_NUM_THREADS", "5").output().unwrap();
    assert_eq!(text(&output.stdout), "threads 5\n");
    assert_eq!(scratch.report()["most_tasks_at_once"], 5);
}

#[test]
fn a_thread_that_its_program_has_bound_is_left() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    need!(two_pus());
    let options = ["--policy", "round-robin", "--settle-ms", "60000"];
    let mut command = scratch.run(&options);
    command.arg(threads).args(["0", "1", "own"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    // Our next look, at most some seconds away, sees it and leaves it alone.
    await_that("it is respected", || {
        scratch.marks().iter().any(|(_, _, mark)| mark == "=").then_some(())
    });
    drop(child.stdin.take());
    assert!(child.ended().success());
    let report = scratch.report();
    assert_eq!(report["tasks"][1]["status"], "pinned by the program", "{report}");
    assert_eq!(report["tasks"][1]["planned"], Value::Null);
}

#[test]
fn taskset_is_respected() {
    need!(two_pus());
    need!(installed("taskset"));
    let scratch = Scratch::new();
    let last = original().rsplit([',', '-']).next().unwrap().to_owned();
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "60000"]);
    let mut child = answering(command.args(["taskset", "-c", &last]).args(ANSWERS));
    catch_up(&mut child);
    send("-TERM", child.id());
    assert!(child.ended().success());
    let task = &scratch.report()["tasks"][0];
    assert_eq!(task["status"], "pinned by the program", "{task}");
    assert_eq!(task["allowed"], last);
}

/// A program that gets hardly any of two busy PUs counts both, although that is long after it began.
#[test]
fn a_starved_program_counts_all_pus() {
    need!(installed("chrt"));
    need!(two_pus());
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut busy: Vec<_> = (0..4).map(busy).collect();
    let idle = ["chrt", "-i", "0", "nproc"];
    let output = run(&scratch, &["--policy", "scatter"], &idle);
    for busy in &mut busy {
        busy.kill().unwrap();
        busy.wait().unwrap();
    }
    assert_eq!(text(&output.stdout), text(&Command::new("nproc").output().unwrap().stdout));
}

/// Go counts PUs again every second; were its monitor put on one PU, the last number would be 1.
#[test]
fn a_go_program_keeps_all_its_pus() {
    need!(installed("go"));
    need!(two_pus());
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pus.go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(scratch.path("pus")).arg(source);
    go.env("GOCACHE", scratch.path("gocache")).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
    let built = go.output().unwrap();
    if !built.status.success() {
        skip!(Go, "go cannot build: {}", text(&built.stderr));
    }
    let bare = Command::new(scratch.path("pus")).output().unwrap();
    let pus = scratch.path("pus");
    let output = run(&scratch, &["--policy", "scatter"], &[pus.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

#[test]
fn a_java_program_keeps_all_its_pus() {
    need!(installed("javac"));
    need!(installed("java"));
    need!(two_pus());
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Pus.java");
    let built =
        Command::new("javac").arg("-d").arg(scratch.dir.path()).arg(source).output().unwrap();
    if !built.status.success() {
        skip!(Java, "javac cannot compile: {}", text(&built.stderr));
    }
    let home = scratch.dir.path().to_str().unwrap();
    let words = ["java", "-Xshare:auto", "-cp", home, "Pus"];
    let bare = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &words);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

/// What a script starts counts all PUs, although the script itself may have been placed.
#[test]
fn programs_started_by_a_script_count_all_pus() {
    need!(installed("nproc"));
    let scratch = Scratch::new();
    let bare = Command::new("nproc").env_remove("OMP_NUM_THREADS").output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &["sh", "-c", "nproc; nproc"]);
    assert_eq!(text(&output.stdout), text(&bare.stdout).repeat(2));
}

/// A thread that has created a process is placed a second later, and one that has started a program is not.
#[test]
fn one_that_creates_processes_is_placed_later() {
    let scratch = Scratch::new();
    let forks = need!(scratch.program("forks", &[]));
    let status = |words: &[&str]| {
        run(&scratch, &["--policy", "scatter", "--settle-ms", "20"], words);
        let report = scratch.report();
        (report["tasks"][0]["status"].as_str().unwrap().to_owned(), report)
    };
    let (forked, report) = status(&[forks.to_str().unwrap()]);
    if report["threads_created"]["seen_by"] != "perf" {
        skip!(Perf, "creations are found in /proc: {}", report["notes"]);
    }
    assert_eq!(forked, "placed", "{report}");
    let (script, report) = status(&["sh", "-c", "sleep 0; sleep 1.5; :"]);
    assert_eq!(script, "not placed", "{report}");
}

/// A script that has started a program is not placed, and is when it becomes another program.
#[test]
fn a_script_that_becomes_a_program_is_placed() {
    let scratch = Scratch::new();
    let script = ["sh", "-c", "sleep 0; exec sleep 0.3"];
    run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &script);
    assert_eq!(scratch.report()["tasks"][0]["status"], "placed", "{}", scratch.report());
}

/// A daemon outlives colocate, with its original mask and without our journal.
#[test]
fn a_daemon_gets_its_mask_back() {
    let scratch = Scratch::new();
    let daemon = need!(scratch.program("daemon", &[]));
    let file = scratch.path("pid");
    let words = [daemon.to_str().unwrap(), file.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert_eq!(allowed(pid, pid), Some(original()));
    assert_eq!(scratch.journals(), [] as [&Path; 0]);
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

/// Threads that are born of placed ones while colocate gives all masks back get theirs too.
#[test]
fn threads_created_at_the_end_get_their_mask_back() {
    let scratch = Scratch::new();
    let relay = need!(scratch.program("relay", &[]));
    let file = scratch.path("pid");
    let words = [relay.to_str().unwrap(), file.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    std::fs::write(scratch.path("pid.stop"), "").unwrap();
    let masks = await_that("20 threads and the first one stand still", || {
        Some(masks(pid)).filter(|masks| masks.len() == 21)
    });
    let _ = Command::new("kill").arg(pid.to_string()).status();
    assert!(masks.iter().all(|mask| *mask == original()), "{masks:?}");
}
