//! `--sharing` of `run`, and `top --matrix`: which threads use the same memory.

use crate::run_support::{Scratch, child_called, text, workload};
use crate::schedule_support::{signal, wait_until};
use colocate_testing::printed::{conforms, refusal};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{EndsInTime, need, skip};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const SCHEMA: &str = include_str!("../../../../docs/schemas/report.json");
const MATRIX: &str = include_str!("../../../../docs/schemas/top-matrix.json");

/// Threads of the pattern, and cache lines that each writes for the next one.
const RING: [&str; 4] = ["ring", "4", "30000", "8192"];

/// workloads/communication/patterns.c, compiled.
fn patterns(scratch: &Scratch) -> Result<PathBuf, Missing> {
    let why = "accesses are sampled on x86-64 only";
    Requirement::X86_64.if_there(cfg!(target_arch = "x86_64"), why)?;
    workload(scratch, "communication/patterns.c")
}

/// Whether events are denied here: then `evidence` says why.
fn is_denied(report: &Value) -> bool {
    let evidence = report["evidence"].as_array().unwrap();
    let sharing = evidence.iter().find(|it| it["source"] == "sharing").unwrap();
    sharing["backend"].is_null()
}

/// Of the four threads in a ring, the seconds that the four pairs of neighbours share, and the two others.
#[test]
fn neighbours_share() {
    let scratch = Scratch::new();
    let program = need!(patterns(&scratch));
    let file = scratch.path("report.json");
    let mut run = scratch.colocate();
    run.args(["run", "--policy", "os", "--sharing", "--json", "-o"]).arg(&file).arg("--");
    let output = run.arg(program).args(RING).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    conforms(&report, SCHEMA);
    if is_denied(&report) {
        skip!(Perf, "perf events are denied");
    }
    let mut shared = [[0.0; 4]; 4];
    for one in report["sharing"].as_array().unwrap() {
        let order = |of: &str| usize::try_from(one[of]["order"].as_u64().unwrap()).unwrap();
        let (a, b) = (order("task"), order("with"));
        let (a, b) = (a.min(b), a.max(b));
        shared[a][b] += one["time_ns"].as_f64().unwrap() / 1e9;
    }
    let neighbours = shared[0][1] + shared[1][2] + shared[2][3] + shared[0][3];
    let others = shared[0][2] + shared[1][3];
    assert!(neighbours > 6.0 * others && neighbours > 0.03, "{shared:?}");
}

/// A program that is ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_heat_map_of_a_running_program() {
    let scratch = Scratch::new();
    let program = need!(patterns(&scratch));
    let mut ring = Command::new(program);
    let ring = ring.args(["ring", "4", "1000000", "4096"]).stdout(Stdio::null()).spawn().unwrap();
    let ring = Program(ring);
    let pid = ring.0.id().to_string();
    let top = |options: &[&str]| {
        let mut top = scratch.colocate();
        top.args(["top", "--matrix", "-n", "2", "-p", &pid]).args(options).output().unwrap()
    };
    let output = top(&["--json"]);
    if !output.status.success() {
        skip!(Perf, "{}", text(&output.stderr));
    }
    let lines = text(&output.stdout);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| conforms(line, MATRIX));
    let last = lines.last().unwrap();
    assert_eq!(last["threads"].as_array().unwrap().len(), 4);
    if last["sharing"].is_null() {
        skip!(Perf, "{}", text(&output.stderr));
    }
    assert!(!last["sharing"].as_array().unwrap().is_empty(), "{last}");
    let output = top(&[]);
    let shown = text(&output.stdout);
    assert!(shown.contains("pairs of threads communicate") && shown.contains("██"), "{output:?}");
}

#[test]
fn a_matrix_needs_processes() {
    let scratch = Scratch::new();
    let mut top = scratch.colocate();
    let output = top.args(["top", "--matrix"]).output().unwrap();
    assert!(refusal(&output, 2).contains("expected -p"), "{}", text(&output.stderr));
}

/// A server's first process communicates with none; those that it has created do.
#[test]
fn a_heat_map_has_what_a_process_has_created() {
    let scratch = Scratch::new();
    let program = need!(patterns(&scratch));
    let script = format!("{} ring 4 1000000 4096 & wait", program.display());
    let mut parent = Command::new("sh");
    let parent = parent.args(["-c", &script]).stdout(Stdio::null()).process_group(0);
    let parent = Program(parent.spawn().unwrap());
    let created = child_called(&parent.0, "patterns");
    let (pid, user) = (parent.0.id().to_string(), std::fs::metadata("/proc/self").unwrap().uid());
    for words in [&["-p", &pid][..], &["-u", &user.to_string(), "--name", "patterns"]] {
        let mut top = scratch.colocate();
        top.args(["top", "--matrix", "--json", "-n", "1"]).args(words);
        let output = top.output().unwrap();
        if text(&output.stderr).contains("cannot report") {
            signal("-KILL", created);
            skip!(Perf, "{}", text(&output.stderr));
        }
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let line: Value =
            serde_json::from_str(text(&output.stdout).lines().next().unwrap()).unwrap();
        let threads = line["threads"].as_array().unwrap();
        let of_created = |thread: &&Value| thread["pid"] == created;
        assert!(threads.iter().filter(of_created).count() >= 4, "{words:?}: {line}");
    }
    signal("-KILL", created);
}

/// The last picture of a whole interval is not followed by one of the moment until Ctrl-C.
#[test]
fn ctrl_c_leaves_the_last_heat_map() {
    let scratch = Scratch::new();
    let program = need!(patterns(&scratch));
    let mut ring = Command::new(program);
    let ring = ring.args(["ring", "4", "1000000", "4096"]).stdout(Stdio::null()).spawn().unwrap();
    let ring = Program(ring);
    let printed = || std::fs::read_to_string(scratch.path("printed")).unwrap_or_default();
    let pictures = || printed().matches("pairs of threads communicate").count();
    let mut top = scratch.colocate();
    top.args(["top", "--matrix", "-d", "3s", "-p", &ring.0.id().to_string()]);
    top.stdout(std::fs::File::create(scratch.path("printed")).unwrap());
    let mut top = top.stderr(Stdio::null()).spawn().unwrap();
    let has_ended = |top: &mut Child| top.try_wait().unwrap().is_some();
    wait_until("the first picture", || has_ended(&mut top) || pictures() == 1);
    if has_ended(&mut top) {
        skip!(Perf, "top cannot report what communicates");
    }
    signal("-INT", top.id().cast_signed());
    assert!(top.ended().success());
    assert_eq!(pictures(), 1, "{}", printed());
}
