//! `colocate-study trace` under the real QEMU, and `colocate-study replay` of what it wrote.

use crate::described;
use assert_cmd::Command;
use colocate_testing::emulator::emulator;
use colocate_testing::need;
use colocate_testing::skip::Missing;
use colocate_trace::form::{Access, RecordBlock, header};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_colocate-study");

fn colocate() -> Command {
    Command::new(PROGRAM)
}

/// Builds the program with known patterns.
fn patterns(folder: &TempDir) -> Result<PathBuf, Missing> {
    emulator(PROGRAM)?;
    let from =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/communication/patterns.c");
    let to = folder.path().join("patterns");
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(["-O2", "-pthread", "-o"]).arg(&to).arg(from).status();
    assert!(built.unwrap().success());
    Ok(to)
}

/// Records a pattern with so many threads, and returns the trace.
fn recorded(folder: &TempDir, pattern: &str, threads: usize) -> Result<PathBuf, Missing> {
    let program = patterns(folder)?;
    let trace = folder.path().join("trace");
    let mut command = colocate();
    command.arg("trace").arg("-o").arg(&trace).arg("--").arg(program);
    command.args([pattern, &threads.to_string(), "40", "32"]).assert().success();
    Ok(trace)
}

/// What the simulated detector found.
fn matrix(trace: &Path) -> Vec<Vec<f64>> {
    let mut command = colocate();
    command.arg("replay").arg(trace).args(["--random", "1", "--json"]);
    let out = command.assert().success().get_output().stdout.clone();
    let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/replay.json");
    let schema = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&report)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    let number = |amount: &serde_json::Value| amount.as_f64().unwrap();
    let row = |row: &serde_json::Value| row.as_array().unwrap().iter().map(number).collect();
    report["matrix"].as_array().unwrap().iter().map(row).collect()
}

/// Pearson's.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let mean =
        |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let (a, b) = (mean(&|it| it.0), mean(&|it| it.1));
    let together = mean(&|it| (it.0 - a) * (it.1 - b));
    together / (mean(&|it| (it.0 - a).powi(2)) * mean(&|it| (it.1 - b).powi(2))).sqrt()
}

/// Whether two of eight threads communicate, in both directions together.
fn is_pair(pattern: &str, a: usize, b: usize) -> bool {
    match pattern {
        "stencil" => b - a == 1,
        "ring" => b - a == 1 || b - a == 7,
        "reduction" | "master-worker" => a == 0,
        "producer-consumer" => b - a == 4 || b - a == 1 && a.is_multiple_of(2),
        _ => unreachable!(),
    }
}

#[test]
fn known_patterns_are_detected_in_traces() {
    for pattern in ["stencil", "ring", "reduction", "master-worker", "producer-consumer"] {
        let folder = TempDir::new().unwrap();
        let trace = need!(recorded(&folder, pattern, 8));
        let found = matrix(&trace);
        assert_eq!(found.len(), 8);
        let pairs = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b)));
        let both = pairs.map(|(a, b)| (found[a][b], f64::from(u8::from(is_pair(pattern, a, b)))));
        let both: Vec<(f64, f64)> = both.collect();
        let correlated = correlation(&both);
        assert!(correlated >= 0.95, "{pattern}: {correlated} {found:?}");
    }
}

/// A program in place of a trace; there must be one of both.
#[test]
fn a_program_is_replayed_at_once() {
    colocate().arg("replay").assert().failure().code(2);
    let folder = TempDir::new().unwrap();
    let program = need!(patterns(&folder));
    let mut replay = colocate();
    replay.env("TMPDIR", folder.path()).args(["replay", "--random", "1", "--"]).arg(program);
    let out = replay.args(["ring", "2", "10", "8"]).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(out).unwrap().contains("oracle"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the program: {left:?}");
}

/// Caches of 2 TiB would take all memory.
#[test]
fn a_machine_with_too_large_caches_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut machine = described::machine("xeon-e5405");
    machine["machine"]["caches"].as_array_mut().unwrap().last_mut().unwrap()["size"] =
        (2_u64 << 40).into();
    let path = folder.path().join("large.json");
    std::fs::write(&path, machine.to_string()).unwrap();
    let trace = folder.path().join("trace");
    let mut block = RecordBlock::new(0);
    block.push_access(Access { address: 4096, size_log2: 3, writes: false, instructions: 0 });
    std::fs::write(&trace, [header().as_ref(), block.take().as_ref()].concat()).unwrap();
    let replay = |machine: &str| {
        let mut command = colocate();
        command
            .arg("replay")
            .arg(&trace)
            .args(["--random", "1", "--machine", machine])
            .output()
            .unwrap()
    };
    assert!(replay("xeon-e5405").status.success(), "{:?}", replay("xeon-e5405"));
    let refused = replay(path.to_str().unwrap());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("found L2 with 34359738368 lines"), "{said}");
}

#[test]
fn a_trace_is_checked() {
    let folder = TempDir::new().unwrap();
    let trace = need!(recorded(&folder, "ring", 3));
    let check = |path: &Path| {
        let mut command = colocate();
        command.arg("trace").arg("--check").arg(path);
        command.assert().get_output().clone()
    };
    let good = check(&trace);
    assert!(good.status.success());
    let text = String::from_utf8(good.stdout).unwrap();
    assert_eq!(text.lines().count(), 4, "a heading and three threads: {text}");
    let bytes = std::fs::read(&trace).unwrap();
    let refused = |bytes: &[u8]| {
        let path = folder.path().join("other");
        std::fs::write(&path, bytes).unwrap();
        let found = check(&path);
        assert_eq!(found.status.code(), Some(125));
        let mut replay = colocate();
        replay.arg("replay").arg(&path).assert().failure();
        String::from_utf8(found.stderr).unwrap()
    };
    let short = refused(&bytes[..bytes.len() - 1]);
    assert!(short.contains("expected a whole trace, found one that ends early"), "{short}");
    let other = refused(b"int main(void) { return 0; }");
    assert!(other.contains("expected a trace of memory accesses, found something else"), "{other}");
    let header = refused(&bytes[..12]);
    assert!(header.contains("expected threads, found none"), "{header}");
}

/// The program's exit status is ours, and a program that is killed leaves no whole trace.
#[test]
fn a_killed_program_leaves_no_whole_trace() {
    need!(emulator(PROGRAM));
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("killed.c");
    std::fs::write(&source, "#include <signal.h>\nint main(void) { return raise(SIGKILL); }\n")
        .unwrap();
    let program = folder.path().join("killed");
    let built = std::process::Command::new("cc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.unwrap().success());
    let trace = folder.path().join("trace");
    let mut command = colocate();
    command.arg("trace").arg("-o").arg(&trace).arg("--").arg(&program);
    let out = command.assert().failure().get_output().clone();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("is not whole (exit status 137)"), "{said}");
}

/// A file of 2^50 bytes that takes one block of the disk: its header, and nothing.
#[test]
fn a_sparse_trace_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sparse");
    std::fs::write(&path, b"COLTRACE\x01\0\0\0").unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // Some file systems have smaller files.
    let is_made = [1_u64 << 42, 1 << 36].into_iter().any(|size| file.set_len(size).is_ok());
    assert!(is_made);
    for args in [&["trace", "--check"][..], &["replay"]] {
        let mut command = colocate();
        command.args(args).arg(&path).timeout(std::time::Duration::from_secs(60));
        let out = command.assert().failure().code(125).get_output().clone();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains("expected blocks with records, found an empty one"), "{said}");
    }
}
