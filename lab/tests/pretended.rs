//! `lab` with a script in the place of QEMU, which hangs, panics, floods or dies as a test needs.
//! The tests need no network and no package of the lab.
#![allow(clippy::unwrap_used)] // a failed set-up stops the test

use colocate_testing::{skip, wait_until, within};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Time limit of guests that must be killed, in s. A script begins sooner, even on a busy machine.
const SHORT: u32 = 5;
const SETS: [&str; 2] = ["qemu", "x86-6.12"];

/// A cache whose QEMU is a script, and a folder for temporary files.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// A cache with `script` in the place of QEMU. `$mark` begins the line with the status, and
    /// `$PIDS/qemu` has the script's process ID.
    fn new(script: &str) -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(this.temporary()).unwrap();
        let pids = this.folder.path().display();
        let script = format!(
            "#!/bin/sh\nmark=$(printf 'lab-%x' $PPID)\ncd {pids}\necho $$ >qemu.new\nmv qemu.new qemu\n{script}\n"
        );
        for loader in
            ["x86_64-linux-gnu/ld-linux-x86-64.so.2", "aarch64-linux-gnu/ld-linux-aarch64.so.1"]
        {
            this.file(&format!("cache/lab/qemu/lib/{loader}"), &script);
        }
        this.file("cache/lab/x86-6.12/bin/busybox", "busybox\n");
        this.file("cache/lab/x86-6.12/vmlinuz", "kernel\n");
        SETS.iter().for_each(|set| this.list(set));
        this
    }

    /// Writes the files that `lab/fetch` leaves beside a set.
    fn list(&self, set: &str) {
        let hashes = Command::new("sh")
            .args(["-c", "find . -type f -exec sha256sum {} +"])
            .current_dir(self.cache().join(set))
            .output()
            .unwrap();
        let fetch = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fetch")).unwrap();
        let row = fetch.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(' ')).unwrap();
        let beside =
            |ending: &str, text: &str| self.file(&format!("cache/lab/{set}.{ending}"), text);
        beside("sha256", &String::from_utf8(hashes.stdout).unwrap());
        beside("packages", "");
        beside("row", row.trim_start());
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache/lab")
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(words).stdin(Stdio::null());
        command.env("COLOCATE_CACHE", self.folder.path().join("cache"));
        command.env("TMPDIR", self.temporary());
        // Nothing is built for these guests, which run nothing: cargo may be at work for a long
        // time.
        command.env("CARGO", "true");
        command
    }

    /// Runs a command in the guest to its end, with a limit of `limit` seconds.
    fn run(&self, limit: u32) -> Output {
        let limit = limit.to_string();
        self.command(&["run", "xeon-x3320", "--limit", &limit, "--", "hello"]).output().unwrap()
    }

    /// Starts an endless guest in a process group of its own, and waits for QEMU.
    fn start(&self) -> Child {
        let mut command = self.command(&["run", "xeon-x3320", "--", "hello"]);
        let child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        wait_until("a start of QEMU", || self.folder.path().join("qemu").exists());
        child
    }

    fn qemu_has_ended(&self) -> bool {
        let pid = fs::read_to_string(self.folder.path().join("qemu")).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // A zombie has ended, too.
        stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with('Z'))
    }

    fn left_behind(&self) -> Vec<PathBuf> {
        fs::read_dir(self.temporary()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn signal(signal: &str, target: &str) {
    let sent = Command::new("kill").args(["-s", signal, "--", target]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn status_and_output_are_the_commands() {
    let lab = Lab::new(
        r#"echo "booting" >&2; printf 'a\nb'; printf '\n%s end 7\n' "$mark"; exec sleep 1000"#,
    );
    let output = lab.run(60);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"a\nb"[..]));
    assert!(lab.qemu_has_ended(), "a guest that has reported its status is killed");
    assert_eq!((errors(&output), lab.left_behind()), (String::new(), vec![]));
}

/// The first boot panics before the first process; the second succeeds.
#[test]
fn a_kernel_that_does_not_come_up_is_booted_again() {
    let lab = Lab::new(
        r#"echo x >>boots
[ "$(wc -l <boots)" = 2 ] || { echo "[ 3.8] Kernel panic - not syncing: Oops" >&2; exit; }
echo "$mark begin" >&2; printf 'up\n%s end 0\n' "$mark"; exec sleep 1000"#,
    );
    let output = lab.run(60);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"up"[..]));
    let printed = errors(&output);
    assert!(
        printed.contains("booted again: [ 3.8] Kernel panic") && printed.lines().count() == 1,
        "{printed}"
    );
    assert_eq!(lab.left_behind(), Vec::<PathBuf>::new());
}

