//! `colocate-study simulate`, whole runs.

use crate::described;
use colocate_testing::printed::{conforms, printed, refusal};
use colocate_testing::{EndsInTime, wait_until};
use expect_test::expect;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SCHEMA: &str = include_str!("../../../../docs/schemas/simulated.json");

/// Two programs of two threads on the four cores of a described machine.
const PAIR: &str = r#"version = 1
name = "pair"
machine = "xeon-x3320"
policies = ["os", "compact", "random:seed=2"]
seeds = 2
draws = 3

[[phase]]
name = "adds"
demand = { work = { value = { kinds = { float-add = 1.0 } }, source = "the test" } }

[[phase]]
name = "walks"
file = "walks.toml"

[[job]]
name = "adder"
[[job.thread]]
copies = 2
phase = "adds"
alone-for = "20 ms"

[[job]]
name = "walker"
[[job.thread]]
copies = 2
phase = "walks"
alone-for = "20 ms"
"#;

const WALKS: &str = r#"version = 1
[[phase]]
name = "walks"
misses = { value = [["32 KiB", 0.1], ["8 MiB", 0.02]], source = "the test" }
parallel-misses = { value = 2.0, source = "the test" }
"#;

/// A folder with the scenario `pair.toml`, changed by `change`, and its phase.
fn scene(change: impl Fn(&str) -> String) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pair.toml"), change(PAIR)).unwrap();
    std::fs::write(folder.path().join("walks.toml"), WALKS).unwrap();
    folder
}

fn colocate(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.arg("simulate").args(args).current_dir(folder).output().unwrap()
}

#[test]
fn the_table_says_simulated_and_the_machine() {
    let folder = scene(str::to_owned);
    let table = printed(&colocate(folder.path(), &["pair.toml"]));
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("simulated on Intel Xeon X3320, not measured: pair"));
    expect!["2 jobs, 4 threads; a job that is done begins anew until all are done; 2 seeds x 3 sets of assumptions"]
        .assert_eq(lines.next().unwrap());
    let captions = table.lines().filter(|line| line.ends_with(", simulated"));
    assert!(captions.count() >= 8, "{table}");
    for policy in ["os", "compact", "random:seed=2"] {
        let rows = table.lines().filter(|line| line.starts_with(&format!("{policy} ")));
        assert!(rows.count() >= 6, "{policy}: {table}");
    }
    assert!(table.contains("walker  ") && table.contains("baseline"), "{table}");
}

#[test]
fn the_json_is_as_its_schema_says_and_does_not_depend_on_the_threads() {
    let folder = scene(str::to_owned);
    let one = printed(&colocate(folder.path(), &["pair.toml", "--json", "--threads", "1"]));
    let three = printed(&colocate(folder.path(), &["pair.toml", "--json", "--threads", "3"]));
    assert_eq!(one, three);
    let found: Value = serde_json::from_str(&one).unwrap();
    conforms(&found, SCHEMA);
    assert_eq!(found["simulated"], true);
    assert_eq!(found["settings"]["machine"], "Intel Xeon X3320");
    assert_eq!(found["policies"][2]["policy"], "random:seed=2");
}

#[test]
fn pictures_of_one_scenario() {
    let folder = scene(str::to_owned);
    let args = ["pair.toml", "--svg", "figures.svg", "--gantt", "runs.svg", "--draws", "2"];
    printed(&colocate(folder.path(), &args));
    for name in ["figures.svg", "runs.svg"] {
        let drawn = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains("simulated on Intel Xeon X3320"));
    }
    let said = refusal(&colocate(folder.path(), &["pair.toml", "other.toml", "--json"]), 2);
    expect![
        "colocate-study: expected one scenario with --svg, --gantt or --json; -o DIR keeps all of them\n"
    ]
    .assert_eq(&said);
}

