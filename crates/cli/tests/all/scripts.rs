//! What `make demo` prints of its measurement (scripts/host): the condition, and whether a ratio is resolved.

use crate::run_support::text;
use colocate_testing::need;
use colocate_testing::skip::{Missing, installed};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// What the script prints when this Python code calls its functions as `it`.
fn printed(code: &str) -> Result<String, Missing> {
    installed("python3")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/host");
    let load = "import sys, types; it = types.ModuleType('it'); it.__file__ = sys.argv[1]; \
                exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), it.__dict__)";
    let mut python = Command::new("python3");
    let done = python.args(["-c", &format!("{load}\n{code}")]).arg(script).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    Ok(text(&done.stdout))
}

/// 1.164 (0.920 to 1.474) was printed without a word; the interval of the other one is above 1.
#[test]
fn a_ratio_whose_interval_holds_1_is_not_resolved() {
    let of = |value: &str, interval: &str| {
        format!("print(it.ratio(json.loads('{{\"value\": {value}, \"interval\": {interval}}}')))")
    };
    let code = [
        "import json".to_owned(),
        of("1.164", r#"{"low": 0.92, "high": 1.474}"#),
        of("2.55", r#"{"low": 2.429, "high": 2.677}"#),
        of("2.0", "null"),
    ];
    let printed = need!(printed(&code.join("\n")));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "1.164 (0.920 to 1.474), not resolved");
    assert_eq!(lines[1..], ["2.550 (2.429 to 2.677)", "2.000, one round: not resolved"]);
}

#[test]
fn the_condition_says_whether_the_machine_is_idle() {
    let code = "print(it.condition(0.02, 2)); print(it.condition(0.63, 2)); print(it.measured_condition())";
    let printed = need!(printed(code));
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        lines[0].contains(" with 2 PUs, idle (other programs keep 0.02 PUs busy), Linux "),
        "{printed}"
    );
    assert!(
        lines[1].contains(" with 2 PUs, NOT idle (other programs keep 0.63 PUs busy), "),
        "{printed}"
    );
    assert!(lines[2].contains("not resolved") && lines[3].starts_with("condition: "), "{printed}");
}

/// Two runs without colocate and two under `os` of a program that prints the same rate each time.
#[test]
fn the_table_and_the_picture_are_of_the_kept_comparisons() {
    let dir = TempDir::new().unwrap();
    let file = r#"
version = 1
repetitions = 2
ways = ["bare", "os"]
score = [{ name = "done a second", from = "output:rate:", better = "more" }]
workload = [{ name = "redis", programs = ["echo rate: 100"] }]
"#;
    fs::write(dir.path().join("m.toml"), file).unwrap();
    let args = ["compare", "--quiet", "--not-alone", "--file", "m.toml", "-o", "out"];
    let mut colocate = Command::new(env!("CARGO_BIN_EXE_colocate"));
    let done = colocate.current_dir(dir.path()).args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let out = dir.path().join("out").display().to_string();
    let code = format!(
        "from pathlib import Path\nrows = list(it.results(Path('{out}'), 0))\nit.table(rows)\nit.picture(*rows[0])"
    );
    let printed = need!(printed(&code));
    let row = "\n| redis, os | 1.000 (1.000 to 1.000), not resolved | – | 100 |\n";
    assert!(printed.contains(row), "{printed}");
    assert!(printed.contains("kernel alone from 100 to 100 in 2 rounds\n"), "{printed}");
    assert!(printed.trim_end().ends_with(", not resolved"), "{printed}");
}

/// Rates of three hosts of one kind. `make demo` measures nothing where nothing is to be gained.
#[test]
fn the_host_says_whether_there_is_something_to_gain() {
    let code = "for rates in [(16_392, 489_276, 13_223), (285_000, 291_000, 70_000), (50_000, 80_000, 70_000)]: print(it.kind(*rates))";
    let printed = need!(printed(code));
    let gains: Vec<bool> = printed.lines().map(|line| !line.ends_with("nothing to gain")).collect();
    assert_eq!(gains, [true, false, false], "{printed}");
}
