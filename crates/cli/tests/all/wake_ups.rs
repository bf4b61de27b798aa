//! `--wake-ups` of `run` and `schedule`.

use crate::run_support::{Scratch, text};
use colocate_testing::printed::conforms;
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{need, skip};
use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const SCHEMA: &str = include_str!("../../../../docs/schemas/report.json");

/// Three programs of one job in a row, each of which waits for the one before it.
const PIPE: &str = "seq 200000 | cat | tail -n 1";

/// The same with so many wake-ups that samples show them where other programs have many as well.
const LONG_PIPE: &str = "seq 4000000 | cat | tail -n 1";

/// Tests that count or sample many wake-ups: samples are of all programs together.
static MANY: Mutex<()> = Mutex::new(());

/// What `colocate COMMAND` reports of a shell's `script`, and what it says. `command` executes colocate.
fn report_of(
    scratch: &Scratch,
    mut command: Command,
    words: &[&str],
    script: &str,
) -> (Value, String) {
    let file = scratch.path("report.json");
    let (front, options) = words.split_first().unwrap();
    command.args([front, "--json", "-o"]).arg(&file).args(options);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    if script == PIPE {
        assert_eq!(text(&output.stdout), "200000\n");
    }
    let report = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    conforms(&report, SCHEMA);
    (report, text(&output.stderr))
}

fn report(words: &[&str]) -> (Value, String) {
    let scratch = Scratch::new();
    report_of(&scratch, scratch.colocate(), words, PIPE)
}

/// What has provided wake-ups; `None` if nothing has.
fn backend(report: &Value) -> Option<&str> {
    let evidence = report["evidence"].as_array().unwrap();
    evidence.iter().find(|it| it["source"] == "wake-ups").unwrap()["backend"].as_str()
}

/// How often threads of programs with these names have woken others, in either direction.
fn count(report: &Value, one: &str, other: &str) -> u64 {
    let tasks = report["tasks"].as_array().unwrap();
    let is_named = |id: &Value, name: &str| {
        let task = tasks.iter().find(|task| task["task"] == *id);
        task.is_some_and(|task| task["name"].as_str().unwrap().ends_with(name))
    };
    let pairs = report["wake_ups"].as_array().unwrap().iter();
    let pairs = pairs.filter(|pair| {
        let is = |waker, wakee| is_named(&pair["waker"], waker) && is_named(&pair["wakee"], wakee);
        is(one, other) || is(other, one)
    });
    pairs.map(|pair| pair["count"].as_u64().unwrap()).sum()
}

/// colocate where bpf(2) is denied, with tracefs in a mount namespace of its own.
fn without_ebpf(scratch: &Scratch) -> Result<Command, Missing> {
    let mount =
        "{ [ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; }";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command
    };
    let is_mounted = unshare(mount).status().is_ok_and(|status| status.success());
    Requirement::Namespaces.if_there(is_mounted, "tracefs cannot be mounted")?;
    let mut command = unshare(&format!("{mount} && exec \"$@\""));
    command.arg(scratch.program("nobpf", &[])?).arg(env!("CARGO_BIN_EXE_colocate"));
    scratch.homes(&mut command);
    Ok(command)
}

/// What wakes what is reported, or why it is not known; in either case the program runs.
#[test]
fn threads_that_wait_for_each_other_are_reported() {
    for command in ["run", "schedule"] {
        let (report, said) = report(&[command, "--wake-ups"]);
        if backend(&report).is_none() {
            assert!(said.contains("cannot report which threads wake which"), "{said}");
            assert_eq!(report["wake_ups"], Value::Null);
            skip!(Ebpf, "{said}");
        }
        let pairs = &report["wake_ups"];
        assert!(count(&report, "seq", "cat") > 3, "{command}: {pairs:#?}");
        assert_eq!(count(&report, "seq", "tail"), 0, "{command}: {pairs:#?}");
    }
}

/// Without eBPF they are sampled: pairs of the same, and nothing that samples do not show.
#[test]
fn without_ebpf_they_are_sampled() {
    let _alone = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    for front in ["run", "schedule"] {
        let scratch = Scratch::new();
        let command = need!(without_ebpf(&scratch));
        let (report, said) = report_of(&scratch, command, &[front, "--wake-ups"], LONG_PIPE);
        let Some(backend) = backend(&report) else { skip!(Perf, "{said}") };
        assert_eq!(backend, "perf events: sched_waking, sampled");
        assert_eq!(said.matches("wake-ups are sampled").count(), 1, "{said}");
        let pairs = &report["wake_ups"];
        // Of a pair that hardly wakes each other there may be no sample.
        let found = count(&report, "seq", "cat") + count(&report, "cat", "tail");
        assert!(found > 0, "{front}: {pairs:#?}");
        assert_eq!(count(&report, "seq", "tail"), 0, "{front}: {pairs:#?}");
        for pair in pairs.as_array().unwrap() {
            for unknown in ["same_pu", "waited_ns", "both_ran_ns"] {
                assert_eq!(pair[unknown], Value::Null, "{pair}");
            }
        }
    }
}