/// A guest that panics at every boot, or after its first process, fails.
#[test]
fn a_kernel_that_panics_fails_in_the_end() {
    for (begin, boots) in [("", 3), ("echo \"$mark begin\" >&2", 1)] {
        let script = format!("echo x >>boots; {begin}\necho '[ 9.8] Kernel panic - not' >&2");
        let lab = Lab::new(&script);
        let output = lab.run(60);
        assert_eq!(output.status.code(), Some(125));
        let printed = errors(&output);
        assert!(printed.contains("its console ends with: [ 9.8] Kernel panic"), "{printed}");
        let booted = fs::read_to_string(lab.folder.path().join("boots")).unwrap();
        assert_eq!(booted.lines().count(), boots);
    }
}

#[test]
fn half_a_line_comes_at_once() {
    let lab = Lab::new(
        r#"printf '50 %%'; while ! [ -e go ]; do sleep 0.01; done; printf '\n%s end 0\n' "$mark""#,
    );
    let mut child = lab.start();
    let mut half = [0; 4];
    within("half a line", || child.stdout.take().unwrap().read_exact(&mut half)).unwrap();
    assert_eq!(&half, b"50 %");
    lab.file("go", "");
    assert!(within("the end of lab", || child.wait()).unwrap().success());
}

#[test]
fn a_hung_guest_is_killed() {
    let lab = Lab::new("echo 'waiting for root' >&2; exec sleep 1000");
    let output = lab.run(SHORT);
    assert_eq!(output.status.code(), Some(125));
    let printed = errors(&output);
    let expected =
        "the guest was killed: it had not ended after 5 s; its console ends with: waiting for root";
    assert!(printed.contains(expected), "{printed}");
    assert!(lab.qemu_has_ended());
    kept(&lab, &printed, "waiting for root\n");
}

/// Checks that only the console's file remains, and that `printed` has its path.
fn kept(lab: &Lab, printed: &str, console: &str) {
    let [file] = lab.left_behind().try_into().unwrap();
    assert!(printed.contains(&*file.to_string_lossy()), "{printed}");
    assert_eq!(fs::read_to_string(file).unwrap(), console);
}

#[test]
fn a_hung_guest_that_has_closed_its_output_is_killed() {
    let lab = Lab::new("exec sleep 1000 >/dev/null 2>&1");
    let output = lab.run(SHORT);
    assert_eq!(output.status.code(), Some(125));
    assert!(errors(&output).contains("(QEMU: closed its output)"), "{}", errors(&output));
    assert!(lab.qemu_has_ended());
}

#[test]
fn a_guest_that_panics_is_reported() {
    let lab = Lab::new("printf 'Kernel panic - not syncing\\n[ end ]\\n' >&2");
    let output = lab.run(60);
    assert_eq!(output.status.code(), Some(125));
    let printed = errors(&output);
    let expected = "the guest ended without a status (QEMU: exit status: 0); its console ends with: Kernel panic - not syncing";
    assert!(printed.contains(expected), "{printed}");
    kept(&lab, &printed, "Kernel panic - not syncing\n[ end ]\n");
}

#[test]
fn a_flood_on_the_console_ends_too_and_leaves_little() {
    let lab = Lab::new("exec yes >&2");
    let output = lab.run(SHORT);
    assert_eq!(output.status.code(), Some(125));
    let [file] = lab.left_behind().try_into().unwrap();
    // The first and the last MiB, and a line between them.
    assert!(fs::metadata(file).unwrap().len() < (2 << 20) + 100);
    assert!(lab.qemu_has_ended());
}

