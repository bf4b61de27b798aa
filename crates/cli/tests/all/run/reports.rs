//! Plans, profiles, reports.

use super::run;
use crate::run_support::{Scratch, child_called, children, name, stands, text};
use colocate_testing::{EndsInTime, need, skip};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_dry_run_starts_nothing() {
    let scratch = Scratch::new();
    let file = scratch.path("started");
    let output = scratch
        .colocate()
        .args(["run", "--dry-run", "--policy", "scatter", "--", "touch", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success() && !file.exists());
    assert!(text(&output.stdout).starts_with("policy scatter, PUs "), "{}", text(&output.stdout));
}

/// What a dry run prints as JSON is a plan that `--plan` follows.
#[test]
fn a_plan_is_followed() {
    let scratch = Scratch::new();
    let plan = scratch.path("plan.json");
    let mut command = scratch.colocate();
    command.args(["run", "--dry-run", "--json", "--policy", "compact", "-o"]).arg(&plan);
    assert!(command.args(["--", "sleep", "1"]).status().unwrap().success());
    let file = plan.to_str().unwrap();
    let output = run(&scratch, &["--plan", file, "--settle-ms", "0"], &["sleep", "0.1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = scratch.report();
    assert_eq!(report["policy"], "compact");
    assert_eq!(stands(&report), ["placed"]);
    assert_eq!(text(&output.stderr), "");

    // It is not silently another program's.
    let output = run(&scratch, &["--plan", file], &["true", ":::", "sleep", "0"]);
    let expected = format!(
        "colocate: {file}: expected a plan for true ::: sleep, found one for sleep: its places may not fit; colocate plan \
         makes one\n"
    );
    assert!(text(&output.stderr).starts_with(&expected), "{}", text(&output.stderr));
    let mut kernels: Value =
        serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    kernels["default_placement"] = serde_json::json!({"rule": "leave-to-kernel"});
    let partial = scratch.path("partial.json");
    std::fs::write(&partial, kernels.to_string()).unwrap();
    let output =
        run(&scratch, &["--plan", partial.to_str().unwrap()], &["sleep", "0", ":::", "true"]);
    let expected =
        format!("colocate: {}: no place for true: left to the kernel\n", partial.display());
    assert_eq!(text(&output.stderr), expected);
    let output = run(&scratch, &["--policy", "compact", "--seed", "3"], &["true"]);
    let refused = "colocate: --seed: expected compact with no setting, found \"seed=3\"\n";
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(2), refused));
    let output = run(&scratch, &["--policy", "random", "--seed", "3"], &["true"]);
    assert!(output.status.success());
    assert_eq!(scratch.report()["policy"], "random:seed=3");

    let text_of_plan = std::fs::read_to_string(&plan).unwrap();
    let orders = r#""pages": [{"job": 0, "to": 0, "budget": 1, "why": "a test"}], "policy""#;
    std::fs::write(&plan, text_of_plan.replacen("\"policy\"", orders, 1)).unwrap();
    let output = run(&scratch, &["--plan", file], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("expected a plan of places only, found one that moves memory"), "{said}");

    std::fs::write(&plan, "{\"version\": 99}").unwrap();
    let output = run(&scratch, &["--plan", file], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("expected a plan of version 2, found version 99"), "{said}");
}

/// A program that was watched once has a profile the next time, and a spoilt one costs a line.
#[test]
fn a_program_seen_before_is_planned_at_once() {
    let scratch = Scratch::new();
    // Busy for a while, and told how long by the clock, so that there is something to sample.
    let busy = "end=$(($(date +%s)+3)); i=0; while [ $(date +%s) -lt $end ]; do \
                while [ $((i=i+1)) -lt 200000 ]; do :; done; i=0; done";
    let words = ["sh", "-c", busy];
    run(&scratch, &["--policy", "mix", "--watch-s", "0.5"], &words);
    let first = scratch.report();
    if first["threads_created"]["seen_by"] != "perf" || first["jobs"][0]["profile"].is_null() {
        skip!(Perf, "this kernel lets us sample nothing: {}", first["notes"]);
    }
    let cached = std::fs::read_dir(scratch.path("cache/colocate/profiles")).unwrap();
    let cached: Vec<_> = cached.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(cached.len(), 1);

    let dry = || {
        let mut command = scratch.colocate();
        command.args(["run", "--policy", "mix", "--dry-run", "--"]).args(words).output().unwrap()
    };
    let said = text(&dry().stdout);
    assert!(
        said.contains("job 0: dash, profile sample") || said.contains("profile sample"),
        "{said}"
    );

    std::fs::write(&cached[0], "spoilt").unwrap();
    let dry = dry();
    assert!(text(&dry.stderr).starts_with("colocate: ignored cached profile "));
    assert!(text(&dry.stdout).contains("not seen before"), "{}", text(&dry.stdout));
}

/// Asked to, colocate runs a program once more, first; the output of that run goes nowhere.
#[test]
fn a_profile_is_made_first() {
    let scratch = Scratch::new();
    let file = scratch.path("runs");
    let script = format!(
        "echo ran >> {}; echo out; i=0; \
                          while [ $((i=i+1)) -lt 300000 ]; do :; done",
        file.display()
    );
    let output = run(&scratch, &["--policy", "mix", "--profile-first"], &["sh", "-c", &script]);
    if output.status.code() == Some(125) {
        skip!(Perf, "nothing can be profiled here: {}", text(&output.stderr));
    }
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "ran\nran\n");
    assert_eq!(scratch.journals(), [] as [&Path; 0], "nothing is left");
    let report = scratch.report();
    assert!(!report["jobs"][0]["profile"].is_null(), "{report}");
    assert_eq!(report["plans"][0]["cause"], "launch");
    assert_eq!(report["plans"].as_array().unwrap().len(), 1, "nothing was left to watch");
}

