//! Files that other users or programs may have prepared: whole runs.

use colocate_testing::skip::root;
use colocate_testing::{EndsInTime, need, skip};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Address space of a run: the program's own text and libraries, and little more.
const SPACE_B: &str = "268435456";

/// Every option that names a file to be read.
const INPUTS: [&[&str]; 2] = [&["simulate"], &["study", "fedorova", "--keep"]];

/// The one line with which `colocate-study` ends for each option, below a limit of memory, on what `put` makes in the
/// place of the file.
fn each_input(put: impl Fn(&Path), ending: &str) {
    for words in INPUTS {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("input");
        put(&file);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--as={SPACE_B}")).arg("--").arg(env!("CARGO_BIN_EXE_colocate-study"));
        limited.args(words).arg(&file).stdin(Stdio::null());
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = limited.spawn().unwrap().ended_with_output();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{words:?}: {line}");
        assert!(line.lines().count() == 1 && line.ends_with(ending), "{words:?}: {line}");
    }
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let fifo = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    each_input(fifo, "found a FIFO\n");
}

#[test]
fn a_device_is_refused_and_not_opened() {
    each_input(|path| symlink("/dev/zero", path).unwrap(), "found a device\n");
}

/// What its file gives is given up, so a file of another user is not read.
#[test]
fn files_of_others_are_not_read() {
    let scratch = tempfile::tempdir().unwrap();
    let (copy, secret) = (scratch.path().join("colocate-study"), scratch.path().join("secret"));
    std::fs::copy(env!("CARGO_BIN_EXE_colocate-study"), &copy).unwrap();
    std::fs::write(&secret, "the secret\n").unwrap();
    for (path, mode) in [(scratch.path(), 0o755), (&copy, 0o6755), (&secret, 0o600)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let done = command.arg(&copy).arg("simulate").arg(&secret).output();
    need!(root());
    let Ok(done) = done else { skip!(Tools, "setpriv is not installed") };
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("Permission denied"), "{said}");
    assert!(!said.contains("the secret"), "{said}");
}
