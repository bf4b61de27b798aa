//! Files that results are written to where they cannot be replaced by other files.

use colocate_testing::need;
use colocate_testing::skip::{Missing, Requirement};
use std::path::Path;
use std::process::{Command, Output};

/// Output of a shell in `dir` with mounts of its own; `colocate` is `$0`.
fn with_mounts(dir: &Path, script: &str) -> Result<Output, Missing> {
    let ours = env!("CARGO_BIN_EXE_colocate");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &format!("set -e; {script}"), ours]).current_dir(dir);
    let mut possible = Command::new("unshare");
    possible.args(["-m", "mount", "--bind", ".", "."]);
    let possible = possible.current_dir(dir).output().is_ok_and(|done| done.status.success());
    Requirement::Namespaces.if_there(possible, "no mounts of our own here")?;
    Ok(shell.output().unwrap())
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
    let done = need!(with_mounts(dir.path(), script));
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
    let done = need!(with_mounts(dir.path(), script));
    is_written(&done, &dir.path().join("real"));
}

/// Nothing is begun where its results could not be kept.
#[test]
fn without_a_folder_nothing_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let file = ["-o", "no-such-folder/x.json", "--", "touch", "begun"];
    for args in [&["advise-threads"][..], &["advise-threads", "--apply"], &["run"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
        let done = command.args(args).args(file).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(125), "{args:?}: {said}");
        assert!(said.starts_with("colocate: cannot write no-such-folder/x."), "{args:?}: {said}");
        assert!(done.stdout.is_empty() && !dir.path().join("begun").exists(), "{args:?}");
    }
}
