//! `--wake-ups` of `run` and `schedule`.

use crate::printed::conforms;
use crate::run_support::{Scratch, text};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../../docs/schemas/report.json");

/// Three programs of one job in a row, each of which waits for the one before it.
const PIPE: &str = "seq 200000 | cat | tail -n 1";

fn report(command: &str, options: &[&str]) -> (Value, String) {
    let scratch = Scratch::new();
    let file = scratch.path("report.json");
    let mut colocate = scratch.colocate();
    colocate.args([command, "--json", "-o"]).arg(&file).args(options);
    let output = colocate.args(["--", "sh", "-c", PIPE]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "200000\n");
    let report = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    conforms(&report, SCHEMA);
    (report, text(&output.stderr))
}

/// What wakes what is reported, or why it is not known; in either case the program runs.
#[test]
fn threads_that_wait_for_each_other_are_reported() {
    for command in ["run", "schedule"] {
        let (report, said) = report(command, &["--wake-ups"]);
        let evidence = report["evidence"].as_array().unwrap();
        let evidence = evidence.iter().find(|it| it["source"] == "wake-ups").unwrap();
        if evidence["backend"].is_null() {
            assert!(said.contains("cannot report which threads wake which"), "{said}");
            assert_eq!(report["wake_ups"], Value::Null);
            continue;
        }
        let name = |id: &Value| {
            let tasks = report["tasks"].as_array().unwrap();
            let task = tasks.iter().find(|task| task["task"] == *id);
            task.map(|task| task["name"].as_str().unwrap().to_owned()).unwrap_or_default()
        };
        let pairs = report["wake_ups"].as_array().unwrap();
        let count = |waker: &str, wakee: &str| {
            let of = |pair: &&Value| {
                name(&pair["waker"]).ends_with(waker) && name(&pair["wakee"]).ends_with(wakee)
            };
            pairs.iter().find(of).map_or(0, |pair| pair["count"].as_u64().unwrap())
        };
        assert!(count("seq", "cat") + count("cat", "seq") > 3, "{command}: {pairs:#?}");
        assert_eq!(count("seq", "tail") + count("tail", "seq"), 0, "{command}: {pairs:#?}");
    }
}

#[test]
fn they_are_not_counted_without_a_request() {
    let (report, _) = report("run", &[]);
    assert_eq!(report["wake_ups"], Value::Null);
    assert!(report["evidence"].as_array().unwrap().iter().all(|it| it["source"] != "wake-ups"));
}

/// Without the privilege to load a program there is one line, and the program runs.
#[test]
fn without_privilege_it_is_said() {
    let scratch = Scratch::new();
    let Some((mut colocate, program)) = crate::run_support::as_nobody(&scratch) else { return };
    colocate.args(["run", "--wake-ups", "--"]).arg(program);
    let output = colocate.output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("cannot report which threads wake which"), "{said}");
}
