//! `colocate study fedorova`: whole runs of the binary, small ones.

use crate::printed::{conforms, printed, refusal};
use colocate_machine::printable::json;
use colocate_study::fedorova::Report;
use colocate_study::fedorova::points::Question;
use expect_test::{expect, expect_file};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A twentieth of a second, one set of assumptions and one seed: nothing is resolved.
const SMALL: [&str; 6] = ["--length-ms", "50", "--draws", "1", "--seeds", "1"];

fn study(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["study", "fedorova"]).args(args).current_dir(folder).output().unwrap()
}

#[test]
fn text_json_and_picture_come_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["-o", "report.json", "-o", "report.txt", "-o", "report.svg", "-q"];
    let args = [&SMALL[..], &outputs, &["--threads", "2"]].concat();
    assert_eq!(printed(&study(folder.path(), &args)), "");
    let written = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let text = written("report.json");
    let found: Value = serde_json::from_str(&text).unwrap();
    conforms(&found, include_str!("../../../../docs/schemas/study-fedorova.json"));
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!((json(&report), report.simulated), (text, true));
    for question in Question::ALL {
        assert!(report.points.iter().any(|point| point.question == question), "{question:?}");
    }
    for point in &report.points {
        let names: Vec<&str> = point.policies.iter().map(|each| each.policy.as_str()).collect();
        assert_eq!((names.first(), names.last()), (Some(&"os"), Some(&"oracle")));
        // The oracle knows of one program alone.
        let ended = point.policies.iter().filter(|policy| policy.seconds.is_some()).count();
        assert_eq!(ended, names.len() - usize::from(point.programs > 1), "{point:?}");
    }
    expect_file!["../printed/study-fedorova.txt"].assert_eq(&written("report.txt"));
    let picture = written("report.svg");
    assert!(picture.starts_with("<svg") && picture.contains("simulated on AMP"), "{picture}");
}

/// A run that was cut short goes on, with the same figures to the last digit.
#[test]
fn what_is_kept_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let args = [&SMALL[..], &["--json", "--keep", "kept"]].concat();
    let whole = printed(&study(folder.path(), &args));
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    let pieces = text.lines().count();
    let lines: Vec<&str> = text.lines().take(pieces - 3).collect();
    std::fs::write(&kept, lines.join("\n")).unwrap();
    assert_eq!(printed(&study(folder.path(), &args)), whole);
    assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), pieces);
    let other = [&args[..], &["--quantum-us", "500"]].concat();
    expect![[r#"
        colocate: kept is of another study, machine, setting or build of colocate: remove it, or name another file with --keep
    "#]]
    .assert_eq(&refusal(&study(folder.path(), &other), 125));
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    expect![[r#"
        colocate: expected a machine with fast and slow cores under each of several last-level caches, found Intel Xeon X3320
    "#]]
    .assert_eq(&refusal(&study(folder.path(), &["--machine", "xeon-x3320"]), 125));
    expect![[r#"
        colocate: expected -o FILE.txt, FILE.json or FILE.svg, found report
    "#]]
    .assert_eq(&refusal(&study(folder.path(), &["-o", "report"]), 2));
}
