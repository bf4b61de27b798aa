//! Whole runs of `colocate schedule`.

use crate::run_support::{Scratch, text};
use colocate_testing::need;
use colocate_testing::printed::conforms;
use colocate_testing::skip::{Missing, Requirement};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Of the report.
const SCHEMA: &str = include_str!("../../../../docs/schemas/report.json");

/// A workload of so many shells that count, each marked with a word.
fn workload(scratch: &Scratch, jobs: u32, word: &str, count: u32) -> PathBuf {
    let script = format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done; echo {word}");
    let path = scratch.path("workload.toml");
    let text = format!(
        "version = 1\nquantum = \"20 ms\"\n[[job]]\ncommand = [\"sh\", \"-c\", \"{script}\"]\ncopies = {jobs}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Without the guard: what schedulers choose is what happens.
fn schedule(scratch: &Scratch) -> Command {
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard"]);
    command
}

/// The JSON report on standard error, as its schema says.
fn report(output: &Output) -> Value {
    let said = text(&output.stderr);
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    conforms(&report, SCHEMA);
    report
}

#[test]
fn everybody_is_done() {
    let scratch = Scratch::new();
    let file = workload(&scratch, 5, "everybody", 20_000);
    for policy in ["os", "round-robin", "random:seed=3", "l1-dynamic", "bas", "fair", "perf-fair"] {
        let output =
            schedule(&scratch).args(["--json", "--policy", policy]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{policy}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout).matches("everybody").count(), 5, "{policy}");
        let report = report(&output);
        assert_eq!(report["jobs"].as_array().unwrap().len(), 5);
        assert!(
            report["jobs"].as_array().unwrap().iter().all(|job| job["status"] == 0),
            "{report}"
        );
    }
}

/// Every scheduler but the kernel's is guarded unless it is asked not to be, and all programs complete.
#[test]
fn guarded_by_default() {
    let scratch = Scratch::new();
    let file = workload(&scratch, 5, "guarded", 20_000);
    let state = |options: &[&str]| {
        let mut command = scratch.colocate();
        command.args(["schedule", "--json"]).args(options).arg(&file);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).matches("guarded").count(), 5);
        report(&output)["state"].as_str().unwrap_or_default().to_owned()
    };
    assert!(state(&["--policy", "round-robin"]).contains("quanta the kernel's"));
    assert!(state(&["--policy", "fair"]).contains("guard: "));
    assert_eq!(state(&["--policy", "round-robin", "--no-guard"]), "");
    assert_eq!(state(&["--policy", "os"]), "");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let scratch = Scratch::new();
    let file = scratch.path("bad.toml");
    for (content, wanted) in [
        ("version = 1\n[[job]]\ncommand = [\"true\"]\ncopys = 2\n", ":4: expected a workload"),
        ("version = 1\njob = []\n", "expected 1 to 500 jobs in all, found 0"),
        (
            "version = 1\n[[job]]\ncommand = [\"no-such-program\"]\n",
            "no-such-program: command not found",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = schedule(&scratch).arg(&file).output().unwrap();
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains(wanted) && said.trim_end().lines().count() == 1, "{said}");
    }
    std::fs::write(&file, "version = 1\n[[job]]\ncommand = [\"true\"]\n").unwrap();
    let output = schedule(&scratch).args(["--policy", "mmas"]).arg(&file).output().unwrap();
    assert!(text(&output.stderr).contains("what every job does alone"), "{}", text(&output.stderr));
}

/// `commands` on the command line, each in a shell.
fn in_shells(scratch: &Scratch, options: &[&str], scripts: &[&str]) -> Output {
    let mut command = schedule(scratch);
    command.args(options).arg("--");
    for (place, script) in scripts.iter().enumerate() {
        command.args(if place > 0 { &[":::"][..] } else { &[] }).args(["sh", "-c", script]);
    }
    command.output().unwrap()
}

