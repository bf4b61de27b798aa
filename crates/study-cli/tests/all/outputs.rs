//! Files that results are written to.

use std::process::Command;

/// What takes minutes to measure is not lost because a disk is full, and not begun where it could not be kept.
#[test]
fn what_was_measured_is_printed_where_it_cannot_be_written() {
    let study = [
        "study",
        "feliu-1",
        "--json",
        "-q",
        "--length-ms",
        "600",
        "--mixes",
        "1",
        "--seeds",
        "1",
        "--draws",
        "1",
    ];
    // A study's file has the form that its ending names.
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full.json");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let full = full.to_str().unwrap();
    let written = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
        command.args(study).args(["-o", file]).output().unwrap()
    };
    let (full, gone) = (written(full), written("no-such-folder/x.json"));
    assert_eq!([full.status.code(), gone.status.code()], [Some(125); 2], "{full:?} {gone:?}");
    let told = String::from_utf8(full.stdout).unwrap();
    assert!(told.contains("\"study\""), "{told}");
    serde_json::from_str::<serde_json::Value>(&told).unwrap();
    assert!(gone.stdout.is_empty());
}

/// Nothing is begun where its results could not be kept.
#[test]
fn without_a_folder_nothing_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/programs-that-wait.toml");
    let gone = "no-such-folder/x.json";
    for args in [
        &["study", "serpa", "-q", "-o", gone][..],
        &["study", "feliu-4", "-q", "-o", gone],
        &["study", "fedorova", "-q", "-o", gone],
        &["train", "cpi-model", "--machine", "power8-10c", "-o", gone],
        &["simulate", "-q", example, "--svg", "no-such-folder/x.svg"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
        let done = command.args(args).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(125), "{args:?}: {said}");
        assert!(said.starts_with("colocate-study: cannot write no-such-folder/x."), "{said}");
        assert!(done.stdout.is_empty(), "{args:?}");
    }
}
