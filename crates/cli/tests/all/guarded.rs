//! `colocate run` and `attach` under a guard: a plan that does harm is given up, and a report says so.

use crate::run_support::{
    Scratch, await_that, children, exclusive, masks, name, original, text, two_pus,
};
use crate::schedule_support::{signal, wait_until};
use colocate_testing::Ends;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// A plan that puts all threads on one PU.
fn all_on_one(scratch: &Scratch) -> std::path::PathBuf {
    let mut dry = scratch.colocate();
    dry.args(["run", "--dry-run", "--json", "--policy", "scatter", "--", "true"]);
    let mut plan: Value = serde_json::from_slice(&dry.output().unwrap().stdout).unwrap();
    let pu = plan["pus"][0].clone();
    plan["default_placement"]["pus"] = json!([pu]);
    let path = scratch.path("plan.json");
    std::fs::write(&path, plan.to_string()).unwrap();
    path
}

fn start(scratch: &Scratch, command: &mut Command) -> Child {
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// Two threads that compute share one PU by the plan. They are left to the kernel when the guard has seen that, and the report
/// has what it saw.
#[test]
fn a_plan_that_does_harm_is_given_up() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let Some(program) = scratch.program("busy", &["-pthread"]).filter(|_| two_pus()) else {
        return;
    };
    let plan = all_on_one(&scratch);
    let mut command = scratch.colocate();
    command.args(["run", "--settle-ms", "0", "--json", "--plan"]).arg(plan).arg("--");
    let mut colocate = start(&scratch, command.arg(program).args(["2", "1000000000"]));
    let pid = await_that("the program", || {
        children(colocate.id()).into_iter().find(|pid| name(*pid) == "busy")
    });
    let said = || std::fs::read_to_string(scratch.path("said")).unwrap();
    wait_until("it is tried", || masks(pid).iter().all(|mask| mask.parse::<u32>().is_ok()));
    let is_given_up = |line: &str| line.contains("slows job 0 down") || line.contains("has cost");
    wait_until("it is given up", || said().lines().any(is_given_up));
    wait_until("threads are free", || masks(pid).iter().all(|mask| *mask == original()));
    signal("-TERM", pid);
    colocate.ended();
    let said = said();
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let notes: Vec<&str> =
        report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| is_given_up(note)), "{notes:?}");
    assert!(notes.last().unwrap().starts_with("guard: paused"), "{notes:?}");
}

/// A policy that moves nothing is not compared, and nothing is said of a guard.
#[test]
fn nothing_is_said_where_nothing_was_moved() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    let output = command.args(["run", "--policy", "os", "--", "sleep", "0.5"]).output().unwrap();
    assert!(output.status.success() && !text(&output.stderr).contains("guard"));
}
