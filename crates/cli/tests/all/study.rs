//! `colocate study serpa`: whole runs of the binary, small ones.

use crate::printed::{conforms, printed, refusal};
use colocate_machine::printable::json;
use colocate_study::serpa::Report;
use expect_test::expect;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Two applications, one set of assumptions and seed, a fiftieth of a second.
const SMALL: [&str; 8] =
    ["--draws", "2", "--seeds", "2", "--length-ms", "20", "--applications", "two.toml"];

fn study(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["study", "serpa"]).args(args).current_dir(folder).output().unwrap()
}

fn scene() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let two = "version = 1\n[[phase]]\nname = \"A\"\nslots = { value = 1.0, source = \"test\" }\n\
               [[phase]]\nname = \"B\"\nslots = { value = 1.2, source = \"test\" }\n";
    std::fs::write(folder.path().join("two.toml"), two).unwrap();
    folder
}

#[test]
fn the_json_is_as_its_schema_says_and_can_be_read_back() {
    let folder = scene();
    let args = [&SMALL[..], &["--json", "-o", "report.json", "--threads", "2"]].concat();
    assert_eq!(printed(&study(folder.path(), &args)), "");
    let text = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    conforms(&found, include_str!("../../../../docs/schemas/study-serpa.json"));
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!((report.simulated, report.draws, report.alone_s), (true, 2, 0.02));
    assert_eq!(serde_json::from_str::<Report>(&json(&report)).unwrap(), report);
    assert_eq!(report.pairs.pairs[0].pair, ["A", "B"]);
    let policies: Vec<&str> =
        report.pairs.policies.iter().map(|policy| policy.policy.as_str()).collect();
    expect![[r#""os round-robin instruction mix symbiosis-model oracle""#]]
        .assert_eq(&format!("{:?}", policies.join(" ")));
}

/// A run that was cut short goes on, with the same figures to the last digit as one that was not.
#[test]
fn what_is_kept_is_gone_on_with() {
    let folder = scene();
    let whole = printed(&study(folder.path(), &[&SMALL[..], &["--json"]].concat()));
    let args = [&SMALL[..], &["--json", "--keep", "kept"]].concat();
    assert_eq!(printed(&study(folder.path(), &args)), whole);
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    // One pair and four lengths, each with two sets of assumptions; and the head.
    assert_eq!(text.lines().count(), 11);
    let lines: Vec<&str> = text.lines().take(6).collect();
    std::fs::write(&kept, lines.join("\n")).unwrap();
    assert_eq!(printed(&study(folder.path(), &args)), whole);
    let other = [&args[..], &["--seed", "7"]].concat();
    expect![[r#"
        colocate: kept is of another study, machine, setting or build of colocate: remove it, or name another file with --keep
    "#]]
    .assert_eq(&refusal(&study(folder.path(), &other), 125));
}

/// Figures of another build may differ though its version is the same.
#[test]
fn what_another_build_kept_is_refused() {
    let folder = scene();
    let args = [&SMALL[..], &["--keep", "kept"]].concat();
    printed(&study(folder.path(), &args));
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    let (head, pieces) = text.split_once('\n').unwrap();
    let (inputs, build) = head.rsplit_once(' ').unwrap();
    assert!(build.starts_with("build-id:") || build.starts_with("sha256:"), "{head}");
    std::fs::write(&kept, format!("{inputs} build-id:07\n{pieces}")).unwrap();
    let said = refusal(&study(folder.path(), &args), 125);
    assert!(said.starts_with("colocate: kept is of another study"), "{said}");
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
            let said = refusal(&study(folder.path(), &["--draws", "1", option, name]), 125);
            assert!(said.starts_with(&format!("colocate: {name}: ")), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            let line = ["key", "source", "negative"].iter().any(|each| name.starts_with(each));
            assert_eq!(said.contains("line "), line, "{said}");
        }
    }
    let said =
        refusal(&study(folder.path(), &["--machine", "xeon-x3320", "--length-ms", "1"]), 125);
    expect![[r#"
        colocate: expected a machine with SMT, found Intel Xeon X3320, whose cores have one PU each
    "#]]
    .assert_eq(&said);
}
