//! Whole runs of `colocate top` beside programs whose phases are known.

use crate::run_support::{Scratch, await_that, children, exclusive, masks, workload};
use colocate_observe::sample::Clocks;
use colocate_observe::spin::{DEFAULT_RATE_HZ, SpinSampler};
use colocate_testing::printed::{conforms, printed, refusal};
use colocate_testing::skip::Missing;
use colocate_testing::{EndsInTime, need, skip, within};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const SCHEMA: &str = include_str!("../../../../docs/schemas/top.json");

/// A program that is ended with the test.
struct Program(Child);

impl Program {
    /// tests/programs/phases.c with these arguments.
    fn phases(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        Self(command.args(arguments).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn signal(&self, name: &str) {
        signal(name, self.pid());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// workloads/spin/waits.c, compiled; `None`, with a line, where that cannot be.
fn waits(scratch: &Scratch) -> Result<PathBuf, Missing> {
    workload(scratch, "spin/waits.c")
}

fn signal(name: &str, pid: i32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// `colocate top` with its standard output.
fn top(options: &[&str]) -> (Program, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    let mut child = command
        .arg("top")
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (Program(child), out)
}

/// The next table.
fn table(out: &mut impl BufRead) -> Value {
    let mut line = String::new();
    let read = within("a further table", || out.read_line(&mut line)).unwrap();
    assert!(read > 0, "no further table");
    let table = serde_json::from_str(&line).unwrap();
    conforms(&table, SCHEMA);
    table
}

/// The row of a process, if it is there.
fn row(table: &Value, pid: i32) -> Option<Value> {
    table["rows"].as_array().unwrap().iter().find(|row| row["pid"] == pid).cloned()
}

/// The first row of a process from now on of which something holds.
fn await_row(
    out: &mut impl BufRead,
    pid: i32,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    await_that(what, || row(&table(out), pid).filter(|row| holds(row)))
}

/// A thousand threads sleep. One works, then three, then none; then one wakes in a process that has slept. Nothing is
/// changed in it, and when it has ended top ends.
#[test]
fn phases_of_a_process_with_a_thousand_threads() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let program = Program::phases(&program, &["1000", "1:0", "3:0", "0:0", "1:0"]);
    let pid = program.pid();
    // With so many, threads are seldom listed again.
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    await_that("all threads are there", || (threads() == 1003).then_some(()));
    let (mut colocate, mut out) = top(&["-p", &pid.to_string(), "-d", "100ms", "--json"]);
    let in_phase = |phase: &'static str| move |row: &Value| row["phase"] == phase;
    let serial = await_row(&mut out, pid, "serial", |row| {
        row["phase"] == "serial" && row["threads"] == 1003
    });
    assert_eq!((&serial["name"], &serial["processes"]), (&Value::from("phases"), &Value::from(1)));
    let before = masks(pid);
    program.signal("-USR1");
    let parallel = await_row(&mut out, pid, "parallel", in_phase("parallel"));
    assert!(parallel["runnable"].as_f64().unwrap() > 1.0, "{parallel}");
    program.signal("-USR1");
    await_row(&mut out, pid, "asleep", in_phase("asleep"));
    program.signal("-USR1");
    let woken = await_row(&mut out, pid, "serial again", in_phase("serial"));
    for phase in ["serial_ns", "parallel_ns", "asleep_ns"] {
        assert!(woken[phase].as_u64().unwrap() > 0, "{woken}");
    }
    assert_eq!(masks(pid), before);
    drop(program);
    let last = await_that("it is gone", || {
        let table = table(&mut out);
        row(&table, pid).is_none().then_some(table)
    });
    assert_eq!(last["gone"], Value::from(vec![pid]));
    assert!(colocate.0.ended().success());
}

/// Two beside each other below a shell are one row, and a program that a process executes goes on in its row.
#[test]
fn a_tree_is_one_row() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let path = program.to_str().unwrap().to_owned();
    let script = format!(
        "{path} 0 1:60000 & one=$!; {path} 0 1:60000 & read x; kill $one $!; exec {path} 5 1:0"
    );
    let mut shell = Command::new("sh");
    let mut shell = Program(
        shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap(),
    );
    let pid = shell.pid();
    await_that("both run", || (children(shell.0.id()).len() == 2).then_some(()));
    let (_colocate, mut out) = top(&["-p", &pid.to_string(), "-d", "100ms", "--json"]);
    let tree = await_row(&mut out, pid, "two of them run", |row| row["phase"] == "parallel");
    assert_eq!((&tree["processes"], &tree["name"]), (&Value::from(3), &Value::from("sh")));
    drop(shell.0.stdin.take());
    let after = await_row(&mut out, pid, "the program that it executes", |row| {
        row["name"] == "phases" && row["processes"] == 1
    });
    assert_eq!(after["threads"], 6, "{after}");
}

/// Where nobody says which processes, those are shown that use CPU time; a condition leaves the others out.
#[test]
fn processes_that_are_shown() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let [works, sleeps] = ["1:0", "0:0"].map(|plan| Program::phases(&program, &["0", plan]));
    let (_all, mut out) = top(&["-d", "200ms", "--json"]);
    let working = await_row(&mut out, works.pid(), "it uses CPU time", |_| true);
    assert!(working["ran_ns"].as_u64().unwrap() > 0);
    let (_named, mut out) = top(&["--name", "phase", "-d", "100ms", "--json"]);
    let of_name = table(&mut out);
    assert!(row(&of_name, sleeps.pid()).is_some() && row(&of_name, works.pid()).is_some());
    assert!(of_name["rows"].as_array().unwrap().iter().all(|row| row["name"] == "phases"));
    let ran: Vec<u64> = of_name["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ran_ns"].as_u64().unwrap())
        .collect();
    assert!(ran.is_sorted_by(|one, next| one >= next), "{of_name}");
    let (_user, mut out) = top(&["-u", "4294967294", "-d", "100ms", "--json"]);
    assert_eq!(table(&mut out)["rows"], Value::from(Vec::<Value>::new()));
}

/// Of two threads one works and one waits for it in a loop, in a process that a shell has created and, later, in one that
/// executes another program: the row is serial, and parallel without samples.
#[test]
fn spinning_threads_are_not_runnable() {
    let _exclusive = exclusive();
    if let Err(why) = SpinSampler::new(DEFAULT_RATE_HZ, &Clocks::here().unwrap()) {
        skip!(Perf, "{why}");
    }
    let scratch = Scratch::new();
    let program = need!(waits(&scratch));
    // Who executes it has worked before, so it is sampled by then.
    let script = format!(
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; {0} flag 60000 & read x; kill $!; wait; exec {0} spinlock 60000",
        program.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = Program(command.spawn().unwrap());
    let pid = shell.pid();
    await_that("the program runs", || children(shell.0.id()).first().copied());
    let (_colocate, mut out) = top(&["-p", &pid.to_string(), "-d", "200ms", "--json"]);
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let one_waits = |name: &'static str, processes: u32| {
        move |row: &Value| {
            row["name"] == name
                && row["processes"] == processes
                && row["phase"] == "serial"
                && number(row, "spinning") > 0.6
                && number(row, "runnable") < 1.4
        }
    };
    await_row(&mut out, pid, "one waits in a loop", one_waits("sh", 2));
    drop(shell.0.stdin.take());
    await_row(&mut out, pid, "one waits in what was executed", one_waits("waits", 1));
    let unseen = ["-p", &pid.to_string(), "-d", "200ms", "--json", "--spin-rate", "0"];
    let (_unseen, mut out) = top(&unseen);
    let both = await_row(&mut out, pid, "both are runnable", |row| row["phase"] == "parallel");
    assert_eq!(both["spinning"], Value::Null);
}

/// A heading and a line; with several tables the phases at the end.
#[test]
fn plain_lines() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let program = Program::phases(&program, &["2", "2:0"]);
    let pid = program.pid().to_string();
    let lines = |options: &[&str]| {
        let mut colocate = Command::new(env!("CARGO_BIN_EXE_colocate"));
        let output =
            colocate.args(["top", "-p", &pid, "-d", "200ms"]).args(options).output().unwrap();
        printed(&output).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let once = lines(&["-n", "1"]);
    assert_eq!(once.len(), 2, "{once:?}");
    let head: Vec<&str> = once[0].split_whitespace().collect();
    assert_eq!(&head[2..7], ["PID", "threads", "runnable", "spinning", "phase"]);
    let cells: Vec<&str> = once[1].split_whitespace().collect();
    assert_eq!((cells[1], cells[2], *cells.last().unwrap()), (&*pid, "4", "phases"));
    let thrice = lines(&["-n", "3"]);
    assert_eq!(thrice.iter().filter(|line| line.contains("runnable  spinning  phase")).count(), 1);
    assert!(thrice.iter().any(|line| line.starts_with("phases, and the mean")), "{thrice:?}");
    assert!(thrice.last().unwrap().starts_with(&format!("phases {pid}")), "{thrice:?}");
}

/// Ctrl-C ends it although the next table is far off, and so does a reader that goes away.
#[test]
fn it_ends_when_its_reader_ends() {
    let me = std::process::id().to_string();
    let (mut colocate, mut out) = top(&["-p", &me, "-d", "3600s"]);
    await_that("signals are caught", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", colocate.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        (u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0).then_some(())
    });
    colocate.signal("-INT");
    assert!(colocate.0.ended().success());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert!(text.lines().nth(1).is_some_and(|line| line.contains(&me)), "{text:?}");
    let (mut colocate, mut out) = top(&["-p", &me, "-d", "10ms"]);
    within("the head of the table", || out.read_line(&mut text)).unwrap();
    drop(out);
    assert!(colocate.0.ended().success());
}

#[test]
fn refusals() {
    let refused = |options: &[&str], code| {
        let mut colocate = Command::new(env!("CARGO_BIN_EXE_colocate"));
        refusal(&colocate.arg("top").args(options).output().unwrap(), code)
    };
    assert!(refused(&["-p", "2147483647"], 125).contains("no process 2147483647"));
    assert!(refused(&["-u", "no such user"], 125).contains("no user"));
    assert!(refused(&["-d", "5ms"], 2).contains("a time from 10ms to 1h, such as 200ms or 1"));
    for interval in ["0.02", "20ms", ".02s"] {
        let mut colocate = Command::new(env!("CARGO_BIN_EXE_colocate"));
        let done = colocate.args(["top", "-n", "1", "-d", interval]).output().unwrap();
        assert!(done.status.success(), "{interval}");
    }
    for wrong in [["-p", "0"], ["-p", "x"], ["-n", "0"], ["--spin-rate", "10001"]] {
        refused(&wrong, 2);
    }
}