#[test]
fn every_report_fits_the_schema() {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/report.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let scratch = Scratch::new();
    let runs: [(&[&str], &[&str]); 3] = [
        (&["--policy", "scatter", "--settle-ms", "0"], &["sh", "-c", "sleep 0.1; true"]),
        (&["--policy", "os"], &["true", ":::", "false"]),
        (
            &["--policy", "mix", "--watch-s", "0.1"],
            &["sh", "-c", "sleep 0.3 & sleep 0.2; kill -9 $$"],
        ),
    ];
    for (options, words) in runs {
        run(&scratch, options, words);
        let report = scratch.report();
        let wrong: Vec<String> = schema.iter_errors(&report).map(|e| e.to_string()).collect();
        assert_eq!(wrong, [] as [String; 0], "{report:#}");
    }
}

/// A driver is killed before it has waited for its child, which has computed for a second and a half.
#[test]
fn children_of_a_killed_driver_count() {
    let scratch = Scratch::new();
    let busy = need!(scratch.program("busy", &[]));
    let script = format!(
        "{} 1 1000000000 & while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ used _ < /proc/$!/stat; [ $used -lt 150 ]; do \
         sleep 0.1; done; kill -9 $! $$",
        busy.display()
    );
    let output = run(&scratch, &["--policy", "scatter"], &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    let report = scratch.report();
    let cpu = |of: &Value| of["cpu_ns"].as_u64().unwrap_or(0);
    let job = cpu(&report["jobs"][0]);
    assert!(job > 400_000_000, "{report}");
    let tasks: u64 = report["tasks"].as_array().unwrap().iter().map(cpu).sum();
    assert!(tasks <= job, "threads have {tasks} ns, their job {job}: {report}");
}

/// Under `os` nothing is ever changed.
#[test]
fn the_policy_os_changes_nothing() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    let options = ["--policy", "os", "--settle-ms", "0"];
    run(&scratch, &options, &[threads.to_str().unwrap(), "0", "2"]);
    let report = scratch.report();
    assert_eq!(stands(&report), ["left to the kernel"; 3]);
}

#[test]
fn no_process_stays_behind() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    let mut child = command.arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    child_called(&child, "cat");
    let family = children(child.id());
    drop(child.stdin.take());
    child.ended();
    for pid in family {
        assert_eq!(name(pid), "", "{pid}");
    }
}