/// The scenario as it was simulated, with what the command line said, gives the same figures again.
#[test]
fn what_is_kept_can_be_simulated_again() {
    let folder = scene(|text| text.replace("xeon-x3320", "box.toml"));
    let machine = include_str!("../../../../machines/xeon-x3320.toml");
    std::fs::write(folder.path().join("box.toml"), machine).unwrap();
    let args = ["pair.toml", "-o", "kept", "--policy", "compact,mix", "--seed", "9"];
    printed(&colocate(folder.path(), &args));
    let kept = |name: &str| folder.path().join("kept").join(name);
    for name in ["pair.txt", "pair.svg", "pair.mix.gantt.svg", "pair.compact.gantt.svg"] {
        assert!(std::fs::read_to_string(kept(name)).unwrap().contains("simulated on"), "{name}");
    }
    for name in ["box.toml", "walks.toml"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    let again = printed(&colocate(&kept(""), &["pair.toml", "--json"]));
    assert_eq!(again, std::fs::read_to_string(kept("pair.json")).unwrap());
}

#[test]
fn several_scenarios_are_resumed() {
    let folder = scene(str::to_owned);
    let at = |name: &str| folder.path().join(name);
    for name in ["a.toml", "b.toml"] {
        std::fs::write(at(name), PAIR.replace("\"pair\"", &format!("{name:?}"))).unwrap();
    }
    printed(&colocate(folder.path(), &["a.toml", "-o", "kept"]));
    let before = at("kept/a.json").metadata().unwrap().modified().unwrap();
    let said = refusal(&colocate(folder.path(), &["a.toml", "b.toml", "-o", "kept"]), 125);
    expect!["colocate-study: kept/a.json is there already: leave it out with --resume, or name another directory with -o\n"]
        .assert_eq(&said);
    let args = ["a.toml", "b.toml", "-o", "kept", "--resume"];
    let lines = printed(&colocate(folder.path(), &args));
    let heads: Vec<&str> = lines.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        heads,
        [
            "simulated on Intel Xeon X3320: a.toml, against os",
            "simulated on Intel Xeon X3320: b.toml, against os"
        ]
    );
    assert!(lines.lines().any(|line| line.starts_with("  compact: ")), "{lines}");
    assert_eq!(at("kept/a.json").metadata().unwrap().modified().unwrap(), before);
    assert!(at("kept/b.json").exists());
    let args = ["a.toml", "-o", "kept", "--resume", "--seeds", "3"];
    let said = refusal(&colocate(folder.path(), &args), 125);
    expect!["colocate-study: kept/a.json is of another scenario, machine or setting: remove it, or name another directory with -o\n"]
        .assert_eq(&said);
    std::fs::create_dir(at("c")).unwrap();
    std::fs::copy(at("a.toml"), at("c/a.toml")).unwrap();
    std::fs::copy(at("walks.toml"), at("c/walks.toml")).unwrap();
    let said = refusal(&colocate(folder.path(), &["a.toml", "c/a.toml", "-o", "new"]), 2);
    expect!["colocate-study: expected scenarios of different file names, found two a\n"]
        .assert_eq(&said);
}

