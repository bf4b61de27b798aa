//! `colocate-study train cpi-model`.

use crate::interfering::{colocate, interfering, train_here};
use colocate_model::CpiModel;
use colocate_testing::{skip, wait_for};
use rustix::process::{Pid, Signal};
use std::path::Path;

const SHORT: [&str; 14] = [
    "train",
    "cpi-model",
    "--machine",
    "epyc-7301",
    "--programs",
    "6",
    "--intervals",
    "2",
    "--interval-ms",
    "5",
    "--date",
    "2000-01-01",
    "-o",
    "model.json",
];

#[test]
fn written_read_and_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let done = colocate(dir.path()).args(SHORT).assert().success();
    let said = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(said.starts_with("simulated: 2x AMD EPYC 7301, 2000-01-01, 6 drawn programs, seed 0"));
    for part in ["R2", "mean error", "\nmemory ", "\nslowdown ", "greatest gamma/beta"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let path = dir.path().join("model.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let schema = include_str!("../../../../docs/schemas/cpi-model.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    jsonschema::validate(&schema, &value).unwrap();
    assert_eq!(CpiModel::from_json(&text).unwrap().modes[0].threads, 2);
    colocate(dir.path()).args(SHORT).assert().success();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn what_cannot_be_written_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut args = SHORT;
    args[13] = "/dev/full";
    let done = colocate(dir.path()).args(args).assert().code(125);
    let output = done.get_output();
    CpiModel::from_json(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(said.contains("greatest gamma/beta"), "{said}");
}

/// So that what is piped on is a file that is read.
#[test]
fn standard_output_gets_one_of_the_two() {
    let dir = tempfile::tempdir().unwrap();
    let mut args = SHORT;
    args[13] = "-";
    let done = colocate(dir.path()).args(args).assert().success();
    let [said, told] = [&done.get_output().stdout, &done.get_output().stderr]
        .map(|output| String::from_utf8(output.clone()).unwrap());
    CpiModel::from_json(&said).unwrap();
    assert!(told.contains("greatest gamma/beta"), "{told}");
}

#[test]
fn programs_of_scenarios() {
    let dir = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let streams = examples.join("streams-beside-walks.toml");
    let adds = examples.join("adds-beside-multiplications.toml");
    let args = ["train", "cpi-model", "--machine", "epyc-7301", "--interval-ms", "5"];
    let done = colocate(dir.path())
        .args(args)
        .args(["-o", "model.json", "--scenario"])
        .args([streams, adds])
        .assert()
        .success();
    let said = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(said.contains("programs of streams beside walks, "), "{said}");
}

/// Five recorded programs, of which the fourth is held out.
#[test]
fn programs_that_were_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/measured/programs");
    std::fs::create_dir(dir.path().join("programs")).unwrap();
    for name in ["bt", "cg", "gzip", "lua", "sort"].map(|name| format!("{name}.json")) {
        let to = dir.path().join("programs").join(&name);
        std::fs::copy(recorded.join(&name), to).unwrap();
    }
    let args = ["train", "cpi-model", "--machine", "epyc-7301", "--recorded", "programs"];
    let done = colocate(dir.path()).args(args).args(["-o", "model.json"]).assert().success();
    let said = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(said.contains("5 recorded programs, seed 0, 6 intervals of 20 ms a group"), "{said}");
    let text = std::fs::read_to_string(dir.path().join("model.json")).unwrap();
    let model = CpiModel::from_json(&text).unwrap();
    assert_eq!(model.modes[0].held_out.as_ref().unwrap().programs, ["lua"]);
}

/// Figures under a file of this machine differ from those under the one that is built in, and are told apart.
#[test]
fn simulations_read_it() {
    let dir = tempfile::tempdir().unwrap();
    colocate(dir.path()).args(SHORT).assert().success();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/streams-beside-walks.toml");
    let inputs = |more: &[&str]| {
        let args = ["simulate", example, "--policy", "symbiotic", "--seeds", "1", "--draws", "1"];
        let done = colocate(dir.path()).args(args).args(["--json", "-q"]).args(more).assert();
        let text = String::from_utf8(done.success().get_output().stdout.clone()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["settings"]["inputs"].as_str().unwrap().to_owned()
    };
    assert_ne!(inputs(&[]), inputs(&["--cpi-model", "model.json"]));
}

#[test]
fn programs_that_cannot_be_trained_with_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |jobs: &[&str], wanted: &str| {
        let job = |command: &&str| format!("[[job]]\ncommand = [\"sh\", \"-c\", \"{command}\"]\n");
        let text: String = jobs.iter().map(job).collect();
        std::fs::write(dir.path().join("workload.toml"), format!("version = 1\n{text}")).unwrap();
        let done = train_here(dir.path(), 6).assert().failure();
        let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        let last = said.lines().last().unwrap();
        assert!(
            last.contains(wanted) || said.contains("expected a core with two PUs"),
            "{wanted}: {said}"
        );
        assert!(!dir.path().join("model.json").exists());
    };
    let forever = "while :; do :; done";
    refused(&[forever; 3], "expected a training set of 4 programs or more, found 3");
    refused(
        &["exit 3", forever, forever, forever],
        "cannot train with workload.toml: sh#1: expected programs that end with status 0, found 3 of sh#1",
    );
    refused(
        &["sleep 9", forever, forever, forever],
        "expected stacks of every program alone after its first interval, found none of sh#1, which ended, ",
    );
}

/// SIGTERM ends the run that is under way, with its programs.
#[test]
fn a_training_that_is_stopped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    interfering(dir.path(), &[0.2, 0.3, 0.4, 0.5]);
    let mut training = std::process::Command::new(env!("CARGO_BIN_EXE_colocate-study"))
        .args(["train", "cpi-model", "--here", "workload.toml", "--pretend", "-o", "model.json"])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let program = dir.path().join("interference");
    let programs = || {
        let is_ours = |entry: std::fs::DirEntry| {
            let path = std::fs::read_link(entry.path().join("exe")).ok()?;
            (path == program).then_some(())
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(is_ours).count()
    };
    let is_refused = wait_for("a program, or the end", || match training.try_wait().unwrap() {
        Some(_) => Some(true),
        None => (programs() > 0).then_some(false),
    });
    if is_refused {
        skip!(Perf, "{:?}", training.wait_with_output());
    }
    rustix::process::kill_process(Pid::from_child(&training), Signal::TERM).unwrap();
    let output = training.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.ends_with("colocate-study: stopped: nothing is trained\n"), "{said}");
    assert_eq!(programs(), 0);
    assert!(!dir.path().join("model.json").exists());
}