/// The estimates of many wake-ups are near what eBPF counts of the same program.
#[test]
fn samples_stand_for_as_many_as_are_counted() {
    let _alone = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new();
    let program = need!(scratch.program("pingpong", &[]));
    let script = format!("{} 100000", program.display());
    let words = ["run", "--no-guard", "--policy", "os", "--wake-ups"];
    let (counted, _) = report_of(&scratch, scratch.colocate(), &words, &script);
    let command = need!(without_ebpf(&scratch));
    let (sampled, said) = report_of(&scratch, command, &words, &script);
    let backends = [&counted, &sampled].map(backend);
    if !matches!(backends, [Some("eBPF: sched_waking and sched_switch"), Some(_)]) {
        skip!(Ebpf, "{backends:?}, {said}");
    }
    let [counted, sampled] = [counted, sampled].map(|it| count(&it, "pingpong", "pingpong"));
    assert!(counted > 10_000, "{counted}");
    assert!((counted / 2..2 * counted).contains(&sampled), "{sampled} of {counted}");
}

/// With neither there is one line, with both reasons, and they are unknown.
#[test]
fn with_neither_they_are_unknown() {
    let scratch = Scratch::new();
    let noperf = need!(scratch.program("noperf", &[]));
    let nobpf = need!(without_ebpf(&scratch));
    let mut command = Command::new(noperf);
    command.arg(nobpf.get_program()).args(nobpf.get_args());
    scratch.homes(&mut command);
    let (report, said) = report_of(&scratch, command, &["run", "--wake-ups"], PIPE);
    assert_eq!(backend(&report), None);
    assert_eq!(report["wake_ups"], Value::Null);
    let lines = said.lines().filter(|line| line.contains("which threads wake which"));
    let [line] = lines.collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(line.contains("eBPF program"), "{line}");
    assert!(line.contains("and perf events at sched_waking: perf_event_open"), "{line}");
}

/// In a PID namespace, as in a container, threads have other numbers than the kernel's. eBPF knows them; samples, and what comes
/// of them, have the kernel's.
#[test]
fn threads_of_another_pid_namespace() {
    let scratch = Scratch::new();
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]);
        scratch.homes(&mut command);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        skip!(Namespaces, "there can be no other PID namespace");
    }
    let colocate = || {
        let mut command = unshare();
        command.arg(env!("CARGO_BIN_EXE_colocate"));
        command
    };
    let (outside, _) = report(&["run", "--wake-ups"]);
    if backend(&outside) != Some("eBPF: sched_waking and sched_switch") {
        skip!(Ebpf, "no eBPF");
    }
    let (inside, said) = report_of(&scratch, colocate(), &["run", "--wake-ups"], PIPE);
    assert_eq!(backend(&inside), backend(&outside), "{said}");
    let pairs = &inside["wake_ups"];
    assert!(count(&inside, "seq", "cat") > 3, "{pairs:#?}");
    assert_eq!(count(&inside, "seq", "tail"), 0, "{pairs:#?}");
    let options = ["schedule", "--policy", "parallelism-aware"];
    let (report, said) = report_of(&scratch, colocate(), &options, PIPE);
    let evidence = report["evidence"].as_array().unwrap();
    let phases = evidence.iter().find(|it| it["source"] == "phases").unwrap();
    assert!(phases["refused"].is_null() && phases["backend"].is_string(), "{phases} {said}");
    let no_ebpf = need!(scratch.program("nobpf", &[]));
    let mut command = unshare();
    command.arg(no_ebpf).arg(env!("CARGO_BIN_EXE_colocate"));
    let (report, said) = report_of(&scratch, command, &["run", "--wake-ups"], PIPE);
    assert_eq!((backend(&report), &report["wake_ups"]), (None, &Value::Null));
    assert!(said.contains("PID namespace"), "{said}");
}

#[test]
fn they_are_not_counted_without_a_request() {
    let (report, _) = report(&["run", "--policy", "os"]);
    assert_eq!(report["wake_ups"], Value::Null);
    assert!(report["evidence"].as_array().unwrap().iter().all(|it| it["source"] != "wake-ups"));
}

/// Without the privilege to load a program there is one line, and the program runs.
#[test]
fn without_privilege_it_is_said() {
    let scratch = Scratch::new();
    let (mut colocate, program) = need!(crate::run_support::as_nobody(&scratch));
    colocate.args(["run", "--wake-ups", "--"]).arg(program);
    let output = colocate.output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("cannot report which threads wake which"), "{said}");
}
