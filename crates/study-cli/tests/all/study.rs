//! `colocate-study study`: whole runs of the binary, small ones.

use colocate_machine::printable::json;
use colocate_study::replication::report::StudyReport;
use colocate_testing::printed::{conforms, printed, refusal};
use expect_test::{expect, expect_file};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Two sets of assumptions and seeds; the shortest times that show anything.
const REPEATED: [&str; 4] = ["--draws", "2", "--seeds", "2"];
const SERPA: [&str; 5] = ["serpa", "--length-ms", "20", "--applications", "two.toml"];
const MIXES: [&str; 6] = ["--mixes", "1", "--length-ms", "100", "--quantum-ms", "20"];
/// One set of assumptions and seed.
const FEDOROVA: [&str; 7] = ["fedorova", "--length-ms", "50", "--draws", "1", "--seeds", "1"];

fn study(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.arg("study").args(args).current_dir(folder).output().unwrap()
}

fn scene() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let two = "version = 1\n[[phase]]\nname = \"A\"\nslots = { value = 1.0, source = \"test\" }\n\
               [[phase]]\nname = \"B\"\nslots = { value = 1.2, source = \"test\" }\n";
    std::fs::write(folder.path().join("two.toml"), two).unwrap();
    folder
}

/// The report in JSON, which is as its schema says and can be read back.
fn report(text: &str, name: &str) -> StudyReport {
    let found: Value = serde_json::from_str(text).unwrap();
    conforms(&found, include_str!("../../../../docs/schemas/study.json"));
    let report: StudyReport = serde_json::from_str(text).unwrap();
    assert_eq!((&*report.study, report.simulated, &*json(&report)), (name, true, text));
    report
}

#[test]
fn mixes_are_printed_as_tables_and_json() {
    let folder = scene();
    for name in ["feliu-1", "feliu-2", "feliu-3", "feliu-4"] {
        let outputs = ["-o", "report.json", "-o", "report.txt", "--threads", "2"];
        let args = [&[name], &MIXES[..], &REPEATED, &outputs].concat();
        assert_eq!(printed(&study(folder.path(), &args)), "");
        let written = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        for part in report(&written("report.json"), name).parts {
            let policies = &part.rows[0].policies;
            assert_eq!(policies[0].policy, "os");
            let mut metrics = policies.iter().flat_map(|policy| &policy.metrics);
            assert!(metrics.all(|metric| metric.value.is_some()), "{name}");
        }
        if name == "feliu-2" {
            expect_file!["../printed/study-feliu-2.txt"].assert_eq(&written("report.txt"));
        }
    }
}

#[test]
fn pairs_are_printed_as_tables_and_json() {
    let folder = scene();
    let args = [&SERPA[..], &REPEATED].concat();
    let text = printed(&study(folder.path(), &[&args[..], &["--json"]].concat()));
    let report = report(&text, "serpa");
    assert_eq!((report.draws, report.length_s), (2, 0.02));
    assert_eq!(report.parts[0].cells[0].programs, ["A", "B"]);
    let policies = report.parts[0].rows[0].policies.iter().map(|policy| &*policy.policy);
    expect!["os round-robin instruction instruction:published mix symbiosis-model oracle"]
        .assert_eq(&policies.collect::<Vec<_>>().join(" "));
    expect_file!["../printed/study-serpa.txt"].assert_eq(&printed(&study(folder.path(), &args)));
}

#[test]
fn phases_are_printed_as_tables_json_and_a_picture() {
    let folder = scene();
    let outputs = ["-o", "report.json", "-o", "report.txt", "-o", "report.svg", "-q"];
    let args = [&FEDOROVA[..], &outputs, &["--threads", "2"]].concat();
    assert_eq!(printed(&study(folder.path(), &args)), "");
    let written = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let report = report(&written("report.json"), "fedorova");
    assert_eq!(report.parts.len(), 7);
    for row in report.parts.iter().flat_map(|part| &part.rows) {
        let names: Vec<&str> = row.policies.iter().map(|each| each.policy.as_str()).collect();
        assert_eq!((names.first(), names.last()), (Some(&"os"), Some(&"oracle")));
    }
    // The oracle is of one program alone.
    let oracles = report.parts.iter().flat_map(|part| &part.rows);
    let known = oracles.filter(|row| row.policies.last().unwrap().metrics[0].value.is_some());
    assert_eq!(known.count(), 13 + 10 + 9 + 18 + 6 + 2);
    expect_file!["../printed/study-fedorova.txt"].assert_eq(&written("report.txt"));
    let picture = written("report.svg");
    assert!(picture.starts_with("<svg") && picture.contains("simulated on AMP"), "{picture}");
}

