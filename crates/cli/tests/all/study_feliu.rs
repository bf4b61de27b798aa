//! `colocate study feliu-1` to `feliu-4`: whole runs of the binary, small ones.

use crate::printed::{conforms, printed, refusal};
use colocate_machine::printable::json;
use colocate_study::feliu::Report;
use expect_test::expect;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// One mix of each set-up, a tenth of a second, two sets of assumptions and seeds.
const SMALL: [&str; 10] =
    ["--mixes", "1", "--length-ms", "100", "--quantum-ms", "20", "--draws", "2", "--seeds", "2"];

fn study(folder: &Path, name: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["study", name]).args(args).current_dir(folder).output().unwrap()
}

#[test]
fn the_json_is_as_its_schema_says_and_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let schema = include_str!("../../../../docs/schemas/study-feliu.json");
    for name in ["feliu-1", "feliu-2", "feliu-3", "feliu-4"] {
        let args = [&SMALL[..], &["--json", "--threads", "2"]].concat();
        let text = printed(&study(folder.path(), name, &args));
        let found: Value = serde_json::from_str(&text).unwrap();
        conforms(&found, schema);
        let report: Report = serde_json::from_str(&text).unwrap();
        assert_eq!((report.study.to_string().as_str(), report.simulated), (name, true));
        assert_eq!(json(&report), text);
        for setup in &report.setups {
            assert_eq!(setup.policies[0].policy, "os");
            let figures = setup.policies.iter().flat_map(|policy| &policy.metrics);
            assert!(figures.clone().all(|figures| figures.value.is_some()), "{name}");
        }
    }
}

/// A run that was cut short goes on, with the same figures to the last digit as one that was not.
#[test]
fn what_is_kept_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let whole = printed(&study(folder.path(), "feliu-1", &SMALL));
    let args = [&SMALL[..], &["--keep", "kept"]].concat();
    assert_eq!(printed(&study(folder.path(), "feliu-1", &args)), whole);
    let kept = folder.path().join("kept");
    let text = std::fs::read_to_string(&kept).unwrap();
    // One mix with two sets of assumptions; and the head.
    assert_eq!(text.lines().count(), 3);
    let lines: Vec<&str> = text.lines().take(2).collect();
    std::fs::write(&kept, lines.join("\n")).unwrap();
    assert_eq!(printed(&study(folder.path(), "feliu-1", &args)), whole);
    expect![[r#"
        colocate: kept is of another study, machine, setting or build of colocate: remove it, or name another file with --keep
    "#]]
    .assert_eq(&refusal(&study(folder.path(), "feliu-3", &args), 125));
}

/// Of the second study no range of traffic was published; the one that is asked for is kept to.
#[test]
fn traffic_is_drawn_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let args = [&SMALL[..], &["--traffic", "40-60"]].concat();
    let text = printed(&study(folder.path(), "feliu-2", &args));
    assert_eq!(text.matches(" t/µs (drawn for 40 to 60)\n").count(), 2, "{text}");
}

/// With one seed nobody can tell what chance does.
#[test]
fn one_seed_decides_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--mixes", "1", "--length-ms", "100", "--quantum-ms", "20", "--draws", "2"];
    let args = [&args[..], &["--seeds", "1"]].concat();
    let text = printed(&study(folder.path(), "feliu-1", &args));
    let orders = text.lines().filter(|line| line.contains(" better than "));
    let told: Vec<&str> = orders.filter(|line| line.starts_with("  turnaround")).collect();
    assert_eq!(told.len(), 5, "{text}");
    assert!(told.iter().all(|line| line.ends_with("  not decided by one seed")), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, args: &[&str]| {
        refusal(&study(folder.path(), name, &[&SMALL[..], args].concat()), 125)
    };
    expect![[r#"
        colocate: expected a machine with 6 cores of 2 PUs, found Intel Xeon X3320
    "#]]
    .assert_eq(&refused("feliu-3", &["--machine", "xeon-x3320"]));
    expect![[r#"
        colocate: expected mixes that ask for 9000.0 to 9001.0 t/µs of the memory, found none among a million drawn
    "#]]
    .assert_eq(&refused("feliu-1", &["--traffic", "9000-9001"]));
    for text in ["20", "40-20", "-1-3", "a-b"] {
        let option = format!("--traffic={text}");
        let output = study(folder.path(), "feliu-1", &[&option]);
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("expected two numbers like 20-40"), "{said}");
    }
}