#[test]
fn a_flood_of_output_ends_too() {
    let lab = Lab::new("exec yes");
    let mut command =
        lab.command(&["run", "xeon-x3320", "--limit", &SHORT.to_string(), "--", "hello"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(125));
    assert!(lab.qemu_has_ended());
}

#[test]
fn ctrl_c_leaves_nothing() {
    // The signal goes to QEMU, too, which ignores it here.
    let lab = Lab::new("trap '' INT; exec sleep 1000");
    let mut child = lab.start();
    signal("INT", &format!("-{}", child.id()));
    assert_eq!(within("the end of lab", || child.wait()).unwrap().signal(), Some(2));
    wait_until("the end of QEMU", || lab.qemu_has_ended());
    assert_eq!(lab.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_lab_leaves_nothing() {
    let lab = Lab::new("exec sleep 1000");
    let mut child = lab.start();
    signal("KILL", &child.id().to_string());
    within("the end of lab", || child.wait()).unwrap();
    wait_until("the end of QEMU", || lab.qemu_has_ended());
    assert_eq!(lab.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn a_changed_file_gets_one_line() {
    let lab = Lab::new("exit 1");
    fs::write(lab.cache().join("x86-6.12/vmlinuz"), "another kernel\n").unwrap();
    let output = lab.run(60);
    assert_eq!(output.status.code(), Some(125));
    let expected = format!(
        "lab: {}: changed since it was fetched: ./vmlinuz: FAILED; run lab/fetch --again x86-6.12\n",
        lab.cache().join("x86-6.12.sha256").display()
    );
    assert_eq!(errors(&output), expected);
    assert!(!lab.folder.path().join("qemu").exists(), "nothing is booted");
}

/// A folder of links to everything in PATH except `without`.
fn path_without(lab: &Lab, without: &str) -> PathBuf {
    let folder = lab.folder.path().join("bin");
    fs::create_dir(&folder).unwrap();
    for from in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in fs::read_dir(from).into_iter().flatten().map(Result::unwrap) {
            if entry.file_name() != without {
                // The first of a name wins, as in PATH.
                let _ = std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name()));
            }
        }
    }
    folder
}

fn errors_without(program: &str, break_it: impl Fn(&Path)) -> String {
    let lab = Lab::new("exit 1");
    break_it(&lab.cache());
    let path = path_without(&lab, program);
    let mut command = lab.command(&["run", "xeon-x3320", "--", "hello"]);
    let output = command.env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    errors(&output)
}

#[test]
fn a_missing_tool_gets_one_line() {
    let nothing = |_: &Path| {};
    assert_eq!(
        errors_without("setpriv", nothing),
        "lab: missing: setpriv; run scripts/install test\n"
    );
    assert_eq!(
        errors_without("sha256sum", nothing),
        "lab: missing: sha256sum; run scripts/install test\n"
    );
    let lacks_a_set = |cache: &Path| fs::remove_file(cache.join("qemu.packages")).unwrap();
    assert_eq!(
        errors_without("apt-get", lacks_a_set),
        "lab/fetch: missing: apt-get; run scripts/install test\nlab: the lab lacks one of: qemu, x86-6.12\n"
    );
}

#[test]
fn a_filled_cache_needs_nothing_to_fetch_with() {
    let lab = Lab::new(r#"printf '\n%s end 0\n' "$mark""#);
    let path = path_without(&lab, "apt-get");
    let mut command = lab.command(&["run", "xeon-x3320", "--", "hello"]);
    assert_eq!(command.env("PATH", path).status().unwrap().code(), Some(0));
}

#[test]
fn no_mirror_gets_the_reason() {
    let lab = Lab::new("exit 1");
    fs::remove_file(lab.cache().join("qemu.packages")).unwrap();
    let mut command = lab.command(&["run", "xeon-x3320", "--", "hello"]);
    // The port of "discard", where no program listens.
    let output = command.env("DEBIAN_MIRROR", "http://127.0.0.1:9/debian").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let printed = errors(&output);
    if printed.contains("missing:") {
        skip!(Tools, "{printed}");
    }
    let expected = "lab/fetch: cannot download qemu from http://127.0.0.1:9/debian (its suites bookworm-backports,bookworm); is there a network?\n";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn a_machine_that_qemu_cannot_be_gets_one_line() {
    let lab = Lab::new("exit 1");
    let output = lab.command(&["run", "amp-4x12", "--", "hello"]).output().unwrap();
    assert_eq!(
        errors(&output),
        "lab: amp-4x12: QEMU cannot be this machine: expected cores of one capacity, found {512, 1024}; --guest arm64 has others\n"
    );
}
