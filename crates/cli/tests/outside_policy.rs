//! A policy that is no part of colocate: this file and its row, under `run`, `schedule`, `plan` and `simulate`.
//!
//! Called with arguments this program is colocate with one policy more; without, it tests that.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_policy::plan::{Decision, Place, Plan, Why};
use colocate_policy::table::{Cadence, Kind, Preset, Row, Setting};
use colocate_policy::{Evidence, Policy, SourceSet, Task};
use std::process::{Command, ExitCode, Output};

static ROW: Row = Row {
    name: "last-pu",
    summary: "puts every task on the last usable PU",
    source: "a test",
    settings: &[Setting {
        name: "from-end",
        kind: Kind::Count(0),
        default: Preset::Count(0),
        meaning: "PUs that are left out at the end",
    }],
    prior: &[],
    cadence: Cadence::Either,
    waits: false,
    make: |values, _| Box::new(LastPu { from_end: values.count("from-end") as usize }),
};

static ROWS: [&Row; 1] = [&ROW];

#[derive(Debug)]
struct LastPu {
    from_end: usize,
}

impl Policy for LastPu {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let empty = evidence.empty_plan();
        let pu = empty.pus.iter().rev().nth(self.from_end).copied();
        let decide = |task: Task| Decision {
            task: task.id,
            name: task.name.into(),
            place: Place::from(pu),
            why: Why::NextInOrder { order: "from the end".to_owned() },
        };
        Plan { decisions: evidence.tasks().into_iter().map(decide).collect(), ..empty }
    }
}

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
    let commands = ["run", "schedule", "plan", "simulate", "--help"];
    !std::env::args().skip(1).any(|argument| commands.contains(&argument.as_str()))
}

const TESTS: [(&str, fn()); 5] = [
    ("run_places_by_it", run_places_by_it),
    ("schedule_decides_by_it", schedule_decides_by_it),
    ("simulations_compare_it", simulations_compare_it),
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

/// Once and each quantum: two jobs on one PU take as long together as one after the other.
fn simulations_compare_it() {
    let scenario =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/adds-beside-multiplications.toml");
    let policies = "os,last-pu,schedule:last-pu,last-pu:from-end=1";
    let done = ours(&["simulate", scenario, "--policy", policies, "--seeds", "2", "--draws", "1"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let told = text(&done.stdout);
    for name in policies.split(',') {
        assert!(told.contains(name), "{name}: {told}");
    }
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
