//! What the tests of `schedule` with programs that behave badly share.

use crate::run_support::{Scratch, await_that};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// By cgroups where this user may make some, and by signals.
pub const WAYS: [&[&str]; 2] = [&[], &["--only-signals"]];

/// A workload of shells. Each script is followed by what its table has beside it.
pub fn workload(scratch: &Scratch, head: &str, jobs: &[(&str, &str)]) -> PathBuf {
    let mut text = format!("version = 1\nquantum = \"20 ms\"\n{head}\n");
    for (script, more) in jobs {
        let _ = writeln!(text, "[[job]]\ncommand = [\"sh\", \"-c\", '{script}']\n{more}");
    }
    let path = scratch.path("workload.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// `colocate schedule`, its output going to the file `out`; jobs that wait are stopped, if `way` does not say what they do.
pub fn start(scratch: &Scratch, way: &[&str], file: &Path) -> Child {
    let mut command = scratch.colocate();
    let stop: &[&str] = if way.contains(&"--waiting") { &[] } else { &["--waiting", "stop"] };
    command.args(["schedule", "--no-guard", "--policy", "round-robin"]).args(stop);
    command.args(way).arg(file);
    let out = std::fs::File::create(scratch.path("out")).unwrap();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(out).stderr(said).spawn().unwrap()
}

pub fn out(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("out")).unwrap()
}

pub fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    await_that(what, || holds().then_some(()));
}

/// A word that no other test has in a command line.
pub fn unique(purpose: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{purpose}-{}-{number}-", std::process::id())
}

/// Shells whose command line has the word in it.
pub fn called(word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.starts_with("sh\0") && line.contains(word)
    };
    pids.filter(has).collect()
}

/// State letter and clock ticks of CPU time of a process; `None` if it is gone.
pub fn stat(pid: i32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields[0].chars().next()?, fields[11].parse().ok()?))
}

pub fn signal(name: &str, pid: i32) {
    let _ = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// A script that works until the file is there.
pub fn until(file: &Path) -> String {
    format!("while [ ! -e {} ]; do :; done", file.display())
}
