//! Whole runs of `colocate pages` and `colocate pages move` on this kernel. Moving between nodes is shown in
//! the lab's guests, which have several.
#![allow(unsafe_code)] // a child that installs a seccomp filter before it executes colocate

use colocate_testing::skip::{Missing, Requirement, root};
use colocate_testing::{need, skip, wait_until, within};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_colocate");

/// A process that waits to be examined. It ends with the test.
struct Waiting(Child);

impl Waiting {
    fn new() -> Self {
        let mut command = Command::new("sh");
        // It says something once it is up, so that it is not seen while it is still being loaded.
        command.args(["-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut byte = [0];
        let output = child.stdout.as_mut().unwrap();
        within("a byte of the shell", || std::io::Read::read_exact(output, &mut byte)).unwrap();
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// An address range of its stack, as the kernel writes it.
    fn stack(&self) -> String {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        line.split(' ').next().unwrap().to_owned()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn colocate(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// A kernel that reports where pages are.
fn numa() -> Result<(), Missing> {
    let output = colocate(&["pages", &std::process::id().to_string()]);
    Requirement::Numa.if_there(output.status.code() != Some(3), said(&output))
}

/// The nodes with memory.
fn nodes() -> String {
    let path = "/sys/devices/system/node/has_memory";
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

fn checked(output: &Output, schema: &str) -> Value {
    assert!(output.status.success(), "{}: {}", output.status, said(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(schema);
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator
        .iter_errors(&report)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert_eq!(wrong, [""; 0]);
    report
}

fn refused(words: &[&str], expected: &str) {
    let output = colocate(words);
    assert_eq!(output.status.code(), Some(125), "{words:?}: {}", said(&output));
    assert_eq!(said(&output), format!("colocate: {expected}"));
    assert!(output.stdout.is_empty());
}

#[test]
fn the_memory_of_a_process_is_somewhere() {
    need!(numa());
    let waiting = Waiting::new();
    let report = checked(&colocate(&["pages", &waiting.pid(), "--json"]), "pages.json");
    assert_eq!(report["name"], "sh");
    let bytes = |on: &Value| -> u64 {
        on.as_array().unwrap().iter().map(|on| on["bytes"].as_u64().unwrap()).sum()
    };
    let mappings = report["mappings"].as_array().unwrap();
    assert!(bytes(&report["nodes"]) > 0);
    assert_eq!(bytes(&report["nodes"]), mappings.iter().map(|m| bytes(&m["nodes"])).sum::<u64>());
    let stack = mappings.iter().find(|mapping| mapping["what"] == "[stack]").unwrap();
    assert!(bytes(&stack["nodes"]) > 0);
    assert_eq!(report["tasks"][0]["tid"], waiting.0.id());
    assert_ne!(report["tasks"][0]["may_use_nodes"], serde_json::json!([]));

    let text = String::from_utf8(colocate(&["pages", &waiting.pid()]).stdout).unwrap();
    assert!(text.starts_with(&format!("process {} (sh), may use node", waiting.pid())), "{text}");
    assert!(text.contains("[stack]"), "{text}");
}

/// With one node, everything is there already.
#[test]
fn what_is_there_stays_there() {
    need!(numa());
    let waiting = Waiting::new();
    let first = nodes().split(['-', ',']).next().unwrap().to_owned();
    let words =
        ["pages", "move", &waiting.pid(), "--range", &waiting.stack(), "--to", &first, "--json"];
    let report = checked(&colocate(&words), "move.json");
    let pages = report["pages"].as_object().unwrap();
    let count = |name: &str| pages[name].as_u64().unwrap();
    assert!(count("already_there") + count("moved") > 0, "{report}");
    assert_eq!(count("not_reached"), 0);
    // All pages of the range have one fate.
    let stack = waiting.stack();
    let (start, end) = stack.split_once('-').unwrap();
    let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let expected = (address(end) - address(start)) / report["page_bytes"].as_u64().unwrap();
    assert_eq!(pages.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), expected);
    if nodes() == "0" {
        assert_eq!(count("moved"), 0);
    }

    let words = ["pages", "move", &waiting.pid(), "--all", "--to", &first, "--dry-run", "--json"];
    let report = checked(&colocate(&words), "move.json");
    assert_eq!((report["dry_run"].as_bool(), report["end"].as_str()), (Some(true), Some("done")));
    // The kernel's own pages, [vdso] for one.
    assert!(report["pages"]["unmovable"].as_u64().unwrap() > 0, "{report}");
    let text = String::from_utf8(colocate(&words[..7]).stdout).unwrap();
    assert!(text.contains("would move "), "{text}");
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    need!(numa());
    let waiting = Waiting::new();
    let pid = waiting.pid();
    let nobody = i32::MAX.to_string();
    let none = format!("expected a running process, found none with the number {nobody}");
    refused(&["pages", &nobody], &none);
    refused(&["pages", "move", &nobody, "--all", "--to", "0"], &none);
    refused(
        &["pages", "move", &pid, "--range", "1000-2000", "--to", "0"],
        &format!(
            "expected a range with memory of process {pid} in it, found nothing mapped in 1000-2000"
        ),
    );
    if nodes() == "0"
        && std::fs::read_to_string("/sys/devices/system/node/online").unwrap() == "0\n"
    {
        refused(
            &["pages", "move", &pid, "--all", "--to", "1"],
            "node 1 is not online: this machine has only node 0",
        );
        refused(
            &["pages", "move", &pid, "--all", "--to", "interleave"],
            "expected two nodes with memory that the process may use, found only 0",
        );
    }
}

#[test]
fn a_process_that_has_ended_has_no_memory() {
    need!(numa());
    // Dead, but not reaped by us, so that its number stays its own.
    let mut waiting = Waiting::new();
    waiting.0.kill().unwrap();
    let stat = format!("/proc/{}/stat", waiting.pid());
    let dead = || std::fs::read_to_string(&stat).unwrap().contains(") Z ");
    wait_until("the end of the killed process", dead);
    let output = colocate(&["pages", "move", &waiting.pid(), "--all", "--to", "0"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("which has none: a kernel thread, or ended"),
        "{}",
        said(&output)
    );
}

#[test]
fn wrong_usage_is_refused() {
    for words in [
        &["pages", "move", "1", "--to", "0"][..],
        &["pages", "move", "1", "--all"],
        &["pages", "move", "1", "--all", "--range", "1-2", "--to", "0"],
        &["pages", "move", "1", "--range", "2-1", "--to", "0"],
        &["pages", "move", "1", "--all", "--to", "node0"],
        &["pages", "move", "1", "--all", "--to", "-1"],
        &["pages", "move", "0", "--all", "--to", "0"],
        &["pages", "-1"],
        &["pages"],
    ] {
        assert_eq!(colocate(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn another_users_process_is_left_alone() {
    need!(numa());
    need!(root());
    let waiting = Waiting::new();
    for words in [&["pages"][..], &["pages", "move", "--all", "--to", "0"]] {
        let mut command = Command::new(PROGRAM);
        // The number of the user nobody on Debian; it needs no name.
        command.args(words).arg(waiting.pid()).uid(65_534).gid(65_534);
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => skip!(OtherUser, "user 65534 cannot execute {PROGRAM}: {error}"),
        };
        assert_eq!(output.status.code(), Some(125));
        let said = said(&output);
        assert!(said.contains("may not be looked at: it is another user's"), "{said}");
    }
}

/// The capability that the message names is enough.
#[test]
fn the_capability_that_is_named_lifts_it() {
    need!(numa());
    need!(root());
    let waiting = Waiting::new();
    let with = |capability: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", "--inh-caps", capability]);
        command.args(["--ambient-caps", capability, PROGRAM]).args(words).arg(waiting.pid());
        command.output()
    };
    let Ok(without) = with("+sys_nice", &["pages"]) else {
        skip!(Tools, "setpriv is not installed");
    };
    if !said(&without).contains("or with CAP_SYS_PTRACE") {
        skip!(OtherUser, "user 65534 cannot execute {PROGRAM}: {}", said(&without));
    }
    for words in [&["pages"][..], &["pages", "move", "--all", "--to", "0"]] {
        let output = with("+sys_ptrace", words).unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
}

/// Lets `command` run with a seccomp filter that answers `move_pages` with `errno`.
fn without_move_pages(command: &mut Command, errno: i32) -> &mut Command {
    let call = u32::try_from(libc::SYS_move_pages).unwrap();
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
fn a_filter_is_named() {
    let waiting = Waiting::new();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut command = Command::new(PROGRAM);
        command.args(["pages", "move", &waiting.pid(), "--all", "--to", "0"]);
        let output = match without_move_pages(&mut command, errno).output() {
            Ok(output) => output,
            Err(error) => skip!(Seccomp, "this kernel has no seccomp filters: {error}"),
        };
        assert_eq!(output.status.code(), Some(3));
        let said = said(&output);
        assert!(said.starts_with("colocate: move_pages: "), "{said}");
        assert!(said.contains("a seccomp filter is in force here"), "{said}");
    }
}