/// Without counters it is said what is missing, before anything runs.
#[test]
fn without_siblings_or_counters_nothing_runs() {
    let dir = tempfile::tempdir().unwrap();
    interfering(dir.path(), &[0.5; 4]);
    let args = ["train", "cpi-model", "--here", "workload.toml", "-o", "model.json"];
    let done = colocate(dir.path()).args(args).assert();
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    let is_refused = said
        .starts_with("colocate-study: expected a core with two PUs that may be used, ")
        || said.starts_with("colocate-study: expected counters that show where cycles go, ");
    assert!(is_refused || done.get_output().status.success(), "{said}");
    // The programs make it when they begin.
    assert!(is_refused != dir.path().join("slots").exists());
}

/// The same parts in another order would be taken for each other.
#[test]
fn simulations_refuse_other_parts() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = CpiModel::built_in();
    model.parts.reverse();
    std::fs::write(dir.path().join("odd.json"), model.to_json()).unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/streams-beside-walks.toml");
    let args = ["simulate", example, "--policy", "symbiotic", "--cpi-model", "odd.json", "-q"];
    let done = colocate(dir.path()).args(args).assert().code(125);
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    let wanted = "colocate-study: odd.json: expected coefficients of simulated stacks, which are of core, \
                  siblings, stalls, caches, memory, queues, communication, found communication, ";
    assert!(said.starts_with(wanted) && said.lines().count() == 1, "{said}");
}

#[test]
fn refused_with_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let train = |machine| vec!["train", "cpi-model", "-o", "m.json", "--machine", machine];
    let refusals = [
        (train("xeon-x3320"), "cannot train for xeon-x3320: expected a machine with SMT, found "),
        (
            train("synthetic:core:2 pu:2"),
            "expected a machine whose description says how fast it is",
        ),
    ];
    for (args, wanted) in refusals {
        let done = colocate(dir.path()).args(&args).assert().failure();
        let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert!(said.starts_with(&format!("colocate-study: {wanted}")), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!dir.path().join("m.json").exists());
}