/// A run that was cut short goes on, with the same figures to the last digit as one that was not.
#[test]
fn what_is_kept_is_gone_on_with() {
    let folder = scene();
    let args = [&SERPA[..], &REPEATED].concat();
    let whole = printed(&study(folder.path(), &[&args[..], &["--json"]].concat()));
    let args = [&args[..], &["--json", "--keep", "kept"]].concat();
    assert_eq!(printed(&study(folder.path(), &args)), whole);
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    // One pair and four lengths, each with two sets of assumptions; and the head.
    assert_eq!(text.lines().count(), 11);
    let lines: Vec<&str> = text.lines().take(6).collect();
    std::fs::write(&kept, lines.join("\n")).unwrap();
    assert_eq!(printed(&study(folder.path(), &args)), whole);
    assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 11);
    let other_seed = [&args[..], &["--seed", "7"]].concat();
    let other_study = [&["feliu-1"], &MIXES[..], &["--keep", "kept"]].concat();
    for other in [other_seed, other_study] {
        expect![[r#"
            colocate-study: kept is of another study, machine, setting or build of colocate-study: remove it, or name another file with --keep
        "#]]
        .assert_eq(&refusal(&study(folder.path(), &other), 125));
    }
}

/// Figures of another build may differ though its version is the same.
#[test]
fn what_another_build_kept_is_refused() {
    let folder = scene();
    let args = [&SERPA[..], &["--draws", "1", "--seeds", "1", "--keep", "kept"]].concat();
    printed(&study(folder.path(), &args));
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    let (head, pieces) = text.split_once('\n').unwrap();
    let (inputs, build) = head.rsplit_once(' ').unwrap();
    assert!(build.starts_with("build-id:") || build.starts_with("sha256:"), "{head}");
    std::fs::write(&kept, format!("{inputs} build-id:07\n{pieces}")).unwrap();
    let said = refusal(&study(folder.path(), &args), 125);
    assert!(said.starts_with("colocate-study: kept is of another study"), "{said}");
}

/// Of the second study no range of traffic was published; a given one counts.
#[test]
fn traffic_is_drawn_as_given() {
    let folder = scene();
    let args = [&["feliu-2"], &MIXES[..], &["--draws", "1", "--seeds", "1"]].concat();
    let args = [&args[..], &["--traffic", "40-60", "--json"]].concat();
    let report = report(&printed(&study(folder.path(), &args)), "feliu-2");
    let cells: Vec<f64> = report
        .parts
        .iter()
        .flat_map(|part| &part.cells)
        .map(|cell| cell.values["traffic"])
        .collect();
    assert!(cells.len() == 2 && cells.iter().all(|it| (40.0..60.0).contains(it)), "{cells:?}");
}

/// With one seed there is no telling what chance does.
#[test]
fn one_seed_decides_no_order() {
    let folder = scene();
    let args = [&["feliu-1"], &MIXES[..], &["--draws", "2", "--seeds", "1"]].concat();
    let text = printed(&study(folder.path(), &args));
    let orders = text.lines().filter(|line| line.contains(" better than "));
    let orders: Vec<&str> = orders.filter(|line| line.starts_with("  turnaround")).collect();
    assert_eq!(orders.len(), 5, "{text}");
    assert!(orders.iter().all(|line| line.ends_with("  not decided by one seed")), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let folder = scene();
    for (name, text) in [
        ("key.toml", "version = 1\n[[phase]]\nname = \"A\"\nslot = 1\n"),
        ("source.toml", "version = 1\n[[phase]]\nname = \"A\"\nslots = 1.0\n"),
        ("negative.toml", "version = 1\n[[phase]]\nslots = { value = -1.0, source = \"x\" }\n"),
        ("version.toml", "version = 9\n"),
        ("one.toml", "version = 1\n[[phase]]\nname = \"A\"\n"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        for option in ["--applications", "--kernels"] {
            let args = ["serpa", "--draws", "1", option, name];
            let said = refusal(&study(folder.path(), &args), 125);
            assert!(said.starts_with(&format!("colocate-study: {name}: ")), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            let line = ["key", "source", "negative"].iter().any(|each| name.starts_with(each));
            assert_eq!(said.contains("line "), line, "{said}");
        }
    }
    for (args, code, expected) in [
        (
            &["serpa", "--machine", "xeon-x3320"][..],
            125,
            expect![
                "expected a machine with SMT, found Intel Xeon X3320, whose cores have one PU each"
            ],
        ),
        (
            &["fedorova", "--machine", "xeon-x3320"],
            125,
            expect![
                "expected a machine with fast and slow cores under each of several last-level caches, found Intel Xeon X3320"
            ],
        ),
        (
            &["feliu-3", "--machine", "xeon-x3320"],
            125,
            expect!["expected a machine with 6 cores of 2 PUs, found Intel Xeon X3320"],
        ),
        (
            &["feliu-1", "--traffic", "9000-9001", "--mixes", "1"],
            125,
            expect![
                "expected mixes with 9000.0 to 9001.0 t/µs of memory traffic, found none among a million drawn"
            ],
        ),
        (
            &["fedorova", "-o", "report"],
            2,
            expect!["expected -o FILE.txt, FILE.json or FILE.svg, found report"],
        ),
        (&["serpa", "--mixes", "3"], 2, expect!["serpa has no --mixes"]),
        (&["feliu-1", "--find-length"], 2, expect!["feliu-1 has no --find-length"]),
    ] {
        let said = refusal(&study(folder.path(), args), code);
        expected.assert_eq(said.trim_end().strip_prefix("colocate-study: ").unwrap());
    }
    for text in ["20", "40-20", "-1-3", "a-b"] {
        let said = study(folder.path(), &["feliu-1", &format!("--traffic={text}")]);
        assert!(!said.status.success());
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains("expected two numbers like 20-40"), "{said}");
    }
}

/// The smallest run of the study of page migration, in all its forms.
#[test]
fn piccoli_is_printed_and_written() {
    let folder = scene();
    let args = ["piccoli", "--draws", "2", "--sizes", "1"];
    let files = ["-o", "all.txt", "-o", "all.json", "-o", "all.svg"];
    assert_eq!(printed(&study(folder.path(), &[&args[..], &files].concat())), "");
    let json = printed(&study(folder.path(), &[&args[..], &["--json", "--threads", "1"]].concat()));
    assert_eq!(std::fs::read_to_string(folder.path().join("all.json")).unwrap(), json);
    let found: Value = serde_json::from_str(&json).unwrap();
    conforms(&found, include_str!("../../../../docs/schemas/study-piccoli.json"));
    let row = &found["benchmarks"][1]["sizes"][0];
    assert_eq!((&row["size"], &row["moved"][0]), (&2400.into(), &"A".into()));
    let text = std::fs::read_to_string(folder.path().join("all.txt")).unwrap();
    assert!(text.starts_with("simulated on 4x AMD Opteron 6282 SE, not measured"), "{text}");
    assert!(std::fs::read_to_string(folder.path().join("all.svg")).unwrap().contains("SPM+lock"));
    for (option, said) in
        [("--mixes=2", "--mixes"), ("--seeds=2", "--seeds"), ("--keep=x", "--keep")]
    {
        let refused = refusal(&study(folder.path(), &["piccoli", option]), 2);
        assert!(refused.contains(&format!("piccoli has no {said}")), "{refused}");
    }
    let refused = refusal(&study(folder.path(), &["piccoli", "--machine", "xeon-e5405"]), 125);
    assert!(refused.contains("expected a machine with at least 2 nodes"), "{refused}");
    let refused = refusal(&study(folder.path(), &["feliu-1", "--sizes", "1"]), 2);
    assert!(refused.contains("feliu-1 has no --sizes"), "{refused}");
}

/// The smallest run of the study of losses, in all its forms, and on recorded programs.
#[test]
fn contention_is_printed_and_written() {
    let folder = scene();
    let args = ["contention", "--draws", "2", "--machine", "xeon-x3320"];
    let files = ["-o", "all.txt", "-o", "all.json", "-o", "all.svg"];
    assert_eq!(printed(&study(folder.path(), &[&args[..], &files].concat())), "");
    let json = printed(&study(folder.path(), &[&args[..], &["--json"]].concat()));
    assert_eq!(std::fs::read_to_string(folder.path().join("all.json")).unwrap(), json);
    let found: Value = serde_json::from_str(&json).unwrap();
    conforms(&found, include_str!("../../../../docs/schemas/study-contention.json"));
    assert_eq!(found["programs"].as_array().unwrap().len(), 29);
    let text = std::fs::read_to_string(folder.path().join("all.txt")).unwrap();
    assert!(text.starts_with("simulated on Intel Xeon X3320, not measured"), "{text}");
    assert!(text.contains("memory, 3 copies on other cores"), "{text}");
    let svg = std::fs::read_to_string(folder.path().join("all.svg")).unwrap();
    assert!(svg.contains("L2, 1 copy on other cores"));
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/measured/programs");
    let text =
        printed(&study(folder.path(), &["contention", "--draws", "1", "--programs", recorded]));
    assert!(text.contains("49 programs") && text.contains("L1, 1 copy on the same core"), "{text}");
    for (option, said) in
        [("--mixes=2", "--mixes"), ("--seeds=2", "--seeds"), ("--keep=x", "--keep")]
    {
        let refused = refusal(&study(folder.path(), &["contention", option]), 2);
        assert!(refused.contains(&format!("contention has no {said}")), "{refused}");
    }
}
