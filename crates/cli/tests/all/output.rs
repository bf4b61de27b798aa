//! Files that results are written to where they cannot be replaced by other files.

use std::path::Path;
use std::process::{Command, Output};

/// What a shell does in `dir` with mounts of its own; `colocate` is `$0`. `None` with a line where there can be none.
fn with_mounts(dir: &Path, script: &str) -> Option<Output> {
    let ours = env!("CARGO_BIN_EXE_colocate");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &format!("set -e; {script}"), ours]).current_dir(dir);
    let mut possible = Command::new("unshare");
    possible.args(["-m", "mount", "--bind", ".", "."]);
    let possible = possible.current_dir(dir).output().is_ok_and(|done| done.status.success());
    if !possible {
        eprintln!("skipped: no mounts of our own here");
    }
    possible.then(|| shell.output().unwrap())
}

fn is_written(done: &Output, file: &Path) {
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\"caches\""), "{text}");
}

/// As in a container that was given a single file.
#[test]
fn a_file_that_is_a_mount_point_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["real", "there"] {
        std::fs::write(dir.path().join(name), "old").unwrap();
    }
    let script = "mount --bind real there; exec \"$0\" topo --json -o there";
    let Some(done) = with_mounts(dir.path(), script) else { return };
    is_written(&done, &dir.path().join("real"));
    assert_eq!(std::fs::read_to_string(dir.path().join("there")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_file_in_an_unwritable_folder_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("shut")).unwrap();
    for name in ["real", "shut/there"] {
        std::fs::write(dir.path().join(name), "old").unwrap();
    }
    let script = "mount --bind shut shut; mount --bind real shut/there; mount -o remount,bind,ro shut; \
                  exec \"$0\" topo --json -o shut/there";
    let Some(done) = with_mounts(dir.path(), script) else { return };
    is_written(&done, &dir.path().join("real"));
}

/// What takes minutes to measure is not lost because a disk is full, and not begun where it could not be kept.
#[test]
fn what_was_measured_is_printed_where_it_cannot_be_written() {
    let cpu = smt_bench::thread::usable().unwrap()[0].to_string();
    let cores = ["bench", "cores", "--json", "--cpus", &cpu, "--repeat", "3", "--seconds", "0.001"];
    let siblings = ["bench", "smt", "--json", "--find-siblings", "--cpus", &cpu];
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
    let all = [(&cores[..], "\"kinds\""), (&siblings, "\"pus\""), (&study, "\"study\"")];
    for (args, has) in all {
        let bench = |file: &str| {
            let mut bench = Command::new(env!("CARGO_BIN_EXE_colocate"));
            bench.args(args).args(["-o", file]).output().unwrap()
        };
        let (full, gone) = (bench(full), bench("no-such-folder/x.json"));
        assert_eq!([full.status.code(), gone.status.code()], [Some(125); 2], "{full:?} {gone:?}");
        let told = String::from_utf8(full.stdout).unwrap();
        assert!(told.contains(has), "{told}");
        serde_json::from_str::<serde_json::Value>(&told).unwrap();
        assert!(gone.stdout.is_empty());
    }
}

/// Nothing is begun where it is known that what comes of it could not be kept.
#[test]
fn without_a_folder_nothing_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/programs-that-wait.toml");
    let gone = ["-o", "no-such-folder/x.json"];
    let touch = ["--", "touch", "begun"];
    let commands: [(&[&str], &[&str]); 8] = [
        (&["study", "serpa", "-q"], &[]),
        (&["study", "feliu-4", "-q"], &[]),
        (&["study", "fedorova", "-q"], &[]),
        (&["train", "cpi-model", "--machine", "power8-10c"], &[]),
        (&["advise-threads"], &touch),
        (&["advise-threads", "--apply"], &touch),
        (&["run"], &touch),
        (&["simulate", "-q", example, "--svg", "no-such-folder/x.svg"], &[]),
    ];
    for (args, then) in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
        let file = if args[0] == "simulate" { &[][..] } else { &gone };
        let done =
            command.args(args).args(file).args(then).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(125), "{args:?}: {said}");
        assert!(said.starts_with("colocate: cannot write no-such-folder/x."), "{args:?}: {said}");
        assert!(done.stdout.is_empty() && !dir.path().join("begun").exists(), "{args:?}");
    }
}