#[test]
fn bad_input_is_refused_with_file_line_and_reason() {
    let said = |from: &str, to: &str| {
        assert!(PAIR.contains(from), "{from}");
        let folder = scene(|text| text.replacen(from, to, 1));
        refusal(&colocate(folder.path(), &["pair.toml"]), 125)
    };
    let mut all = String::new();
    for (from, to) in [
        ("seeds = 2", "sedes = 2"),
        ("\"20 ms\"", "\"20 MHz\""),
        ("float-add = 1.0", "float-add = -1.0"),
        ("xeon-x3320", "synthetic:core:4 pu:1"),
        ("xeon-x3320", "no-such-machine"),
        ("walks.toml", "runs.toml"),
        ("phase = \"walks\"", "phase = \"runs\""),
        ("\"compact\"", "\"tight\""),
    ] {
        all.push_str(&said(from, to));
    }
    expect![[r#"
        colocate-study: cannot use scenario pair.toml: line 5: unknown field `sedes`, expected one of `version`, `name`, `note`, `machine`, `cpus`, `policies`, `baseline`, `seed`, `seeds`, `draws`, `profiled`, `watch`, `method`, `quantum`, `grain`, `horizon`, `kernel`, `event`, `phase`, `job`
        colocate-study: cannot use scenario pair.toml: line 21: expected a time like "90 ns", found "20 MHz"
        colocate-study: cannot use scenario pair.toml: line 10: float-add: expected a number from 0 to 1e6, found -1
        colocate-study: cannot use scenario pair.toml: line 3: expected a machine whose description says how fast it is ([performance]; epyc-7301, xeon-x3320, xeon-e5645, power8-10c, xeon-e5405, opteron-6282se, amp-4x12 do), found synthetic:core:4 pu:1
        colocate-study: cannot use scenario pair.toml: line 3: no machine is called "no-such-machine": expected live, epyc-7301, xeon-x3320, xeon-e5645, power8-10c, xeon-e5405, opteron-6282se, amp-4x12, a .toml, .json or .xml file, or synthetic:…
        colocate-study: cannot use scenario pair.toml: line 14: runs.toml: No such file or directory (os error 2)
        colocate-study: cannot use scenario pair.toml: line 27: expected the name of a [[phase]], found "runs"
        colocate-study: cannot use scenario pair.toml: line 4: expected os, auto, round-robin, scatter, compact, random, instruction, mix, communication, communication-static, symbiosis-model, first-touch, interleave, autonuma, next-touch, dpp, carrefour, dino, kmaf, mmas, mhas, idas, l1-static, l1-dynamic, bas, fair, perf-fair, fair-oracle, symbiotic, symbiotic-numa, oracle, parallelism-aware, efficiency, utility or all-fast-first, found policy "tight"
    "#]].assert_eq(&all);
}

#[test]
fn a_phase_file_is_refused_with_its_own_line() {
    let folder = scene(str::to_owned);
    let walks = folder.path().join("walks.toml");
    std::fs::write(&walks, WALKS.replace("parallel-misses", "parallel-mises")).unwrap();
    let said = refusal(&colocate(folder.path(), &["pair.toml"]), 125);
    assert!(
        said.starts_with(
            "colocate-study: cannot use scenario pair.toml: line 14: walks.toml: line 5: "
        ) && said.lines().count() == 1,
        "{said}"
    );
}

/// A machine that nobody could build, in a file beside the scenario.
#[test]
fn an_impossible_machine_is_refused() {
    let text = include_str!("../../../../machines/xeon-x3320.toml");
    let place = text.find("GB/s").expect("a bandwidth");
    let begin = text[..place].rfind('"').unwrap() + 1;
    let spoilt = format!("{}0 {}", &text[..begin], &text[place..]);
    let folder = scene(|text| text.replace("xeon-x3320", "box.toml"));
    std::fs::write(folder.path().join("box.toml"), &spoilt).unwrap();
    let said = refusal(&colocate(folder.path(), &["pair.toml"]), 125);
    let line = spoilt[..begin].matches('\n').count() + 1;
    let place =
        format!("colocate-study: cannot use scenario pair.toml: line 3: box.toml: line {line}: ");
    assert!(said.starts_with(&place) && said.lines().count() == 1, "{place}: {said}");
    std::fs::write(folder.path().join("box.toml"), text).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("pair.toml");
    let found = colocate(elsewhere.path(), &[scenario.to_str().unwrap(), "--check"]);
    expect!["pair on Intel Xeon X3320: 2 jobs, 4 threads; 3 policies x 2 seeds x 3 sets of assumptions\n"]
        .assert_eq(&printed(&found));
}

/// Every mistake is told, not the first one only, and nothing is simulated before.
#[test]
fn all_scenarios_are_checked_first() {
    let folder = scene(str::to_owned);
    for (name, text) in [("x.toml", "version = 3"), ("y.toml", "name = 1")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let args = ["pair.toml", "x.toml", "y.toml", "z.toml", "-o", "kept"];
    let said = refusal(&colocate(folder.path(), &args), 125);
    expect![[r#"
        colocate-study: cannot use scenario x.toml: line 1: expected version = 1, found 3
        colocate-study: cannot use scenario y.toml: line 1: invalid type: integer `1`, expected a string
        colocate-study: cannot use scenario z.toml: No such file or directory (os error 2)
    "#]]
    .assert_eq(&said);
    assert!(!folder.path().join("kept").exists());
}

#[test]
fn every_example_is_a_scenario() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files: Vec<PathBuf> = std::fs::read_dir(&examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    assert!(files.len() >= 3);
    let args: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    let said = printed(&colocate(&examples, &[&args[..], &["--check"]].concat()));
    assert_eq!(said.lines().count(), files.len());
}

/// Ctrl-C ends a simulation that would take days, and tells how to go on.
#[test]
fn stopped_by_a_signal() {
    let folder = scene(|text| {
        text.replace("seeds = 2", "seeds = 1000").replace("draws = 3", "draws = 10000")
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.args(["simulate", "pair.toml", "-o", "kept"]).current_dir(folder.path());
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The directory is made when signals are caught.
    wait_until("the directory of the results", || folder.path().join("kept").exists());
    let kill = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    let said = refusal(&child.ended_with_output(), 130);
    expect!["colocate-study: stopped after 0 of 1 scenarios; go on with --resume -o kept\n"]
        .assert_eq(&said);
    assert!(!folder.path().join("kept/pair.json").exists());
}

/// One piece of work that would take days: it is not waited for when a second signal comes.
#[test]
fn stopped_by_a_second_signal() {
    let folder = scene(|text| {
        let short = text.replace("draws = 3", "draws = 1\nquantum = \"1 us\"");
        short.replace("20 ms", "1000 s")
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    let args = ["simulate", "pair.toml", "-o", "kept", "--policy", "bas", "--seeds", "1"];
    let mut child = command.args(args).current_dir(folder.path()).spawn().unwrap();
    // Half a second of its time is more than it takes to begin the work.
    let stat = format!("/proc/{}/stat", child.id());
    let user_ticks = || -> u64 {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit_once(')').unwrap().1.split(' ').nth(12).unwrap().parse().unwrap()
    };
    wait_until("half a second of CPU time", || user_ticks() >= 50);
    let term = || Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(term().success());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(term().success());
    assert_eq!(child.ended().signal(), Some(15));
}

/// Policies that make no sense in any scenario are no fault of the file.
#[test]
fn policies_of_the_command_line() {
    let folder = scene(str::to_owned);
    for (policies, baseline, line) in [
        ("os,os", "os", "expected every policy once with --policy, found os twice"),
        ("mix", "bas", "expected --baseline among the policies of --policy, found bas"),
    ] {
        let args = ["pair.toml", "--policy", policies, "--baseline", baseline];
        let said = refusal(&colocate(folder.path(), &args), 2);
        assert_eq!(said, format!("colocate-study: {line}\n"));
    }
}

/// Eight jobs of two threads on four PUs, quantum by quantum.
#[test]
fn schedulers_beside_policies() {
    let folder = scene(|text| {
        let more = text.replace("name = \"adder\"\n", "name = \"adder\"\ncopies = 4\n");
        let more = more.replace("name = \"walker\"\n", "name = \"walker\"\ncopies = 4\n");
        more.replace("draws = 3\n", "draws = 2\nquantum = \"5 ms\"\n")
    });
    let policies = "os,compact,bas,fair,mmas,schedule:round-robin";
    let args = ["pair.toml", "--policy", policies, "--json", "-o", "kept"];
    let found: Value = serde_json::from_str(&printed(&colocate(folder.path(), &args))).unwrap();
    assert_eq!(found["settings"]["baseline"], "os");
    let figures = found["policies"].as_array().unwrap();
    let names: Vec<&str> = figures.iter().map(|it| it["policy"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), policies);
    for policy in figures {
        assert_eq!(policy["unfinished"], 0, "{policy}");
        let verdict = policy["metrics"][0]["verdict"].as_str().unwrap();
        assert!(["baseline", "better", "worse", "not-resolved"].contains(&verdict), "{verdict}");
    }
    for name in ["bas", "schedule-round-robin"] {
        let file = folder.path().join(format!("kept/pair.{name}.gantt.svg"));
        let drawn = std::fs::read_to_string(file).unwrap();
        assert!(drawn.contains("simulated on Intel Xeon X3320"), "{name}");
    }
    // What is kept can be simulated again.
    let again = colocate(&folder.path().join("kept"), &["pair.toml", "--json"]);
    let again: Value = serde_json::from_str(&printed(&again)).unwrap();
    assert_eq!(again["policies"], found["policies"]);
    let wrong = colocate(folder.path(), &["pair.toml", "--policy", "os,best"]);
    let said = refusal(&wrong, 2);
    assert!(said.contains("expected os, ") && said.contains("found policy \"best\""), "{said}");
}

/// Two threads that take turns, on a described machine where wake-ups at one distance were measured to take 500 µs. Forty turns of
/// 0.1 ms: each waits for as long if the pair is at this distance. The kernel starts the threads under two caches, and
/// `wake_affine` moves them under one.
#[test]
fn wake_ups_take_what_was_measured() {
    for (wake_affine, distance, other) in
        [(false, "other-cache", "same-cache"), (true, "same-cache", "other-cache")]
    {
        let longer = longer_by_measured_wake_ups(distance, wake_affine);
        assert!((0.0175..0.0195).contains(&longer), "{distance}: {longer} s longer");
        let unused = longer_by_measured_wake_ups(other, wake_affine);
        assert!(unused == 0.0, "{other}: {unused} s longer");
    }
}

/// Seconds by which measured wake-ups at a distance make the pair longer than assumed wake-ups.
fn longer_by_measured_wake_ups(distance: &str, wake_affine: bool) -> f64 {
    let scene = scene(|_| {
        r#"version = 1
name = "turns"
machine = "machine.json"
policies = ["os"]
seeds = 1
draws = 1
[[phase]]
name = "adds"
demand = { work = { value = { kinds = { float-add = 1.0 } }, source = "the test" } }
[[job]]
name = "pair"
barrier = { wait = "turns" }
[[job.thread]]
copies = 2
course = [{ phase = "adds", instructions = 100_000, barrier = true }]
instructions = 2_000_000
[kernel]
wake-affine = AFFINE
"#
        .replace("AFFINE", &wake_affine.to_string())
    });
    let mut machine = described::machine("xeon-x3320");
    let turnaround = |machine: &Value| {
        std::fs::write(scene.path().join("machine.json"), machine.to_string()).unwrap();
        let found = printed(&colocate(scene.path(), &["pair.toml", "--json"]));
        let found: Value = serde_json::from_str(&found).unwrap();
        conforms(&found, SCHEMA);
        found["policies"][0]["metrics"][0]["value"]["value"].as_f64().unwrap()
    };
    let assumed = turnaround(&machine);
    machine["calibration"] = serde_json::json!({
        "identity": "0000000000000000", "kernel": null, "started_unix_s": 1, "seconds": 1.0,
        "figures": [{
            "what": { "figure": "wake-up", "pair": distance, "busy": false }, "unit": "ns",
            "value": 500_000.0, "low": 400_000.0, "high": 600_000.0, "unix_s": 1, "source": "made up",
        }],
        "assumed": [], "absent": [], "disagreements": [],
    });
    turnaround(&machine) - assumed
}
