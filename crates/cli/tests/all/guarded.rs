//! `colocate run` and `attach` under a guard: a plan that does harm is given up, and a report says so.

use crate::run_support::{Scratch, await_that, children, exclusive, masks, name, original, text};
use crate::schedule_support::{signal, wait_until};
use colocate_testing::skip::{Missing, Requirement, two_pus};
use colocate_testing::{EndsInTime, need};
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
    need!(two_pus());
    let program = need!(scratch.program("busy", &["-pthread"]));
    let plan = all_on_one(&scratch);
    let mut command = scratch.colocate();
    command.args(["run", "--settle-ms", "0", "--json", "--plan"]).arg(plan).arg("--");
    let mut colocate = start(&scratch, command.arg(program).args(["2", "1000000000"]));
    let pid = await_that("the program", || {
        children(colocate.id()).into_iter().find(|pid| name(*pid) == "busy")
    });
    let said = || std::fs::read_to_string(scratch.path("said")).unwrap();
    wait_until("it is tried", || masks(pid).iter().all(|mask| mask.parse::<u32>().is_ok()));
    let verdicts = ["slows job 0 down", "has cost", "costs more"];
    let is_given_up = |line: &str| verdicts.iter().any(|verdict| line.contains(verdict));
    wait_until("it is given up", || said().lines().any(is_given_up));
    wait_until("threads are free", || masks(pid).iter().all(|mask| *mask == original()));
    signal("-TERM", pid);
    colocate.ended();
    let said = said();
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let notes: Vec<&str> =
        report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| is_given_up(note)), "{notes:?}");
    let last = notes.last().unwrap();
    assert!(last.starts_with("guard: ") && last.contains(", paused for "), "{notes:?}");
    let line = report["summary"]["line"].as_str().unwrap();
    // A loss that is large enough spends the budget before there are two comparisons.
    let compared = [" over the kernel alone, placed ", "the guard's budget was spent after "];
    assert!(compared.iter().any(|words| line.contains(words)), "{line}");
    let share = report["summary"]["placed_share"].as_f64().unwrap();
    assert!(share > 0.0 && share < 0.9, "{line}");
}

/// A policy that moves nothing is not compared, and nothing is said of a guard.
#[test]
fn nothing_is_said_where_nothing_was_moved() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    let output = command.args(["run", "--policy", "os", "--", "sleep", "0.5"]).output().unwrap();
    assert!(output.status.success() && !text(&output.stderr).contains("guard"));
}

/// A control group with a CPU quota of a tenth of a PU; removed when dropped.
struct TenthPu(std::path::PathBuf);

impl TenthPu {
    /// `None`, with a line, where there can be none.
    fn new() -> Result<Self, Missing> {
        let name = format!("colocate-test-{}", std::process::id());
        let limits = [
            (
                "/sys/fs/cgroup/cpu",
                [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")],
            ),
            ("/sys/fs/cgroup", [("cpu.max", "10000 100000"), ("cpu.max", "10000 100000")]),
        ];
        for (root, files) in limits {
            let group = std::path::Path::new(root).join(&name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let tenth = Self(group);
            let write = |(file, text)| std::fs::write(tenth.0.join(file), text).is_ok();
            if files.into_iter().all(write) {
                return Ok(tenth);
            }
        }
        Err(Requirement::CpuQuota.missing("no control group with a CPU quota can be made"))
    }
}

impl Drop for TenthPu {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Two threads that compute have a tenth of a PU by a quota. That they stand still most of the time is not what the plan costs.
#[test]
fn what_a_quota_takes_is_not_the_plans() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(scratch.program("busy", &["-pthread"]));
    let tenth = need!(TenthPu::new());
    let mut command = Command::new("sh");
    scratch.homes(&mut command);
    command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&tenth.0);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args(["run", "--policy", "scatter"]);
    command.args(["--settle-ms", "0", "--json", "--"]).arg(program).args(["2", "1000000000"]);
    let mut colocate = start(&scratch, &mut command);
    let pid = await_that("the program", || {
        children(colocate.id()).into_iter().find(|pid| name(*pid) == "busy")
    });
    std::thread::sleep(std::time::Duration::from_secs(6));
    signal("-TERM", pid);
    colocate.ended();
    drop(tenth);
    let said = std::fs::read_to_string(scratch.path("said")).unwrap();
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let notes = report["notes"].to_string();
    assert!(!notes.contains("cost") && !notes.contains("slows"), "{notes}");
    assert!(!report["machine"]["quota"].is_null(), "{report}");
    assert_eq!(report["summary"]["why_not"], "throttled", "{report}");
}
