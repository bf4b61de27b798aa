//! A policy that is no part of colocate: a file and its row, under `run`, `schedule` and `plan`.
//!
//! Called with arguments this program is colocate with one policy more; without, it tests that.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "outside_policy/last_pu.rs"]
mod last_pu;

use last_pu::{ROW, ROWS};
use std::process::{Command, ExitCode, Output};

#[allow(clippy::print_stdout)] // as tests do
fn main() -> ExitCode {
    if std::env::args().len() > 1 && !is_asked_by_cargo() {
        return colocate_cli::main_with(&ROWS);
    }
    for (name, test) in TESTS {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Whether the arguments are those of a test run: options and names of tests, not a command of colocate's.
fn is_asked_by_cargo() -> bool {
    let commands = ["run", "schedule", "plan", "--help"];
    !std::env::args().skip(1).any(|argument| commands.contains(&argument.as_str()))
}

const TESTS: [(&str, fn()); 4] = [
    ("run_places_by_it", run_places_by_it),
    ("schedule_decides_by_it", schedule_decides_by_it),
    ("help_and_refusals_name_it", help_and_refusals_name_it),
    ("colocate_itself_does_not_have_it", colocate_itself_does_not_have_it),
];

fn ours(arguments: &[&str]) -> Output {
    Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The last PU that this test may use.
fn last_pu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().rsplit([',', '-']).next().unwrap().to_owned()
}

/// Works for a while, then prints the PUs that it may use.
const WORKS: &str = "BEGIN { for (i = 0; i < 8000000; i++); f = \"/proc/self/status\"; \
                     while ((getline line < f) > 0) if (line ~ /Cpus_allowed_list/) print line }";

fn run_places_by_it() {
    let policy = ["--no-guard", "--settle-ms", "0", "--policy", "last-pu"];
    may_use_the_last_pu(&[&["run", "--quiet"], &policy[..], &["--", "awk", WORKS]].concat());
}

fn schedule_decides_by_it() {
    let policy = ["--quantum", "20ms", "--policy", "last-pu"];
    may_use_the_last_pu(&[&["schedule", "--quiet"], &policy[..], &["--", "awk", WORKS]].concat());
}

fn may_use_the_last_pu(arguments: &[&str]) {
    let done = ours(arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let allowed = text(&done.stdout);
    assert_eq!(allowed.split_whitespace().last(), Some(last_pu().as_str()), "{allowed}");
}

fn help_and_refusals_name_it() {
    let help = text(&ours(&["run", "--help"]).stdout);
    assert!(help.contains("last-pu") && help.contains(ROW.summary), "{help}");
    assert!(help.contains("settings: from-end"), "{help}");
    let refused = text(&ours(&["run", "--policy", "last-pu:from-end=-1", "--", "true"]).stderr);
    assert!(refused.contains("expected last-pu with from-end=N, N from 0"), "{refused}");
    let refused = text(&ours(&["schedule", "--policy", "none", "--", "true"]).stderr);
    assert!(refused.contains("all-fast-first or last-pu, found policy \"none\""), "{refused}");
}

fn colocate_itself_does_not_have_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    let done = command.args(["run", "--policy", "last-pu", "--", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("found policy \"last-pu\""));
}
