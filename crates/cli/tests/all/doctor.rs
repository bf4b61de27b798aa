//! `colocate doctor`, whole runs: here, as another user, under seccomp filters, with few files.

#![allow(unsafe_code)] // a child that installs a seccomp filter before it executes colocate

use crate::run_support::copy_program;
use colocate_testing::skip::root;
use colocate_testing::{need, skip};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_colocate");

/// `colocate doctor`, with no emulator to be found.
fn doctor(cache: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("doctor").env("COLOCATE_CACHE", cache).env_remove("XDG_RUNTIME_DIR");
    command
}

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The capability called `name`.
fn capability<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    let sections = diagnosis["sections"].as_array().unwrap();
    let mut all = sections.iter().flat_map(|s| s["capabilities"].as_array().unwrap());
    all.find(|capability| capability["name"] == name).unwrap()
}

fn why(diagnosis: &Value, name: &str) -> String {
    capability(diagnosis, name)["cause"]["why"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_exit_status_and_both_forms_agree() {
    let cache = empty();
    let output = doctor(cache.path()).arg("--json").output().unwrap();
    let diagnosis = json(&output);
    assert_eq!(diagnosis["version"], 2);
    let works = diagnosis["works"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if works { 0 } else { 3 }));
    assert_eq!(capability(&diagnosis, "affinity")["status"], "yes");

    let output = doctor(cache.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let first = if works { "colocate works here" } else { "colocate does not work here" };
    assert!(text.starts_with(first), "{text}");
    for section in diagnosis["sections"].as_array().unwrap() {
        for capability in section["capabilities"].as_array().unwrap() {
            let name = capability["name"].as_str().unwrap();
            assert!(text.contains(&format!("  {name} ")), "{name}: {text}");
            let explained = capability["cause"].is_object();
            assert_eq!(explained, capability["status"] != "yes", "{capability}");
        }
    }
}

#[test]
fn the_json_has_the_documented_shape() {
    let schema = include_str!("../../../../docs/schemas/doctor.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let cache = empty();
    let diagnosis = json(&doctor(cache.path()).arg("--json").output().unwrap());
    let wrong: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&diagnosis)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn quiet_leaves_out_what_works() {
    let cache = empty();
    let output = doctor(cache.path()).arg("--quiet").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("\n   yes  "), "{text}");
    // There is no emulator in an empty cache.
    let missing = cache.path().join("qemu");
    assert!(text.contains(&missing.display().to_string()), "{text}");
}

#[test]
fn json_and_quiet_exclude_each_other() {
    let output = doctor(empty().path()).args(["--json", "--quiet"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let output = doctor(empty().path()).args(["-o", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("colocate: cannot write /nowhere/at/all"), "{said}");
}

#[test]
fn another_user_gets_a_lower_tier_and_the_commands_for_more() {
    need!(root());
    let cache = empty();
    let mut command = doctor(cache.path());
    // The number of the user nobody on Debian; it needs no name.
    command.arg("--json").uid(65_534).gid(65_534);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => skip!(OtherUser, "user 65534 cannot execute {PROGRAM}: {error}"),
    };
    let diagnosis = json(&output);
    assert_eq!(diagnosis["tier"], "own-process");
    assert_eq!(capability(&diagnosis, "affinity")["status"], "yes");
    assert_eq!(capability(&diagnosis, "other-tasks")["status"], "no");
    let fix = &capability(&diagnosis, "other-tasks")["cause"]["fixes"][0]["command"];
    assert_eq!(fix, &format!("sudo {PROGRAM} ARGUMENTS"));
    // Whom the capability gives power is said, and how to give it to few.
    let next = diagnosis["next"].as_array().unwrap();
    let fix = &next[0]["fixes"][0];
    let give = format!(
        "sudo chgrp GROUP {0} && sudo chmod 0750 {0} && sudo setcap cap_perfmon+ep {0}",
        PROGRAM
    );
    assert_eq!(fix["command"], give);
    assert!(fix["note"].as_str().unwrap().contains("everyone who may execute the file"), "{fix}");
    assert_eq!(next.len(), 2);
}

/// A program with file capabilities is closed to others of its user; those that it starts are not.
#[test]
fn the_capabilities_that_it_advises_take_nothing_away() {
    need!(root());
    let folder = empty();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("colocate");
    copy_program(Path::new(PROGRAM), &program);
    let given = Command::new("setcap").arg("cap_perfmon+ep").arg(&program).status();
    if !given.as_ref().is_ok_and(ExitStatus::success) {
        skip!(FileCapabilities, "setcap: {given:?}");
    }
    let examined = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["doctor", "--json"]).env("COLOCATE_CACHE", folder.path());
        json(&command.uid(65_534).gid(65_534).output().unwrap())
    };
    let plain = folder.path().join("plain");
    copy_program(Path::new(PROGRAM), &plain);
    let (without, with) = (examined(&plain), examined(&program));
    for name in ["affinity", "thread-creation", "mix", "live-code", "page-scan"] {
        let status = |diagnosis| capability(diagnosis, name)["status"].clone();
        let refused = status(&without) != "yes";
        assert!(refused || status(&with) == "yes", "{name}: {}", why(&with, name));
    }
}

/// Lets `command` run with a seccomp filter that answers `perf_event_open` with `errno`.
fn without_perf(command: &mut Command, errno: i32) -> &mut Command {
    without(libc::SYS_perf_event_open, command, errno)
}

/// Lets `command` run with a seccomp filter that answers a system call with `errno`.
fn without(call: libc::c_long, command: &mut Command, errno: i32) -> &mut Command {
    let call = u32::try_from(call).unwrap();
    let answer = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap();
    let step =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    // Load the number of the call, the first word of `struct seccomp_data`, and compare.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: takes numbers only.
        let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: `filter` points to four instructions, which live through the call.
        let set = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        if quiet < 0 || set < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec only two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(install) }
}

#[test]
fn filters_are_named_and_distinguished_from_missing_kernels() {
    let cache = empty();
    for (errno, name) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
        let mut command = doctor(cache.path());
        let output = match without_perf(command.arg("--json"), errno).output() {
            Ok(output) => output,
            Err(error) => skip!(Seccomp, "this kernel has no seccomp filters: {error}"),
        };
        let diagnosis = json(&output);
        if !Path::new("/proc/sys/kernel/perf_event_paranoid").exists() {
            skip!(Perf, "this kernel has no perf events");
        }
        // Nothing is left to watch with.
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(diagnosis["works"], false);
        for (ability, status) in [("mix", "no"), ("counters", "no"), ("thread-creation", "partly")]
        {
            assert_eq!(capability(&diagnosis, ability)["status"], status);
            let why = why(&diagnosis, ability);
            assert!(why.contains("seccomp filter"), "{why}");
            assert!(why.contains(&format!("answers perf_event_open with {name}")), "{why}");
        }
        // What the filter lets through still works.
        assert_eq!(capability(&diagnosis, "affinity")["status"], "yes");
    }
}

