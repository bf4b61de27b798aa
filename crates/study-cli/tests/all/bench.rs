//! Whole runs of `colocate-study bench smt`, with measurements of a millisecond: what is printed is
//! checked, not what was measured.

use assert_cmd::Command;
use colocate_testing::need;
use colocate_testing::skip::{Missing, Requirement};
use serde_json::Value;
use std::path::Path;

fn bench(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.args(["bench", "smt"]).args(args.split_whitespace());
    command
}

/// Standard output of a run that succeeds.
fn output(args: &str) -> String {
    let done = bench(args).assert().success();
    String::from_utf8(done.get_output().stdout.clone()).unwrap()
}

/// What a run prints, after checking it against `docs/schemas/{schema}.json`.
fn json(args: &str, schema: &str) -> Value {
    let found = serde_json::from_str(&output(args)).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = std::fs::read_to_string(path.join(schema).with_extension("json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    found
}

/// Exit code and standard error of a run that fails.
fn failure(command: &mut Command) -> (i32, String) {
    let done = command.assert().failure();
    let output = done.get_output();
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn usable() -> Vec<u32> {
    smt_bench::thread::usable().unwrap()
}

/// Two PUs as an argument.
fn two_pus() -> Result<String, Missing> {
    match usable().as_slice() {
        [a, b, ..] => Ok(format!("--cpus {a},{b}")),
        _ => Err(Requirement::TwoPus.missing("only one PU is usable")),
    }
}

#[test]
fn json_has_every_kernel_and_every_pair() {
    let cpus = need!(two_pus());
    let found = json(&format!("{cpus} --json --seconds 0.001 --repeat 2 --seed 7"), "bench-smt");
    let kernels =
        ["branch", "fp-add", "fp-mul", "fp-div", "int-add", "int-mul", "int-div", "load-dep"];
    let of = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let alone = found["alone"].as_array().unwrap();
    let names: Vec<String> = alone.iter().step_by(2).map(|entry| of(entry, "kernel")).collect();
    assert_eq!(names, kernels);
    let matrix = found["matrix"].as_array().unwrap();
    let pairs: Vec<(String, String)> =
        matrix.iter().map(|cell| (of(cell, "kernel"), of(cell, "beside"))).collect();
    let expected = kernels.iter().flat_map(|a| kernels.map(|b| ((*a).to_owned(), b.to_owned())));
    assert_eq!(pairs, expected.collect::<Vec<_>>());
    assert_eq!(
        (&found["version"], &found["seed"], &found["repeat"]),
        (&1.into(), &7.into(), &2.into())
    );
    assert_eq!(found["quality"]["measured"], 160);
    for scenario in ["alone", "same", "different"] {
        assert!(found["scenarios"].get(scenario).is_some(), "{scenario}");
    }
    // What could be measured is a time; what could not is null.
    for cell in matrix {
        let time = &cell["time"];
        assert!(time.is_null() || time["value"].as_f64().unwrap() > 0.0, "{cell}");
    }
}

#[test]
fn text_has_scenarios_kernels_and_matrix() {
    let cpus = need!(two_pus());
    let text = output(&format!(
        "{cpus} --seconds 0.001 --repeat 1 --matrix --kernels fp-div,int-div-tp,load-dep:32"
    ));
    for line in ["A  alone ", "B  beside itself ", "C  beside another kernel ", "kernel "] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line:?} in\n{text}");
    }
    for kernel in ["fp-div", "int-div-tp", "load-dep:32"] {
        let rows = text.lines().filter(|line| line.split_whitespace().next() == Some(kernel));
        assert_eq!(rows.count(), 2, "{kernel} in\n{text}");
    }
    assert!(text.contains("timed \\ beside"));
}

#[test]
fn the_result_goes_to_a_file() {
    let cpus = need!(two_pus());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bench.json");
    let args = format!("{cpus} --seconds 0.001 --repeat 1 --kernels int-mul --json -o");
    bench(&args).arg(&path).assert().success().stdout("");
    let text = std::fs::read_to_string(path).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["matrix"].as_array().unwrap().len(), 1);
    assert!(found["scenarios"]["different"].is_null());
}

#[test]
fn one_pu_is_no_pair() {
    let cpu = usable()[0];
    let (code, told) = failure(&mut bench(&format!("--cpus {cpu}")));
    let expected = format!("colocate-study: --cpus: expected two different PUs, found {cpu}\n");
    assert_eq!((code, told), (2, expected));
}

/// A process that is confined to one PU inherits that from `taskset`.
#[test]
fn one_usable_pu_is_reported() {
    let cpu = usable()[0].to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, env!("CARGO_BIN_EXE_colocate-study"), "bench", "smt"]);
    let expected = format!(
        "colocate-study: bench smt needs two usable PUs, found only {cpu}: widen the affinity mask or \
         cpuset\n"
    );
    assert_eq!(failure(&mut command), (3, expected));
}

#[test]
fn an_absent_pu_is_named() {
    let cpu = usable()[0];
    let (code, told) = failure(&mut bench(&format!("--cpus {cpu},4000")));
    assert_eq!(code, 2);
    assert!(
        told.starts_with("colocate-study: --cpus: 4000 cannot be used: expected PUs "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn the_new_place_of_bench_cores_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    let (code, told) = failure(command.args(["bench", "cores", "--json"]));
    let line =
        "colocate-study: `colocate-study bench cores` is `colocate calibrate --only speeds` now\n";
    assert_eq!((code, told.as_str()), (2, line));
}

#[test]
fn wrong_usage_is_explained() {
    for (args, expected) in [
        ("--kernels fp-sub", "unknown kernel \"fp-sub\": expected one of branch, fp-add"),
        ("--kernels fp-add:8", "fp-add takes no size"),
        ("--kernels int-add,int-add", "int-add is named twice"),
        ("--seconds 0", "expected seconds from 0.001 to 60, found 0"),
        ("--seconds 61", "expected seconds from 0.001 to 60, found 61"),
        ("--repeat 0", "0 is not in 1..=1000"),
        ("--cpus 0-", "0-"),
        ("--find-siblings", "`--find-siblings` is `colocate calibrate --only siblings` now"),
    ] {
        let (code, told) = failure(&mut bench(args));
        assert!(code == 2 && told.contains(expected), "{args}: {code} {told}");
    }
}
