//! Whole runs of `colocate restore`.

use crate::run_support::{Scratch, child_called, masks, original};
use colocate_testing::skip::two_pus;
use colocate_testing::{EndsInTime, need};
use std::io::Read;
use std::process::{Command, Output, Stdio};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn restore(scratch: &Scratch, options: &[&str]) -> Output {
    scratch.colocate().arg("restore").args(options).output().unwrap()
}

/// What `restore --json` printed, after checking it against its schema.
fn json(output: &Output) -> serde_json::Value {
    let schema = include_str!("../../../../docs/schemas/restore.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let found = serde_json::from_slice(&output.stdout).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?} in {found}");
    found
}

#[test]
fn there_is_nothing_to_undo() {
    let scratch = Scratch::new();
    let output = restore(&scratch, &["--json"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    json(&output);
}

/// Guardian and colocate are both killed: the threads stay where they are until `restore`.
#[test]
fn what_both_left_behind_is_undone() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    need!(two_pus());
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
    command.arg(threads).args(["0", "3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    let narrow = |mask: &String| *mask != original();
    scratch.await_placed(4);
    // Waiting for a child closes its standard input, and the program would end with that.
    let input = child.stdin.take();
    // A colocate at work undoes its own.
    let output = restore(&scratch, &[]);
    assert!(text(&output.stdout).contains("its colocate is at work"), "{}", text(&output.stdout));
    assert!(masks(pid).iter().all(narrow));

    let guardian = child_called(&child, "colocate-guard").to_string();
    assert!(Command::new("kill").args(["-9", &guardian]).status().unwrap().success());
    child.kill().unwrap();
    child.ended();
    assert_eq!(masks(pid).iter().filter(|mask| narrow(mask)).count(), 4);
    assert_eq!(scratch.journals().len(), 1);

    let output = restore(&scratch, &["--dry-run"]);
    assert_eq!(text(&output.stdout).matches("would be given").count(), 4);
    assert!(masks(pid).iter().all(narrow));

    let output = restore(&scratch, &["--json"]);
    assert!(output.status.success());
    let done = json(&output);
    let journals = done.as_array().unwrap();
    let ours = journals.iter().find(|journal| journal["threads"].as_array().unwrap().len() == 4);
    assert!(ours.is_some(), "{done}");
    assert!(masks(pid).iter().all(|mask| *mask == original()), "{:?}", masks(pid));
    assert_eq!(scratch.journals().len(), 0);
    drop(input);
}

/// A journal that a crash has spoilt is said to be so, removed, and stops no run.
#[test]
fn a_spoilt_journal_is_removed() {
    use std::os::unix::fs::DirBuilderExt;
    let scratch = Scratch::new();
    let dir = scratch.path("runtime/colocate");
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    // Linux's largest process number is 4194304: nobody's.
    std::fs::write(dir.join("run-4194305-2.journal"), b"\xff\x00 half a li").unwrap();

    let output = scratch.run(&["--policy", "scatter"]).arg("true").output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "", "it is nobody's business but restore's");

    let output = restore(&scratch, &["--dry-run"]);
    assert!(text(&output.stdout).contains("not a journal: expected colocate-journal 7"));
    let spoilt = json(&restore(&scratch, &["--dry-run", "--json"]));
    assert!(spoilt.to_string().contains("expected colocate-journal 7"), "{spoilt}");
    assert_eq!(scratch.journals().len(), 1);
    let output = restore(&scratch, &[]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("not a journal, removed"), "{}", text(&output.stdout));
    assert_eq!(scratch.journals().len(), 0);
}

/// What another colocate understands, or is about to write, is left alone.
#[test]
fn journals_of_others_are_left() {
    use std::os::unix::fs::DirBuilderExt;
    let scratch = Scratch::new();
    let dir = scratch.path("runtime/colocate");
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    std::fs::write(dir.join("run-4194305-2.journal"), "colocate-journal 8\nunheard of\n").unwrap();
    let output = restore(&scratch, &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stdout).contains("left alone: expected"), "{}", text(&output.stdout));
    assert_eq!(scratch.journals().len(), 1);
    std::fs::remove_file(dir.join("run-4194305-2.journal")).unwrap();

    // We live, and ours is still empty; the time of our start is the 20th field after our name.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let ours = dir.join(format!("run-{}-{start}.journal", std::process::id()));
    std::fs::write(&ours, "").unwrap();
    let output = restore(&scratch, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("its colocate is at work"), "{}", text(&output.stdout));
    assert!(ours.exists());
}
