//! Whole runs of `colocate schedule` with programs whose phases are known.

use crate::run_support::{Scratch, child_called, exclusive, original};
use crate::schedule_support::{called, signal, stat, unique, until, wait_until, workload};
use colocate_testing::printed::conforms;
use colocate_testing::skip::installed;
use colocate_testing::{EndsInTime, need};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of the report.
const SCHEMA: &str = include_str!("../../../../docs/schemas/report.json");
/// So often colocate must have been on a CPU in a phase: it is once a quantum, and now and then beside that. Chosen:
/// many quanta, however long colocate itself has to wait for a CPU.
const WAKES: u64 = 20;
/// And so much time must have passed: what happens to other programs wakes colocate, too.
const QUANTA: Duration = Duration::from_millis(1_200);

/// `colocate schedule` without a guard, its report going to the file `report.json`.
fn start(scratch: &Scratch, options: &[&str], file: &Path) -> Child {
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--quiet"]).args(options);
    command.arg("-o").arg(scratch.path("report.json")).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// How often a process's first thread has been put on a CPU.
fn wakes(pid: u32) -> u64 {
    let sums = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    sums.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// When, and for how long a process's first thread had run or waited for a CPU by then, in nanoseconds.
type Sums = (Instant, u64);

fn sums(pid: i32) -> Sums {
    let sums = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let sums = sums.split_whitespace().take(2).map(|sum| sum.parse::<u64>().unwrap());
    (Instant::now(), sums.sum())
}

/// The share of the time since then in which it ran or waited for a CPU: less than all where it had to wait for a disk.
fn share_since(before: Sums, pid: i32) -> f64 {
    let now = sums(pid);
    Duration::from_nanos(now.1 - before.1).div_duration_f64(now.0 - before.0)
}

/// Waits until colocate has looked many times.
fn let_it_look(colocate: &Child) {
    let (begun, at) = (wakes(colocate.id()), Instant::now());
    wait_until("colocate has looked often enough", || {
        wakes(colocate.id()) > begun + WAKES && at.elapsed() > QUANTA
    });
}

/// The stretches of the only job in the report.
fn stretches(scratch: &Scratch) -> Vec<Value> {
    let report = std::fs::read_to_string(scratch.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    conforms(&report, SCHEMA);
    let stretches = report["jobs"][0]["phases"]["stretches"].as_array().unwrap().clone();
    for pair in stretches.windows(2) {
        assert_eq!(pair[0]["to_ns"], pair[1]["from_ns"], "it always ran: {report}");
    }
    stretches
}

/// The longest stretch in a phase: how long it was in nanoseconds, and how many threads were runnable.
fn longest(stretches: &[Value], phase: &str) -> (u64, f64) {
    let length =
        |stretch: &Value| stretch["to_ns"].as_u64().unwrap() - stretch["from_ns"].as_u64().unwrap();
    let of_phase = stretches.iter().filter(|stretch| stretch["phase"] == phase);
    let longest = of_phase.max_by_key(|stretch| length(stretch));
    let longest = longest.unwrap_or_else(|| panic!("never {phase}: {stretches:?}"));
    (length(longest), longest["runnable"].as_f64().unwrap())
}

/// A shell works alone, then three beside each other while it waits for them, then alone again; then it sleeps.
#[test]
fn serial_parallel_serial_asleep() {
    let _exclusive = exclusive();
    for policy in ["os", "parallelism-aware"] {
        let scratch = Scratch::new();
        let word = unique(policy);
        let [first, second, third, pipe] =
            ["first", "second", "third", "pipe"].map(|name| scratch.path(name));
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let [one, three] = [until(&first), format!("({}) &", until(&second)).repeat(3)];
        let script = format!(
            ": {word}; {one}; {three} wait; {}; read x < {}",
            until(&third),
            pipe.display()
        );
        let file = workload(&scratch, "", &[(&script, "")]);
        let launched = (Instant::now(), 0);
        let mut child = start(&scratch, &["--policy", policy, "--quantum", "60ms"], &file);
        wait_until("it has begun", || called(&word).len() == 1);
        let shell = called(&word)[0];
        let_it_look(&child);
        let first_share = share_since(launched, shell);
        std::fs::write(&first, "").unwrap();
        wait_until("three work", || called(&word).len() == 4);
        let_it_look(&child);
        std::fs::write(&second, "").unwrap();
        wait_until("they are done", || called(&word).len() == 1);
        let alone = sums(shell);
        let_it_look(&child);
        let least = first_share.min(share_since(alone, shell));
        std::fs::write(&third, "").unwrap();
        wait_until("it sleeps", || stat(shell).is_some_and(|(state, _)| state == 'S'));
        let_it_look(&child);
        std::fs::write(&pipe, "end\n").unwrap();
        assert!(child.ended().success());

        let found = stretches(&scratch);
        let mut course = ["serial", "parallel", "serial", "asleep"].into_iter().peekable();
        for stretch in &found {
            course.next_if(|phase| stretch["phase"] == *phase);
        }
        assert_eq!(course.next(), None, "{policy}: {found:?}");
        let [serial, parallel, asleep] =
            ["serial", "parallel", "asleep"].map(|phase| longest(&found, phase));
        let expected = 0.8 * least.min(1.0)..1.2;
        assert!(expected.contains(&serial.1), "{policy}: {serial:?} {expected:?} {found:?}");
        assert!((2.2..3.2).contains(&parallel.1), "{policy}: {parallel:?} {found:?}");
        assert!(asleep.1 < 0.3, "{policy}: {asleep:?} {found:?}");
    }
}

/// The quantum is longer than the program, so only what the kernel reports ends it: two phases of three.
#[test]
fn a_phase_that_ends_is_seen_at_once() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--quiet", "--policy", "parallelism-aware"]);
    command.args(["--quantum", "60s", "-o"]).arg(scratch.path("report.json")).arg("--");
    command.arg(program).args(["0", "1:400", "3:400", "1:400"]);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let report = std::fs::read_to_string(scratch.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let evidence = report["evidence"].as_array().unwrap();
    let phases = evidence.iter().find(|it| it["source"] == "phases").unwrap();
    let found = stretches(&scratch);
    let course: Vec<&str> =
        found.iter().map(|stretch| stretch["phase"].as_str().unwrap()).collect();
    match phases["backend"].is_null() {
        true => assert_eq!(course.len(), 1, "the quantum is over at the end"),
        false => assert!(course.starts_with(&["serial", "parallel", "serial"]), "{found:?}"),
    }
}

/// Threads of one process that sleep and wake together: those who sleep are not read one by one.
#[test]
fn threads_that_wake_are_seen() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let (begun, report) = (scratch.path("begun"), scratch.path("report.json"));
    let mut command = scratch.colocate();
    command.args([
        "schedule",
        "--no-guard",
        "--quiet",
        "--policy",
        "os",
        "--quantum",
        "60ms",
        "-o",
    ]);
    command.arg(report).arg("--").arg(program).args(["30", "1:0", "3:0", "1:0", "0:0", "3:0"]);
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&begun).unwrap());
    let mut child = command.spawn().unwrap();
    let pid = child_called(&child, "phases");
    for phase in 1..=5 {
        let begun = || std::fs::read_to_string(&begun).unwrap().lines().count();
        wait_until("the phase has begun", || begun() == phase);
        let_it_look(&child);
        signal("-USR1", pid);
    }
    assert!(child.ended().success());
    let found = stretches(&scratch);
    let course = ["serial", "parallel", "serial", "asleep", "parallel"];
    let mut course = course.into_iter().peekable();
    for stretch in &found {
        course.next_if(|phase| stretch["phase"] == *phase);
    }
    assert_eq!(course.next(), None, "{found:?}");
    let [serial, parallel] = ["serial", "parallel"].map(|phase| longest(&found, phase).1);
    assert!((0.8..1.2).contains(&serial) && (2.2..3.2).contains(&parallel), "{found:?}");
}