/// Nobody hears what colocate has to say, and the programs run all the same.
#[test]
fn no_reader() {
    let scratch = Scratch::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (nobody, ear) = std::io::pipe().unwrap();
    drop(nobody);
    for deaf in [std::process::Stdio::from(full), ear.into()] {
        let mut command = schedule(&scratch);
        command.args(["--policy", "round-robin", "--", "echo", "one", ":::", "echo", "two"]);
        let output = command.stderr(deaf).output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(text(&output.stdout).lines().count(), 2);
    }
}

/// By traffic where it is counted; else one that needs no evidence, in a line, and nothing is said of evidence that is missing.
#[test]
fn a_default_that_needs_no_counters() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    let output = command.args(["schedule", "--no-guard", "--json", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    let (lines, json) = said.split_at(said.find("{\n").unwrap());
    let report: Value = serde_json::from_str(json).unwrap();
    let evidence = report["evidence"].as_array().unwrap();
    let counts = evidence.iter().any(|it| it["source"] == "counters" && it["refused"].is_null());
    assert_eq!(report["policy"], if counts { "bas" } else { "round-robin" });
    assert_eq!(lines.lines().count(), usize::from(!counts), "{lines}");
    assert!(
        counts || lines.contains("policy round-robin, as traffic to memory is not counted here")
    );
}

#[test]
fn programs_on_the_command_line() {
    let scratch = Scratch::new();
    let options = ["--policy", "round-robin", "--quantum", "20ms", "--json"];
    let output = in_shells(&scratch, &options, &["echo one", "echo two; exit 7", "echo three"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(["one", "two", "three"].iter().all(|word| said.contains(word)), "{said}");
    let report = report(&output);
    assert_eq!(report["quantum_ns"], 20_000_000);
    let names: Vec<&Value> =
        report["jobs"].as_array().unwrap().iter().map(|j| &j["name"]).collect();
    assert_eq!(names, ["sh#1", "sh#2", "sh#3"]);
    assert_eq!(report["jobs"][1]["status"], 7);
    let both = schedule(&scratch).arg("w.toml").args(["--", "true"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    let neither = schedule(&scratch).output().unwrap();
    assert_eq!(neither.status.code(), Some(2));
}

#[test]
fn a_folder_and_an_environment_of_its_own() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("inner")).unwrap();
    std::fs::write(scratch.path("inner/say"), "echo \"$0 $A|$B in $(pwd)\"\n").unwrap();
    let ready = Command::new("chmod").arg("+x").arg(scratch.path("inner/say")).status().unwrap();
    assert!(ready.success());
    let file = scratch.path("w.toml");
    let workload = r#"version = 1
        [[job]]
        command = ["./say"]
        dir = "inner"
        env = { A = "x y", B = "" }
        [[job]]
        command = ["sh", "-c", "echo \"$A$B in $(pwd)\""]
    "#;
    std::fs::write(&file, workload).unwrap();
    let output = schedule(&scratch)
        .arg(&file)
        .env("A", "ours")
        .env("B", "!")
        .current_dir(scratch.dir.path())
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let at = |name: &str| scratch.path(name).canonicalize().unwrap().display().to_string();
    assert!(
        said.contains(&format!(" x y| in {}\n", at("inner"))),
        "{said}{}",
        text(&output.stderr)
    );
    assert!(said.contains(&format!("ours! in {}\n", at("."))), "{said}");
}

#[test]
fn files_by_their_endings() {
    let scratch = Scratch::new();
    let names = ["report.txt", "report.json", "picture.svg"].map(|name| scratch.path(name));
    let mut options = vec!["--policy", "fair", "--explain", "--quantum", "10 ms"];
    options.extend(names.iter().flat_map(|name| ["-o", name.to_str().unwrap()]));
    let count = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let output = in_shells(&scratch, &options, &[count; 5]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [table, json, picture] = names.map(|name| std::fs::read_to_string(name).unwrap());
    assert!(
        table.starts_with("colocate: ")
            && table.contains("\npolicy fair, ")
            && table.contains("why each job ran"),
        "{table}"
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    conforms(&report, SCHEMA);
    assert!(report["jobs"][4]["last_choice"]["places"][0]["allocated"]["because"].is_string());
    assert!(picture.starts_with("<svg") && picture.contains("5 jobs under fair"), "{picture}");
    assert!(picture.contains("sh#5") && !picture.contains("simulated"), "{picture}");
    let told = text(&output.stderr);
    assert!(!told.contains("policy fair"), "the report went into files: {told}");

    let output = in_shells(&scratch, &["-o", "report.html"], &["echo never"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected -o FILE.txt"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "nothing is begun whose report could not be kept");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let scratch = Scratch::new();
    let gone = scratch.path("gone/report.json");
    let output = in_shells(&scratch, &["-o", gone.to_str().unwrap()], &["echo never"]);
    let told = text(&output.stderr);
    assert!(told.contains("cannot write ") && told.lines().count() == 1, "{told}");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""));

    let [full, also, kept] = ["full.json", "full.svg", "kept.txt"].map(|name| scratch.path(name));
    for link in [&full, &also] {
        std::os::unix::fs::symlink("/dev/full", link).unwrap();
    }
    let [full, also, kept] = [full, also, kept].map(|path| path.to_str().unwrap().to_owned());
    let output = in_shells(&scratch, &["-q", "-o", &also, "-o", &full], &["exit 0"]);
    assert_eq!(output.status.code(), Some(125));
    // What is after it says what could not be written.
    let told = text(&output.stderr);
    let (json, after) = told.rsplit_once("colocate: ").unwrap();
    conforms(&serde_json::from_str(json).unwrap(), SCHEMA);
    assert!(after.starts_with("cannot write ") && after.contains("full.svg"), "{after}");
    let output = in_shells(&scratch, &["-q", "-o", &also, "-o", &kept], &["exit 0"]);
    assert!(!text(&output.stderr).contains("policy fair"), "a file has the figures");
    assert!(std::fs::read_to_string(kept).unwrap().contains("\npolicy "));
}

/// Of tables on terminals, see `schedule_terminal.rs`.
#[test]
fn no_table_in_a_pipe() {
    let scratch = Scratch::new();
    let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let options = ["--policy", "round-robin", "--quantum", "20 ms"];
    let piped = in_shells(&scratch, &options, &[count; 4]);
    let said = text(&piped.stderr);
    assert!(!said.contains('\u{1b}') && !said.contains("waiting"), "{said}");
    assert!(said.contains("policy round-robin"), "{said}");
    let quiet = in_shells(&scratch, &[&options[..], &["-q"]].concat(), &[count; 2]);
    assert!(quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
}

/// Speeds for this machine, made of those of a described one: only their form matters here.
fn speeds_of_here(scratch: &Scratch) -> Result<PathBuf, Missing> {
    let topo = |machine: &str| -> Value {
        let output = scratch.colocate().args(["topo", "--json", "--machine", machine]).output();
        serde_json::from_slice(&output.unwrap().stdout).unwrap()
    };
    let (mut here, model) = (topo("live"), topo("xeon-x3320"));
    let data: Vec<&Value> = here["machine"]["caches"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| c["kind"] != "instruction")
        .collect();
    let are_known = !data.is_empty() && data.iter().all(|cache| !cache["size"].is_null());
    let why = "this machine does not say how large its caches are";
    Requirement::CacheSizes.if_there(are_known, why)?;
    let mut levels: Vec<u64> = data.iter().map(|cache| cache["level"].as_u64().unwrap()).collect();
    levels.sort_unstable();
    levels.dedup();
    let of = &model["performance"];
    let cache = |level: &u64| {
        let mut cache = of["caches"][0].clone();
        cache["level"] = json!(level);
        cache["latency"] = json!(10 * level);
        cache
    };
    let nodes = here["machine"]["nodes"].as_array().unwrap().len().max(1);
    let mut speeds = of.clone();
    speeds["kinds"] =
        json!(vec![of["kinds"][0].clone(); here["machine"]["kinds"].as_array().unwrap().len()]);
    speeds["caches"] = json!(levels.iter().map(cache).collect::<Vec<Value>>());
    speeds["memory"] = json!(vec![of["memory"][0].clone(); nodes]);
    speeds["hops"] = json!(vec![vec![0; nodes]; nodes]);
    speeds["links"] = json!([]);
    here["performance"] = speeds;
    here["usable"] = Value::Null;
    let path = scratch.path("speeds.json");
    std::fs::write(&path, here.to_string()).unwrap();
    Ok(path)
}

/// A workload of two shells that count, of which one's demand vector is known.
fn one_demanding(folder: &Path) -> PathBuf {
    let demand = r#"version = 1
        [[phase]]
        name = "counts"
        misses = { value = [["32 KiB", 0.01]], source = "the test" }
    "#;
    let workload = r#"version = 1
        quantum = "20 ms"
        [[job]]
        name = "known"
        command = ["sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"]
        demand = "demand.toml"
        [[job]]
        name = "unknown"
        command = ["sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"]
    "#;
    std::fs::write(folder.join("demand.toml"), demand).unwrap();
    std::fs::write(folder.join("w.toml"), workload).unwrap();
    folder.join("w.toml")
}

#[test]
fn what_is_not_counted_is_estimated() {
    let scratch = Scratch::new();
    let file = one_demanding(scratch.dir.path());
    let run = |options: &[&str]| {
        let output = schedule(&scratch).arg("--json").args(options).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (report(&output), text(&output.stderr))
    };
    let (without, said) = run(&[]);
    assert_eq!(without["jobs"][0]["rates"]["estimated_of"], json!([]));
    assert!(said.contains("--machine-speeds"), "{said}");
    let speeds = need!(speeds_of_here(&scratch));
    let (with, _) = run(&["--machine-speeds", speeds.to_str().unwrap()]);
    let [known, unknown] = [0, 1].map(|job| &with["jobs"][job]["rates"]);
    assert!(known["ipc"].as_f64().unwrap() > 0.0, "{with}");
    assert!(known["memory_per_us"].as_f64().unwrap() > 0.0, "{with}");
    assert_eq!(unknown["estimated_of"], json!([]), "{with}");

    let wrong = schedule(&scratch).args(["--machine-speeds", "epyc-7301"]).arg(&file).output();
    let wrong = wrong.unwrap();
    let said = text(&wrong.stderr);
    let of_here = with["machine"]["pus"] == 64;
    assert!(of_here || said.contains("they are not of this machine"), "{said}");
}

/// Coefficients that `colocate-study train cpi-model` has written.
#[test]
fn coefficients_are_read() {
    let scratch = Scratch::new();
    let trained = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/simulated");
    for policy in ["symbiotic:model=", "symbiotic-numa:cost=antt:model="] {
        let policy = format!("{policy}{}", trained.join("cpi-model-power8-10c.json").display());
        let mut command = scratch.colocate();
        command.args(["schedule", "--quiet", "--policy", &policy, "--", "true", ":::", "true"]);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}

#[test]
fn coefficients_that_cannot_be_read_are_refused_with_a_line() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("odd.json"), "{\"version\": 9}").unwrap();
    for (policy, wanted) in [
        (
            "symbiotic",
            "expected symbiotic:model=FILE with a file of `colocate-study train cpi-model`",
        ),
        ("symbiotic:model=none.json", "cannot read none.json: "),
        (
            "symbiotic:model=odd.json",
            "odd.json: expected a CPI model of version 1, found version 9",
        ),
    ] {
        let mut command = scratch.colocate();
        command
            .args(["schedule", "--policy", policy, "--", "true"])
            .current_dir(scratch.dir.path());
        let done = command.output().unwrap();
        let said = text(&done.stderr);
        assert!(!done.status.success() && said.lines().count() == 1, "{said}");
        assert!(said.starts_with(&format!("colocate: {wanted}")), "{said}");
    }
}