/// As `doctor` finds it: a thread of this user's own belongs to no other one.
#[test]
fn run_says_that_a_filter_refuses_to_place() {
    let cache = empty();
    let mut command = Command::new(PROGRAM);
    command.args([
        "run",
        "--policy",
        "round-robin",
        "--no-guard",
        "--settle-ms",
        "0",
        "--",
        "sleep",
        "0.3",
    ]);
    command.env("XDG_CACHE_HOME", cache.path()).env("XDG_RUNTIME_DIR", cache.path());
    let output = without(libc::SYS_sched_setaffinity, &mut command, libc::EPERM).output();
    let Ok(output) = output else { skip!(Seccomp, "this kernel has no seccomp filters") };
    let said = String::from_utf8_lossy(&output.stderr);
    let why = "a seccomp filter answers sched_setaffinity with EPERM";
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with(&format!("colocate: no thread can be placed: {why}")), "{said}");
    assert!(!said.contains("another user"), "{said}");
}

#[test]
fn few_files_are_reported_with_both_limits() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 200 && exec \"$0\" doctor --json", PROGRAM])
        .output()
        .unwrap();
    let diagnosis = json(&output);
    assert_eq!(capability(&diagnosis, "files")["status"], "partly");
    let why = why(&diagnosis, "files");
    assert!(why.ends_with("found limits of 200 (soft) and 200 (hard)"), "{why}");
}

#[test]
fn a_journal_that_cannot_be_kept_is_explained() {
    let (cache, runtime) = (empty(), empty());
    // Where there is a folder of our own, it is used.
    let output =
        doctor(cache.path()).arg("--json").env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap();
    let found = capability(&json(&output), "journal")["found"].as_str().unwrap().to_owned();
    let folder = runtime.path().join("colocate");
    assert_eq!(found, format!("{} is ours", folder.display()));
    assert!(folder.is_dir());
}