/// Four threads on one PU, one of which the kernel lets run every half second or less often: all four are runnable,
/// although the kernel's sums show nothing of the fourth for several quanta. With these alone it would be 3.2.
#[test]
fn a_wait_that_outlasts_quanta_is_seen() {
    let _exclusive = exclusive();
    need!(installed("taskset"));
    need!(installed("nice"));
    let scratch = Scratch::new();
    let word = unique("starved");
    let end = scratch.path("end");
    let works = until(&end);
    let starved = format!("nice -n 19 sh -c \": {word}; {works}\" &");
    let script = format!("{starved} {} {works}; wait", format!("({works}) & ").repeat(2));
    let pu = allowed_first();
    let script =
        format!("exec taskset -c {pu} sh -c \": {word}; {}\"", script.replace('"', "\\\""));
    let file = workload(&scratch, "", &[(&script, "")]);
    let mut child = start(&scratch, &["--policy", "os", "--quantum", "100ms"], &file);
    wait_until("all four are there", || called(&word).len() == 4);
    let_it_look(&child);
    std::fs::write(&end, "").unwrap();
    let ended = child.ended();
    called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
    assert!(ended.success());
    let found = stretches(&scratch);
    let (_, runnable) = longest(&found, "parallel");
    assert!((3.3..4.3).contains(&runnable), "{runnable}: {found:?}");
}

/// The lowest PU that this test may use.
fn allowed_first() -> String {
    let list = original();
    list.split([',', '-']).next().unwrap().to_owned()
}
