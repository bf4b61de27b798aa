//! Whole runs of `colocate schedule`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on has failed

mod run_support;

use run_support::{Scratch, await_that};
use std::path::PathBuf;
use std::process::Command;

/// A workload of so many shells that count, each marked with a word.
fn workload(scratch: &Scratch, jobs: u32, word: &str, count: u32) -> PathBuf {
    let script = format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done; echo {word}");
    let path = scratch.path("workload.toml");
    let text = format!(
        "version = 1\nquantum-ms = 20\n[[job]]\ncommand = [\"sh\", \"-c\", \"{script}\"]\ncopies = {jobs}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn schedule(scratch: &Scratch) -> Command {
    let mut command = scratch.colocate();
    command.arg("schedule");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    await_that(what, || holds().then_some(()));
}

/// Processes whose command line has the word in it.
fn called(word: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).starts_with("sh\0")
            && String::from_utf8_lossy(&line).contains(word)
    };
    entries.filter(has).collect()
}

#[test]
fn everybody_is_done() {
    let scratch = Scratch::new();
    let file = workload(&scratch, 5, "everybody", 20_000);
    for policy in ["os", "round-robin", "random:seed=3", "l1-dynamic", "bas", "fair", "perf-fair"] {
        let output =
            schedule(&scratch).args(["--json", "--policy", policy]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{policy}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout).matches("everybody").count(), 5, "{policy}");
        let report = text(&output.stderr);
        let report = &report[report.find('{').unwrap()..];
        let report: serde_json::Value = serde_json::from_str(report).unwrap();
        assert_eq!(report["jobs"].as_array().unwrap().len(), 5);
        assert!(
            report["jobs"].as_array().unwrap().iter().all(|job| job["status"] == 0),
            "{report}"
        );
    }
}

/// Killed by whatever means, it leaves nothing stopped: the programs go on, or have ended by the signal.
#[test]
fn nothing_stays_stopped() {
    let scratch = Scratch::new();
    for signal in ["-KILL", "-TERM", "-INT"] {
        let word = format!("stopped{signal}{}", std::process::id());
        let file = workload(&scratch, 6, &word, 2_000_000_000);
        let mut child =
            schedule(&scratch).args(["--policy", "round-robin"]).arg(&file).spawn().unwrap();
        wait_until("all have begun", || called(&word).len() == 6);
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        child.wait().unwrap();
        if signal == "-KILL" {
            // Each uses CPU time again.
            let used = |path: &PathBuf| {
                let stat = std::fs::read_to_string(path.join("stat")).unwrap();
                let field = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(11);
                field.unwrap().parse::<u64>().unwrap()
            };
            let left = called(&word);
            assert_eq!(left.len(), 6);
            let before: Vec<u64> = left.iter().map(used).collect();
            wait_until("all go on", || {
                left.iter().zip(&before).all(|(path, before)| used(path) > *before)
            });
            for path in &left {
                let pid = path.file_name().unwrap();
                assert!(Command::new("kill").arg("-9").arg(pid).status().unwrap().success());
            }
        }
        wait_until("all have ended", || called(&word).is_empty());
    }
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let scratch = Scratch::new();
    let file = scratch.path("bad.toml");
    for (content, wanted) in [
        ("version = 1\n[[job]]\ncommand = [\"true\"]\ncopys = 2\n", ":4: expected a workload"),
        ("version = 1\njob = []\n", "expected 1 to 500 jobs, found 0"),
        (
            "version = 1\n[[job]]\ncommand = [\"no-such-program\"]\n",
            "no-such-program: command not found",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = schedule(&scratch).arg(&file).output().unwrap();
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains(wanted) && said.trim_end().lines().count() == 1, "{said}");
    }
    std::fs::write(&file, "version = 1\n[[job]]\ncommand = [\"true\"]\n").unwrap();
    let output = schedule(&scratch).args(["--policy", "mmas"]).arg(&file).output().unwrap();
    assert!(text(&output.stderr).contains("what every job does alone"), "{}", text(&output.stderr));
}
